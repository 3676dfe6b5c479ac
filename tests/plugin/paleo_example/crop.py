"""Crop: the middle of an image."""

from __future__ import annotations

from paleo.core.operations import Kind, Pass
from paleo.core.tensor import Shape
from paleo.net.layers.base import Layer, Operations, ShapeError, image, layer_type, stream
from paleo.net.layers.fields import Whole, key


@layer_type("Crop")
class Crop(Layer):
    """The middle of an image, without `margin` elements on each side.

    Output: N x (H - 2 margin) x (W - 2 margin) x C. Parameters: none. FLOPs: none.

    ```json
    {
      "name": "cropped",
      "layers": {
        "data": {"type": "Input", "tensor": [2, 9, 7, 3]},
        "middle": {"type": "Crop", "parents": ["data"], "margin": 2},
        "scores": {"type": "InnerProduct", "parents": ["middle"], "num_outputs": 10}
      }
    }
    ```

    9 - 2\\*2 = 5 rows and 7 - 2\\*2 = 3 columns are left: 5\\*3\\*3 = 45 features of a sample,
    45\\*10 + 10 = 460 parameters and 2 \\* 2\\*45\\*10 = 1800 FLOPs of `scores`.

    ```text
    Output of middle: 2x5x3x3, parameters 0, forward FLOPs 0
    Output of scores: 2x10, parameters 460, forward FLOPs 1800
    ```
    """

    margin: int = key(Whole(), "elements cut off on each side")

    def infer_shape(self, inputs: tuple[Shape, ...]) -> Shape:
        batch, (h, w), c = image(inputs[0], rank=2)
        if 2 * self.margin >= min(h, w):
            raise ShapeError(f"a margin of {self.margin} leaves nothing of {h}x{w}", "margin")
        return (*batch, h - 2 * self.margin, w - 2 * self.margin, c)

    def operations(
        self, direction: Pass, inputs: tuple[Shape, ...], element_size: int
    ) -> Operations:
        if direction is Pass.WEIGHT_GRADIENT:
            return ()
        output = self.infer_shape(inputs)
        return stream(Kind.COPY, direction, output, element_size, label="crop")
