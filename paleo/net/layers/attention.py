"""Attention as one layer: queries, keys and values to their weighted sum."""

from __future__ import annotations

from typing import Any, ClassVar

from paleo.core.operations import Attention as AttentionWork
from paleo.core.operations import Pass
from paleo.core.quantity import product
from paleo.core.tensor import Shape, Shapes, format_shapes
from paleo.net.layers.base import Layer, MemoryNeeds, Operations, ShapeError, batch_of, layer_type
from paleo.net.layers.fields import Flag, Whole, key


@layer_type("Attention")
class Attention(Layer):
    """Scaled dot-product attention of queries, keys and values, N x heads x T x d each.

    Keys and values may have fewer heads, each of which serves several of the queries.
    """

    num_parents: ClassVar[tuple[int, int | None]] = (3, 3)

    causal: bool = key(
        Flag(), "whether a query sees only the keys up to its own position", default=False
    )
    window: int | None = key(
        Whole(optional=True),
        "the most keys that a query sees, the last up to its own; by default all",
        default=None,
    )

    def _sizes(self, inputs: Shapes) -> tuple[Any, int, Any, Any, int, int]:
        """Return heads with the batch, queries' heads for one of keys, T, S, d, and d of values."""
        q, k, v = inputs
        if not len(q) == len(k) == len(v) >= 4:
            raise ShapeError(f"its inputs must be N x heads x T x d, got {format_shapes(inputs)}")
        agree = q[-1] == k[-1] and k[-2] == v[-2] and k[1:-2] == v[1:-2]
        if not agree or q[1:-3] != k[1:-3] or q[-3] % k[-3]:
            raise ShapeError(
                f"queries, keys and values do not fit together: {format_shapes(inputs)}"
            )
        heads = batch_of(inputs) * product(q[1:-2])
        return heads, int(q[-3] // k[-3]), q[-2], k[-2], int(q[-1]), int(v[-1])

    def infer_shape(self, inputs: Shapes) -> Shape:
        self._sizes(inputs)
        if self.window is not None and not self.causal:
            raise ShapeError("a window ends at the query's own position, so causal must be true")
        return (batch_of(inputs), *inputs[0][1:-1], inputs[2][-1])

    def operations(self, direction: Pass, inputs: Shapes, element_size: int) -> Operations:
        sizes, window = self._sizes(inputs), self.window or 0
        return (AttentionWork(direction, *sizes, element_size, self.causal, window),)

    def keeps(self, inputs: Shapes, element_size: int, needed: tuple[bool, ...]) -> MemoryNeeds:
        # Scores are computed again, from the logarithm of each row's sum, in 4 bytes.
        heads, _, queries, *_ = self._sizes(inputs)
        return MemoryNeeds(inputs=(0, 1, 2), output=True, saved=4 * heads * queries)
