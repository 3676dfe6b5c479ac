"""The cost model of Paleo (Qi, Sparks, Talwalkar, ICLR 2017), as its public code has it.

An operation takes the time of its FLOPs at the device's peak plus that of its transfers at the
memory bandwidth, both at a percent of peak `ppp_comp`; nothing is faster than a clock. Convolutions
are GEMMs over (dilated, padded) inputs, in all three directions, unless a library is asked for: see
`counts2017`. It prices convolutions, inner products, pooling, dropout and the update. Everything
else costs nothing in it: see `counts`.
"""

from __future__ import annotations

from paleo.cluster import Device
from paleo.core.errors import SettingError
from paleo.core.operations import (
    Convolution,
    Fused,
    Kind,
    MatMul,
    Operation,
    Pooling,
    Stream,
    Update,
)
from paleo.core.quantity import Quantity, maximum, where_positive
from paleo.core.units import GIB_PER_GB
from paleo.costs.choosing import ChoosingModel
from paleo.costs.convolutions import Counts, Kernel
from paleo.costs.counts2017 import counts_of
from paleo.costs.model import COST_MODELS, Conventions, Target
from paleo.costs.times import Time

#: Pooling counts two FLOPs for each element of a window.
_POOLING_FLOPS = 2
#: The operations that it prices. Later ones (attention, recurrent layers, products of two
#: tensors) and other passes over memory than dropout's cost nothing in it.
_PRICED = (Convolution, MatMul, Pooling, Update)


class Paleo2017(ChoosingModel):
    """See the module."""

    name = "paleo2017"
    summary = "the model of the 2017 paper: compute time plus memory time, each at its peak"
    uses_2017_figures = True
    dtypes = ("fp32",)
    pipelines = True
    conventions = Conventions(
        only_first_convolutions_skip=True,
        sigmoid_has_one_output=True,
        lone_worker_mixes=True,
        slice_zero_is_remote=True,
        halving_stays=True,
        model_fetches_from_memory=True,
        hybrid_fetches_elements_once=True,
        hybrid_updates_all_slices=True,
        exchanges_after_all=True,
        descends_plainly=True,
    )

    def counts(self, operation: Operation) -> bool:
        if isinstance(operation, Fused):
            return any(map(self.counts, (operation.head, *operation.tail)))
        return isinstance(operation, _PRICED) or operation.kind is Kind.DROPOUT

    def price(self, operation: Operation, target: Target) -> Time:
        if target.dtype != "fp32":
            raise SettingError(f"the cost model paleo2017 knows fp32 only, not {target.dtype}")
        return super().price(operation, target)

    def price_alone(self, operation: Operation, target: Target) -> Time:
        if not self.counts(operation):
            return Time()
        # The update is priced at the peak, whatever share of it is reached elsewhere.
        share = 1.0 if isinstance(operation, Update) else target.share
        return _time(Counts((_kernel(operation),)), target.device, share)

    def price_algorithm(self, target: Target, name: str, operation: Convolution) -> Time:
        return _time(self.counted(name, operation), target.device, target.share)

    def counted(self, name: str, operation: Convolution) -> Counts:
        return counts_of(name, operation)

    def fetch(
        self, num_bytes: Quantity, bandwidth: Quantity, target: Target, ppp_comm: Quantity
    ) -> Time:
        clock = 1 / target.device.rates_2017.clock
        seconds = maximum(clock, num_bytes / (bandwidth * GIB_PER_GB * ppp_comm))
        return Time(memory=seconds, total=seconds)

    def rates(self, device: Device, dtype: str = "fp32") -> tuple[tuple[str, Quantity, str], ...]:
        rates = device.rates_2017
        return (
            ("clock", rates.clock, "Hz"),
            ("peak", rates.peak, "FLOP/s"),
            ("memory bandwidth", rates.memory_bandwidth, "bytes/s"),
        )

    def pipelined(self, time: Time) -> Quantity:
        return maximum(time.compute, time.memory)


def _kernel(operation: Operation) -> Kernel:
    match operation:
        case Pooling():
            size = operation.element_size
            moved = (size * operation.input_elements, size * operation.output_elements)
            return Kernel(_POOLING_FLOPS * operation.flops, moved)
        case MatMul() | Update() | Stream():
            return Kernel(operation.flops, operation.reads, operation.writes)
    raise AssertionError(f"counts() admits an operation without a price: {operation.name}")


def _time(counts: Counts, device: Device, share: Quantity) -> Time:
    """Return the time at a share of the peaks: a clock at least for each kernel and transfer."""
    rates = device.rates_2017
    clock = 1 / rates.clock
    peak, bandwidth = rates.peak * share, rates.memory_bandwidth * GIB_PER_GB * share
    compute: Quantity = 0.0
    memory: Quantity = 0.0
    for each in counts.kernels:
        computed = where_positive(each.flops, maximum(clock, each.flops / peak))
        compute = compute + each.times * computed
        for num_bytes in (*each.reads, *each.writes):
            memory = memory + each.times * maximum(clock, num_bytes / bandwidth)
    return Time(compute, memory, 0.0, compute + memory)


COST_MODELS.add(Paleo2017.name, Paleo2017())
