"""Positions that are computed, not learned: what turns queries and keys by where they stand."""

from __future__ import annotations

from typing import ClassVar

from paleo.core.operations import Kind
from paleo.core.tensor import Shape, Shapes, format_shape
from paleo.net.layers.base import MemoryNeeds, ShapeError, layer_type
from paleo.net.layers.fields import Whole, key
from paleo.net.layers.pointwise import Pointwise


@layer_type("RotaryEmbedding")
class RotaryEmbedding(Pointwise):
    """Pairs of the last dimension's elements turned by an angle that grows with the position.

    (Su et al., RoFormer, arXiv:2104.09864, section 3.4.2.) One kernel passes over the tensor. The
    cosines and sines of a position are the same for all heads and samples: they stay in the cache
    and are not counted. The gradient is turned back, and takes nothing from the forward pass.
    """

    serves_as: ClassVar[str] = "rotation"

    kept: ClassVar[MemoryNeeds | None] = MemoryNeeds()
    kind: ClassVar[Kind] = Kind.ELEMENTWISE
    is_pointwise: ClassVar[bool] = True
    backward_reads: ClassVar[int] = 1

    rotated: int | None = key(
        Whole(optional=True),
        "how many of the last dimension's elements are turned, the others stay; by default all",
        default=None,
    )

    def infer_shape(self, inputs: Shapes) -> Shape:
        turned = inputs[0][-1] if self.rotated is None else self.rotated
        if turned > inputs[0][-1]:
            raise ShapeError(
                f"{format_shape(inputs[0])} has fewer than {turned} elements to turn", "rotated"
            )
        if turned % 2:
            raise ShapeError(f"{turned} elements are no pairs", "rotated")
        return inputs[0]
