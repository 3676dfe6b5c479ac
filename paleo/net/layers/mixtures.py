"""Mixtures of experts: which experts a token goes to, its way there, their products, and back.

Letters: N batch, T tokens of a sample, E experts, k experts of a token, D features, K outputs, C
places of an expert where each has as many. The router itself is an InnerProduct and a Softmax or a
sigmoid; experts that every token goes to are plain layers beside.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection
from typing import Any, ClassVar

from paleo.core.checks import is_number, shown
from paleo.core.loads import Loads
from paleo.core.operations import GroupedMatMul, Kind, Pass, Stream
from paleo.core.quantity import Quantity, is_array, minimum, np, product
from paleo.core.tensor import Shape, Shapes, format_shapes, num_elements
from paleo.net.layers import fields
from paleo.net.layers.base import (
    TERMS,
    Divided,
    Layer,
    MemoryNeeds,
    Operations,
    ShapeError,
    are_same,
    at_most_8,
    batch_of,
    bias_stream,
    layer_type,
    tensor_bytes,
)
from paleo.net.layers.fields import Flag, Whole, key
from paleo.net.layers.matrices import StoredMatrix

#: Exponents of a power law, and places for a row, are no larger than this.
_MOST = 1000
#: What sums of floating-point numbers may be above a whole one.
_ROUNDED = 1e-6
#: So many terms are summed up one by one.
_FEW = 4096


class Load(fields.Kind):
    """How rows are spread over experts: "even", or the exponent of a power law."""

    schema: ClassVar[fields.Schema] = {
        "anyOf": [
            {"const": "even"},
            {"type": "number", "exclusiveMinimum": 0, "maximum": _MOST},
        ]
    }

    def parse(self, value: Any) -> str | float:
        if value == "even" or (is_number(value) and 0 < value <= _MOST):
            return value  # type: ignore[no-any-return]
        raise ValueError(f'expected "even" or a number above 0, up to {_MOST}, got {shown(value)}')


class Factor(fields.Kind):
    """A number above 0; null too."""

    schema: ClassVar[fields.Schema] = {
        "type": ["number", "null"], "exclusiveMinimum": 0, "maximum": _MOST,
    }  # fmt: skip

    def parse(self, value: Any) -> float | None:
        if value is None or (is_number(value) and 0 < value <= _MOST):
            return value
        raise ValueError(f"expected a number above 0, up to {_MOST}, or null, got {shown(value)}")


def spread(rows: Quantity, experts: int, exponent: float) -> Loads:
    """Return how many experts have how many rows each, of `rows` in all, by a power law.

    The expert of rank r has a share that falls as r to the power of -`exponent` (Zipf's law).
    Ranks from one power of two to below the next count as equal, so that there are few classes;
    rows are means, below 1 where only some experts of a class have one.
    """
    bounds = [*(2**bit for bit in range(experts.bit_length())), experts + 1]
    weights = [_sum(*pair, exponent) for pair in itertools.pairwise(bounds)]
    whole = math.fsum(weights)
    return tuple(
        (end - first, rows * weight / whole / (end - first))
        for (first, end), weight in zip(itertools.pairwise(bounds), weights, strict=True)
    )


def _sum(first: int, end: int, exponent: float) -> float:
    """Return the sum of r to the power of -`exponent` from `first` to below `end`.

    Of many terms it is the integral between the middles, which differs by less than 1e-6 of it.
    """
    if end - first <= _FEW:
        return math.fsum(float(rank) ** -exponent for rank in range(first, end))
    low, high = first - 0.5, end - 0.5
    if exponent == 1:
        return math.log(high / low)
    power = 1 - exponent
    return float((high**power - low**power) / power)


def _rounded_up(number: Quantity) -> Any:
    """Return the least whole number that is no less, but for what floating point rounds."""
    least = number - _ROUNDED
    return np.ceil(least).astype(int) if is_array(least) else math.ceil(least)


@layer_type("TopK")
class TopK(Layer):
    """The k largest scores of each row, N x ... x E to N x ... x k, and which they are.

    One kernel reads all scores and writes both. Its gradient puts each score's back in its place
    among zeros.
    """

    picks: ClassVar[bool] = True

    k: int = key(Whole(), "how many are taken")

    def across(self, inputs: Shapes) -> Collection[int] | None:
        return (-1,)

    def infer_shape(self, inputs: Shapes) -> Shape:
        if self.k > inputs[0][-1]:
            raise ShapeError(f"of {inputs[0][-1]} scores it cannot take {self.k}", "k")
        return (*inputs[0][:-1], self.k)

    def operations(self, direction: Pass, inputs: Shapes, element_size: int) -> Operations:
        scores, taken = tensor_bytes((inputs[0], self.infer_shape(inputs)), element_size)
        row = element_size * inputs[0][-1]
        reads, writes = (scores,), (taken, taken)
        if direction is Pass.INPUT_GRADIENT:
            reads, writes, row = writes, reads, 0  # type: ignore[assignment]
        return (
            Stream(Kind.REDUCTION, reads, writes, row=row, direction=direction, label="top_k"),
        )  # fmt: skip

    def keeps(self, inputs: Shapes, element_size: int, needed: tuple[bool, ...]) -> MemoryNeeds:
        return MemoryNeeds(own=element_size * num_elements(self.infer_shape(inputs)))


@layer_type("Dispatch")
class Dispatch(Layer):
    """Each token to its k experts: N x ... x D to N x ... x k x D, the rows of an expert together.

    The second parent is the experts of each token, N x ... x k. Their numbers are sorted, then rows
    are copied. Without `capacity` no token is dropped. With it each expert has as many places for
    each sample, `capacity` times those of an even load, and gives N x E x C x D (Lepikhin et al.,
    GShard, arXiv:2006.16668, section 2.2): what has no place is dropped, and places may stay empty.
    """

    serves_as: ClassVar[str] = "dispatch"

    num_parents: ClassVar[tuple[int, int | None]] = (2, 2)

    capacity: float | None = key(
        Factor(),
        "places of an expert for each of those that it would fill under an even load; by default "
        "as many as it takes",
        default=None,
    )
    num_experts: int | None = key(
        Whole(optional=True), "E, the experts; needed with capacity alone", default=None
    )

    @property
    def pads(self) -> bool:  # type: ignore[override]
        return self.capacity is not None

    def spread_over(self, load: Any, capacity: Any, experts: int) -> Layer:
        if capacity is None:
            return self
        return self.replace(capacity=float(capacity), num_experts=experts)

    def divided(self, ways: int, inputs: Shapes, axes: tuple[int | None, ...]) -> Divided | None:
        # Each device has tokens of its own, with all their features.
        first, *others = axes
        is_row = first is None or (self.capacity is None and 0 <= first < len(inputs[0]) - 1)
        return Divided(self, first) if is_row and [first] == others else None

    def infer_shape(self, inputs: Shapes) -> Shape:
        tokens, choices = inputs
        if not are_same(tokens[1:-1], choices[1:-1]):
            raise ShapeError(
                f"its parents must be N x ... x D and N x ... x k, got {format_shapes(inputs)}"
            )
        if self.capacity is None:
            return at_most_8((batch_of(inputs), *choices[1:], tokens[-1]))
        if self.num_experts is None:
            raise ShapeError("with a capacity, the number of experts is needed", "num_experts")
        places = _rounded_up(product(choices[1:]) * self.capacity / self.num_experts)
        return (batch_of(inputs), self.num_experts, places, tokens[-1])

    def operations(self, direction: Pass, inputs: Shapes, element_size: int) -> Operations:
        if direction is Pass.INPUT_GRADIENT:
            return self.input_gradient(inputs, element_size, (True, False))
        tokens, choices, rows = tensor_bytes((*inputs, self.infer_shape(inputs)), element_size)
        return (
            Stream(Kind.REDUCTION, (choices,), (choices,), label="sort"),
            Stream(Kind.COPY, (tokens, choices), (rows,), label="dispatch"),
        )

    def input_gradient(
        self, inputs: Shapes, element_size: int, needed: tuple[bool, ...]
    ) -> Operations:
        if not needed[0]:
            return ()
        tokens, choices, rows = tensor_bytes((*inputs, self.infer_shape(inputs)), element_size)
        summed = Stream(
            Kind.REDUCTION, (rows, choices), (tokens,),
            direction=Pass.INPUT_GRADIENT, label="dispatch",
        )  # fmt: skip
        return (summed,)

    def keeps(self, inputs: Shapes, element_size: int, needed: tuple[bool, ...]) -> MemoryNeeds:
        return MemoryNeeds(own=element_size * num_elements(inputs[1]))


@layer_type("Experts")
class Experts(StoredMatrix):
    """Each row of N x ... x D to K numbers, by the matrix of one of E experts, and its bias.

    Which expert a row goes to depends on data: by `load` they have as many rows each, or the more
    the lower their rank. Where there are fewer rows than experts of an even load, each has an
    expert of its own.
    """

    serves_as: ClassVar[str] = "experts"

    leads = True
    adds_bias: ClassVar[bool] = True

    num_experts: int = key(Whole(), "E, the experts, each with a matrix of D x K")
    num_outputs: int = key(Whole(), "K, the numbers that a row becomes")
    use_bias: bool = key(
        Flag(), "whether each expert adds a bias of its own, of K parameters", default=True
    )

    load: str | float = key(
        Load(),
        'how rows are spread over experts: "even", or the exponent by which an expert\'s share '
        "falls with its rank",
        default="even",
    )
    shared: int = key(
        Whole(),
        "the devices that share the experts of a load: these are those of the one with most rows",
        default=1,
    )

    def infer_shape(self, inputs: Shapes) -> Shape:
        self.check_storage()
        return (*inputs[0][:-1], self.num_outputs)

    @property
    def num_experts_held(self) -> int:
        return self.num_experts

    def held_by(self, ways: int) -> Layer:
        return self.replace(num_experts=self.num_experts // ways)

    def busiest(self, ways: int) -> tuple[Layer, float]:
        if isinstance(self.load, str) or ways == 1:
            return self.held_by(ways), 1.0
        one = self.replace(num_experts=self.num_experts // ways, shared=self.shared * ways)
        most, other = one.hottest(self.load)
        return one, ways * (most + (one.num_experts - 1) * other)

    def hottest(self, exponent: float) -> tuple[float, float]:
        """Return the share of rows of the expert that has most, and the mean of the others'.

        Which experts have many rows has nothing to do with where they are. So the device with most
        rows has that expert, and beside it others of the mean: of random places the largest sum of
        a device's experts is within 3 % of theirs (8 to 256 experts, 4 to 64 devices).
        """
        count = self.num_experts * self.shared
        most = 1 / _sum(1, count + 1, exponent)
        return most, (1 - most) / max(count - 1, 1)

    def _loads(self, rows: Quantity) -> Loads:
        """Return how many of its experts have how many rows; nothing where all have as many."""
        experts, load = self.num_experts, self.load
        if isinstance(load, str):
            return ()
        if self.shared == 1:
            return spread(rows, experts, load)
        most, other = self.hottest(load)
        whole = most + (experts - 1) * other
        first = ((1, rows * (most / whole)),)
        return (*first, (experts - 1, rows * (other / whole))) if experts > 1 else first

    def spread_over(self, load: Any, capacity: Any, experts: int) -> Layer:
        if capacity is not None:  # each has as many places
            return self.replace(load="even")
        return self if load is None else self.replace(load=load)

    def num_params(self, inputs: Shapes) -> int:
        return self.num_experts * self.num_outputs * (int(inputs[0][-1]) + self.use_bias)

    def num_weights(self, inputs: Shapes) -> int:
        return self.num_experts * super().num_weights(inputs)

    def num_tensors(self, inputs: Shapes) -> int:
        return 1 + self.use_bias

    def operations(self, direction: Pass, inputs: Shapes, element_size: int) -> Operations:
        rows, d, k = product(inputs[0][:-1]), inputs[0][-1], self.num_outputs
        n, inner = (d, k) if direction is Pass.INPUT_GRADIENT else (k, d)
        experts, loads = self.num_experts, self._loads(rows)
        work = GroupedMatMul(
            "experts",
            experts if loads else minimum(rows, experts),
            rows,
            n,
            inner,
            element_size,
            direction,
            loads=loads,
            weight_size=self.weight_size(int(d)) if direction is Pass.FORWARD else 0,
        )
        biases = k * self.num_experts * self.use_bias
        return (work, *bias_stream(direction, (rows, k), biases, element_size))


@layer_type("Combine")
class Combine(Layer):
    """What experts gave back to its tokens: the sum of each token's k rows by their weights.

    Its parents are the rows, N x ... x k x D or N x E x C x D as `Dispatch` gave them, and the
    weights, N x ... x k. It gives N x ... x D in one kernel, and so do the gradients.
    """

    serves_as: ClassVar[str] = "combine"

    num_parents: ClassVar[tuple[int, int | None]] = (2, 2)

    def divided(self, ways: int, inputs: Shapes, axes: tuple[int | None, ...]) -> Divided | None:
        rows, weights = axes
        if rows == weights and (rows is None or 0 <= rows < len(inputs[1]) - 1):
            return Divided(self, rows)
        if weights is not None:
            return None
        # It is linear in the rows: terms of them give terms, parts of their features parts.
        if rows == TERMS:
            return Divided(self, TERMS)
        is_feature = rows == len(inputs[0]) - 1
        return Divided(self, len(inputs[1]) - 1) if is_feature else None

    def infer_shape(self, inputs: Shapes) -> Shape:
        rows, weights = inputs
        if not are_same(rows[1:-1], weights[1:]) and len(rows) != 4:
            raise ShapeError(
                "its parents must be N x ... x k x D, or N x E x C x D, and N x ... x k, got "
                f"{format_shapes(inputs)}"
            )
        return (batch_of(inputs), *weights[1:-1], rows[-1])

    def operations(self, direction: Pass, inputs: Shapes, element_size: int) -> Operations:
        if direction is Pass.INPUT_GRADIENT:
            return self.input_gradient(inputs, element_size, (True, True))
        rows, weights, tokens = tensor_bytes((*inputs, self.infer_shape(inputs)), element_size)
        return (Stream(Kind.REDUCTION, (rows, weights), (tokens,), label="combine"),)

    def input_gradient(
        self, inputs: Shapes, element_size: int, needed: tuple[bool, ...]
    ) -> Operations:
        rows, weights, tokens = tensor_bytes((*inputs, self.infer_shape(inputs)), element_size)
        # The rows' gradient takes the weights, the weights' the rows.
        read = (weights,) * needed[0] + (rows,) * needed[1]
        written = (rows,) * needed[0] + (weights,) * needed[1]
        back = Stream(
            Kind.ELEMENTWISE, (tokens, *read), written,
            direction=Pass.INPUT_GRADIENT, label="combine",
        )  # fmt: skip
        return (back,)

    def keeps(self, inputs: Shapes, element_size: int, needed: tuple[bool, ...]) -> MemoryNeeds:
        return MemoryNeeds(inputs=(0,) * needed[1] + (1,) * needed[0])
