"""Convolutions of small filters by Winograd's algorithm: fewer multiplications, more additions.

F(m x m, r x r) computes m x m outputs from a = m + r - 1 by a inputs with a^2 instead of
m^2 r^2 multiplications: the inputs, the filter and the products are transformed, and in between
there are a^2 matrix products of N ceil(P / m) ceil(Q / m) x C times C x K (Lavin, Gray, Fast
Algorithms for Convolutional Neural Networks, arXiv:1509.09308).
"""

from __future__ import annotations

from paleo.costs.tiled.gemm import choose
from paleo.costs.tiled.machine import Machine
from paleo.costs.tiled.way import Shape, Way, extended
from paleo.quantity import Quantity, ceil_div, product, smallest
from paleo.work import Convolution, Pass

__all__ = ["fused", "in_steps"]

#: m of the kernel that transforms on the chip, for r = 3.
_FUSED = 2
#: a of the transforms that go through memory: F(4 x 4, 3 x 3) and F(2 x 2, 5 x 5).
_STEPPED = 6
#: Share of a convolution's speed that the products reach between transforms on the chip.
_FUSED_SHARE = 0.9
#: The filters that libraries have it for, from which generation on.
_FORWARD = {3: 5, 5: 7}
_FILTER = {3: 6, 5: 7}
#: Bytes of the largest elements that libraries have it for.
_LARGEST = 4
#: Kernels that transform the two operands and the result.
_TRANSFORMS = 3


def _side(operation: Convolution, machine: Machine) -> int | None:
    """Return r, None where the algorithm does not apply.

    It is for the lanes: matrix units multiply quicker than the transforms move their bytes.
    """
    r = operation.axes[0].window
    if (
        len(operation.axes) != 2
        or operation.groups > 1
        or machine.matrix_peak is not None
        or operation.element_size > _LARGEST
        or any((axis.window, axis.stride, axis.dilation) != (r, 1, 1) for axis in operation.axes)
    ):
        return None
    since = _FILTER if operation.direction is Pass.WEIGHT_GRADIENT else _FORWARD
    return r if r in since and smallest(machine.library) >= since[r] else None


def _channels(operation: Convolution) -> tuple[int, int]:
    """Return the channels that are summed over, and those of the result."""
    if operation.direction is Pass.INPUT_GRADIENT:
        return operation.out_channels, operation.in_channels
    return operation.in_channels, operation.out_channels


def _tiles(operation: Convolution, m: int) -> Quantity:
    """Return into how many tiles of m x m outputs the result is cut."""
    back = operation.direction is Pass.INPUT_GRADIENT
    found: Quantity = product(
        ceil_div(axis.size if back else axis.output, m) for axis in operation.axes
    )
    return operation.batch * found


def fused(operation: Convolution, machine: Machine) -> Way | None:
    """Return it by F(2 x 2, 3 x 3) in one kernel: 16 multiplications for 36."""
    r = _side(operation, machine)
    if r != 3 or operation.direction is Pass.WEIGHT_GRADIENT:
        return None
    summed, made = _channels(operation)
    tiles, size = _tiles(operation, _FUSED), operation.element_size
    count = (_FUSED + r - 1) ** 2
    read, filters = operation.reads
    chosen = choose(
        tiles, made, summed, machine,
        # Of the 16 products of a tile 4 results are written, in whole bytes for each.
        sizes=(size, size, max(size * _FUSED**2 // count, 1)), count=count,
        share=_FUSED_SHARE * machine.convolution_share, stored=(read, filters), splits=(1,),
    )  # fmt: skip
    return Way(extended(chosen.time, machine, kernels=1), tiles, made, summed, count, chosen)


def in_steps(operation: Convolution, machine: Machine) -> Way | None:
    """Return it by transforms, products and a transform back: 36 multiplications for 144.

    It is F(4 x 4, 3 x 3), or F(2 x 2, 5 x 5) with 36 for 100. The gradient of the filter sums
    over the tiles.
    """
    r = _side(operation, machine)
    if r is None:
        return None
    summed, made = _channels(operation)
    m = _STEPPED + 1 - r
    tiles, size, count = _tiles(operation, m), operation.element_size, _STEPPED**2
    back = operation.direction is Pass.WEIGHT_GRADIENT
    shape: Shape = (made, summed, tiles) if back else (tiles, made, summed)
    # Bytes of the transformed inputs, filters and outputs, in either direction.
    inputs, outputs = count * size * tiles * summed, count * size * tiles * made
    filters = count * size * summed * made
    plain = (*operation.reads, *operation.writes)
    transformed = (inputs, outputs, filters) if back else (inputs, filters, outputs)
    chosen = choose(*shape, machine, sizes=(size, size, size), count=count)
    passes = [one + other for one, other in zip(plain, transformed, strict=True)]
    time = extended(chosen.time, machine, passes=passes, kernels=_TRANSFORMS)
    return Way(time, *shape, count, chosen, inputs + filters + outputs)
