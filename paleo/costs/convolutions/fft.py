"""Convolutions as products of Fourier transforms, for large filters.

Images, or tiles of them that overlap by the filter's reach, are transformed, multiplied frequency
by frequency and summed over the channels, and transformed back: F_h (F_w / 2 + 1) complex
matrix products of T x C times C x K, since the transforms of real numbers are symmetric (Mathieu,
Henaff, LeCun, Fast Training of Convolutional Networks through FFTs, arXiv:1312.5851;
Vasilache et al., Fast Convolutional Nets With fbfft, arXiv:1412.7580). A transform of F numbers
takes 5 F log2 F FLOPs, half of that where they are real; a complex multiply-add takes 8.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from paleo.costs.convolutions.base import ALGORITHMS, Algorithm, Counts, Kernel, Roles, roles
from paleo.quantity import Quantity, all_of, ceil_div, ceil_log2, maximum, power_of_two, product
from paleo.work import Convolution, Pass

__all__ = [
    "FFT",
    "PARTS",
    "TILE",
    "TILED_FFT",
    "Transform",
    "spectra",
    "transform_of_images",
    "transform_of_tiles",
]

#: The side of a tile.
TILE = 32
#: The longest side that an image may have (cuDNN API: up to 256 with its padding).
_LONGEST = 256
#: FLOPs of a complex multiply-add.
_COMPLEX = 8
#: Real numbers of a complex one.
PARTS = 2


class Transform(NamedTuple):
    """What is transformed: `sides` F_h x F_w, and how many tiles an image has."""

    sides: tuple[int, ...]
    tiles: int

    @property
    def longest(self) -> Any:
        """The longer of the sides."""
        sides: tuple[Any, ...] = self.sides
        return functools.reduce(maximum, sides)

    @property
    def frequencies(self) -> int:
        """F_h (F_w / 2 + 1), those that differ."""
        return self.sides[0] * (self.sides[1] // 2 + 1)

    @property
    def moves(self) -> int:
        """How often what is transformed is moved: rows and then columns, if a side is long."""
        result: int = 1 + 2 * (self.longest > TILE)
        return result

    @property
    def flops(self) -> Quantity:
        """5 / 2 F log2 F, of one transform of real numbers."""
        number: int = product(self.sides)
        return 5 * number * ceil_log2(number) // 2


def transform_of_images(operation: Convolution) -> Transform:
    """Return that of whole images with their padding, filled up to powers of two."""
    needed = (
        maximum(axis.size + axis.total_padding, axis.output + axis.window - 1)
        for axis in operation.axes
    )
    return Transform(tuple(map(power_of_two, needed)), 1)


def transform_of_tiles(operation: Convolution) -> Transform:
    """Return that of tiles of 32 x 32, which give 33 - R x 33 - S results each."""
    back = operation.direction is Pass.INPUT_GRADIENT
    number: int = product(
        ceil_div(axis.size if back else axis.output, TILE + 1 - axis.window)
        for axis in operation.axes
    )
    return Transform((TILE,) * len(operation.axes), number)


def _applies(operation: Convolution) -> Any:
    """Return whether windows of more than one element move by one, in two dimensions."""
    if len(operation.axes) != 2:
        return False
    by_one = all_of((axis.stride == 1) & (axis.dilation == 1) for axis in operation.axes)
    return by_one & (operation.groups == 1) & (operation.window_elements > 1)


def spectra(operation: Convolution, transform: Transform) -> Roles:
    """Return the bytes of the transformed tensors, those that are read first."""
    each = PARTS * operation.element_size * transform.frequencies
    many = _transforms(operation, transform)
    return Roles(each * many.first, each * many.second, each * many.result)


def _transforms(operation: Convolution, transform: Transform) -> Roles:
    """Return how many transforms there are of each tensor."""
    c, k = operation.in_channels, operation.out_channels
    # As floating point, since a tile may have many times the numbers of its image.
    number = 1.0 * operation.batch * transform.tiles
    return roles(operation, number * c, c * k, number * k)


def _counts(operation: Convolution, transform: Transform) -> Counts:
    moved = spectra(operation, transform)
    plain = (*operation.reads, *operation.writes)
    forth, filters, back = (
        Kernel(
            transform.flops * count,
            (tensor, transform.moves // 2 * spectrum),
            ((1 + transform.moves // 2) * spectrum,),
        )
        for count, tensor, spectrum in zip(
            _transforms(operation, transform), plain, moved, strict=True
        )
    )
    number = 1.0 * operation.batch * transform.tiles
    products = number * operation.in_channels * operation.out_channels
    multiply = Kernel(
        _COMPLEX * transform.frequencies * products, moved[:2], moved[2:], is_product=True
    )
    back = back._replace(reads=back.writes, writes=back.reads)
    return Counts((forth, filters, multiply, back), moved.first + moved.second + moved.result)


class Fft(Algorithm):
    """By transforms of whole images."""

    name = "fft"
    summary = "Fourier transforms of whole images, for large filters"
    source = "arXiv:1312.5851; cuDNN API, CUDNN_CONVOLUTION_FWD_ALGO_FFT"

    def applies(self, operation: Convolution) -> Any:
        return _applies(operation) & (transform_of_images(operation).longest <= _LONGEST)

    def counts(self, operation: Convolution) -> Counts:
        return _counts(operation, transform_of_images(operation))


class TiledFft(Algorithm):
    """By transforms of tiles of 32 x 32 which overlap by the filter's reach."""

    name = "tiled_fft"
    summary = "Fourier transforms of tiles of 32x32"
    source = "arXiv:1412.7580 (tiling); cuDNN API, CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING"

    def applies(self, operation: Convolution) -> Any:
        return _applies(operation) & all_of(axis.window < TILE for axis in operation.axes)

    def counts(self, operation: Convolution) -> Counts:
        return _counts(operation, transform_of_tiles(operation))


FFT, TILED_FFT = Fft(), TiledFft()
ALGORITHMS.add(FFT.name, FFT)
ALGORITHMS.add(TILED_FFT.name, TILED_FFT)
