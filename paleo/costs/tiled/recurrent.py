"""Many equal products: independent ones in one kernel, and the steps of a recurrent layer.

The steps of a recurrent layer depend on one another. Each is a product of its own, followed by
the small kernels that make the next state of it, and starts when the one before has ended
(Appleyard, Kocisky, Blunsom, Optimizing Performance of Recurrent Neural Networks on GPUs,
arXiv:1604.01946). Kernels that keep the weights on the chip through all steps (Diamos et al.,
Persistent RNNs, ICML 2016) have to be asked for, and are not assumed.
"""

from __future__ import annotations

from dataclasses import replace

from paleo.core.operations import BatchMatMul
from paleo.core.quantity import smallest, where_positive
from paleo.costs.model import Explanation
from paleo.costs.tiled.algorithm import repeated
from paleo.costs.tiled.gemm import Choice, choose, explained, on_units_of_library
from paleo.costs.tiled.machine import Machine
from paleo.costs.times import Time

#: The generation from which on the library splits the sums of a step in halves.
_SPLIT_HALVES = 7


def price(operation: BatchMatMul, machine: Machine) -> Time:
    """Return the time of many equal products."""
    return _time(operation, _chosen(operation, machine), machine)


def _chosen(operation: BatchMatMul, machine: Machine) -> Choice:
    """Return how one step, or all independent products, are computed."""
    size = operation.element_size
    machine, shape = on_units_of_library(machine), (operation.m, operation.n, operation.k)
    if not operation.dependent:
        least = where_positive(operation.count - 1, machine.batched_tile)
        return choose(
            *shape, machine, sizes=(size, size, size), count=operation.count, least_tile=least
        )
    halves = machine.dtype == "fp16" and machine.matrix_peak is None
    splits = (1,) if halves and smallest(machine.library) < _SPLIT_HALVES else None
    return choose(*shape, machine, sizes=(size, size, size), splits=splits)


def _time(operation: BatchMatMul, chosen: Choice, machine: Machine) -> Time:
    if not operation.dependent:
        return chosen.time
    step = chosen.time + Time(overhead=machine.step, total=machine.step)
    return repeated(step, operation.count)


def explain(operation: BatchMatMul, machine: Machine) -> Explanation:
    """Return why it takes what `price` says."""
    count, chosen = operation.count, _chosen(operation, machine)
    time = _time(operation, chosen, machine)
    shape = (operation.m, operation.n, operation.k)
    if not operation.dependent:
        return explained("batched product", chosen, shape, machine, ("products", count, ""))
    steps = (("steps", count, ""), ("between two steps", machine.step, "s"))
    shown = explained("product step after step", chosen, shape, machine, *steps)
    return replace(shown, time=time)
