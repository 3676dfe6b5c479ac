"""What Winograd's algorithm and Fourier transforms take: see `paleo.costs.convolutions`.

They are for the lanes: matrix units multiply quicker than the transforms move their bytes.
"""

from __future__ import annotations

from dataclasses import replace

from paleo.core.operations import Convolution, Pass
from paleo.core.quantity import Quantity, every, rounded_up
from paleo.costs.convolutions.base import Transforming, transformed_size
from paleo.costs.convolutions.winograd import WINOGRAD_2X2, Winograd
from paleo.costs.tiled.algorithm import ConvolutionTime, extended, in_passes, product_shape
from paleo.costs.tiled.gemm import choose
from paleo.costs.tiled.machine import Machine

#: Share of a convolution's speed that the products reach between transforms on the chip. (Half of
#: DeepBench's shapes, in fp32 on M40, TITAN X, P100, V100 and T4.)
_FUSED_SHARE = 0.8
#: Winograd's kernels in steps take so many images at a time, but for the filter's gradient.
#: (DeepBench's rows of 8 images take as long as those of 16 in halves on the P100, and in fp32 on
#: P100, V100 and T4 as long as by the algorithm in one kernel, or 16.)
_IMAGES = 16
#: Kernels that transform the two operands and the result.
_TRANSFORMS = 3


def fused_winograd(operation: Convolution, machine: Machine) -> ConvolutionTime | None:
    """Return it by F(2 x 2, 3 x 3) in one kernel: 16 multiplications for 36."""
    if machine.matrix_peak is not None or not every(WINOGRAD_2X2.applies(operation)):
        return None
    tiles, count, _, _ = WINOGRAD_2X2.transform(operation)
    shape, size = product_shape(operation, tiles), operation.element_size
    read, filters = operation.reads
    chosen = choose(
        *shape, machine,
        # Of the 16 products of a tile 4 results are written, in whole bytes for each.
        sizes=(size, size, max(size * WINOGRAD_2X2.m**2 // WINOGRAD_2X2.side**2, 1)), count=count,
        share=_FUSED_SHARE * machine.convolution_share, stored=(read, filters), splits=(1,),
    )  # fmt: skip
    return ConvolutionTime(extended(chosen.time, machine, kernels=1), *shape, count, chosen)


def least_fused(operation: Convolution, machine: Machine) -> Quantity:
    """Return seconds below which `fused_winograd` is not, without trying tiles."""
    tiles, count, _, _ = WINOGRAD_2X2.transform(operation)
    share = _FUSED_SHARE * machine.convolution_share
    flops = 2 * (operation.in_channels * operation.out_channels * count / share) * tiles
    return in_passes(flops, (), machine, kernels=2)


def in_steps(
    algorithm: Transforming, operation: Convolution, machine: Machine
) -> ConvolutionTime | None:
    """Return it by transforms through memory, products and a transform back.

    The gradient of the filter sums over the tiles.
    """
    if machine.matrix_peak is not None or not every(algorithm.applies(operation)):
        return None
    tiles, count, parts, _ = algorithm.transform(_filled(algorithm, operation))
    m, n, k = product_shape(operation, tiles)
    size = transformed_size(operation, machine.computed_size)
    # A complex product is a real one of twice as many columns and terms.
    shape = (m, parts * n, parts * k)
    chosen = choose(*shape, machine, sizes=(size, size, size), count=count)
    passes = _passes(algorithm, operation, machine)
    time = extended(chosen.time, machine, passes=passes, kernels=_TRANSFORMS)
    return ConvolutionTime(time, *shape, count, chosen)


def _filled(algorithm: Transforming, operation: Convolution) -> Convolution:
    """Return a convolution with as many images as its kernels compute."""
    if operation.direction is Pass.WEIGHT_GRADIENT or not isinstance(algorithm, Winograd):
        return operation
    return replace(operation, batch=rounded_up(operation.batch, _IMAGES))


def least(algorithm: Transforming, operation: Convolution, machine: Machine) -> Quantity:
    """Return seconds below which `in_steps` is not, without trying tiles for the products."""
    tiles, count, parts, _ = algorithm.transform(_filled(algorithm, operation))
    products = tiles * operation.in_channels * operation.out_channels
    flops = 2 * parts**2 * count * products
    return in_passes(flops, _passes(algorithm, operation, machine), machine, kernels=_TRANSFORMS)


def _passes(algorithm: Transforming, operation: Convolution, machine: Machine) -> list[Quantity]:
    """Return the bytes of the passes that transform the three tensors."""
    transform = algorithm.transform(_filled(algorithm, operation))
    plain = (*operation.reads, *operation.writes)
    spectra = transform.spectra(operation, machine.computed_size)
    return [one + transform.moves * other for one, other in zip(plain, spectra, strict=True)]
