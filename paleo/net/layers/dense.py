"""Matrix products: with parameters (InnerProduct, Embedding) and of two tensors.

An einsum of two tensors is a batch of matrix products; of more, one after the other.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from paleo.core.checks import shown
from paleo.core.operations import BatchMatMul, Kind, Pass, Role, Stream
from paleo.core.operations import MatMul as MatMulWork
from paleo.core.quantity import Quantity, ceil_div, every, maximum, product, total
from paleo.core.tensor import Shape, Shapes, format_shape, format_shapes, num_elements
from paleo.net.layers import fields
from paleo.net.layers.base import (
    TERMS,
    Divided,
    Layer,
    MemoryNeeds,
    Operations,
    ShapeError,
    at_most_8,
    batch_of,
    bias_stream,
    dimension,
    is_one,
    layer_type,
)
from paleo.net.layers.fields import Dimension, Flag, Whole, key
from paleo.net.layers.matrices import Matrix, StoredMatrix


@layer_type("InnerProduct")
class InnerProduct(StoredMatrix):
    """N x D to N x K by a matrix of D x K, and a bias; the input is flattened to N x D."""

    serves_as: ClassVar[str] = "product"

    leads = True
    adds_bias: ClassVar[bool] = True

    num_outputs: int = key(Whole(), "K, the outputs of each sample")
    axis: int = key(
        Dimension(),
        "the first dimension of the features: from here on they are flattened; -1 the last",
        default=1,
    )
    use_bias: bool = key(
        Flag(), "whether a bias is added, one parameter for each output", default=True
    )

    def first_feature(self, shape: Shape) -> int:
        return dimension(self.axis, shape, "axis")

    def _rows_and_features(self, shape: Shape) -> tuple[Shape, int]:
        first = dimension(self.axis, shape, "axis")
        return shape[:first], int(product(shape[first:]))

    def infer_shape(self, inputs: Shapes) -> Shape:
        self.check_storage()
        rows, _ = self._rows_and_features(inputs[0])
        return (*rows, self.num_outputs)

    def features(self, inputs: Shapes) -> int:
        return self._rows_and_features(inputs[0])[1]

    def num_params(self, inputs: Shapes) -> int:
        _, features = self._rows_and_features(inputs[0])
        return int(features) * self.num_outputs + self.num_outputs * self.use_bias

    def num_tensors(self, inputs: Shapes) -> int:
        return 1 + self.use_bias

    def with_loss(self) -> Layer | None:
        if self.weights:  # which are not trained
            return None
        from paleo.net.layers.losses import LinearCrossEntropy  # here: most heads are alone

        return LinearCrossEntropy(num_outputs=self.num_outputs, use_bias=self.use_bias)

    def operations(self, direction: Pass, inputs: Shapes, element_size: int) -> Operations:
        rows, d = self._rows_and_features(inputs[0])
        n, k = product(rows), self.num_outputs
        sizes = {
            Pass.FORWARD: (n, k, d),
            Pass.INPUT_GRADIENT: (n, d, k),
            Pass.WEIGHT_GRADIENT: (d, k, n),
        }
        stored = self.weight_size(d) if direction is Pass.FORWARD else 0
        work = MatMulWork(*sizes[direction], element_size, direction=direction, weight_size=stored)
        return (work, *bias_stream(direction, (n, k), k * self.use_bias, element_size))


@layer_type("Embedding")
class Embedding(Matrix):
    """Whole numbers to vectors: each is a row of a table of V x D."""

    looks_up: ClassVar[bool] = True

    num_embeddings: int = key(Whole(), "V, the rows of the table")
    num_outputs: int = key(Whole(), "D, the length of a row")

    def divided(self, ways: int, inputs: Shapes, axes: tuple[int | None, ...]) -> Divided | None:
        return None if axes[0] == TERMS else Divided(self, axes[0])

    def split(self, ways: int, inputs: Shapes) -> Divided | None:
        # By rows: whoever lacks the row of a word adds zeros.
        if self.num_embeddings % ways:
            return None
        return Divided(self.replace(num_embeddings=self.num_embeddings // ways), TERMS)

    def padded(self, multiple: int) -> Layer:
        rows = multiple * ceil_div(self.num_embeddings, multiple)
        return self.replace(num_embeddings=rows)

    def infer_shape(self, inputs: Shapes) -> Shape:
        return at_most_8((*inputs[0], self.num_outputs))

    def index_limit(self, k: int, inputs: Shapes) -> int | None:
        return self.num_embeddings

    def num_params(self, inputs: Shapes) -> int:
        return self.num_embeddings * self.num_outputs

    def operations(self, direction: Pass, inputs: Shapes, element_size: int) -> Operations:
        indices = element_size * num_elements(inputs[0])
        rows = indices * self.num_outputs
        if direction is Pass.INPUT_GRADIENT:
            return ()
        roles, written = (Role.INPUT, Role.WEIGHT), rows
        if direction is Pass.WEIGHT_GRADIENT:
            roles = (Role.KEPT, Role.OUTPUT_GRADIENT)
            written = element_size * self.num_params(inputs)
        return (
            Stream(
                Kind.COPY, (indices, rows), (written,),
                direction=direction, roles=roles, label="embedding",
            ),
        )  # fmt: skip


_Products = tuple[BatchMatMul | Stream, ...]
_Bytes = tuple[Quantity, ...]


def _summed(reads: _Bytes, writes: _Bytes, direction: Pass = Pass.FORWARD) -> Stream:
    """Return a sum over some dimensions of a factor, or its gradient."""
    return Stream(Kind.REDUCTION, reads, writes, direction=direction, label="einsum")


class _Product(Layer):
    """Products of tensors, without parameters."""

    num_parents: ClassVar[tuple[int, int | None]] = (2, 2)

    @abstractmethod
    def _products(self, inputs: Shapes, element_size: int) -> _Products:
        """Return the products of the forward pass, and the passes before them."""

    def operations(self, direction: Pass, inputs: Shapes, element_size: int) -> Operations:
        if direction is Pass.FORWARD:
            return self._products(inputs, element_size)
        return self.input_gradient(inputs, element_size, (True,) * len(inputs))

    def input_gradient(
        self, inputs: Shapes, element_size: int, needed: tuple[bool, ...]
    ) -> Operations:
        found: Operations = ()
        factors = 1  # each product has one more, and all before as the other
        for each in self._products(inputs, element_size):
            if isinstance(each, Stream):
                found += (_summed(each.writes, each.reads, Pass.INPUT_GRADIENT),)
                continue
            before, new = each.gradients()
            found += (before,) * any(needed[:factors]) + (new,) * needed[factors]
            factors += 1
        return found

    def divided(self, ways: int, inputs: Shapes, axes: tuple[int | None, ...]) -> Divided | None:
        # Those dimensions that number products, which stand in the same places in all tensors.
        places = {axis for axis in axes if axis is not None}
        if len(places) != 1 or None in axes or len(set(map(len, inputs))) > 1:
            return Divided(self) if not places else None
        (axis,) = places
        is_batch = 0 <= axis < len(inputs[0]) - 2 and self.counts_products(axis)
        return Divided(self, axis) if is_batch else None

    def counts_products(self, axis: int) -> bool:
        """Tell whether this dimension numbers products that have nothing to do with each other."""
        return False

    def keeps(self, inputs: Shapes, element_size: int, needed: tuple[bool, ...]) -> MemoryNeeds:
        # The gradient of a factor takes the others, and each product but the last is one too.
        found = tuple(k for k in range(len(inputs)) if any(needed[:k] + needed[k + 1 :]))
        made = self._products(inputs, element_size)[:-1]
        return MemoryNeeds(inputs=found, own=total(size for each in made for size in each.writes))


@layer_type("MatMul")
class MatMul(_Product):
    """The matrix products of the last two dimensions of two tensors.

    M x K times K x P is M x P; the dimensions before are compared from the last, as NumPy
    does, and those of 1 are repeated. Where only one of the two has a dimension, it is one
    larger product, which reads the other's matrix once.
    """

    serves_as: ClassVar[str] = "match"

    leads = True

    def counts_products(self, axis: int) -> bool:
        return True

    transpose_a: bool = key(Flag(), "whether the first is K x M", default=False)
    transpose_b: bool = key(Flag(), "whether the second is P x K", default=False)

    def _sizes(self, inputs: Shapes) -> tuple[list[tuple[Any, Any]], Any, Any, Any]:
        """Return the dimensions before the last two, a pair of each, then M, P and K."""
        for shape in inputs:
            if len(shape) < 3:
                raise ShapeError(f"its inputs must be N x ... x M x K, got {format_shape(shape)}")
        a, b = inputs
        m, k = a[-2:][::-1] if self.transpose_a else a[-2:]
        k_too, p = b[-2:][::-1] if self.transpose_b else b[-2:]
        if not every(k == k_too):
            raise ShapeError(f"it cannot multiply {format_shapes(inputs)}: {k} is not {k_too}")
        rank = max(len(a), len(b))
        fronts = [(*(1,) * (rank - len(shape)), *shape[1:-2]) for shape in inputs]
        pairs = list(zip(*fronts, strict=True))
        if not all(every(one == other) or is_one(one) or is_one(other) for one, other in pairs):
            raise ShapeError(f"its parents differ in shape: {format_shapes(inputs)}")
        return [(a[0], b[0]), *pairs], m, p, k

    def infer_shape(self, inputs: Shapes) -> Shape:
        (_, *pairs), m, p, _ = self._sizes(inputs)
        return (batch_of(inputs), *(maximum(*pair) for pair in pairs), m, p)

    def _products(self, inputs: Shapes, element_size: int) -> _Products:
        pairs, m, p, k = self._sizes(inputs)
        count: Quantity = 1
        for one, other in pairs:
            if is_one(other):
                m = m * one
            elif is_one(one):
                p = p * other
            else:
                count = count * one
        return (BatchMatMul("matmul", count, m, p, k, element_size),)


@layer_type("Similarity")
class Similarity(_Product):
    """Each sample of a batch with each: N x D times N x D is N x N."""

    leads = True

    def infer_shape(self, inputs: Shapes) -> Shape:
        first, second = (shape[1:] for shape in inputs)
        if len(first) != 1 or first != second:
            raise ShapeError(f"its inputs must be N x D each, got {format_shapes(inputs)}")
        n = batch_of(inputs)
        return (n, n)

    def _products(self, inputs: Shapes, element_size: int) -> _Products:
        n, _ = self.infer_shape(inputs)
        return (BatchMatMul("similarity", 1, n, n, inputs[0][1], element_size),)


class _Equation(fields.Kind):
    """An equation such as "nqhd,nkhd->nhqk"."""

    schema: ClassVar[fields.Schema] = {"type": "string", "pattern": "^[a-zA-Z, ]+-> *[a-zA-Z ]+$"}

    def parse(self, value: Any) -> str:
        expected = 'an equation such as "nij,njk->nik"'
        text = value.replace(" ", "") if isinstance(value, str) else ""
        left, arrow, right = text.partition("->")
        terms = left.split(",")
        letters = set(left) - {","}
        if not arrow or not all(term.isascii() and term.isalpha() for term in terms):
            raise ValueError(f"expected {expected}, got {shown(value)}")
        if any(len(set(term)) < len(term) for term in (*terms, right)) or set(right) - letters:
            raise ValueError(
                f"expected {expected}, each letter once in a term and none new in the result; "
                f"got {shown(value)}"
            )
        if not right or {term[0] for term in (*terms, right)} != {right[0]}:
            raise ValueError(
                f"expected an equation whose terms all begin with the batch, got {shown(value)}"
            )
        return text


@layer_type("Einsum")
class Einsum(_Product):
    """Products of tensors summed over the letters that the result lacks."""

    num_parents: ClassVar[tuple[int, int | None]] = (1, None)

    equation: str = key(_Equation(), 'such as "nqhd,nkhd->nhqk"; each term begins with the batch')

    @property
    def leads(self) -> bool:
        return "," in self.equation  # of one term it is a sum

    def _terms(self, inputs: Shapes) -> tuple[list[str], str, dict[str, Any]]:
        left, _, right = self.equation.partition("->")
        terms = left.split(",")
        if len(terms) != len(inputs):
            raise ShapeError(
                f"it has {len(terms)} terms, and there are {len(inputs)} parents", "equation"
            )
        sizes: dict[str, Any] = {}
        for term, shape in zip(terms, inputs, strict=True):
            if len(term) == 1 and shape[1:] == (1,):
                continue  # a number for each sample is N x 1
            if len(term) != len(shape):
                raise ShapeError(
                    f"{term} has {len(term)} dimensions, its input {format_shape(shape)}",
                    "equation",
                )
            for letter, size in zip(term[1:], shape[1:], strict=True):
                known = sizes.setdefault(letter, size)
                if known == 1:
                    sizes[letter] = size
                elif size not in (1, known):
                    raise ShapeError(f"{letter} is {known} and {size}", "equation")
        sizes[right[0]] = batch_of(inputs)
        return terms, right, sizes

    def infer_shape(self, inputs: Shapes) -> Shape:
        _, right, sizes = self._terms(inputs)
        output = tuple(sizes[letter] for letter in right)
        return at_most_8(output if len(output) > 1 else (*output, 1), "equation")

    def _products(self, inputs: Shapes, element_size: int) -> _Products:
        terms, right, sizes = self._terms(inputs)

        def size(letters: set[str]) -> Quantity:
            return product(sizes[letter] for letter in sorted(letters))

        found: list[BatchMatMul | Stream] = []

        def summed(letters: set[str], kept: set[str]) -> set[str]:
            """Note that a tensor is summed over the letters that are not kept, if there are any."""
            if letters - kept:
                moved = (element_size * size(letters),), (element_size * size(letters & kept),)
                found.append(_summed(*moved))
            return letters & kept

        if len(terms) == 1:  # it is summed or transposed
            read = element_size * num_elements(inputs[0])
            written = element_size * num_elements(self.infer_shape(inputs))
            return (_summed((read,), (written,)),)
        # Dimensions of 1 are repeated, as if the term lacked them.
        sets = [
            {letter for letter, own in zip(term, shape, strict=False) if not is_one(own)}
            for term, shape in zip(terms, inputs, strict=True)
        ]
        before = sets[0]
        for i, now in enumerate(sets[1:], start=2):
            wanted = set(right).union(*sets[i:])
            # What only one of the two has, and nobody wants, is summed before the product.
            before, now = summed(before, wanted | now), summed(now, wanted | before)
            both = before & now
            count, k = both & wanted, both - wanted
            m, p = before - both, now - both
            found.append(
                BatchMatMul("einsum", size(count), size(m), size(p), size(k), element_size)
            )
            before = count | m | p
        return tuple(found)
