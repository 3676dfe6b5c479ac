"""The data sheet's bound: the longer of FLOPs at the dense peak and bytes at the bandwidth.

After Williams, Waterman, Patterson, "Roofline: An Insightful Visual Performance Model for
Multicore Architectures", CACM 52(4), 2009. Every operation is priced, activations,
normalizations and copies as the memory traffic that they are; computation and memory traffic
overlap perfectly within an operation. The peak of products is that of the fastest unit, that
of all else of the general-purpose lanes where the data sheet tells the two apart.
"""

from __future__ import annotations

from paleo.core.operations import PRODUCTS, Convolution, Operation, Work
from paleo.core.quantity import Quantity, maximum
from paleo.costs.choosing import ChoosingModel
from paleo.costs.model import COST_MODELS, Target
from paleo.costs.times import Time


class Roofline(ChoosingModel):
    """See the module."""

    name = "roofline"
    summary = "the longer of compute and memory time at the data sheet's peaks, by operation"
    counts_all = True
    ignores_windows = True

    def price_alone(self, operation: Operation, target: Target) -> Time:
        return _time(operation.work, isinstance(operation, PRODUCTS), target)

    def price_algorithm(self, target: Target, name: str, operation: Convolution) -> Time:
        kernels = self.counted(name, operation).kernels
        return sum((_time(each.work, each.is_product, target) for each in kernels), Time())


def _time(work: Work, is_product: bool, target: Target) -> Time:
    compute = work.flops / (_peak(is_product, target) * target.share)
    memory = work.num_bytes / (target.device.memory_bandwidth * target.share)
    return Time(compute, memory, 0.0, maximum(compute, memory))


def _peak(is_product: bool, target: Target) -> Quantity:
    """Return the dense peak of the units that do products, or all else."""
    fastest = target.device.peak(target.dtype)
    if is_product:
        return fastest
    # Outside of products, tf32 is fp32.
    units = target.device.peaks.get("fp32" if target.dtype == "tf32" else target.dtype, {})
    return units["vector"].value if "vector" in units else fastest


COST_MODELS.add(Roofline.name, Roofline())
