"""Attention as one layer: queries, keys and values to their weighted sum."""

from __future__ import annotations

from typing import Any, ClassVar

from paleo.core.operations import Attention as AttentionWork
from paleo.core.operations import BatchMatMul, Kind, Pass, Role, Stream
from paleo.core.quantity import Quantity, ceil_div, every, minimum, product, some, total
from paleo.core.tensor import Shape, Shapes, format_shape, format_shapes
from paleo.net.layers.base import (
    Divided,
    Layer,
    MemoryNeeds,
    Operations,
    ShapeError,
    batch_of,
    is_one,
    layer_type,
    tensor_bytes,
)
from paleo.net.layers.fields import Flag, Whole, key


@layer_type("Attention")
class Attention(Layer):
    """Scaled dot-product attention of queries, keys and values, N x heads x T x d each.

    Keys and values may have fewer heads, each of which serves several of the queries. A fourth
    parent is added to the scores, such as biases of positions; dimensions of 1 are repeated. The
    queries of a causal one, and of one in chunks, are the last of the keys.
    """

    num_parents: ClassVar[tuple[int, int | None]] = (3, 4)
    is_attention: ClassVar[bool] = True

    causal: bool = key(
        Flag(), "whether a query sees only the keys up to its own position", default=False
    )
    window: int | None = key(
        Whole(optional=True),
        "the most keys that a query sees, the last up to its own; by default all",
        default=None,
    )
    chunk: int | None = key(
        Whole(optional=True),
        "positions of a chunk: a query sees the keys of its own chunk alone; by default all",
        default=None,
    )
    sinks: bool = key(
        Flag(),
        "whether each of the queries' heads has a learned score that takes part in the softmax and "
        "has no value",
        default=False,
    )
    alibi: bool = key(
        Flag(),
        "whether the kernel adds a bias that falls with the distance of query and key",
        default=False,
    )
    softcap: bool = key(
        Flag(), "whether scores go through a tanh that keeps them below a bound", default=False
    )
    best: int | None = key(
        Whole(optional=True),
        "the most keys that a query sees, those that its fourth parent, a SelectKeys, chose; by "
        "default all",
        default=None,
    )
    values_in_keys: bool = key(
        Flag(),
        "whether the values are the first e features of the keys, so that they are read once",
        default=False,
    )

    @property
    def is_plain(self) -> bool:
        """Whether frameworks have an operator for it, not only kernels of libraries."""
        return not (self.chunk or self.sinks or self.alibi or self.softcap or self.best)

    def _sizes(self, inputs: Shapes) -> tuple[Any, int, Any, Any, int, int]:
        """Return heads with the batch, queries' heads for one of keys, T, S, d, and d of values."""
        q, k, v, *_ = inputs
        if not len(q) == len(k) == len(v) >= 4:
            raise ShapeError(f"its inputs must be N x heads x T x d, got {format_shapes(inputs)}")
        agree = every(k[-2] == v[-2]) and q[-1] == k[-1] and k[1:-2] == v[1:-2]
        if not agree or q[1:-3] != k[1:-3] or q[-3] % k[-3]:
            raise ShapeError(
                f"queries, keys and values do not fit together: {format_shapes(inputs)}"
            )
        heads = batch_of(inputs) * product(q[1:-2])
        return heads, int(q[-3] // k[-3]), q[-2], k[-2], int(q[-1]), int(v[-1])

    def infer_shape(self, inputs: Shapes) -> Shape:
        _, _, queries, keys, *_ = self._sizes(inputs)
        for mask in inputs[3:]:
            fits = [
                is_one(own) or every(own == size)
                for own, size in zip(mask[-2:], (queries, keys), strict=True)
            ]
            if not all(fits):
                raise ShapeError(f"a mask of {format_shape(mask)} is none of {queries} x {keys}")
        if self.window is not None and not self.causal:
            raise ShapeError("a window ends at the query's own position, so causal must be true")
        if self.window is not None and self.chunk is not None:
            raise ShapeError("a query sees a window of keys or those of its chunk, not both")
        if self.best is not None and (self.window or self.chunk or len(inputs) < 4):
            raise ShapeError("the best keys are chosen by a fourth parent, and of all keys")
        if self.chunk is not None and not every(queries <= keys):
            raise ShapeError(
                f"the queries of chunks are the last of the keys: {queries} are no part of {keys}"
            )
        if self.values_in_keys and inputs[2][-1] > inputs[1][-1]:
            raise ShapeError(
                f"values of {inputs[2][-1]} features are no part of keys of {inputs[1][-1]}"
            )
        return (batch_of(inputs), *inputs[0][1:-1], inputs[2][-1])

    def num_params(self, inputs: Shapes) -> int:
        return int(product(inputs[0][1:-2])) * self.sinks

    def cached(self, inputs: Shapes) -> int:
        _, k, v, *_ = inputs
        return int(product(k[1:-2]) * (k[-1] + (0 if self.values_in_keys else v[-1])))

    def by_positions(self, keys: int, ways: int) -> tuple[int, Layer]:
        """Return how many keys a query sees that has one of so many parts of the positions.

        Parts of a causal one are dealt out so that each has early and late positions (such as the
        first and the last of twice as many pieces): a query sees half of the keys on average.
        """
        if self.window is not None or self.chunk is not None:
            most = self.window or self.chunk or keys
            return min(keys, keys // ways + most), self
        if not self.causal:
            return keys, self
        return ceil_div(keys, 2), self.replace(causal=False)

    def divided(self, ways: int, inputs: Shapes, axes: tuple[int | None, ...]) -> Divided | None:
        # By heads; a mask that is the same for all of them is whole.
        masks = zip(inputs[3:], axes[3:], strict=True)
        alike = all(axis == axes[0] or (axis is None and is_one(mask[1])) for mask, axis in masks)
        if len(set(axes[:3])) > 1 or axes[0] not in (None, len(inputs[0]) - 3) or not alike:
            return None
        return Divided(self, axes[0])

    def _pieces(self, queries: Any, keys: Any) -> list[tuple[Quantity, Quantity, Quantity]]:
        """Return how many pieces there are of so many queries and keys each.

        In chunks each is attention by itself: the first may hold keys before the first query, the
        last is what is left.
        """
        if self.chunk is None:
            return [(1, queries, keys)]
        before = (keys - queries) % self.chunk
        first = minimum(self.chunk - before, queries) * (before > 0)
        whole, last = divmod(queries - first, self.chunk)
        found = [
            (1 * (first > 0), first, before + first),
            (whole, self.chunk, self.chunk),
            (1 * (last > 0), last, last),
        ]
        found = [piece for piece in found if some(piece[0])]
        if all(every(count > 0) for count, *_ in found):
            return found
        # Of an array of lengths some have a piece that others have not: equal pieces of each.
        chunks = ceil_div(before + queries, self.chunk)
        return [(chunks, queries / chunks, (before + queries) / chunks)]

    def operations(self, direction: Pass, inputs: Shapes, element_size: int) -> Operations:
        heads, sharing, queries, keys, depth, value_depth = self._sizes(inputs)
        if direction is Pass.WEIGHT_GRADIENT:
            # A sum over rows: of the share that the score has in each, and of the gradient there.
            rows = element_size * heads * queries
            written = element_size * self.num_params(inputs)
            return (
                Stream(
                    Kind.REDUCTION, (rows, rows), (written,), direction=direction,
                    roles=(Role.KEPT, Role.OUTPUT_GRADIENT), label="gradient of sinks",
                ),
            )  # fmt: skip
        masks = total(tensor_bytes(inputs[3:], element_size))
        return tuple(
            AttentionWork(
                direction, heads * count, sharing, own, seen, depth, value_depth, element_size,
                self.causal, self.window or self.best or 0,
                mask=masks * count * own * seen // (queries * keys) if inputs[3:] else 0,
                values_in_keys=self.values_in_keys,
            )
            for count, own, seen in self._pieces(queries, keys)
        )  # fmt: skip

    def input_gradient(
        self, inputs: Shapes, element_size: int, needed: tuple[bool, ...]
    ) -> Operations:
        found = self.operations(Pass.INPUT_GRADIENT, inputs, element_size)
        if not any(needed[3:]):
            return found
        # The kernel writes the gradient of all scores, whose sums are that of what was added.
        heads, _, queries, keys, *_ = self._sizes(inputs)
        scores, (added,) = (
            element_size * heads * queries * keys,
            tensor_bytes(inputs[3:], element_size),
        )
        of_mask = Stream(
            Kind.REDUCTION, (scores,), (scores, added),
            direction=Pass.INPUT_GRADIENT, label="gradient of the mask",
        )  # fmt: skip
        return (*found, of_mask)

    def keeps(self, inputs: Shapes, element_size: int, needed: tuple[bool, ...]) -> MemoryNeeds:
        # Scores are computed again, from the logarithm of each row's sum, in 4 bytes.
        heads, _, queries, *_ = self._sizes(inputs)
        places = tuple(range(len(inputs)))
        return MemoryNeeds(inputs=places, output=True, saved=4 * heads * queries)

    def in_steps(self, wide: bool) -> Layer:
        return AttentionInSteps(**vars(self), wide=wide)


class AttentionInSteps(Attention):
    """The same as two products with a softmax between, each a kernel that writes its result.

    That is how nets were written before frameworks had a kernel for it. With `wide` the softmax is
    computed in 4 bytes an element, as autocast does, and what is around it in halves.
    """

    is_attention: ClassVar[bool] = False

    wide: bool = key(Flag(), "whether the softmax is computed in fp32")

    def operations(self, direction: Pass, inputs: Shapes, element_size: int) -> Operations:
        if direction is Pass.WEIGHT_GRADIENT:
            return super().operations(direction, inputs, element_size)
        heads, sharing, queries, keys, depth, value_depth = self._sizes(inputs)
        count, rows = heads // sharing, queries * sharing
        element = (count, rows, keys, depth, element_size)
        compared = BatchMatMul("scores", *element)
        summed = BatchMatMul("values", count, rows, value_depth, keys, element_size)
        scores = heads * queries * keys
        half, full = element_size * scores, (4 if self.wide else element_size) * scores
        row = keys * full // scores
        is_cast = self.wide and element_size != full // scores

        def step(kind: Kind, read: Any, written: Any, label: str, **said: Any) -> Stream:
            return Stream(kind, read, (written,), direction=direction, label=label, **said)

        down = (step(Kind.COPY, (full,), half, "cast"),) * is_cast
        up = (step(Kind.COPY, (half,), full, "cast"),) * is_cast
        scaled = step(Kind.FUNCTION, (half,), half, "scale", function="affine")
        if direction is Pass.FORWARD:
            masks = tensor_bytes(inputs[3:], element_size)
            added = tuple(step(Kind.ELEMENTWISE, (half, mask), half, "mask") for mask in masks)
            softmax = step(Kind.SOFTMAX, (full,), full, "softmax", row=row, passes=3)
            return (compared, scaled, *added, *up, softmax, *down, summed)
        softmax = step(Kind.SOFTMAX, (full, full), full, "softmax", row=row, passes=2)
        of_scores, of_values = summed.gradients()
        return (of_scores, of_values, *up, softmax, *down, scaled, *compared.gradients())

    def keeps(self, inputs: Shapes, element_size: int, needed: tuple[bool, ...]) -> MemoryNeeds:
        heads, _, queries, keys, *_ = self._sizes(inputs)
        scores = heads * queries * keys
        wide = 4 * scores if self.wide else 0
        return MemoryNeeds(inputs=(0, 1, 2), own=wide + element_size * scores)
