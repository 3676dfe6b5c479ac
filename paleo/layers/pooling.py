"""Pooling (a maximum over windows), AvgPool, and UpSampling2D."""

from __future__ import annotations

from typing import Any, ClassVar

from paleo.layers.base import Layer, Operations, image, layer_type
from paleo.layers.convolution import PADDING, window_output
from paleo.layers.keys import Name, PaddingKind, Window, key
from paleo.tensor import Shape, num_elements
from paleo.window import Axis, axes
from paleo.work import Pass, Stream
from paleo.work import Pooling as PoolingWork

__all__ = ["AvgPool", "Pooling", "UpSampling2D"]


@layer_type("Pooling")
class Pooling(Layer):
    """The largest element of each window of each channel."""

    maximum: ClassVar[bool] = True

    ksize: tuple[int, int] = key(Window(), "the window, [1, height, width, 1]")
    strides: tuple[int, int] = key(Window(), "steps of the window, [1, height, width, 1]")
    padding: Any = key(PaddingKind(), PADDING)
    rounding: str = key(
        Name(("floor", "ceil")),
        "whether a last window that hangs over the end is left out (floor) or counts (ceil)",
        "floor",
    )

    def _axes(self, shape: Shape) -> tuple[Axis, ...]:
        _, h, w, _ = image(shape)
        ceil = self.rounding == "ceil"
        return axes((h, w), self.ksize, self.strides, self.padding, ceil=ceil)

    def infer_shape(self, inputs: tuple[Shape, ...]) -> Shape:
        sizes = window_output(self._axes(inputs[0]), "ksize")
        return (inputs[0][0], *sizes, inputs[0][3])

    def operations(
        self, direction: Pass, inputs: tuple[Shape, ...], element_size: int
    ) -> Operations:
        if direction is Pass.WEIGHT_GRADIENT:
            return ()
        n, _, _, c = image(inputs[0])
        along = self._axes(inputs[0])
        return (PoolingWork(direction, n, along, c, c, element_size, self.maximum),)


@layer_type("AvgPool")
class AvgPool(Pooling):
    """The mean of each window of each channel."""

    maximum: ClassVar[bool] = False


@layer_type("UpSampling2D")
class UpSampling2D(Layer):
    """Each element repeated in a window: N x H k_h x W k_w x C."""

    ksize: tuple[int, int] = key(Window(), "how often to repeat, [1, height, width, 1]")

    def infer_shape(self, inputs: tuple[Shape, ...]) -> Shape:
        n, h, w, c = image(inputs[0])
        return (n, h * self.ksize[0], w * self.ksize[1], c)

    def operations(
        self, direction: Pass, inputs: tuple[Shape, ...], element_size: int
    ) -> Operations:
        small = (element_size * num_elements(inputs[0]),)
        large = (element_size * num_elements(self.infer_shape(inputs)),)
        if direction is Pass.FORWARD:
            return (Stream("upsampling", small, large),)
        return (Stream("upsampling", large, small),) if direction is Pass.INPUT_GRADIENT else ()
