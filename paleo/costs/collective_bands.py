"""Error bands of collectives inside a node: `collectives.toml`, of systems that no fit has seen.

`python benchmarks/collectives.py --bands` writes the file. Of links, schemes, collectives and
numbers of workers that are not in it nothing was held out, and no band is known.
"""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from paleo.cluster.collectives.base import Operation
from paleo.cluster.topology import Group
from paleo.core.frozen import dataclass
from paleo.core.quantity import some
from paleo.costs.error_bands import Band

FILE = Path(__file__).parent / "collectives.toml"


@dataclass(frozen=True)
class Measured:
    """What measured cases have in common: a scheme, the networks inside of nodes, what was sent.

    They were of up to so many workers, and bytes, None for any.
    """

    scheme: str
    networks: tuple[str, ...]
    collectives: tuple[str, ...]
    workers: int
    band: Band
    num_bytes: int | None = None

    def has(self, scheme: str, group: Group, num_bytes: int, operation: Operation) -> bool:
        """Tell whether a collective is like them: all workers are inside of one node."""
        inner, *outer = group.levels
        return (
            scheme == self.scheme
            and inner.tier.network.name in self.networks
            and operation.value in self.collectives
            and not any(some(level.members > 1) for level in outer)
            and 1 < int(group.workers) <= self.workers
            and (self.num_bytes is None or num_bytes <= self.num_bytes)
        )


@cache
def known_bands() -> tuple[Measured, ...]:
    """Return what the file has."""
    root: Any = tomllib.loads(FILE.read_text("utf-8"))
    coverage = root["coverage"]
    return tuple(
        Measured(
            each["scheme"],
            tuple(each["networks"]),
            tuple(each["collectives"]),
            each["workers"],
            Band(each["low"], each["high"], each["count"], coverage, each["said"]),
            each.get("num_bytes"),
        )
        for each in root["band"]
    )


def collective_band(scheme: str, group: Group, num_bytes: int, operation: Operation) -> Band | None:
    """Return how far the truth may be from the seconds of a collective; None if it is not known."""
    asked = (scheme, group, num_bytes, operation)
    return next((each.band for each in known_bands() if each.has(*asked)), None)
