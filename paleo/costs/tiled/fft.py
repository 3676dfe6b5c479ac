"""Convolutions of large filters as products of Fourier transforms.

Images, or tiles of them that overlap by the filter's reach, are transformed, multiplied frequency
by frequency and summed over the channels, and transformed back: F_h (F_w / 2 + 1) complex
matrix products of tiles x C times C x K, since the transforms of real numbers are symmetric
(Mathieu, Henaff, LeCun, Fast Training of Convolutional Networks through FFTs, arXiv:1312.5851;
Vasilache et al., Fast Convolutional Nets With fbfft, arXiv:1412.7580).
"""

from __future__ import annotations

from paleo.costs.tiled.gemm import choose
from paleo.costs.tiled.machine import Machine
from paleo.costs.tiled.way import Shape, Way, extended
from paleo.quantity import Quantity, ceil_div, ceil_log2, product, smallest
from paleo.work import Convolution, Pass

__all__ = ["by_images", "by_tiles"]

#: The generations that have it: of images; of tiles; and of tiles for the filter's gradient.
_IMAGES, _TILES, _FILTER_TILES = 3, 4, 6
#: F of tiles, and the most that an image may have.
_SIDE, _LARGEST = 32, 256
#: Kernels that transform the two operands and the result.
_TRANSFORMS = 3
#: Real numbers of a complex one.
_PARTS = 2


def by_images(operation: Convolution, machine: Machine) -> Way | None:
    """Return it by transforms of whole images, filled up to a power of two."""
    sides = tuple(
        2 ** int(ceil_log2(max(axis.size + axis.total_padding, axis.output + axis.window - 1)))
        for axis in operation.axes
    )
    if not _applies(operation, machine, _IMAGES) or max(sides) > _LARGEST:
        return None
    return _by(sides, 1, operation, machine)


def by_tiles(operation: Convolution, machine: Machine) -> Way | None:
    """Return it by transforms of tiles of 32 x 32."""
    since = _FILTER_TILES if operation.direction is Pass.WEIGHT_GRADIENT else _TILES
    if not _applies(operation, machine, since):
        return None
    if any(axis.window >= _SIDE for axis in operation.axes):
        return None
    back = operation.direction is Pass.INPUT_GRADIENT
    number: int = product(
        ceil_div(axis.size if back else axis.output, _SIDE + 1 - axis.window)
        for axis in operation.axes
    )
    return _by((_SIDE, _SIDE), number, operation, machine)


def _applies(operation: Convolution, machine: Machine, since: int) -> bool:
    """Tell whether there is such a kernel: for the lanes, and windows that move by one."""
    return (
        len(operation.axes) == 2
        and operation.groups == 1
        and machine.matrix_peak is None
        and bool(smallest(machine.library) >= since)
        and all(axis.stride == axis.dilation == 1 for axis in operation.axes)
        and any(axis.window > 1 for axis in operation.axes)
    )


def _by(sides: tuple[int, ...], number: int, operation: Convolution, machine: Machine) -> Way:
    """Return it by transforms of `sides`, `number` of them for an image."""
    c, k = operation.in_channels, operation.out_channels
    tiles: Quantity = operation.batch * number
    frequencies = sides[0] * (sides[1] // 2 + 1)
    size = operation.element_size
    each = frequencies * _PARTS * size
    image, result, filters = each * tiles * c, each * tiles * k, each * c * k
    # A complex product is a real one of twice as many columns and terms.
    shapes: dict[Pass, Shape] = {
        Pass.FORWARD: (tiles, _PARTS * k, _PARTS * c),
        Pass.INPUT_GRADIENT: (tiles, _PARTS * c, _PARTS * k),
        Pass.WEIGHT_GRADIENT: (k, _PARTS * c, _PARTS * tiles),
    }
    shape = shapes[operation.direction]
    transformed = {
        Pass.FORWARD: (image, filters, result),
        Pass.INPUT_GRADIENT: (result, filters, image),
        Pass.WEIGHT_GRADIENT: (image, result, filters),
    }[operation.direction]
    plain = (*operation.reads, *operation.writes)
    chosen = choose(*shape, machine, sizes=(size, size, size), count=frequencies)
    # Rows and then columns are transformed; what does not stay on the chip in between is moved.
    moves = 1 if max(sides) <= _SIDE else 3
    passes = [one + moves * other for one, other in zip(plain, transformed, strict=True)]
    time = extended(chosen.time, machine, passes=passes, kernels=_TRANSFORMS)
    return Way(time, *shape, frequencies, chosen, image + result + filters)
