"""What Fourier transforms take: see `paleo.costs.convolutions.fft`.

They are for the lanes: matrix units multiply quicker than the transforms move their bytes.
"""

from __future__ import annotations

from paleo.costs.convolutions.fft import (
    FFT,
    PARTS,
    TILED_FFT,
    Transform,
    spectra,
    transform_of_images,
    transform_of_tiles,
)
from paleo.costs.tiled.gemm import choose
from paleo.costs.tiled.machine import Machine
from paleo.costs.tiled.way import Shape, Way, extended, in_passes
from paleo.quantity import Quantity, every
from paleo.work import Convolution, Pass

__all__ = ["by_images", "by_tiles", "least"]

#: Kernels that transform the two operands and the result.
_TRANSFORMS = 3


def by_images(operation: Convolution, machine: Machine) -> Way | None:
    """Return it by transforms of whole images, filled up to a power of two."""
    if machine.matrix_peak is not None or not every(FFT.applies(operation)):
        return None
    return _by(transform_of_images(operation), operation, machine)


def by_tiles(operation: Convolution, machine: Machine) -> Way | None:
    """Return it by transforms of tiles of 32 x 32."""
    if machine.matrix_peak is not None or not every(TILED_FFT.applies(operation)):
        return None
    return _by(transform_of_tiles(operation), operation, machine)


def least(operation: Convolution, machine: Machine, *, tiled: bool) -> Quantity:
    """Return seconds below which neither is, without trying tiles for the products."""
    transform = transform_of_tiles(operation) if tiled else transform_of_images(operation)
    number = operation.batch * transform.tiles
    products = number * operation.in_channels * operation.out_channels
    flops = 2 * PARTS**2 * transform.frequencies * products
    return in_passes(flops, _passes(transform, operation), machine, kernels=_TRANSFORMS)


def _passes(transform: Transform, operation: Convolution) -> list[Quantity]:
    """Return the bytes of the passes that transform the three tensors."""
    plain = (*operation.reads, *operation.writes)
    transformed = spectra(operation, transform)
    return [one + transform.moves * other for one, other in zip(plain, transformed, strict=True)]


def _by(transform: Transform, operation: Convolution, machine: Machine) -> Way:
    c, k = operation.in_channels, operation.out_channels
    tiles: Quantity = operation.batch * transform.tiles
    size = operation.element_size
    # A complex product is a real one of twice as many columns and terms.
    shapes: dict[Pass, Shape] = {
        Pass.FORWARD: (tiles, PARTS * k, PARTS * c),
        Pass.INPUT_GRADIENT: (tiles, PARTS * c, PARTS * k),
        Pass.WEIGHT_GRADIENT: (k, PARTS * c, PARTS * tiles),
    }
    shape = shapes[operation.direction]
    chosen = choose(*shape, machine, sizes=(size, size, size), count=transform.frequencies)
    passes = _passes(transform, operation)
    time = extended(chosen.time, machine, passes=passes, kernels=_TRANSFORMS)
    return Way(time, *shape, transform.frequencies, chosen)
