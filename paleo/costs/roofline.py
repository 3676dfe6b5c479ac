"""The data sheet's bound: the longer of FLOPs at the dense peak and bytes at the bandwidth.

After Williams, Waterman, Patterson, "Roofline: An Insightful Visual Performance Model for
Multicore Architectures", CACM 52(4), 2009. Every operation is priced, activations,
normalizations and copies as the memory traffic that they are; nothing is fused, and
computation and memory traffic overlap perfectly within an operation.
"""

from __future__ import annotations

from paleo.costs.base import COST_MODELS, CostModel, Target, Time
from paleo.hardware import Device
from paleo.quantity import Quantity, maximum
from paleo.work import Operation

__all__ = ["Roofline"]


class Roofline(CostModel):
    """See the module."""

    name = "roofline"
    summary = "the data sheet's bound: the longer of compute and memory time, every operation"

    def counts(self, operation: Operation) -> bool:
        return True

    def price(self, operation: Operation, target: Target) -> Time:
        device = target.device
        work = operation.work
        compute = work.flops / (device.peak(target.dtype) * target.ppp_comp)
        memory = work.num_bytes / (device.memory_bandwidth * target.ppp_comp)
        return Time(compute, memory, 0.0, maximum(compute, memory))

    def fetch(
        self, num_bytes: Quantity, bandwidth: Quantity, target: Target, ppp_comm: Quantity
    ) -> Time:
        seconds = num_bytes / (bandwidth * ppp_comm)
        return Time(overhead=seconds, total=seconds)

    def rates(self, device: Device) -> tuple[tuple[str, Quantity, str], ...]:
        return (
            ("peak", device.peak(), "FLOP/s"),
            ("memory bandwidth", device.memory_bandwidth, "bytes/s"),
        )


COST_MODELS.add(Roofline.name, Roofline())
