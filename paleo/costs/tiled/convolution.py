"""Convolutions: the quickest of the algorithms that a library has for one.

Each algorithm is a function of the operation and the machine in the table ALGORITHMS, which
returns None where it does not apply. They differ in how many multiplications they do and in how
many bytes they move.
"""

from __future__ import annotations

from dataclasses import replace

from paleo.costs.base import Explanation, Time, explanation
from paleo.costs.tiled import fft, implicit, winograd
from paleo.costs.tiled.gemm import explained
from paleo.costs.tiled.machine import Machine
from paleo.costs.tiled.way import Algorithm, Way, quicker
from paleo.work import Convolution

__all__ = ["ALGORITHMS", "explain", "price", "ways"]

#: How a convolution can be computed. Of equally quick ones the first is taken.
ALGORITHMS: dict[str, Algorithm] = {
    "implicit product": implicit.implicit,
    "product added up in memory": implicit.scattered,
    "implicit products, one for each place in the stride": implicit.by_phases,
    "direct": implicit.direct,
    "Winograd in one kernel": winograd.fused,
    "Winograd in steps": winograd.in_steps,
    "FFT of images": fft.by_images,
    "FFT of tiles": fft.by_tiles,
}


def ways(operation: Convolution, machine: Machine) -> dict[str, Way]:
    """Return every way to compute it, by the names in ALGORITHMS."""
    found = {name: run(operation, machine) for name, run in ALGORITHMS.items()}
    return {name: way for name, way in found.items() if way is not None}


def price(operation: Convolution, machine: Machine) -> Time:
    """Return the time of one pass of a convolution."""
    best: Way | None = None
    for way in ways(operation, machine).values():
        best = way if best is None else quicker(best, way)
    assert best
    return best.time


def explain(operation: Convolution, machine: Machine) -> Explanation:
    """Return why it takes what `price` says; for numbers, not arrays."""
    found = ways(operation, machine)
    name = min(found, key=lambda name: found[name].time.total)
    way = found.pop(name)
    others = [(f"by {other}", each.time.total, "s") for other, each in found.items()]
    if way.choice is None:
        why = "each channel by itself: its bytes are most of the work"
        return explanation(name, way.time, *others, why=why)
    shown = explained(
        name, way.choice, way.m, way.n, way.k, machine,
        ("products", way.products, ""), ("workspace", way.workspace, "bytes"),
    )  # fmt: skip
    return replace(shown, time=way.time, bound=way.time.bound, details=(*shown.details, *others))
