"""Convolutions on a processor's cores, as PyTorch has oneDNN compute them.

oneDNN's kernels take channels in blocks of a vector, so that images and filters are first written
in that order, and the result back in its own (oneDNN, "Memory Format Propagation"); PyTorch does
so for every convolution, since its own tensors stay in theirs. Which kernels there are for what is
what PyTorch 2.13 was seen to run with ONEDNN_VERBOSE=1.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable
from typing import Any

from paleo.core.operations import Convolution, Pass
from paleo.core.quantity import Quantity, every, largest, maximum, rounded_up, total
from paleo.costs.convolutions.settings import CHANNELS_LAST, CONTIGUOUS
from paleo.costs.tiled.algorithm import Algorithm, ConvolutionTime, positions
from paleo.costs.tiled.cpu import WRITTEN, mapped, multiplied, passed, stepped, together
from paleo.costs.tiled.machine import Machine
from paleo.costs.times import Time

#: Bytes of a vector: so many channels stand together.
_VECTOR = 64
#: Output channels of a group that a kernel computes together.
_GROUP = 8
#: An image of so few channels is read as it is.
_PLAIN = 3
#: Kernels for the filter's gradient of a convolution of each channel by itself reach so far.
_DEPTHWISE_REACH = 3
#: Steps for an element that changes its place; for one of the filters backward, which is turned
#: round, and for one of their gradient.
_REORDERED, _TURNED, _RETURNED = 0.2, 0.4, 0.8
#: Steps for an element of the windows that are written out.
_WINDOWED = 0.3
#: Launches of an operation that each call of the library is worth.
_CALL = 3.5
#: Share of the lanes' rate in convolutions of each channel by itself, images in blocks of channels
#: and channels last. (The latter: 0.35 to 0.47 with AVX2, 0.30 to 0.45 with AVX-512, for windows of
#: 3 to 7, on a core of Zen 5 by PyTorch 2.14.)
_DEPTHWISE_SHARE = {CONTIGUOUS: 0.6, CHANNELS_LAST: 0.4}


def decides(operation: Convolution) -> Hashable:
    """Return what of channels and windows decides which kernels there are."""
    groups = operation.groups
    c, k = operation.in_channels // groups, operation.out_channels // groups
    kind = (c == k == 1, k < _GROUP, _reaches_far(operation)) if groups > 1 else c <= _PLAIN
    return kind, operation.window_elements == 1


def _is_last(machine: Machine) -> bool:
    """Tell whether images have their channels last: then kernels take them as they are."""
    return machine.memory_format == CHANNELS_LAST


def _reaches_far(operation: Convolution) -> bool:
    windows: list[Any] = [axis.window for axis in operation.axes]
    return every(functools.reduce(maximum, windows) > _DEPTHWISE_REACH)


def _blocked(operation: Convolution, machine: Machine) -> ConvolutionTime | None:
    """Return it by a kernel that multiplies blocks of channels, images in that order."""
    groups = operation.groups
    c, k = operation.in_channels // groups, operation.out_channels // groups
    depthwise = bool(largest(c) == largest(k) == 1)
    grouped = every(groups > 1)
    missing = _reaches_far(operation) if depthwise else every(k < _GROUP)
    if operation.direction is Pass.WEIGHT_GRADIENT and grouped and missing:
        return None
    vector = _VECTOR // operation.element_size
    plain = not grouped and bool(largest(c) <= _PLAIN)
    if depthwise:
        flops = operation.flops / _DEPTHWISE_SHARE[machine.memory_format]
    else:
        as_it_is = plain or grouped or _is_last(machine)
        filled_c = c if as_it_is else rounded_up(c, vector)
        filled_k = rounded_up(k, _GROUP if grouped or _is_last(machine) else vector)
        flops = 2 * operation.window_elements * filled_c * filled_k * groups * positions(operation)
    compute = multiplied(flops, machine) / machine.convolution_share
    # Images and results in blocks are where those of the convolution before were.
    traffic = total(operation.reads) + WRITTEN * total(operation.writes)
    inside = passed(machine, recent=traffic, among=_held(operation))
    orders = _reordered(operation, plain, machine)
    # What is computed is new memory, as is what changes its order.
    moved = total(orders) + mapped(total(operation.writes), machine)
    both = together(compute, inside)
    start = _CALL * machine.launch * (1 + len(orders))
    time = Time(compute, (both - compute) + moved, start, both + moved + start)
    return ConvolutionTime(time, positions(operation), k, operation.window_elements * c, groups)


def _held(operation: Convolution) -> Quantity:
    """Return the bytes of all tensors, in their own order and in blocks."""
    return 2 * operation.work.num_bytes


def _reordered(operation: Convolution, plain: bool, machine: Machine) -> tuple[Quantity, ...]:
    """Return the seconds in which each tensor changes its order.

    An image of few channels does not, nor do images with their channels last, which kernels read
    and write as they lie: filters do in every call.
    """
    first, second = operation.reads
    (result,) = operation.writes
    among = _held(operation)
    forward = operation.direction is Pass.FORWARD
    back = operation.direction is Pass.WEIGHT_GRADIENT
    turned = not (forward or back)
    # What was kept of the forward pass, or the filters, is old; the gradient is not.
    old, recent = (first, second) if back else (second, first)
    # Bytes, those that pass, the steps for each element, and whether it stays as it is.
    last = _is_last(machine)
    tensors = (
        (recent, {"recent": (1 + WRITTEN) * recent}, _REORDERED, last or (plain and forward)),
        (
            old,
            {"old": old, "recent": WRITTEN * old},
            _TURNED if turned else _REORDERED,
            (last or plain) and back,
        ),
        (
            result,
            {"recent": result, "written": result},
            _RETURNED if back else _REORDERED,
            (last and not back) or (plain and turned),
        ),
    )
    return tuple(
        passed(machine, **moved, among=among)
        + mapped(num_bytes, machine)
        + stepped(steps * (num_bytes / operation.element_size), machine)
        for num_bytes, moved, steps, stays in tensors
        if not stays
    )


def _pointwise(operation: Convolution, machine: Machine) -> ConvolutionTime | None:
    """Return a convolution of windows of one element by the kernel that is for it."""
    return _blocked(operation, machine) if every(operation.window_elements == 1) else None


def _direct(operation: Convolution, machine: Machine) -> ConvolutionTime | None:
    """Return a convolution of larger windows by the kernel that is for it."""
    return _blocked(operation, machine) if every(operation.window_elements > 1) else None


def _explicit(operation: Convolution, machine: Machine) -> ConvolutionTime | None:
    """Return it as a product with the windows written out in memory, and read again."""
    if every(operation.window_elements == 1) and every(operation.groups == 1):
        return None  # nothing to write out
    groups, window = operation.groups, operation.window_elements
    c, k = operation.in_channels // groups, operation.out_channels // groups
    where = positions(operation)
    flops = 2 * where * window * c * rounded_up(k, _VECTOR // operation.element_size) * groups
    windows = operation.element_size * where * window * operation.in_channels
    compute = multiplied(flops, machine)
    compute = compute + stepped(_WINDOWED * (windows / operation.element_size), machine)
    reads, writes = total(operation.reads), total(operation.writes)
    memory = passed(machine, recent=reads + windows + WRITTEN * windows, written=writes)
    # Image by image, the windows are written and multiplied.
    start = 2 * _CALL * machine.launch * operation.batch
    time = Time(compute, memory, start, compute + memory + start)
    return ConvolutionTime(time, where, k, window * c, groups)


#: How each algorithm is priced on a CPU, by the names of `paleo.costs.convolutions.ALGORITHMS`;
#: a function returns None where it does not apply. Of equally quick ones the first is taken.
WAYS: dict[str, Algorithm] = {
    "gemm_1x1": _pointwise,
    "direct": _direct,
    "explicit_gemm": _explicit,
}
