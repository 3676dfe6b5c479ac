"""Convolutions of small filters by Winograd's algorithm: fewer multiplications, more additions.

F(m x m, r x r) computes m x m outputs from a x a inputs, a = m + r - 1, with a^2 instead of
m^2 r^2 multiplications: inputs and filters are transformed, a^2 matrix products of T x C times
C x K follow, for T = N ceil(P / m) ceil(Q / m) tiles, and their results are transformed back
(Lavin, Gray, Fast Algorithms for Convolutional Neural Networks, arXiv:1509.09308, section 4). The
gradient of the filter sums over the tiles.
"""

from __future__ import annotations

from typing import Any

from paleo.core.frozen import NamedTuple
from paleo.core.operations import Convolution, Pass
from paleo.core.quantity import all_of, ceil_div, product
from paleo.costs.convolutions.base import ALGORITHMS, Counts, Kernel, Transform, Transforming


class _Transforms(NamedTuple):
    """FLOPs to transform one tile of the input, one filter, and one tile of the output."""

    input: int
    filter: int
    output: int


class Winograd(Transforming):
    """F(m x m, r x r), with transforms that pass through memory, or on the chip if `is_fused`."""

    name = "winograd"
    is_fused = False
    m: int
    r: int
    transforms: _Transforms

    @property
    def side(self) -> int:
        """The inputs of a tile in a row."""
        return self.m + self.r - 1

    def transform(self, operation: Convolution) -> Transform:
        # Tiles of m x m outputs, or elements of the input's gradient.
        back = operation.direction is Pass.INPUT_GRADIENT
        tiles = product(
            ceil_div(axis.size if back else axis.output, self.m) for axis in operation.axes
        )
        return Transform(operation.batch * tiles, self.side**2)

    def applies(self, operation: Convolution) -> Any:
        # What is summed over the tiles does not stay on the chip.
        is_too_much = self.is_fused and operation.direction is Pass.WEIGHT_GRADIENT
        if len(operation.axes) != 2 or is_too_much:
            return False
        fits = all_of(
            (axis.window == self.r) & (axis.stride == 1) & (axis.dilation == 1)
            for axis in operation.axes
        )
        return fits & (operation.groups == 1)

    def counts(self, operation: Convolution) -> Counts:
        c, k = operation.in_channels, operation.out_channels
        transform = self.transform(operation)
        number, elements = 1.0 * transform.tiles, transform.numbers
        # Of the gradients, what is known takes the place of the input, and the other way round.
        back = operation.direction is Pass.INPUT_GRADIENT
        of_input = self.transforms.output if back else self.transforms.input
        of_output = self.transforms.input if back else self.transforms.output
        flops = operation.in_order(
            of_input * number * c, self.transforms.filter * c * k, of_output * number * k
        )
        moved = transform.spectra(operation)
        multiply = 2 * elements * number * c * k
        (first, second), (result,) = operation.reads, operation.writes
        if self.is_fused:
            whole = multiply + flops.first + flops.result
            return Counts(
                (
                    Kernel(flops.second, (second,), (moved.second,)),
                    Kernel(whole, (first, moved.second), (result,), is_product=True),
                ),
                moved.second,
            )
        return Counts(
            (
                Kernel(flops.first, (first,), (moved.first,)),
                Kernel(flops.second, (second,), (moved.second,)),
                Kernel(multiply, moved[:2], moved[2:], is_product=True),
                Kernel(flops.result, (moved.result,), (result,)),
            ),
            moved.first + moved.second + moved.result,
        )


class Winograd2x2(Winograd):
    """F(2 x 2, 3 x 3) in one kernel: 16 multiplications for 36; filters are transformed before."""

    name = "winograd_2x2"
    summary = "Winograd's F(2x2, 3x3) in one kernel: 16 multiplications for 36"
    source = "arXiv:1509.09308, section 4.1: 16 products, transforms of 32, 28 and 24 FLOPs"
    is_fused = True
    m, r, transforms = 2, 3, _Transforms(32, 28, 24)


class Winograd4x4(Winograd):
    """F(4 x 4, 3 x 3): 36 multiplications for 144."""

    name = "winograd_4x4"
    summary = "Winograd's F(4x4, 3x3), transforms through memory: 36 multiplications for 144"
    source = "arXiv:1509.09308, section 4.3: 36 products, transforms of 156, 72 and 100 FLOPs"
    m, r, transforms = 4, 3, _Transforms(156, 72, 100)


class Winograd5x5(Winograd):
    """F(2 x 2, 5 x 5): 36 multiplications for 100, at the points of F(4 x 4, 3 x 3).

    So the input's transform is the same. A filter is a polynomial of degree 4 evaluated at 5
    points: 12 FLOPs for each of 5 + 6 lines; an output sums 6 products, 8 for each of 6 + 2.
    """

    name = "winograd_5x5"
    summary = "Winograd's F(2x2, 5x5), transforms through memory: 36 multiplications for 100"
    source = "arXiv:1509.09308, section 4, for r = 5: 36 products, transforms of 156, 132, 64 FLOPs"
    m, r, transforms = 2, 5, _Transforms(156, 12 * (5 + 6), 8 * (6 + 2))


WINOGRAD_2X2, WINOGRAD_4X4, WINOGRAD_5X5 = Winograd2x2(), Winograd4x4(), Winograd5x5()
for _each in (WINOGRAD_2X2, WINOGRAD_4X4, WINOGRAD_5X5):
    ALGORITHMS.add(_each.name, _each)
