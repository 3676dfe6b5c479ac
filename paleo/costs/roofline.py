"""The data sheet's bound: the longer of FLOPs at the dense peak and bytes at the bandwidth.

After Williams, Waterman, Patterson, "Roofline: An Insightful Visual Performance Model for
Multicore Architectures", CACM 52(4), 2009. Every operation is priced, activations,
normalizations and copies as the memory traffic that they are; computation and memory traffic
overlap perfectly within an operation. The peak of products is that of the fastest unit, that
of all else of the general-purpose lanes where the data sheet tells the two apart.
"""

from __future__ import annotations

from paleo.costs.base import COST_MODELS, CostModel, Target, Time
from paleo.hardware import Device
from paleo.quantity import Quantity, maximum
from paleo.work import PRODUCTS, Fused, Operation

__all__ = ["Roofline"]


class Roofline(CostModel):
    """See the module."""

    name = "roofline"
    summary = "the data sheet's bound: the longer of compute and memory time, every operation"

    def counts(self, operation: Operation) -> bool:
        return True

    def price(self, operation: Operation, target: Target) -> Time:
        if isinstance(operation, Fused):
            return self.price_fused(operation, target)
        device = target.device
        work = operation.work
        compute = work.flops / (_peak(operation, target) * target.ppp_comp)
        memory = work.num_bytes / (device.memory_bandwidth * target.ppp_comp)
        return Time(compute, memory, 0.0, maximum(compute, memory))

    def rates(self, device: Device, dtype: str = "fp32") -> tuple[tuple[str, Quantity, str], ...]:
        return (
            ("peak", device.peak(dtype), "FLOP/s"),
            ("memory bandwidth", device.memory_bandwidth, "bytes/s"),
        )


def _peak(operation: Operation, target: Target) -> Quantity:
    """Return the dense peak of the units that do this operation."""
    fastest = target.device.peak(target.dtype)
    if isinstance(operation, PRODUCTS):
        return fastest
    # Outside of products, tf32 is fp32.
    units = target.device.peaks.get("fp32" if target.dtype == "tf32" else target.dtype, {})
    return units["vector"].value if "vector" in units else fastest


COST_MODELS.add(Roofline.name, Roofline())
