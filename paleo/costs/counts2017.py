"""Convolutions as the model of 2017 counts them: products and Fourier transforms over holes.

Every pass is a convolution of stride 1 over a (dilated, padded) input. That is how the public code
of Qi, Sparks, Talwalkar (ICLR 2017) has products, products with precomputed indices and Fourier
transforms, and so its published figures; what it did not have (Winograd's algorithm, im2col, ...)
is counted as `convolutions` says.

Letters: N batch, H x W input, C input channels, R x S filter, K output channels, P x Q
output; in lower case those of a pass as such a convolution.
"""

from __future__ import annotations

from collections.abc import Callable

from paleo.core.frozen import dataclass
from paleo.core.operations import Convolution, Pass
from paleo.core.quantity import Quantity, ceil_div, ceil_log2, product
from paleo.core.window import Axis
from paleo.costs.convolutions import ALGORITHMS, Counts, Kernel
from paleo.costs.convolutions.fft import TILE


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


#: Bytes of a number, of a complex one, and of an index.
_REAL, _COMPLEX, _INDEX = 4, 8, 4


def _by_gemm(operation: Convolution) -> Counts:
    """Return the product: the FLOPs of it, and the padded input, the filter and the output."""
    gemm = gemm_of(operation)
    first, second, result = (operation.element_size * each for each in gemm.elements)
    return Counts((Kernel(gemm.flops, (first, second), (result,), is_product=True),))


def _with_indices(operation: Convolution) -> Counts:
    """Return the product with precomputed indices, which only the input's gradient moves.

    It is the second algorithm of cuDNN for that pass; an index is written and read for each element
    of n y' x' r s c in one transfer.
    """
    counts = _by_gemm(operation)
    if operation.direction is not Pass.INPUT_GRADIENT:
        return counts
    gemm = gemm_of(operation)
    rows = gemm.images * product(gemm.outputs)
    table = _INDEX * rows * product(gemm.windows) * gemm.channels
    return Counts((*counts.kernels, Kernel(reads=(2 * table,))), table)


def _by_fft(operation: Convolution) -> Counts:
    """Return transforms of whole images, with their padding."""
    gemm = gemm_of(operation)
    padded = zip(gemm.sizes, gemm.paddings, gemm.windows, strict=True)
    return _transformed(operation, gemm, tuple(max(s + p, w) for s, p, w in padded), 1)


def _by_tiled_fft(operation: Convolution) -> Counts:
    """Return transforms of tiles of 32 x 32, one tile of all images after another.

    The tiles do not overlap, and leave the padding out.
    """
    gemm = gemm_of(operation)
    tiles: int = product(ceil_div(size, TILE) for size in gemm.sizes)
    return _transformed(operation, gemm, (TILE,) * len(gemm.sizes), tiles)


def _transformed(operation: Convolution, gemm: Gemm, sides: tuple[int, ...], tiles: int) -> Counts:
    """Return the transforms of images and filters, the products, and the transforms back.

    A complex transform of z x z takes 10 z^2 log2 z FLOPs, half of that if the filter is a line.
    The spectra of the last tile alone are read by the transform back.
    """
    area: int = product(sides)
    # The power of two at or above the root of the area.
    power = ceil_div(int(ceil_log2(area)), 2)
    is_line = 1 in gemm.windows
    flops = 10 * 4**power * power / (2 if is_line else 1)
    filtered = max(sides) if is_line else area
    n, c, k = 1.0 * gemm.images, 1.0 * gemm.channels, 1.0 * gemm.filters
    images, filters, results = _COMPLEX * n * c * area, _COMPLEX * c * k, _COMPLEX * n * k * area
    output = _REAL * n * product(gemm.outputs) * k
    return Counts(
        (
            Kernel(n * c * flops / 2, (_REAL * n * c * area,), (images,), times=tiles),
            Kernel(c * k * flops / 2, (_REAL * c * k * area,), (filters * filtered,)),
            Kernel(
                4 * n * c * k * area,
                (images, filters * filtered),
                (results,),
                is_product=True,
                times=tiles,
            ),
            Kernel(n * k * flops, times=tiles),
            Kernel(0, (results,), (output,)),
        ),
        images + filters * area + results,
    )


#: What the public code of 2017 has a formula for. A direct convolution takes what a product does.
_OWN: dict[str, Callable[[Convolution], Counts]] = {
    "implicit_gemm": _by_gemm,
    "precomputed_gemm": _with_indices,
    "direct": _by_gemm,
    "fft": _by_fft,
    "tiled_fft": _by_tiled_fft,
}


def counts_of(name: str, operation: Convolution) -> Counts:
    """Return what the algorithm of this name takes for a convolution."""
    own = _OWN.get(name)
    return own(operation) if own else ALGORITHMS[name].counts(operation)
