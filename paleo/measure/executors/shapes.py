"""What shapes tell the executors of all frameworks."""

from __future__ import annotations

from typing import Any

from paleo.core.operations import Pass
from paleo.core.quantity import product
from paleo.core.window import Axis, AxisPadding

#: A shape of whole numbers.
Sizes = tuple[Any, ...]


def aligned(shape: Sizes, rank: int) -> Sizes:
    """Return a shape of this rank, with dimensions of 1 behind the batch."""
    return (shape[0], *(1,) * (rank - len(shape)), *shape[1:])


def image_scale(small: Sizes, large: Sizes) -> int:
    """Return how many times as high and wide an image gets whose channels become positions.

    0 if the images are not such.
    """
    if not len(small) == len(large) == 4:
        return 0
    times = large[1] // small[1]
    wanted = (times * small[1], times * small[2], times**2 * large[3])
    return times if times > 1 and wanted == (large[1], large[2], small[3]) else 0


def changed_dimension(source: Sizes, output: Sizes) -> int:
    """Return the one dimension behind the batch in which shapes differ, 0 if there is not one."""
    if len(source) != len(output):
        return 0
    changed = [dim for dim in range(1, len(source)) if source[dim] != output[dim]]
    return changed[0] if len(changed) == 1 else 0


class Window:
    """The window of a convolution or a pooling; of a transposed convolution, of its gradient.

    It goes over `batch` images of `sizes`, C channels, and has an `output` of K channels.
    `margins` are the elements to add before and after, also where a last window hangs over. There
    are `least` dimensions at least: a sequence is then an image of one row.
    """

    def __init__(self, layer: Any, inputs: tuple[Sizes, ...], least: int = 1) -> None:
        work: Any = layer.operations(Pass.FORWARD, inputs, 4)[0]
        along: tuple[Axis, ...] = work.axes
        rows: AxisPadding = "SAME" if along[0].padding == "SAME" else (0, 0)
        self.axes = (Axis(1, 1, 1, rows),) * (least - len(along)) + along
        self.dims = len(self.axes)
        self.batch, self.c, self.k = int(work.batch), int(work.in_channels), int(work.out_channels)
        self.groups: int = getattr(work, "groups", 1)
        self.sizes = tuple(int(axis.size) for axis in self.axes)
        self.size = tuple(axis.window for axis in self.axes)
        self.strides = tuple(axis.stride for axis in self.axes)
        self.dilations = tuple(axis.dilation for axis in self.axes)
        self.output = tuple(axis.output for axis in self.axes)
        self.margins = [_margins(axis) for axis in self.axes]

    def terms(self, channels: int) -> int:
        """Return how many terms a sum over these channels has."""
        return int(product(self.size)) * channels // self.groups


def _margins(axis: Axis) -> tuple[int, int]:
    before = max(axis.padding_before, 0)
    needed = (axis.output - 1) * axis.stride + axis.span - axis.size - before
    return before, max(axis.total_padding - before, needed, 0)
