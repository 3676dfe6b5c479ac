"""Many equal products: independent ones in one kernel, and the steps of a recurrent layer.

The steps of a recurrent layer depend on one another. Each is a product of its own, followed by
the small kernels that make the next state of it, and starts when the one before has ended
(Appleyard, Kocisky, Blunsom, Optimizing Performance of Recurrent Neural Networks on GPUs,
arXiv:1604.01946). Where a program asks for it (`Target.persistent`), one kernel goes
through all steps and keeps the weights in the registers of all multiprocessors, if they fit (Diamos
et al., Persistent RNNs, ICML 2016).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from paleo.core.operations import BatchMatMul, Pass
from paleo.core.quantity import Quantity, is_array, minimum, np, smallest, some, where_positive
from paleo.costs.model import Explanation, only_where, quicker
from paleo.costs.tiled.algorithm import extended, repeated
from paleo.costs.tiled.alignment import pitches, speed_share
from paleo.costs.tiled.gemm import Choice, choose, explained, on_units_of_library, rounded
from paleo.costs.tiled.machine import Machine
from paleo.costs.tiled.stream import moved
from paleo.costs.times import Time

#: Steps of a call that wait for `step`, and do not only start kernels. (The rows of DeepBench of
#: 187 to 1,500 steps lie on lines that start at 2 to 5 ms, whatever the width, the card and the
#: library; layers of 25 and 50 steps have their share of it.)
_WAITING = 100
#: The generation of the library that computes steps of some batches by a kernel that splits no sum:
#: of more than the first number of samples, in fp32 up to the second. However many tiles there are,
#: each element of K takes it so many clocks and multiplications on a multiprocessor's lanes, and
#: forward in halves as often again. (DeepBench's rows on the P100: for 17 to 32 samples a step back
#: takes 0.132 us for each element of K, whatever the width, in halves for 64 and 128 as well, and
#: forward in halves 0.34 us: 175 clocks of 64 lanes. On the M40 cuDNN 5 has few shapes of that
#: kind, of 0.119 us: 132 clocks of 128 lanes; with cuDNN 7 there are none.)
_UNSPLIT_BY = 6
_ABOVE, _UNTIL = 16, 32
_UNSPLIT, _CLOCKS, _MULTIPLIED, _HALVES_FORWARD = (64.0, 128.0), 89, 5504, 2.6
#: Kernels that keep their weights: the generation of the library that has them, the bytes of
#: registers of a multiprocessor (since Kepler), the share of them for weights, and the seconds in
#: which all multiprocessors wait for one another after a step. (1,152 units and 4 samples in fp32
#: on a TITAN X, 5.3 of 6.3 MB, at 2.8 TFLOP/s: 3.8 us a step, of which the lanes need 2.)
_KEEPING, _REGISTERS, _FOR_WEIGHTS, _BARRIER = 6, 256 * 1024, 0.85, 1.8e-6
#: Passes over the gradient of a layer's weights beyond the product's own: it is added to what is
#: there. Passes over the gates' gradients: a sum down the columns for each of two biases. And the
#: kernels of all that. (Of the numbers from 2 to 4 these fit half of DeepBench's shapes best, on
#: M40, TITAN X, P100 and V100 together.)
_WEIGHTS, _GATES, _KERNELS = 3, 2, 3


def price(operation: BatchMatMul, machine: Machine) -> Time:
    """Return the time of many equal products."""
    time, kept = _time(operation, _chosen(operation, machine), machine), _kept(operation, machine)
    return time if kept is None else quicker(time, kept)[1]


def _chosen(operation: BatchMatMul, machine: Machine) -> Choice:
    """Return how one step, or all independent products, are computed.

    Where some of an array are computed otherwise than the others, only the time says so.
    """
    size = operation.element_size
    machine, shape = on_units_of_library(machine), (operation.m, operation.n, operation.k)
    sizes = (size, size, operation.output_size or size)
    share: Quantity = 1.0
    if machine.matrix_peak is not None:
        share = speed_share(size, pitches(operation), machine.architecture)
    if not operation.dependent:
        least = where_positive(operation.count - 1, machine.batched_tile)
        return choose(
            *shape,
            machine,
            sizes=sizes,
            count=operation.count,
            least_tile=least,
            whole=1 * (operation.count > 1),
            share=share,
            rows=pitches(operation),
        )
    chosen, unsplit = choose(*shape, machine, sizes=sizes), _unsplit(operation.m, machine)
    if not some(unsplit):
        return chosen
    other = choose(*shape, machine, sizes=sizes, tile=_UNSPLIT)
    slow = size < 4 and operation.direction is Pass.FORWARD
    clocks: Quantity = _CLOCKS + _MULTIPLIED / machine.lanes
    clocks = clocks * (1 + (_HALVES_FORWARD - 1) * slow * (operation.m <= _UNTIL))
    compute, (_, memory, overhead, _) = clocks / machine.clock * operation.k, other.time
    together = rounded(compute, memory) + machine.launch
    other = other._replace(time=Time(compute, memory, overhead, together))
    if not is_array(unsplit):
        return other
    pairs = zip(other.time, chosen.time, strict=True)
    return chosen._replace(time=Time(*(np.where(unsplit, *pair) for pair in pairs)))


def _unsplit(batch: Quantity, machine: Machine) -> Any:
    """Tell with which batches the library computes a step on the lanes without a split of K."""
    if machine.matrix_peak is not None or int(smallest(machine.library)) != _UNSPLIT_BY:
        return False
    most = math.inf if machine.dtype == "fp16" else _UNTIL
    return (batch > _ABOVE) & (batch <= most)


def _time(operation: BatchMatMul, chosen: Choice, machine: Machine) -> Time:
    count = operation.count
    if operation.dependent:
        # The kernel that makes the next state of the product.
        step = chosen.time + Time(overhead=machine.launch, total=machine.launch)
        return repeated(step, count) + repeated(_wait(machine), minimum(count, _WAITING))
    if operation.direction is Pass.WEIGHT_GRADIENT:
        m, n, k = operation.m, operation.n, operation.k
        size = operation.element_size
        passes = (_WEIGHTS * size * m * n, _GATES * size * k * n)
        return extended(chosen.time + _wait(machine), machine, passes=passes, kernels=_KERNELS)
    return chosen.time


def _kept(operation: BatchMatMul, machine: Machine) -> Time | None:
    """Return the time of all steps in a kernel that keeps the weights, None where there is none.

    Where some of an array of operations have none, they take forever.
    """
    can_keep = machine.persistent and smallest(machine.library) >= _KEEPING
    if not operation.dependent or not can_keep:
        return None
    weights = operation.element_size * operation.n * operation.k
    fits = weights <= _FOR_WEIGHTS * _REGISTERS * machine.multiprocessors
    if not some(fits):
        return None
    memory, wait = moved(weights, machine), _BARRIER * operation.count
    compute = operation.flops / machine.product_rate
    overhead = where_positive(operation.count, machine.launch + wait)
    return only_where(fits, Time(compute, memory, overhead, compute + memory + overhead))


def _wait(machine: Machine) -> Time:
    return Time(overhead=machine.step, total=machine.step)


def explain(operation: BatchMatMul, machine: Machine) -> Explanation:
    """Return why it takes what `price` says."""
    count, chosen = operation.count, _chosen(operation, machine)
    time = _time(operation, chosen, machine)
    shape = (operation.m, operation.n, operation.k)
    if not operation.dependent:
        return explained("batched product", chosen, shape, machine, ("products", count, ""))
    kept = _kept(operation, machine)
    if kept is not None and kept.total < time.total:
        why = "the weights stay in registers: a step is its arithmetic and a wait of all for all"
        details = (("steps", count, ""), ("between two steps", _BARRIER, "s"))
        return Explanation("product step after step, its weights kept", kept, details, why)
    first = minimum(count, _WAITING)
    steps = (("steps", count, ""), ("of them waiting", first, ""), ("wait", machine.step, "s"))
    shown = explained("product step after step", chosen, shape, machine, *steps)
    return replace(shown, time=time)
