"""Which keys attention is to see: an indexer's choice, as DeepSeek Sparse Attention makes it.

Letters: N batch, H heads of the indexer, T queries, S keys, d features of a head, k keys chosen.
"""

from __future__ import annotations

from typing import ClassVar

from paleo.core.operations import BatchMatMul, Kind, Pass, Stream
from paleo.core.quantity import every, minimum
from paleo.core.tensor import Shape, Shapes, format_shapes
from paleo.net.layers.base import (
    Layer,
    MemoryNeeds,
    Operations,
    ShapeError,
    are_same,
    batch_of,
    layer_type,
    tensor_bytes,
)
from paleo.net.layers.fields import Whole, key

#: Bytes of a place.
_PLACE = 4


@layer_type("SelectKeys")
class SelectKeys(Layer):
    """The k keys that each query is to see (DeepSeek-AI, arXiv:2512.02556, section 2.1).

    Its parents are the indexer's queries, N x H x T x d, its keys, N x 1 x S x d, and a weight of
    each head, N x T x H. It gives N x 1 x T x 1, which an Attention with `best` takes as its fourth
    parent. As in transformers' DeepseekV32Indexer a product gives the scores of all heads, a kernel
    their weighted sum, and another the places of the largest: 2 N H T S d FLOPs. Nothing is learned
    by the choice, so there is no backward pass.
    """

    num_parents: ClassVar[tuple[int, int | None]] = (3, 3)
    kept: ClassVar[MemoryNeeds | None] = MemoryNeeds()
    serves_as: ClassVar[str] = "select"

    k: int = key(Whole(), "how many keys are chosen, or all if they are no more")

    def infer_shape(self, inputs: Shapes) -> Shape:
        q, keys, weights = inputs
        fit = len(q) == len(keys) == 4 and len(weights) == 3
        fit = fit and are_same(keys[1:2], (1,)) and q[-1] == keys[-1]
        if not fit or not (every(weights[1] == q[2]) and every(weights[2] == q[1])):
            raise ShapeError(
                "its parents must be N x H x T x d, N x 1 x S x d, and N x T x H, "
                f"got {format_shapes(inputs)}"
            )
        return (batch_of(inputs), 1, q[2], 1)

    def operations(self, direction: Pass, inputs: Shapes, element_size: int) -> Operations:
        if direction is not Pass.FORWARD:
            return ()
        n, (_, heads, queries, depth), keys = batch_of(inputs), inputs[0], inputs[1][2]
        (weights,) = tensor_bytes(inputs[2:], element_size)
        scores = element_size * n * queries * keys
        chosen = _PLACE * n * queries * minimum(self.k, keys)
        return (
            BatchMatMul("index scores", n, heads * queries, keys, depth, element_size),
            Stream(Kind.REDUCTION, (heads * scores, weights), (scores,), label="sum of heads"),
            Stream(
                Kind.REDUCTION, (scores,), (chosen,), row=element_size * keys, label="best keys"
            ),
        )  # fmt: skip

    def cached(self, inputs: Shapes) -> int:
        return int(inputs[1][-1])
