"""A cost model: FLOPs at the device's peak, then bytes at its bandwidth."""

from __future__ import annotations

from paleo.cluster import Device
from paleo.core.operations import Operation
from paleo.core.quantity import Quantity
from paleo.costs.model import COST_MODELS, CostModel, Target
from paleo.costs.times import Time


class Bandwidth(CostModel):
    """Computation and memory traffic, which do not overlap."""

    name = "bandwidth"
    summary = "FLOPs at the peak, then bytes at the bandwidth, every operation"
    counts_all = True

    def counts(self, operation: Operation) -> bool:
        return True

    def price(self, operation: Operation, target: Target) -> Time:
        work = operation.work
        compute = work.flops / (target.device.peak(target.dtype) * target.share)
        memory = work.num_bytes / (target.device.memory_bandwidth * target.share)
        return Time(compute, memory, total=compute + memory)

    def rates(self, device: Device, dtype: str = "fp32") -> tuple[tuple[str, Quantity, str], ...]:
        return (
            ("peak", device.peak(dtype), "FLOP/s"),
            ("memory bandwidth", device.memory_bandwidth, "bytes/s"),
        )


COST_MODELS.add(Bandwidth.name, Bandwidth())
