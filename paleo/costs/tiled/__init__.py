"""The model `tiled`: every operation priced from its own shape, on today's hardware.

A product is cut into tiles, the tiles run in waves over the multiprocessors, and the library
is taken to choose the tile and the split that are quickest. Memory traffic runs at a share of
the bandwidth, every kernel has a fixed time. The few constants are in `constants.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

from paleo.costs.bands import Band
from paleo.costs.base import COST_MODELS, CostModel, Explanation, Target, Time
from paleo.costs.stacks import can_be_stacked, price_stacked
from paleo.costs.tiled import attention, convolution, cores, gemm, recurrent, stream
from paleo.costs.tiled.errors import find_band
from paleo.costs.tiled.machine import Machine, machine_for
from paleo.costs.times import Times
from paleo.hardware import Device
from paleo.quantity import Quantity, maximum, where_positive
from paleo.work import Attention, BatchMatMul, Convolution, Fused, MatMul, Operation, Pooling

__all__ = ["Tiled"]

#: Who prices and explains which kind of operation; the others are streams.
_KINDS: tuple[tuple[type[Operation], Any], ...] = (
    (MatMul, gemm),
    (BatchMatMul, recurrent),
    (Convolution, convolution),
    (Attention, attention),
)


class Tiled(CostModel):
    """See the module."""

    name = "tiled"
    summary = "tiles and waves over multiprocessors, constants by architecture, every operation"
    counts_all = True
    #: A batch that fills tiles, or is aligned as matrix units like it, may beat a smaller one.
    grows = False
    convolution_algorithm = "quickest"

    def counts(self, operation: Operation) -> bool:
        return True

    def price(self, operation: Operation, target: Target) -> Time:
        return self._price_on(machine_for(target), operation)

    def _price_on(self, machine: Machine, operation: Operation) -> Time:
        if isinstance(operation, Fused):
            # That of a kernel's parts is not the kernel's.
            price = functools.partial(self._price_on, replace(machine, host=0.0))
            return _handed_over(self.price_fused(operation, price), machine)
        time: Time = _module(operation, machine).price(operation, machine)
        return _handed_over(time, machine)

    def price_all(self, operations: Sequence[Operation], target: Target) -> Times:
        if not can_be_stacked(target):
            return super().price_all(operations, target)
        machine = machine_for(target)
        return price_stacked(
            operations,
            functools.partial(self._price_on, machine),
            functools.partial(_decides, machine=machine),
        )

    def price_by(self, algorithm: str, operation: Convolution, target: Target) -> Time | None:
        machine = machine_for(target)
        time = convolution.price_by(algorithm, operation, machine)
        return None if time is None else _handed_over(time, machine)

    def explain(self, operation: Operation, target: Target) -> Explanation:
        machine = machine_for(target)
        found: Explanation
        if isinstance(operation, Fused):
            found = self.explain_fused(operation, _without_host(target))
        else:
            found = _module(operation, machine).explain(operation, machine)
        time = _handed_over(found.time, machine)
        if time.total == found.time.total:
            return found
        why = "the host hands over operations no faster"
        return replace(found, time=time, bound=time.bound, why=why)

    def band(self, kind: str, device: Device) -> Band | None:
        # Nobody has published times of CPUs that the model could be held to.
        return None if device.kind == "cpu" else find_band(kind, device.architecture)

    def rates(self, device: Device, dtype: str = "fp32") -> tuple[tuple[str, Quantity, str], ...]:
        return (
            ("peak", device.peak(dtype), "FLOP/s"),
            ("memory bandwidth", device.memory_bandwidth, "bytes/s"),
        )


def _decides(operation: Convolution | Pooling, machine: Machine) -> Hashable:
    """Return what is the same of windows that the same formulas price."""
    if isinstance(operation, Convolution):
        return convolution.decides(operation, machine)
    return machine.is_cpu and cores.is_whole(operation)


def _module(operation: Operation, machine: Machine) -> Any:
    """Return the module that prices and explains an operation."""
    if machine.is_cpu and not isinstance(operation, Convolution):
        return cores
    return next((module for kind, module in _KINDS if isinstance(operation, kind)), stream)


def _without_host(target: Target) -> Target:
    """Return a target whose host takes no time: that of a kernel's parts is not the kernel's."""
    return replace(target, constants={**target.constants, "host": 0.0})


def _handed_over(time: Time, machine: Machine) -> Time:
    """Return the time of an operation that the host hands over while others are computed.

    None takes less than the host needs for one: on published steps of nets this errs less than a
    host that runs ahead of the device by any number of operations.
    """
    total = where_positive(time.total, maximum(time.total, machine.host))
    return Time(time.compute, time.memory, time.overhead + (total - time.total), total)


COST_MODELS.add(Tiled.name, Tiled())
