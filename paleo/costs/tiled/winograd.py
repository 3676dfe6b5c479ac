"""What Winograd's algorithm takes: see `paleo.costs.convolutions.winograd`.

It is for the lanes: matrix units multiply quicker than the transforms move their bytes.
"""

from __future__ import annotations

from paleo.costs.convolutions.winograd import (
    WINOGRAD_2X2,
    WINOGRAD_4X4,
    WINOGRAD_5X5,
    Winograd,
    spectra,
    tiles,
)
from paleo.costs.tiled.gemm import choose
from paleo.costs.tiled.machine import Machine
from paleo.costs.tiled.way import Shape, Way, extended, in_passes
from paleo.quantity import Quantity, every
from paleo.work import Convolution, Pass

__all__ = ["fused", "in_steps", "least"]

#: Share of a convolution's speed that the products reach between transforms on the chip.
_FUSED_SHARE = 0.9
#: Kernels that transform the two operands and the result.
_TRANSFORMS = 3


def _channels(operation: Convolution) -> tuple[int, int]:
    """Return the channels that are summed over, and those of the result."""
    if operation.direction is Pass.INPUT_GRADIENT:
        return operation.out_channels, operation.in_channels
    return operation.in_channels, operation.out_channels


def fused(operation: Convolution, machine: Machine) -> Way | None:
    """Return it by F(2 x 2, 3 x 3) in one kernel: 16 multiplications for 36."""
    if machine.matrix_peak is not None or not every(WINOGRAD_2X2.applies(operation)):
        return None
    summed, made = _channels(operation)
    number, size = tiles(operation, WINOGRAD_2X2.m), operation.element_size
    count = WINOGRAD_2X2.side**2
    read, filters = operation.reads
    chosen = choose(
        number, made, summed, machine,
        # Of the 16 products of a tile 4 results are written, in whole bytes for each.
        sizes=(size, size, max(size * WINOGRAD_2X2.m**2 // count, 1)), count=count,
        share=_FUSED_SHARE * machine.convolution_share, stored=(read, filters), splits=(1,),
    )  # fmt: skip
    return Way(extended(chosen.time, machine, kernels=1), number, made, summed, count, chosen)


def in_steps(operation: Convolution, machine: Machine) -> Way | None:
    """Return it by transforms, products and a transform back: 36 multiplications for 144.

    It is F(4 x 4, 3 x 3), or F(2 x 2, 5 x 5) with 36 for 100. The gradient of the filter sums
    over the tiles.
    """
    if machine.matrix_peak is not None:
        return None
    algorithm = _stepped(operation)
    if algorithm is None:
        return None
    summed, made = _channels(operation)
    number, size, count = tiles(operation, algorithm.m), operation.element_size, algorithm.side**2
    back = operation.direction is Pass.WEIGHT_GRADIENT
    shape: Shape = (made, summed, number) if back else (number, made, summed)
    chosen = choose(*shape, machine, sizes=(size, size, size), count=count)
    passes = _passes(operation, algorithm)
    time = extended(chosen.time, machine, passes=passes, kernels=_TRANSFORMS)
    return Way(time, *shape, count, chosen)


def least(operation: Convolution, machine: Machine) -> Quantity:
    """Return seconds below which `in_steps` is not, without trying tiles for the products."""
    algorithm = _stepped(operation)
    assert algorithm
    products = tiles(operation, algorithm.m) * operation.in_channels * operation.out_channels
    flops = 2 * algorithm.side**2 * products
    return in_passes(flops, _passes(operation, algorithm), machine, kernels=_TRANSFORMS)


def _stepped(operation: Convolution) -> Winograd | None:
    return next(
        (one for one in (WINOGRAD_4X4, WINOGRAD_5X5) if every(one.applies(operation))), None
    )


def _passes(operation: Convolution, algorithm: Winograd) -> list[Quantity]:
    """Return the bytes of the passes that transform the three tensors."""
    plain = (*operation.reads, *operation.writes)
    transformed = spectra(operation, algorithm)
    return [one + other for one, other in zip(plain, transformed, strict=True)]
