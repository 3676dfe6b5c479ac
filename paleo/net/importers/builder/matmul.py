"""Operators that multiply: with parameters, and two tensors with each other."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from math import prod
from string import ascii_letters

from paleo.core.tensor import format_shape
from paleo.net.importers.base import OperatorError
from paleo.net.importers.builder.layers import Wanted, broadcast, make
from paleo.net.importers.builder.layout import BATCH, Group, Value, before_and_after
from paleo.net.importers.builder.reshape import Shaper
from paleo.net.layers import Layer


class Multiplier(Shaper):
    """See the module."""

    @abstractmethod
    def elementwise(self, name: str, function: str, values: Sequence[Value], **keys: bool) -> Value:
        """Return a function of one element of each, axes of 1 repeated as NumPy does."""

    def _own_bias(self, weight: Value, bias: Value | None) -> tuple[Value | None, Value | None]:
        """Return a bias that the layer itself can count, and one that has to be added apart.

        A layer has both of its own, or both of another layer; what is no parameter is added.
        """
        if bias is None or (
            bias.is_parameter
            and (not weight.is_parameter or self.is_owned(weight) == self.is_owned(bias))
        ):
            return bias, None
        return None, bias

    def _along(
        self, name: str, function: str, x: Value, weight: Value, axis: int, **keys: bool
    ) -> Value:
        """Return a function of each element and of the weight that belongs to it from `axis` on."""
        rank = len(weight.shape)
        behind = list(range(rank, len(x.shape) - axis))
        return self.elementwise(name, function, [x, self.unsqueeze(name, weight, behind)], **keys)

    def _add_bias(self, name: str, x: Value, bias: Value, axis: int) -> Value:
        return self._along(f"{name}_bias", "sum", x, bias, axis, adds_to_product=True)

    def linear(
        self, name: str, x: Value, weight: Value, bias: Value | None = None, *, axis: int = -1
    ) -> Value:
        """Return x W^T + b, with a weight of K x D; x is flattened from `axis` on."""
        x = self.placed(x)
        first = x.axis(axis)
        features = prod(x.shape[first:])
        k = weight.shape[0]
        if prod(weight.shape) != k * features:
            raise OperatorError(
                f"a weight of {format_shape(weight.shape)} does not fit {format_shape(x.shape)}"
            )
        if not weight.is_parameter:
            x = self.flatten(f"{name}_flat", x, axis)
            weight = self.turned(f"{name}_turned", self.reshape(name, weight, (k, features)))
            made = self.matmul(name, x, weight)
            return made if bias is None else self._add_bias(name, made, bias, len(made.shape) - 1)
        return self._inner_product(name, x, list(range(first, len(x.shape))), weight, bias, k)

    def _inner_product(
        self,
        name: str,
        x: Value,
        features: Sequence[int],
        weight: Value,
        bias: Value | None,
        outputs: int,
    ) -> Value:
        """Add an InnerProduct over some axes; the outputs are the last axis of the result."""
        if x.summed and not self.one_sample:
            self.note(f"{name} reads what is one for the whole batch, and is counted once a sample")
        if x.batch_axis in features:
            if x.axes[x.batch_axis or 0] != (BATCH,) or x.batch_axis != features[0]:
                raise OperatorError("it multiplies across the samples of the batch")
            raise OperatorError("it sums over the samples of the batch")
        rows = [axis for axis in range(len(x.shape)) if axis not in features]
        order = x.in_order()
        if x.moved is None:  # in which order it reads the features is nobody's concern
            features = [axis for axis in order if axis in features]
        whole = all(x.axes[axis] in ((BATCH,), ()) for axis in rows)
        if (
            whole
            and (x.moved is None or len(features) == 1)
            and all(x.axes[axis] or x.shape[axis] == 1 for axis in (*rows, *features))
        ):
            placed = x
        else:
            order = [axis for axis in order if axis in rows]
            placed = self._with_order(x, [*order, *features])
        source = placed.source
        bias, lost = self._own_bias(weight, bias)
        shares, name = self.owner(name, [weight, *([bias] if bias is not None else [])])
        taken = sum(1 for axis in features for _ in placed.axes[axis])
        first = 1 if source == x.layer and whole else len(self.dims(source)) - taken + 1
        layer = make(
            "InnerProduct",
            num_outputs=outputs,
            axis=1 if first == 1 else (-1 if taken == 1 else first),
            use_bias=bias is not None,
        )
        made = self.add(name, layer, [source], shares)
        # The layer keeps the dimensions before the features, and so their numbers.
        axes = [placed.axes[axis] for axis in rows]
        shape = [x.shape[axis] for axis in rows]
        result = self.result(made, (*shape, outputs), [*axes, (first,)], x.moved)
        return result if lost is None else self._add_bias(name, result, lost, len(shape))

    def experts(
        self, name: str, x: Value, weights: Sequence[Value], biases: Sequence[Value] = (), *, k: int
    ) -> Value:
        """Return rows of D, the last axis, each times one of several matrices of D x K.

        They are tensors of their own, or one of E x D x K; its axes may be in another order.
        """
        features = weights[0].shape[-1] * weights[0].shape[-2] // k
        number = prod(weights[0].shape[:-2]) * len(weights)
        x = self.placed(x)
        last = len(x.shape) - 1
        batched = any(weight.batched for weight in weights)
        if batched or x.batch_axis == last or x.shape[last] != features:
            both = f"{format_shape(x.shape)} and {format_shape(weights[0].shape)}"
            raise OperatorError(f"a grouped product of {both}")
        x = self._with_order(x, [*(axis for axis in x.in_order() if axis != last), last])
        shares, name = self.owner(name, [*weights, *biases])
        layer = make("Experts", num_experts=number, num_outputs=k, use_bias=bool(biases))
        made = self.add(name, layer, [x.source], shares)
        self.note("each expert of a mixture is taken to have as many rows as any other")
        return self.result(made, (*x.shape[:-1], k), x.axes, x.moved)

    def put_back(self, name: str, x: Value, rows: Value, axis: int) -> Value:
        """Return `x` plus rows at places along an axis that data say.

        Of each sample, as many rows are taken to belong to each place.
        """
        each, rest = divmod(prod(rows.shape), prod(x.shape))
        if not rest and len(rows.shape) == len(x.shape) and rows.axes[axis][:1] == (BATCH,):
            split = (*x.shape[:axis], x.shape[axis], each, *x.shape[axis + 1 :])
            parts = self.reshape(f"{name}/places", rows, split)
            y = self.reduce(name, "sum", parts, [axis + 1], False)
        else:
            y = self.rearrange(name, rows, x.shape)
        return y if x.is_constant else self.elementwise(f"{name}/sum", "sum", [x, y])

    def matmul(self, name: str, a: Value, b: Value) -> Value:
        """Return the product as numpy.matmul has it."""
        if not a.shape or not b.shape:
            raise OperatorError("it multiplies a single number")
        if len(a.shape) == 1:
            product = self.matmul(name, self.unsqueeze(name, a, [0]), b)
            return self.squeeze(name, product, [-2])
        if len(b.shape) == 1:
            product = self.matmul(name, a, self.unsqueeze(name, b, [1]))
            return self.squeeze(name, product, [-1])
        if a.shape[-1] != b.shape[-2]:
            raise OperatorError(f"{format_shape(a.shape)} times {format_shape(b.shape)}")
        if self._is_weight(b) and a.batched:
            x = self.placed(a)
            return self._inner_product(name, x, [len(x.shape) - 1], b, None, b.shape[1])
        if self._is_weight(a) and b.batched:
            x = self.placed(b)
            made = self._inner_product(name, x, [len(x.shape) - 2], a, None, a.shape[0])
            return self.turned(name, made, free=True)
        return self._multiply(name, self.placed(a), self.placed(b))

    @staticmethod
    def _is_weight(value: Value) -> bool:
        return value.is_parameter and len(value.shape) == 2

    def _multiply(self, name: str, a: Value, b: Value) -> Value:
        shape = (*broadcast(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
        rank = len(shape)
        if a.batch_axis == len(a.shape) - 2 and b.batch_axis == len(b.shape) - 1:
            return self._compare_samples(name, a, b, shape)
        batch = self._common_axis([a, b], rank)
        if batch is not None and batch >= rank - 2:
            return self._multiply_samples(name, a, b, shape)
        front = self._front([a, b], batch, rank - 2)
        # What neither has needs no dimension.
        both = zip(front, self._lead(a, rank, front), self._lead(b, rank, front), strict=True)
        front = [item for item, *dims in both if dims != [None, None]]
        sources, flags = [], []
        for each in (a, b):
            lead = self._lead(each, rank, front)
            rows, columns = self._one(each, -2), self._one(each, -1)
            plain, turned = [*lead, *rows, *columns], [*lead, *columns, *rows]
            flags.append(plain != turned and turned == list(range(1, len(each.dims) + 1)))
            wanted = turned if flags[-1] else plain
            while wanted[0] is None and len(wanted) > 2:
                wanted = wanted[1:]
            sources.append(self.arranged(each, wanted))
        layer = make("MatMul", transpose_a=flags[0], transpose_b=flags[1])
        made = self.add(name, layer, [self._at_least_two(source) for source in sources])
        axes = self._axes_of(front, rank - 2, batch)
        last = len(self.dims(made))
        return self.result(made, shape, [*axes, (last - 1,), (last,)])

    def _at_least_two(self, source: str) -> str:
        """Return a layer with two dimensions besides the batch at least."""
        dims = self.dims(source)
        return self.view(source, source, (1, *dims)) if len(dims) < 2 else source

    def _compare_samples(self, name: str, a: Value, b: Value, shape: tuple[int, ...]) -> Value:
        """Multiply each sample with each: the first's are the rows, the second's the columns."""
        if len(a.shape) != 2 or (a.axes[0], b.axes[1]) != ((BATCH,), (BATCH,)):
            raise OperatorError("it multiplies samples of the batch with each other")
        sources = [self.arranged(a, self._one(a, 1)), self.arranged(b, self._one(b, 0))]
        made = self.add(name, make("Similarity"), sources)
        self.note(f"{made} compares each sample of a batch with each: a product of the batch")
        return self.result(made, shape, [(BATCH,), (1,)])

    def _multiply_samples(self, name: str, a: Value, b: Value, shape: tuple[int, ...]) -> Value:
        """Multiply samples, which are the rows of `a`, with matrices that all share."""
        if not a.batched and b.batch_axis == len(b.shape) - 1:
            product = self._multiply(name, self.turned(name, b), self.turned(name, a))
            return self.turned(name, product, free=True)
        rows = len(a.shape) - 2
        if b.batched or a.batch_axis != rows:
            raise OperatorError("it multiplies samples of the batch with each other")
        lead = [dim for dim in a.axes[rows] if dim != BATCH]
        front = len(shape) - 2
        first, second = (
            [
                self._one(x, axis)[0] if axis >= 0 else None
                for axis in range(len(x.shape) - 2 - front, len(x.shape) - 2)
            ]
            for x in (a, b)
        )
        source = self.arranged(a, [*first, *lead, None, *self._one(a, -1)])
        wanted = [*second, *[None] * len(lead), *self._one(b, -2), *self._one(b, -1)]
        while wanted[0] is None and len(wanted) > 2:
            wanted = wanted[1:]
        made = self.add(name, make("MatMul"), [source, self.arranged(b, wanted)])
        numbers = iter(range(front + 1, front + len(lead) + 1))
        group = tuple(BATCH if dim == BATCH else next(numbers) for dim in a.axes[rows])
        axes = [(axis + 1,) for axis in range(front)]
        return self.result(made, shape, [*axes, group, (len(self.dims(made)),)])

    def einsum(self, name: str, equation: str, values: Sequence[Value]) -> Value:
        """Return the sum of products that an equation such as "bij,bjk->bik" describes."""
        left, arrow, right = equation.replace(" ", "").partition("->")
        terms = left.split(",")
        if len(terms) != len(values):
            raise OperatorError(f'an equation that is not understood: "{equation}"')
        if not arrow:
            counts = {letter: left.count(letter) for letter in left if letter.isalpha()}
            right = "".join(sorted(letter for letter, count in counts.items() if count == 1))
            right = "..." * ("..." in left) + right
        if "." in equation:
            # Dots stand for as many axes as the letters leave, which are compared from the last.
            free = [letter for letter in ascii_letters if letter not in equation]
            ranks = [len(v.shape) - len(t) + 3 for t, v in zip(terms, values, strict=True)]
            most = max(rank for t, rank in zip(terms, ranks, strict=True) if "..." in t)
            dots = "".join(free[:most])
            terms = [t.replace("...", dots[most - r :]) for t, r in zip(terms, ranks, strict=True)]
            left, right = ",".join(terms), right.replace("...", dots)
        if any(len(set(term)) < len(term) for term in (*terms, right)):
            raise OperatorError(f'an equation that repeats a letter in a term: "{equation}"')
        pairs = list(zip(terms, values, strict=True))
        for term, value in pairs:
            if len(term) != len(value.shape):
                raise OperatorError(f'"{term}" for {format_shape(value.shape)}')
        letters = {term[value.batch_axis] for term, value in pairs if value.batch_axis is not None}
        if self.one_sample or not any(value.batched for value in values):
            # The batch stands before all that is named.
            letters = {next(each for each in ascii_letters[::-1] if each not in left)}
        elif len(letters) != 1 or next(iter(letters)) not in right:
            raise OperatorError("an equation that sums or multiplies the samples of the batch")
        (batch,) = letters
        sizes = {
            letter: size
            for term, value in pairs
            for letter, size in zip(term, value.shape, strict=True)
            if size > 1
        }
        weights = [i for i, value in enumerate(values) if value.is_parameter]
        if len(values) == 2 and len(weights) == 1:
            product = self._einsum_product(name, terms, right, values, weights[0])
            if product is not None:
                return product
        placed = [self.placed(value) for value in values]
        # What stands beside the batch in its axis gets letters of its own.
        ahead, behind = [letter for letter in ascii_letters if letter not in left][:2]
        written, sources = [], []
        beside: set[str] = set()
        for term, value in zip(terms, placed, strict=True):
            wanted: list[Wanted] = []
            text = batch
            for axis, letter in enumerate(term):
                if letter != batch:
                    wanted += self._one(value, axis)
                    text += letter
                elif axis == value.batch_axis:
                    before, after = before_and_after(value.axes[axis])
                    wanted += [*before, *after]
                    more = ahead * len(before) + behind * len(after)
                    text, beside = text + more, beside | set(more)
            sources.append(self.arranged(value, wanted or [None]))
            written.append(text)
        rest = right.replace(batch, "".join(x for x in (ahead, behind) if x in beside))
        equation = f"{','.join(written)}->{batch}{rest}"
        made = self.add(name, make("Einsum", equation=equation), sources)
        place: dict[str, Group] = {letter: (i,) for i, letter in enumerate(rest, start=1)}
        place[batch] = (*place.get(ahead, ()), BATCH, *place.get(behind, ()))
        shape = [sizes.get(letter, 1) for letter in right]
        return self.result(made, shape, [place[letter] for letter in right])

    def _einsum_product(
        self, name: str, terms: list[str], right: str, values: Sequence[Value], at: int
    ) -> Value | None:
        """Return the product with a tensor of parameters; None if it is no plain product."""
        weight, x = values[at], self.placed(values[1 - at])
        own, other = terms[at], terms[1 - at]
        inner = [letter for letter in other if letter in own]
        outer = [letter for letter in own if letter not in other]
        rest = [letter for letter in other if letter not in own]
        if set(inner) & set(right) or sorted(rest + outer) != sorted(right):
            return None
        features = [other.index(letter) for letter in inner]
        if not inner or not outer or x.batch_axis in features:
            return None
        sizes = [weight.shape[own.index(letter)] for letter in outer]
        made = self._inner_product(name, x, features, weight, None, prod(sizes))
        made = self.reshape(f"{name}_parts", made, (*made.shape[:-1], *sizes))
        result = rest + outer
        return self.transpose(name, made, [result.index(letter) for letter in right], free=True)

    def attention(
        self,
        name: str,
        q: Value,
        k: Value,
        v: Value,
        mask: Value | None = None,
        *,
        causal: bool = False,
    ) -> Value:
        """Return attention in one kernel; the values are ... x heads x T x d.

        A `mask` is added to the scores.
        """
        sources, kept = [], []
        for each in (q, k, v):
            if len(each.shape) < 3:
                raise OperatorError(f"attention over {format_shape(each.shape)}")
            each = self.placed(self._unbatched(each, len(q.shape), q.batch_axis))
            placed = self._with_order(each, list(range(len(each.shape))))
            source, dims = placed.source, self.dims(placed.source)
            if len(dims) == 2:
                source = self.view(source, source, (1, *dims))
                moved = [tuple(d + 1 if d else d for d in group) for group in placed.axes]
                placed = self.result(source, placed.shape, moved)
            sources.append(source)
            kept.append(placed)
        if mask is not None:
            placed = self.placed(mask)
            sources.append(self._with_order(placed, list(range(len(placed.shape)))).source)
        made = self.add(name, make("Attention", causal=causal), sources)
        return self.result(made, (*q.shape[:-1], v.shape[-1]), kept[0].axes)

    def embedding(self, name: str, indices: Value, weight: Value) -> Value:
        """Return rows of a table, V x D, of parameters; of other tables, what is gathered."""
        if not self._is_weight(weight) or not indices.batched:
            return self.gather(name, weight, indices, 0)
        indices = self.placed(indices)
        shares, name = self.owner(name, [weight])
        layer = make("Embedding", num_embeddings=weight.shape[0], num_outputs=weight.shape[1])
        made = self.add(name, layer, [indices.source], shares)
        last = (len(self.dims(made)),)
        shape = (*indices.shape, weight.shape[1])
        return self.result(made, shape, [*indices.axes, last], indices.moved)

    def recurrent(
        self,
        name: str,
        layer: Layer,
        x: Value,
        weights: Sequence[Value],
        *,
        batch_first: bool = False,
    ) -> Value:
        """Return the outputs of all steps, T x N x directions H or with the batch first.

        `weights` are all of the recurrent layer's parameters; computed ones, such as gates in
        another order, are as many as those that they are computed from.
        """
        if len(x.shape) != 3:
            raise OperatorError(f"its input must have three axes, got {format_shape(x.shape)}")
        batch, steps = (0, 1) if batch_first else (1, 0)
        x = self.placed(x)
        alone = self.one_sample and x.shape[batch] == 1  # a sequence that is one sample
        if x.batched and x.batch_axis != batch and not alone:
            raise OperatorError("the batch is not where a sequence has it")
        placed = self._with_order(x, [steps, 2])
        shares, name = self.owner(name, weights)
        made = self.add(name, layer, [placed.source], shares)
        return self.result(made, (*x.shape[:2], self.dims(made)[-1]), placed.axes)
