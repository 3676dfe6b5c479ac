"""Many equal products: independent ones in one kernel, and the steps of a recurrent layer.

The steps of a recurrent layer depend on one another. Each is a product of its own, followed by
the small kernels that make the next state of it, and starts when the one before has ended
(Appleyard, Kocisky, Blunsom, Optimizing Performance of Recurrent Neural Networks on GPUs,
arXiv:1604.01946). Kernels that keep the weights on the chip through all steps (Diamos et al.,
Persistent RNNs, ICML 2016) have to be asked for, and are not assumed.
"""

from __future__ import annotations

import math
from dataclasses import replace

from paleo.core.operations import BatchMatMul
from paleo.core.quantity import Quantity, smallest, where_positive
from paleo.costs.model import Explanation
from paleo.costs.tiled.algorithm import repeated
from paleo.costs.tiled.gemm import Choice, choose, explained, on_units_of_library
from paleo.costs.tiled.machine import Machine
from paleo.costs.times import Time

#: Samples of a step that older libraries compute without a split, and from which generation on they
#: split.
_WHOLE_ABOVE, _WHOLE_UNTIL = 16, 32
_SPLITTING = 7


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
    return choose(*shape, machine, sizes=(size, size, size), whole=_whole(operation.m, machine))


def _whole(batch: Quantity, machine: Machine) -> Quantity:
    """Return 1 for batches with which the library computes a step by a kernel that splits no sum.

    DeepBench's rows on the P100 (cuDNN 6): for 17 to 32 samples a step back takes 0.132 us for each
    element of K, whatever the width, in halves for 64 and 128 as well. Pascal's first library for
    products is cuBLAS 8; from 9 on, of the time of cuDNN 7, it does otherwise.
    """
    if machine.architecture != "Pascal" or smallest(machine.library) >= _SPLITTING:
        return 0
    most = math.inf if machine.dtype == "fp16" else _WHOLE_UNTIL
    return 1 * ((batch > _WHOLE_ABOVE) & (batch <= most))


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
