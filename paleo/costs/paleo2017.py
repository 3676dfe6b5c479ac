"""The cost model of Paleo (Qi, Sparks, Talwalkar, ICLR 2017), as its public code has it.

An operation takes the time of its FLOPs at the device's peak plus that of its transfers
at the memory bandwidth, both at a percent of peak `ppp_comp`; nothing is faster than a
clock. Convolutions are GEMMs over (dilated, padded) inputs, in all three directions.
It prices convolutions, inner products, pooling, dropout and the update. Everything else
costs nothing in it: see `counts`.

Letters: N batch, H x W input, C input channels, R x S filter, K output channels, P x Q
output.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paleo.costs.base import COST_MODELS, Conventions, CostModel, Target, Time
from paleo.errors import SettingError
from paleo.hardware import Device
from paleo.quantity import Quantity, maximum, product
from paleo.units import GIB_PER_GB
from paleo.window import Axis
from paleo.work import Convolution, Fused, MatMul, Operation, Pass, Pooling, Stream, Update

__all__ = ["Gemm", "Paleo2017", "gemm_of"]

#: Pooling counts two FLOPs for each element of a window.
_POOLING_FLOPS = 2
#: The only pass over memory that the model prices.
_PRICED_STREAM = "dropout"
#: The other operations that it prices. Later ones (attention, recurrent layers, products of
#: two tensors) cost nothing in it.
_PRICED = (Convolution, MatMul, Pooling, Update)


@dataclass(frozen=True, slots=True)
class _Gradient:
    """An axis seen from the backward passes.

    The output's gradient is dilated by the stride (`dilated` elements, most of
    them holes) and padded (by `input_padding`) so that a window over it gives the input's
    gradient; the input is padded (by `filter_padding`) so that the dilated gradient, as a
    window over it, gives the filter's.
    """

    dilated: int
    input_padding: int
    filter_padding: int


def _gradient(axis: Axis) -> _Gradient:
    dilated = (axis.output - 1) * axis.stride + 1
    before = axis.span - 1 - axis.padding_before
    after = axis.size + axis.span - 1 - dilated - before
    dilated += abs(before - after)
    # What makes a stride-1 window of `dilated` over the input give the filter's span.
    filter_padding = (axis.span + dilated - 1 - axis.size) // 2
    return _Gradient(dilated, min(before, after), filter_padding)


@dataclass(frozen=True, slots=True)
class Gemm:
    """A convolution pass as a stride-1 convolution computed by matrix multiplication.

    An input of `images` x `sizes` x `channels`, padded by `paddings` on both sides together,
    a window of `windows`, and an output of `images` x `outputs` x `filters`. Of the input's
    and the window's positions only `sizes_filled` and `windows_filled` are no holes. In
    `groups`, the products are fewer by that factor, and so are the elements of the weights,
    the operand at `weights_at` of `elements`.
    """

    images: Quantity
    sizes: tuple[int, ...]
    channels: Quantity
    paddings: tuple[int, ...]
    windows: tuple[int, ...]
    filters: Quantity
    outputs: tuple[int, ...]
    sizes_filled: float
    windows_filled: float
    groups: int = 1
    weights_at: int = 1

    @property
    def flops(self) -> Quantity:
        """Products with the window's holes left out; filling an input with holes costs too."""
        outputs = self.images * product(self.outputs) * self.filters
        flops: Quantity = 2 * self.windows_filled * self.channels * outputs
        if self.groups > 1:
            flops = flops // self.groups
        if self.sizes_filled != product(self.sizes):
            flops = flops + 2 * self.images * self.channels * self.sizes_filled
        return flops

    @property
    def elements(self) -> tuple[Quantity, ...]:
        """Elements moved: the padded input, the filter, the output."""
        padded = product(s + p for s, p in zip(self.sizes, self.paddings, strict=True))
        moved = [
            self.images * padded * self.channels,
            self.windows_filled * self.channels * self.filters,
            self.images * product(self.outputs) * self.filters,
        ]
        if self.groups > 1:
            moved[self.weights_at] = moved[self.weights_at] // self.groups
        return tuple(moved)


def gemm_of(operation: Convolution) -> Gemm:
    """Return the matrix multiplication that prices this pass of a convolution."""
    n, c, k, g = operation.batch, operation.in_channels, operation.out_channels, operation.groups
    sizes = tuple(axis.size for axis in operation.axes)
    spans = tuple(axis.span for axis in operation.axes)
    outputs = tuple(axis.output for axis in operation.axes)
    windows = tuple(axis.window for axis in operation.axes)
    taps = operation.window_elements
    if operation.direction is Pass.FORWARD:
        padding = tuple(map(_forward_padding, operation.axes))
        return Gemm(n, sizes, c, padding, spans, k, outputs, product(sizes), taps, g)

    back = tuple(map(_gradient, operation.axes))
    dilated = tuple(axis.dilated for axis in back)
    to_input = tuple(2 * axis.input_padding for axis in back)
    to_filter = tuple(2 * axis.filter_padding for axis in back)
    positions: int = product(outputs)
    if operation.direction is Pass.INPUT_GRADIENT:
        return Gemm(n, dilated, k, to_input, spans, c, sizes, positions, taps, g)
    if not operation.transposed:
        return Gemm(c, sizes, n, to_filter, dilated, k, windows, product(sizes), positions, g, 2)
    # Here it is the output's gradient that slides over the dilated input.
    slid = tuple(2 * (e - 1) - p for e, p in zip(spans, to_input, strict=True))
    share = _exact_ratio(product(sizes) * positions, product(dilated))
    return Gemm(k, dilated, n, slid, sizes, c, windows, product(dilated), share, g, 2)


def _forward_padding(axis: Axis) -> int:
    """Return what is added on both sides: for "SAME" twice the smaller half, as in 2017."""
    return axis.total_padding // 2 * 2 if axis.padding == "SAME" else axis.total_padding


def _exact_ratio(a: int, b: int) -> float:
    return a // b if a % b == 0 else a / b


class Paleo2017(CostModel):
    """See the module."""

    name = "paleo2017"
    summary = "the published model of 2017: compute time plus memory time, each at its peak"
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
    )

    def counts(self, operation: Operation) -> bool:
        if isinstance(operation, Fused):
            return any(map(self.counts, (operation.head, *operation.tail)))
        if isinstance(operation, Stream):
            return operation.name == _PRICED_STREAM
        return isinstance(operation, _PRICED)

    def price(self, operation: Operation, target: Target) -> Time:
        if target.dtype != "fp32":
            raise SettingError(f"the cost model paleo2017 knows fp32 only, not {target.dtype}")
        if isinstance(operation, Fused):
            return self.price_fused(operation, target)
        if not self.counts(operation):
            return Time()
        rates = target.device.rates_2017
        clock = 1 / rates.clock
        # The update is priced at the peak, whatever share of it is reached elsewhere.
        share = 1.0 if isinstance(operation, Update) else target.ppp_comp
        peak, bandwidth = rates.peak * share, rates.memory_bandwidth * GIB_PER_GB * share

        flops, moved = self._flops_and_transfers(operation)
        compute: Quantity = 0.0 if _is_zero(flops) else maximum(clock, flops / peak)
        memory: Quantity = 0.0
        for num_bytes in moved:
            memory = memory + maximum(clock, num_bytes / bandwidth)
        return Time(compute, memory, 0.0, compute + memory)

    @staticmethod
    def _flops_and_transfers(operation: Operation) -> tuple[Any, tuple[Quantity, ...]]:
        match operation:
            case Convolution():
                gemm = gemm_of(operation)
                return gemm.flops, tuple(operation.element_size * e for e in gemm.elements)
            case Pooling():
                size = operation.element_size
                moved = (size * operation.input_elements, size * operation.output_elements)
                return _POOLING_FLOPS * operation.flops, moved
            case MatMul() | Update() | Stream():
                return operation.flops, operation.reads + operation.writes
        raise AssertionError(f"counts() admits an operation without a price: {operation.name}")

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


def _is_zero(value: Any) -> bool:
    return isinstance(value, int | float) and value == 0


COST_MODELS.add(Paleo2017.name, Paleo2017())
