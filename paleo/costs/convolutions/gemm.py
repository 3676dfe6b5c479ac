"""Convolutions as matrix products: every window of the input is a row of R S C elements.

The product is N P Q x R S C times R S C x K: 2 N P Q K R S C / g FLOPs in each of the three passes
(Chellapilla, Puri, Simard, High Performance Convolutional Neural Networks for Document
Processing, 2006; Chetlur et al., cuDNN: Efficient Primitives for Deep Learning, arXiv:1410.0759,
section 3). The members of the family differ in whether that matrix is ever in memory.
"""

from __future__ import annotations

from typing import Any

from paleo.core.frozen import NamedTuple
from paleo.core.operations import Convolution, Pass
from paleo.core.quantity import Quantity, all_of, ceil_div, maximum, product
from paleo.core.window import Axis
from paleo.costs.convolutions.base import ALGORITHMS, Algorithm, Counts, Kernel, lowered

_CUDNN = "arXiv:1410.0759, section 3"
#: Bytes of an index.
_INDEX = 4


def _product(operation: Convolution) -> Kernel:
    return Kernel(operation.flops, operation.reads, operation.writes, is_product=True)


class ImplicitGemm(Algorithm):
    """Rows are put together on the chip: each tensor is moved once, and nothing else."""

    name = "implicit_gemm"
    summary = "a matrix product whose rows are put together on the chip"
    source = f"{_CUDNN}: the matrix is never in memory"
    is_gemm = True


class PrecomputedGemm(Algorithm):
    """As implicit, with a table of where the elements of a row are: 4 bytes for each of R S C."""

    name = "precomputed_gemm"
    summary = "the same, with a table of where the elements of a row are"
    source = "cuDNN API, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM: precomputed indices"
    is_gemm = True

    def counts(self, operation: Convolution) -> Counts:
        back = operation.direction is Pass.INPUT_GRADIENT
        summed = operation.out_channels if back else operation.in_channels
        table = _INDEX * operation.window_elements * summed // operation.groups
        gemm = _product(operation)
        return Counts((Kernel(writes=(table,)), gemm._replace(reads=(*gemm.reads, table))), table)


class ExplicitGemm(Algorithm):
    """The matrix is written and read: N P Q R S C elements (im2col; backward, col2im adds it up).

    That is for the whole batch at once. Adding up counts one FLOP an element.
    """

    name = "explicit_gemm"
    summary = "the windows are written out as a matrix (im2col), then multiplied"
    source = "Chellapilla et al. 2006; cuDNN API, CUDNN_CONVOLUTION_FWD_ALGO_GEMM"
    is_gemm = True

    def counts(self, operation: Convolution) -> Counts:
        elements = lowered(operation)
        matrix = operation.element_size * elements
        (first, second), (result,) = operation.reads, operation.writes
        flops = operation.flops
        if operation.direction is Pass.INPUT_GRADIENT:
            multiply = Kernel(flops, (first, second), (matrix,), is_product=True)
            return Counts((multiply, Kernel(elements, (matrix,), (result,))), matrix)
        lower = Kernel(0, (first,), (matrix,))
        multiply = Kernel(flops, (matrix, second), (result,), is_product=True)
        return Counts((lower, multiply), matrix)


class Gemm1x1(Algorithm):
    """With 1 x 1 windows the input is the matrix already: N P Q x C, less what strides skip."""

    name = "gemm_1x1"
    summary = "a 1x1 convolution as the plain product that it is"
    source = "the matrix of windows is the input itself: N P Q x C times C x K"
    is_gemm = True

    def applies(self, operation: Convolution) -> Any:
        return operation.window_elements == 1


class ScatteredGemm(Algorithm):
    """The input's gradient as products N P Q x K times K x R S C, added to the image in memory.

    The image is filled with zeros first; each of N P Q R S C numbers is read, added and written.
    It multiplies no zeros where the stride leaves holes.
    """

    name = "scattered_gemm"
    summary = "the input's gradient as a product whose results are added up in memory"
    source = "cuDNN API, CUDNN_CONVOLUTION_BWD_DATA_ALGO_0: a sum of products by atomic adds"
    is_gemm = True

    def applies(self, operation: Convolution) -> Any:
        return operation.direction is Pass.INPUT_GRADIENT and True ^ is_plain(operation.axes)

    def counts(self, operation: Convolution) -> Counts:
        elements = lowered(operation)
        added = operation.element_size * elements
        flops, reads = operation.flops + elements, (*operation.reads, added)
        kernel = Kernel(flops, reads, (added,), is_product=True)
        return Counts((Kernel(writes=operation.writes), kernel))


class Phases(NamedTuple):
    """The products that a strided convolution's input gradient falls into.

    There are `places`, each of N times `positions` rows, and windows of `elements`.
    """

    places: int
    positions: Quantity
    elements: int


def phases(operation: Convolution) -> Phases:
    """Return s_h s_w places, of ceil(H / s_h) ceil(W / s_w) positions and R / s_h S / s_w taps."""
    axes = operation.axes
    return Phases(
        product(axis.stride for axis in axes),
        product(maximum(ceil_div(axis.size, axis.stride), axis.output) for axis in axes),
        product(ceil_div(axis.window, axis.stride) for axis in axes),
    )


class PhasedGemm(Algorithm):
    """The input's gradient without the zeros that strides put between the outputs.

    Inputs of equal place between two positions are reached by the same elements of the filter: a
    product for each of the s_h s_w places.
    """

    name = "phased_gemm"
    summary = "the gradient of a strided convolution's input, a product for each place"
    source = "each input is reached by every s-th element of the filter alone: R / s x S / s"
    is_gemm = True

    def applies(self, operation: Convolution) -> Any:
        if operation.direction is not Pass.INPUT_GRADIENT:
            return False
        axes = operation.axes
        fits = all_of((axis.window >= axis.stride) & (axis.dilation == 1) for axis in axes)
        return fits & (product(axis.stride for axis in axes) > 1)

    def counts(self, operation: Convolution) -> Counts:
        found = phases(operation)
        rows: Quantity = operation.batch * (found.places * found.positions)
        terms = found.elements * operation.out_channels // operation.groups
        flops = 2 * rows * terms * operation.in_channels
        return Counts((_product(operation)._replace(flops=flops),))


def is_plain(axes: tuple[Axis, ...]) -> Any:
    """Return whether a window is one element, and every element has one."""
    return all_of(
        (axis.window == 1) & (axis.stride == 1) & (axis.output == axis.size) for axis in axes
    )


GEMM_1X1, SCATTERED, PHASED = Gemm1x1(), ScatteredGemm(), PhasedGemm()
for _each in (ImplicitGemm(), PrecomputedGemm(), ExplicitGemm(), GEMM_1X1, SCATTERED, PHASED):
    ALGORITHMS.add(_each.name, _each)
