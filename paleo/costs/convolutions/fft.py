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
from typing import Any

from paleo.core.operations import Convolution, Pass
from paleo.core.quantity import all_of, ceil_div, ceil_log2, maximum, power_of_two, product
from paleo.costs.convolutions.base import ALGORITHMS, Counts, Kernel, Transform, Transforming

#: The side of a tile.
TILE = 32
#: The longest side that an image may have (cuDNN API: up to 256 with its padding).
_LONGEST = 256
#: FLOPs of a complex multiply-add.
_COMPLEX = 8
#: Real numbers of a complex one.
_PARTS = 2


class Fft(Transforming):
    """By transforms of whole images with their padding, filled up to powers of two."""

    name = "fft"
    summary = "Fourier transforms of whole images, for large filters"
    source = "arXiv:1312.5851; cuDNN API, CUDNN_CONVOLUTION_FWD_ALGO_FFT"

    def applies(self, operation: Convolution) -> Any:
        # Windows of more than one element move by one, in two dimensions.
        if len(operation.axes) != 2:
            return False
        by_one = all_of((axis.stride == 1) & (axis.dilation == 1) for axis in operation.axes)
        reaches = (operation.window_elements > 1) & self._reaches(operation)
        return by_one & (operation.groups == 1) & reaches

    def _reaches(self, operation: Convolution) -> Any:
        """Return whether images, or windows, are small enough."""
        return functools.reduce(maximum, self._sides(operation)) <= _LONGEST

    def _sides(self, operation: Convolution) -> tuple[Any, ...]:
        """Return F_h and F_w of what is transformed."""
        return tuple(
            power_of_two(maximum(axis.size + axis.total_padding, axis.output + axis.window - 1))
            for axis in operation.axes
        )

    def _tiles(self, operation: Convolution) -> Any:
        """Return how many tiles an image has."""
        return 1

    def transform(self, operation: Convolution) -> Transform:
        # F_h (F_w / 2 + 1) numbers differ. Rows and then columns are moved, if a side is long.
        f_h, f_w = self._sides(operation)
        moves = 1 + 2 * (maximum(f_h, f_w) > TILE)
        tiles = operation.batch * self._tiles(operation)
        return Transform(tiles, f_h * (f_w // 2 + 1), _PARTS, moves)

    def counts(self, operation: Convolution) -> Counts:
        transform, size = self.transform(operation), product(self._sides(operation))
        c, k = operation.in_channels, operation.out_channels
        tiles, moves = 1.0 * transform.tiles, transform.moves // 2
        # 5 / 2 F log2 F, of one transform of real numbers.
        flops = 5 * size * ceil_log2(size) // 2
        moved = transform.spectra(operation)
        forth, filters, back = (
            Kernel(flops * count, (tensor, moves * spectrum), ((1 + moves) * spectrum,))
            for count, tensor, spectrum in zip(
                operation.in_order(tiles * c, c * k, tiles * k),
                (*operation.reads, *operation.writes),
                moved,
                strict=True,
            )
        )
        products = _COMPLEX * transform.numbers * (tiles * c * k)
        multiply = Kernel(products, moved[:2], moved[2:], is_product=True)
        back = back._replace(reads=back.writes, writes=back.reads)
        return Counts((forth, filters, multiply, back), moved.first + moved.second + moved.result)


class TiledFft(Fft):
    """By transforms of tiles of 32 x 32, which give 33 - R x 33 - S results each."""

    name = "tiled_fft"
    summary = "Fourier transforms of tiles of 32x32"
    source = "arXiv:1412.7580 (tiling); cuDNN API, CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING"

    def _reaches(self, operation: Convolution) -> Any:
        return all_of(axis.window < TILE for axis in operation.axes)

    def _sides(self, operation: Convolution) -> tuple[Any, ...]:
        return (TILE,) * len(operation.axes)

    def _tiles(self, operation: Convolution) -> Any:
        back = operation.direction is Pass.INPUT_GRADIENT
        return product(
            ceil_div(axis.size if back else axis.output, TILE + 1 - axis.window)
            for axis in operation.axes
        )


FFT, TILED_FFT = Fft(), TiledFft()
ALGORITHMS.add(FFT.name, FFT)
ALGORITHMS.add(TILED_FFT.name, TILED_FFT)
