"""Pooling over windows or the whole image, and its contrary: UpSampling2D, Resize.

Sequences, images and volumes: one, two or three spatial dimensions.
"""

from __future__ import annotations

from typing import Any, ClassVar

from paleo.core.operations import Pass
from paleo.core.operations import Pooling as PoolingWork
from paleo.core.quantity import product
from paleo.core.tensor import Shape, Shapes, num_elements
from paleo.core.window import Axis, axes
from paleo.net.layers.base import (
    Copying,
    Layer,
    MemoryNeeds,
    Operations,
    ShapeError,
    image,
    layer_type,
)
from paleo.net.layers.convolution import PADDING, check_ranks, steps, window_output
from paleo.net.layers.fields import Name, PaddingKind, Sizes, Window, key

#: Bytes of the place where a maximum was found.
_INDEX = 8


@layer_type("Pooling")
class Pooling(Layer):
    """The largest element of each window of each channel."""

    maximum: ClassVar[bool] = True

    ksize: tuple[int, ...] = key(Window(), "the window, [1, height, width, 1]")
    strides: tuple[int, ...] = key(Window(), "steps of the window, [1, height, width, 1]")
    padding: Any = key(PaddingKind(), PADDING)
    rounding: str = key(
        Name(("floor", "ceil")),
        "whether a last window that hangs over the end is left out (floor) or counts (ceil)",
        default="floor",
    )
    dilations: tuple[int, ...] = key(
        Window(),
        "steps between the elements of the window, [1, height, width, 1]",
        default=[1, 1, 1, 1],
    )

    def _axes(self, shape: Shape) -> tuple[Axis, ...]:
        rank = len(self.ksize)
        check_ranks(rank, strides=self.strides, padding=self.padding)
        _, sizes, _ = image(shape, rank)
        dilations = steps(self.dilations, rank)
        ceil = self.rounding == "ceil"
        return axes(sizes, self.ksize, self.strides, self.padding, dilations, ceil=ceil)

    def infer_shape(self, inputs: Shapes) -> Shape:
        sizes = window_output(self._axes(inputs[0]), "ksize")
        batch, _, c = image(inputs[0], len(self.ksize))
        return (*batch, *sizes, c)

    def operations(self, direction: Pass, inputs: Shapes, element_size: int) -> Operations:
        batch, _, c = image(inputs[0], len(self.ksize))
        n, along = product(batch), self._axes(inputs[0])
        return (PoolingWork(direction, n, along, c, c, element_size, self.maximum),)

    def keeps(self, inputs: Shapes, element_size: int, needed: tuple[bool, ...]) -> MemoryNeeds:
        places = num_elements(self.infer_shape(inputs)) * self.maximum
        return MemoryNeeds(inputs=(0,), own=_INDEX * places)


@layer_type("AvgPool")
class AvgPool(Pooling):
    """The mean of each window of each channel."""

    maximum: ClassVar[bool] = False

    def following(self, before: Shapes, after: Shapes) -> Layer:
        """Return the mean over a whole image as one.

        A maximum over a small image is more often one of many windows in larger ones.
        """
        _, old, _ = image(before[0], len(self.ksize))
        _, new, _ = image(after[0], len(self.ksize))
        padded = not isinstance(self.padding, str) and any(map(any, self.padding))
        if self.ksize != old or self.padding == "SAME" or padded:
            return self
        return self.replace(ksize=new)


@layer_type("GlobalPooling")
class GlobalPooling(Layer):
    """The mean or the largest element of each channel: N x 1 x 1 x C."""

    function: str = key(Name(("average", "maximum")), "which of the two", default="average")

    def infer_shape(self, inputs: Shapes) -> Shape:
        n, *sizes, c = _spatial(inputs[0])
        return (n, *[1] * len(sizes), c)

    def operations(self, direction: Pass, inputs: Shapes, element_size: int) -> Operations:
        n, *sizes, c = _spatial(inputs[0])
        along = tuple(Axis(size, size, 1, "VALID") for size in sizes)
        maximum = self.function == "maximum"
        return (PoolingWork(direction, n, along, int(c), int(c), element_size, maximum),)

    def keeps(self, inputs: Shapes, element_size: int, needed: tuple[bool, ...]) -> MemoryNeeds:
        if self.function == "average":
            return MemoryNeeds()
        return MemoryNeeds(inputs=(0,), own=_INDEX * num_elements(self.infer_shape(inputs)))


def _spatial(shape: Shape) -> tuple[Any, ...]:
    """Return a shape that has one spatial dimension at least; raises ShapeError."""
    if len(shape) < 3:
        image(shape, 2)
    return shape


@layer_type("UpSampling2D")
class UpSampling2D(Copying):
    """Each element repeated in a window: N x H k_h x W k_w x C."""

    label: ClassVar[str] = "upsampling"

    ksize: tuple[int, ...] = key(Window(), "how often to repeat, [1, height, width, 1]")

    def infer_shape(self, inputs: Shapes) -> Shape:
        batch, sizes, c = image(inputs[0], len(self.ksize))
        larger = (size * times for size, times in zip(sizes, self.ksize, strict=True))
        return (*batch, *larger, c)


@layer_type("Resize")
class Resize(Copying):
    """An image, a sequence or a volume brought to another size by interpolation."""

    size: tuple[int, ...] = key(Sizes(min_rank=1), "[height, width] of the output")
    mode: str = key(
        Name(("nearest", "linear", "cubic")),
        "how to interpolate, along each dimension",
        default="nearest",
    )

    def infer_shape(self, inputs: Shapes) -> Shape:
        if len(self.size) > 3:
            raise ShapeError("there are at most 3 spatial dimensions", "size")
        batch, _, c = image(inputs[0], len(self.size))
        return (*batch, *self.size, c)

    def following(self, before: Shapes, after: Shapes) -> Layer:
        if len(self.size) > 3:
            return self
        _, old, _ = image(before[0], len(self.size))
        _, new, _ = image(after[0], len(self.size))
        # As much larger or smaller as before.
        sizes = tuple(size * now // was for size, was, now in zip(self.size, old, new, strict=True))
        return self.replace(size=sizes) if all(sizes) else self
