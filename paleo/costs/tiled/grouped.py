"""Grouped products whose groups have rows of their own, as experts have tokens.

All groups are one kernel: no tile has rows of two, so that the fewer rows a group has, the less of
its tiles is filled; tiles of all run in the same waves. Only the matrices of groups that have rows
come from memory.
"""

from __future__ import annotations

from dataclasses import replace

from paleo.core.frozen import NamedTuple
from paleo.core.operations import GroupedMatMul, Pass
from paleo.core.quantity import Quantity, maximum, total
from paleo.costs.model import Explanation
from paleo.costs.tiled import gemm
from paleo.costs.tiled.machine import Machine
from paleo.costs.times import Time

#: Bytes of an element of the smallest that the device has a peak for: those of 4 bits are
#: multiplied as many times faster as they are smaller (NVIDIA, Blackwell data sheets), and take as
#: much less energy.
_BYTE = 1
#: Groups, where no group has rows: nothing is divided by none.
_FEW = 1e-3


class Library(NamedTuple):
    """A library of grouped products: `share` of a product's speed, `operands` of its bandwidth.

    `fill` are the seconds in which a tile starts and ends. `sides` are the most rows and columns of
    a tile, 0 for any, `least_rows` the least rows; `tile` is its only one, if it has but one.
    """

    share: Quantity = 1.0
    operands: Quantity = 1.0
    fill: float = 0.0
    sides: int = 0
    tile: tuple[Quantity, Quantity] | None = None
    least_rows: int = 0


def choose(operation: GroupedMatMul, machine: Machine, library: Library) -> gemm.Choice:
    """Return how a library computes products whose groups have rows of their own."""
    size, groups = operation.element_size, maximum(operation.active, _FEW)
    if size < _BYTE and machine.matrix_peak is not None:
        peak, energy = machine.matrix_peak / size, machine.energy * size
        machine = replace(machine, matrix_peak=peak, energy=energy)
    mean = operation.rows / groups
    m, n, k = mean, operation.n, operation.k
    sizes = (size, operation.weight_size or size, operation.output_size or size)
    first, second = operation.reads
    loads = operation.loads
    if operation.direction is Pass.WEIGHT_GRADIENT:
        # A product of each group along its rows: as many tiles of each as the matrices have.
        m, k = operation.k, mean
        sizes = (size, size, sizes[1])
        loads = ((groups, operation.k),)
    return gemm.choose(
        m, n, k, machine, sizes=sizes, count=groups, stored=(first, second), splits=(1,),
        share=library.share, operands=library.operands, sides=library.sides, tile=library.tile,
        loads=loads, fill=library.fill, least_rows=library.least_rows,
    )  # fmt: skip


#: Products of 4 bits by themselves: what TensorRT-LLM, vLLM and SGLang reach on the GB200 on
#: average (aiconfigurator-core 0.12.0, gemm in nvfp4; SGLang's are a fifth quicker than
#: TensorRT-LLM's).
_NARROW = Library(share=0.6, operands=0.6, fill=1e-6)


def _library(operation: GroupedMatMul) -> Library:
    return _NARROW if operation.element_size < _BYTE else Library()


def price(operation: GroupedMatMul, machine: Machine) -> Time:
    """Return the time of a grouped product by the vendor's library."""
    return choose(operation, machine, _library(operation)).time


def explain(operation: GroupedMatMul, machine: Machine) -> Explanation:
    """Return why it takes what `price` says."""
    chosen = choose(operation, machine, _library(operation))
    return explained(operation, chosen, machine)


def explained(
    operation: GroupedMatMul, chosen: gemm.Choice, machine: Machine, name: str = "grouped product"
) -> Explanation:
    """Return the explanation of products of groups that are computed so."""
    mean = operation.rows / maximum(operation.active, _FEW)
    details = (
        ("groups", total(groups for groups, _ in operation.loads), ""),
        ("groups with rows", operation.active, ""),
        ("rows of the largest", _largest(operation), ""),
    )
    return gemm.explained(name, chosen, (mean, operation.n, operation.k), machine, *details)


def _largest(operation: GroupedMatMul) -> Quantity:
    return max(rows for _, rows in operation.loads)
