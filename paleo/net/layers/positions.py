"""Positions told by rotation."""

from __future__ import annotations

from typing import ClassVar

from paleo.core.operations import Kind, Pass, Stream
from paleo.core.tensor import Shape, Shapes
from paleo.net.layers.base import (
    Layer,
    MemoryNeeds,
    Operations,
    ShapeError,
    dimension,
    layer_type,
    tensor_bytes,
)
from paleo.net.layers.fields import Dimension, Whole, key


@layer_type("RotaryEmbedding")
class RotaryEmbedding(Layer):
    """Pairs of a head's elements turned by angles that grow with the position.

    J. Su et al., RoFormer: Enhanced Transformer with Rotary Position Embedding, arXiv:2104.09864.
    It is one kernel, as libraries have it, which reads a table of sines and cosines besides.
    """

    kept: ClassVar[MemoryNeeds | None] = MemoryNeeds()
    keeps_shape: ClassVar[bool] = True

    dim: int = key(Dimension(), "the dimension along which the position grows", default=1)
    rotated: int | None = key(
        Whole(optional=True),
        "how many elements of each head are turned, an even number, the first; by default all",
        default=None,
    )

    def _turned(self, shape: Shape) -> int:
        """Return the elements of a head that are turned; raises ShapeError if there are none."""
        turned = int(shape[-1]) if self.rotated is None else self.rotated
        if turned > shape[-1] or turned % 2:
            raise ShapeError(
                f"of {shape[-1]} elements of a head, {turned} cannot be turned in pairs", "rotated"
            )
        return turned

    def infer_shape(self, inputs: Shapes) -> Shape:
        if len(inputs[0]) < 3 or dimension(self.dim, inputs[0], "dim") == len(inputs[0]) - 1:
            raise ShapeError("the position has a dimension of its own, before the last", "dim")
        self._turned(inputs[0])
        return inputs[0]

    def operations(self, direction: Pass, inputs: Shapes, element_size: int) -> Operations:
        if direction is Pass.WEIGHT_GRADIENT:
            return ()
        shape = inputs[0]
        (moved,) = tensor_bytes(inputs, element_size)
        # A sine and a cosine for each pair at each position; the way back turns the other way.
        table = element_size * shape[self.dim] * self._turned(shape)
        reads = (moved, table)
        return (Stream(Kind.ELEMENTWISE, reads, (moved,), direction=direction, label="rotary"),)
