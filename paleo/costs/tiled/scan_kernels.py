"""Kernels of linear attention that serving frameworks have: what each does, and its constants.

What passes through memory, what is computed in chunks and which blocks wait for one another is as a
kernel's code says, in `scan`. How quick that is, is in `scan_constants/`: clocks of fixed and of
serial parts and rates for each clock of a multiprocessor, so that they hold on other devices too.
An architecture without constants of its own has those of Hopper.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from paleo.core.frozen import dataclass
from paleo.core.registry import Registry
from paleo.costs.tiled.kernel_files import ByArchitecture, Constant, read_kernel

_FOLDER = Path(__file__).parent / "scan_constants"
_OTHERS = ("Hopper", "Blackwell")

#: All of them; times are in clocks of a multiprocessor.
CONSTANTS: dict[str, Constant] = {
    "start": Constant("clocks in which its kernels start and end", 0.0, 1e5, 8e3),
    "fill": Constant("clocks in which a block starts and ends", 0.0, 1e5, 0.0),
    "row": Constant("clocks of a position, one after the other, in a chunk", 0.0, 1e4, 0.0),
    "step": Constant("clocks from one chunk or position of a block to the next", 0.0, 5e4, 0.0),
    "rate": Constant(
        "bytes, or FLOPs of chunks, that a multiprocessor does in a clock; 0: memory decides",
        0.0, 4096.0, 0.0,
    ),
    "share": Constant("share of a stream's rate of what passes through memory", 0.1, 1.6, 0.9),
}  # fmt: skip


@dataclass(frozen=True)
class ScanKernel:
    """A kernel, or several that follow one another; see the module.

    `way` prices it. It computes `chunk` positions together; a multiprocessor has `resident` blocks
    under way, of which a head takes `blocks`. `kernels` says how often it is started. `like` is
    the kernel whose constants it has.
    """

    name: str
    summary: str
    source: str
    way: Callable[..., Any]
    chunk: int = 1
    resident: int = 1
    blocks: int = 1
    kernels: int = 1
    like: str = ""

    def constants(self, architecture: str) -> Mapping[str, float]:
        """Return its constants on an architecture, or those of another where it has none."""
        known = _read(self.like or self.name)
        found = next(name for name in (architecture, *_OTHERS) if name in known)
        return known[found]


@cache
def _read(name: str) -> ByArchitecture:
    """Return the constants of a kernel by architecture."""
    return read_kernel(_FOLDER / f"{name}.toml", name, CONSTANTS)


SCAN_KERNELS: Registry[ScanKernel] = Registry("kernel of linear attention")
