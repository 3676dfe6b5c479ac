"""The data sheet's bound: the longer of FLOPs at the dense peak and bytes at the bandwidth.

After Williams, Waterman, Patterson, "Roofline: An Insightful Visual Performance Model for
Multicore Architectures", CACM 52(4), 2009. Every operation is priced, activations,
normalizations and copies as the memory traffic that they are; computation and memory traffic
overlap perfectly within an operation. The peak of products is that of the fastest unit, that
of all else of the general-purpose lanes where the data sheet tells the two apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from paleo.costs.base import COST_MODELS, CostModel, Explanation, Target, Time
from paleo.costs.convolutions import ALGORITHMS
from paleo.costs.convolutions.chooser import Chooser
from paleo.costs.convolutions.libraries import GEMM
from paleo.costs.stacks import can_be_stacked, price_stacked
from paleo.costs.times import Times
from paleo.hardware import Device
from paleo.quantity import Quantity, maximum
from paleo.work import PRODUCTS, Convolution, Fused, Operation, Work

__all__ = ["Roofline"]


class Roofline(CostModel):
    """See the module."""

    name = "roofline"
    summary = "the data sheet's bound: the longer of compute and memory time, every operation"
    counts_all = True

    def counts(self, operation: Operation) -> bool:
        return True

    def price(self, operation: Operation, target: Target) -> Time:
        if isinstance(operation, Fused):
            return self.price_fused(operation, partial(self.price, target=target))
        if isinstance(operation, Convolution):
            return _chooser(operation, target).time()
        return _time(operation.work, isinstance(operation, PRODUCTS), target)

    def price_all(self, operations: Sequence[Operation], target: Target) -> Times:
        if not can_be_stacked(target):
            return super().price_all(operations, target)
        # By the same formulas whatever windows, channels and groups are.
        return price_stacked(operations, partial(self.price, target=target), lambda _: ())

    def price_by(self, algorithm: str, operation: Convolution, target: Target) -> Time | None:
        if not ALGORITHMS[algorithm].applies(operation):
            return None
        return _chooser(operation, target).price(algorithm, operation)

    def explain(self, operation: Operation, target: Target) -> Explanation:
        if isinstance(operation, Convolution):
            return _chooser(operation, target).explanation()
        return super().explain(operation, target)

    def rates(self, device: Device, dtype: str = "fp32") -> tuple[tuple[str, Quantity, str], ...]:
        return (
            ("peak", device.peak(dtype), "FLOP/s"),
            ("memory bandwidth", device.memory_bandwidth, "bytes/s"),
        )


def _chooser(operation: Convolution, target: Target) -> Chooser:
    def price(name: str, operation: Convolution) -> Time:
        kernels = ALGORITHMS[name].counts(operation).kernels
        return sum((_time(each.work, each.is_product, target) for each in kernels), Time())

    return Chooser(
        operation, target.convolutions, target.dtype, {GEMM: True}, price,
        lambda name, operation: ALGORITHMS[name].counts(operation),
    )  # fmt: skip


def _time(work: Work, is_product: bool, target: Target) -> Time:
    compute = work.flops / (_peak(is_product, target) * target.ppp_comp)
    memory = work.num_bytes / (target.device.memory_bandwidth * target.ppp_comp)
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
