"""The constants of the model `tiled`: what each means, its unit, its bounds, and its value.

A device's own file may state some of them; the rest come from the file of its architecture in
`families/`, and what that leaves out is the value here, which is of no architecture in
particular.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from paleo.cluster import Device, Figure
from paleo.cluster.figures import FileReader
from paleo.core.errors import HardwareError, Mistakes, near_or_known
from paleo.core.frozen import dataclass
from paleo.core.quantity import largest, smallest

_FAMILIES = Path(__file__).parent / "families"
#: The family of CPUs without one of their own.
_ANY_CPU = "CPU"
#: The source of a constant that is of no architecture in particular.
GENERAL = "the cost model, for any architecture"


@dataclass(frozen=True)
class Constant:
    """A physical constant: bounds and value in `unit` ("1" is a share or a ratio)."""

    meaning: str
    unit: str
    low: float
    high: float
    value: float


#: All of them. A fit stays within the bounds.
CONSTANTS: dict[str, Constant] = {
    "launch": Constant("fixed time of one kernel", "s", 0.5e-6, 40e-6, 2.6e-6),
    "host": Constant(
        "time in which the host hands over one operation, while the device computes",
        "s", 0.0, 200e-6, 0.0,
    ),
    "boost": Constant(
        "clock that a board holds, over the boost clock that its data sheet states",
        "1", 0.5, 1.3, 1.0,
    ),
    "matrix_share": Constant("share of the matrix units' peak in a long loop", "1", 0.2, 1.2, 0.88),
    "matrix_clock": Constant(
        "operations of 2 bytes that a multiprocessor's matrix units do in a clock of the device "
        "that shares of their peak are of; 0: shares are the same at any rate",
        "1", 0.0, 65536.0, 0.0,
    ),
    "vector_share": Constant("share of the vector lanes' peak in a long loop", "1", 0.2, 1.2, 0.85),
    "energy": Constant(
        "energy of a 16-bit operation of the matrix units at full load; others by their size",
        "J", 0.0, 10e-12, 0.0,
    ),
    "lane_energy": Constant(
        "energy of an fp32 operation of the vector lanes at full load; others by their size",
        "J", 0.0, 100e-12, 0.0,
    ),
    "byte_energy": Constant(
        "energy of a byte that leaves or enters the chip", "J", 0.0, 300e-12, 0.0
    ),
    "filling": Constant(
        "warps of a product with which 64 lanes reach half of what they do with any number",
        "1", 0.0, 16.0, 2.0,
    ),
    "batched_tile": Constant(
        "least rows and columns of a tile of batched products on the lanes", "1", 1.0, 128.0, 64.0
    ),
    "filter_tile": Constant(
        "least rows and columns of a tile of a filter's gradient on the matrix units of cuDNN 7",
        "1", 32.0, 128.0, 64.0,
    ),
    "reduction": Constant(
        "fixed time of the kernel that adds up the parts of a sum", "s", 0.5e-6, 40e-6, 2.6e-6
    ),
    "partial": Constant(
        "bytes that pass at the memory's rate for an element of C and each part of its sum",
        "bytes", 0.0, 16.0, 1.0,
    ),
    "memory_share": Constant("share of the memory bandwidth in a long stream", "1", 0.4, 1.0, 0.82),
    "operand_share": Constant(
        "share of that rate at which the operands of products come", "1", 0.5, 1.1, 0.88
    ),
    "cache_ratio": Constant(
        "bandwidth of the last cache over that of memory", "1", 1.0, 10.0, 2.0
    ),
    "load_share": Constant(
        "share of 64 bytes a clock that a multiprocessor loads from the cache", "1", 0.05, 2.0, 0.6
    ),
    "latency": Constant("time of 64 steps along K that hang on loads", "s", 0.0, 1e-6, 0.15e-6),
    "attention_share": Constant(
        "share of a product's speed in fused attention", "1", 0.1, 1.2, 0.7
    ),
    "attention_fill": Constant(
        "time in which a tile of fused attention starts and ends", "s", 0.0, 10e-6, 2.4e-6
    ),
    "exponentials": Constant("exponentials of a multiprocessor in a clock", "1", 1.0, 128.0, 16.0),
    "scratch": Constant(
        "first-level cache and shared memory of a multiprocessor", "bytes", 16e3, 2e6, 128e3
    ),
    "prologue": Constant(
        "start of a product that shows behind kernels that are none",
        "s", 0.0, 5e-6, 0.0,
    ),
    "atomic": Constant(
        "time of an atomic operation on a number that all blocks of lanes share",
        "s", 0.0, 50e-9, 6.4e-9,
    ),
    "threads": Constant("threads that a multiprocessor has under way", "1", 256, 4096, 2048),
    "convolution_share": Constant(
        "share of a product's speed in a convolution", "1", 0.2, 2.0, 0.85
    ),
    "library": Constant(
        "generation of the convolution library, as cuDNN counts its major versions",
        "1", 1.0, 10.0, 8.0,
    ),
    "scalar": Constant(
        "time of one step of code that is not vectorized, on one core", "s", 0.1e-9, 20e-9, 2e-9
    ),
    "step": Constant(
        "time between the first hundred steps of a recurrent layer", "s", 0.0, 50e-6, 5e-6
    ),
    # The median of a Core i7 of the 11th generation on Linux 6.6
    # (https://ddumbying.vercel.app/experiments/pagefault-latency); 1.35 us of a virtual machine's.
    "fault": Constant(
        "time in which the system hands a core a page of 4 KiB that is new", "s", 0.0, 10e-6, 1e-6
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Family:
    """An architecture: its constants that are known, each with its source."""

    name: str
    constants: Mapping[str, Figure]


def families() -> dict[str, Family]:
    """Return the architectures of which something is known, by name."""
    names = sorted(path.stem for path in _FAMILIES.glob("*.toml"))
    return {name: family for name in names if (family := _family(name))}


@cache
def _family(name: str) -> Family | None:
    """Return an architecture, None if nothing is known of it: few of the files are asked for."""
    path = _FAMILIES / f"{name}.toml"
    return _read(path) if path.is_file() else None


def _read(path: Path) -> Family:
    root = FileReader(path, ("name", "sources", "constants"))
    family = Family(root.text("name", path.stem), root.table("constants").constants())
    root.finish()
    check(family.constants, path.name, "constants")
    return family


def check(constants: Mapping[str, Figure], file: str, table: str) -> None:
    """Raise HardwareError unless all are constants of this model, within their bounds."""
    mistakes = Mistakes(file)
    for name, figure in constants.items():
        key = f"{table}.{name}"
        constant = CONSTANTS.get(name)
        if constant is None:
            mistakes.add(f"unknown constant{near_or_known(name, CONSTANTS)}", key=key)
        elif not constant.low <= smallest(figure.value) <= largest(figure.value) <= constant.high:
            unit = "" if constant.unit == "1" else f" {constant.unit}"
            mistakes.add(
                f"expected {constant.low:g} to {constant.high:g}{unit} ({constant.meaning}), "
                f"got {figure.value:g}",
                key=key,
            )
    mistakes.raise_as(HardwareError)


def find_family(device: Device) -> Family | None:
    """Return the architecture of a device, None if nothing is known of it.

    A CPU of another architecture is taken to be like the one that was measured.
    """
    return _family(device.architecture) or (_family(_ANY_CPU) if device.kind == "cpu" else None)


def constants_of(device: Device) -> dict[str, Figure]:
    """Return every constant for a device: its own, its architecture's, or the general one."""
    check(device.constants, device.name, "tiled")
    family = find_family(device)
    known = {**(family.constants if family else {}), **device.constants}
    return {
        name: known.get(name) or Figure(constant.value, constant.unit, GENERAL)
        for name, constant in CONSTANTS.items()
    }
