"""Layers of experts as serving frameworks compute them: two grouped products and what is around.

A framework counts the rows of each expert, copies rows into the order of experts or has its
products read them where they are, multiplies by gate and up, applies their function, multiplies by
down, and sums the rows of each token up. How many passes over rows that takes is what its code
says; how quick products, passes and the many small kernels are is in `expert_constants/`.
"""

from __future__ import annotations

from dataclasses import replace

from paleo.core.operations import FusedExperts
from paleo.core.quantity import Quantity, maximum, total
from paleo.costs.model import Detail, Explanation
from paleo.costs.tiled import gemm, grouped
from paleo.costs.tiled.expert_kernels import EXPERT_KERNELS, GENERAL, ExpertKernel
from paleo.costs.tiled.machine import Machine
from paleo.costs.tiled.stream import moved
from paleo.costs.times import Time

#: Bytes of an element outside products.
_HALF = 2


def _passes(operation: FusedExperts, kernel: ExpertKernel) -> tuple[Quantity, ...]:
    """Return the bytes of each pass over rows that the products do not make themselves."""
    size, rows = operation.element_size, operation.rows
    tokens, hidden, inner, widened = (
        operation.tokens, operation.hidden, operation.inner, operation.widened,
    )  # fmt: skip
    # Kernels that read rows where they are have a place for every choice, here or elsewhere.
    places = rows if kernel.copies else tokens * operation.chosen
    found: tuple[Quantity, ...] = ()
    if kernel.brought:
        return (places * (widened * _HALF + inner * size),)
    if kernel.copies and not kernel.gathers:
        found += (rows * hidden * (_HALF + size),)
    elif size != _HALF:
        found += (tokens * hidden * (_HALF + size),)
    if not kernel.fuses:
        found += (places * (widened * _HALF + inner * size),)
    found += (places * hidden * _HALF + tokens * hidden * _HALF,)
    if not kernel.copies:  # rows of experts elsewhere are written as zeros
        found += (maximum(places - rows, 0) * (widened + hidden) * _HALF,)
    return found


def _tile(operation: FusedExperts, kernel: ExpertKernel) -> tuple[Quantity, Quantity] | None:
    """Return the only tile of a kernel, if it has but one: a smaller one for few tokens."""
    if kernel.tile is None or kernel.few is None:
        return kernel.tile
    experts = total(groups for groups, _ in operation.loads)
    is_few = 1.0 * (operation.tokens <= experts)
    (rows, columns), (fewer_rows, fewer_columns) = kernel.tile, kernel.few
    return (
        is_few * fewer_rows + (1.0 - is_few) * rows,
        is_few * fewer_columns + (1.0 - is_few) * columns,
    )


def _chosen(operation: FusedExperts, machine: Machine) -> tuple[Time, tuple[gemm.Choice, ...]]:
    kernel = EXPERT_KERNELS[operation.kernel] if operation.kernel else GENERAL
    constant = kernel.constants(machine.architecture)
    tile = _tile(operation, kernel)
    library = grouped.Library(
        kernel.share(machine), kernel.operands(machine), constant["fill"], kernel.sides, tile,
        kernel.least_rows,
    )  # fmt: skip
    if kernel.by_warps:  # whose share is of the pace at hand already
        machine = replace(machine, matrix_clock=0.0)
    choices = tuple(grouped.choose(each, machine, library) for each in operation.products)
    first, second = choices
    time = first.time + second.time
    memory: Quantity = 0.0
    for num_bytes in _passes(operation, kernel):
        memory = memory + moved(num_bytes, machine) / constant["stream"]
    start = constant["start"]
    return time + Time(0.0, memory, start, memory + start), choices


def price(operation: FusedExperts, machine: Machine) -> Time:
    """Return the time of a layer of experts."""
    return _chosen(operation, machine)[0]


def explain(operation: FusedExperts, machine: Machine) -> Explanation:
    """Return why it takes what `price` says."""
    time, choices = _chosen(operation, machine)
    kernel = EXPERT_KERNELS[operation.kernel] if operation.kernel else GENERAL
    first = grouped.explained(operation.products[0], choices[0], machine)
    why = {
        "memory": "the matrices of experts that have rows, and the rows, pass through memory",
        "compute": f"in the first product {first.why}",
        "overhead": "its small kernels start one after another",
    }[time.bound]
    details: list[Detail] = [
        ("products", sum(choice.time.total for choice in choices), "s"),
        ("passes over rows", sum(_passes(operation, kernel)), "bytes"),
        *first.details,
    ]
    return Explanation(f"experts, {kernel.summary}", time, tuple(details), why)
