"""Layers that hold or rearrange data: Input, Parameter, Concatenate, Reshape, Transpose, ...

Reshape, Flatten and Slice are views, which move nothing. A shape in a key begins with the
batch, written -1.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from paleo.core.checks import is_whole
from paleo.core.operations import Kind, Pass, Stream, Unpriced
from paleo.core.quantity import ceil_div, every, product, some
from paleo.core.strides import Strides, reshaped
from paleo.core.tensor import Shape, Shapes, format_shape, format_shapes
from paleo.net.layers.base import (
    TERMS,
    Copying,
    Divided,
    Layer,
    MemoryNeeds,
    Operations,
    ShapeError,
    at_most_8,
    batch_of,
    dimension,
    is_one,
    layer_type,
    parameter_stream,
    tensor_bytes,
)
from paleo.net.layers.fields import (
    Dimension,
    Dimensions,
    Flag,
    Margins,
    Name,
    Permutation,
    Sizes,
    Whole,
    key,
)


@layer_type("Input")
class Input(Layer):
    """Where samples come in. Its first dimension is the batch."""

    kept: ClassVar[MemoryNeeds | None] = MemoryNeeds()
    num_parents: ClassVar[tuple[int, int | None]] = (0, 0)
    is_input: ClassVar[bool] = True

    tensor: tuple[int, ...] = key(Sizes(), "[N, H, W, C], or any shape with the batch first")

    def infer_shape(self, inputs: Shapes) -> Shape:
        return self.tensor

    def of_shape(self, shape: Shape) -> Layer:
        return self.replace(tensor=shape)


@layer_type("Parameter")
class Parameter(Layer):
    """A tensor of its own, the same for every sample: parameters, or constants."""

    kept: ClassVar[MemoryNeeds | None] = MemoryNeeds()
    num_parents: ClassVar[tuple[int, int | None]] = (0, 0)

    shape: tuple[int, ...] = key(Sizes(min_rank=1), "its shape, without the batch")
    trainable: bool = key(Flag(), "whether its elements are parameters", default=True)

    def infer_shape(self, inputs: Shapes) -> Shape:
        return at_most_8((1, *self.shape), "shape")

    def num_params(self, inputs: Shapes) -> int:
        return product(self.shape) if self.trainable else 0

    def operations(self, direction: Pass, inputs: Shapes, element_size: int) -> Operations:
        if direction is not Pass.WEIGHT_GRADIENT:
            return ()
        return parameter_stream(
            Kind.REDUCTION, self.shape, product(self.shape), element_size, label="parameter"
        )


class _Moving(Copying):
    """A pass over memory that moves elements."""

    only_moves: ClassVar[bool] = True
    takes_any_order: ClassVar[bool] = True


@layer_type("Concatenate")
class Concatenate(_Moving):
    """Tensors joined along one dimension; the others must agree."""

    joins: ClassVar[bool] = True

    num_parents: ClassVar[tuple[int, int | None]] = (1, None)

    dim: int | None = key(
        Whole(optional=True),
        "the dimension, 3 for channels of an image; by default the last",
        default=None,
    )

    def divided(self, ways: int, inputs: Shapes, axes: tuple[int | None, ...]) -> Divided | None:
        if len(set(axes)) > 1 or axes[0] == TERMS:
            return None
        return Divided(self, axes[0])

    def infer_shape(self, inputs: Shapes) -> Shape:
        first = inputs[0]
        dim = dimension(-1 if self.dim is None else self.dim, first, "dim")
        for shape in inputs[1:]:
            # The batch, dimension 0, is everyone's and may be an array.
            fits = shape[1:dim] + shape[dim + 1 :] == first[1:dim] + first[dim + 1 :]
            if len(shape) != len(first) or not fits:
                raise ShapeError(
                    f"its parents differ outside dimension {dim}: {format_shapes(inputs)}"
                )
        joined = sum(shape[dim] for shape in inputs)
        return (batch_of(inputs), *first[1:dim], joined, *first[dim + 1 :])

    def keeps(self, inputs: Shapes, element_size: int, needed: tuple[bool, ...]) -> MemoryNeeds:
        return MemoryNeeds(aliased=tuple(range(len(inputs))), pieces=True)


@layer_type("Slice")
class Slice(Layer):
    """Part of the input along one dimension; a view, which moves nothing."""

    takes_part: ClassVar[bool] = True
    kept: ClassVar[MemoryNeeds | None] = MemoryNeeds(view=True)
    only_moves: ClassVar[bool] = True

    dim: int = key(Dimension(), "the dimension, 1 or more; -1 the last", default=-1)
    begin: int = key(Whole(minimum=0), "the first element, counted from 0", default=0)
    size: int = key(Whole(), "how many elements")
    step: int = key(Whole(), "from one element to the next", default=1)
    keep_dim: bool = key(Flag(), "whether the dimension stays where `size` is 1", default=True)

    def divided(self, ways: int, inputs: Shapes, axes: tuple[int | None, ...]) -> Divided | None:
        (axis,), shape = axes, inputs[0]
        dim = dimension(self.dim, shape, "dim")
        if axis is None or axis == TERMS:
            return Divided(self, axis)
        if axis != dim:
            return Divided(self, axis - (axis > dim and not self._keeps_dim(shape)))
        # What is cut in parts that all divide: each device has its share of every part.
        if self.step > 1 or self.size % ways or self.begin % self.size or shape[dim] % self.size:
            return None
        return Divided(self.replace(begin=self.begin // ways, size=self.size // ways), axis)

    def infer_shape(self, inputs: Shapes) -> Shape:
        shape = inputs[0]
        dim = dimension(self.dim, shape, "dim")
        if some(self.begin + (self.size - 1) * self.step >= shape[dim]):
            raise ShapeError(f"it ends behind dimension {dim} of {format_shape(shape)}", "size")
        kept = (self.size,) if self._keeps_dim(shape) else ()
        return (*shape[:dim], *kept, *shape[dim + 1 :])

    def _keeps_dim(self, shape: Shape) -> bool:
        return not is_one(self.size) or self.keep_dim or len(shape) == 2

    def viewed(self, shape: Shape, strides: Strides) -> Strides | None:
        dim = dimension(self.dim, shape, "dim")
        kept = (self.step * strides[dim],) if self._keeps_dim(shape) else ()
        return (*strides[:dim], *kept, *strides[dim + 1 :])

    def following(self, before: Shapes, after: Shapes) -> Layer:
        """Return the slice that stays one of equal parts, every so manieth, the first or the last.

        Raises ShapeError where the dimension has changed and it is none of these.
        """
        dim = dimension(self.dim, before[0], "dim")
        if len(before[0]) != len(after[0]) or before[0][dim] == after[0][dim]:
            return self
        old, new, size, begin = before[0][dim], after[0][dim], self.size, self.begin
        if self.step > 1 and size == ceil_div(old - begin, self.step):
            return self.replace(size=ceil_div(new - begin, self.step))
        if size == 1 and begin in (0, old - 1):
            return self.replace(begin=0 if begin == 0 else new - 1)
        parts = old // size
        if self.step == 1 and size > 1 and not (old % size or begin % size or new % parts):
            return self.replace(begin=begin // size * (new // parts), size=new // parts)
        raise ShapeError(f"what it takes of {old} does not tell what of {new}", "size")


def _with_batch(shape: tuple[int, ...], source: Shape) -> Shape:
    return (source[0], *shape[1:])


def _no_reshape(shape: Shape, wanted: tuple[int, ...]) -> ShapeError:
    return ShapeError(f"{format_shape(shape)} cannot become {list(wanted)}", "output_shape")


class _View(Layer):
    """Its input in another shape."""

    kept: ClassVar[MemoryNeeds | None] = MemoryNeeds(view=True, aliased=(0,))
    is_view: ClassVar[bool] = True
    only_moves: ClassVar[bool] = True

    def viewed(self, shape: Shape, strides: Strides) -> Strides | None:
        return reshaped(shape, strides, self.infer_shape((shape,)))

    def viewed_back(self, shape: Shape, strides: Strides) -> Strides | None:
        return reshaped(self.infer_shape((shape,)), strides, shape)


@layer_type("Reshape")
class Reshape(_View):
    """The same elements in another shape; a view, which moves nothing."""

    output_shape: tuple[int, ...] = key(
        Sizes(derived=(0, -1)), "first entry the batch (-1); last entry -1 if it is to be derived"
    )

    def infer_shape(self, inputs: Shapes) -> Shape:
        *front, last = self.output_shape[1:]
        have: Any = product(inputs[0][1:])
        wanted: Any = product(front)
        if is_whole(last) and last == -1:
            last = have // wanted
        if some(wanted * last != have):
            raise _no_reshape(inputs[0], self.output_shape)
        return (inputs[0][0], *front, last)

    def divided(self, ways: int, inputs: Shapes, axes: tuple[int | None, ...]) -> Divided | None:
        (axis,) = axes
        if axis is None or axis == TERMS:
            return Divided(self, axis)
        old, wanted = inputs[0], self.infer_shape(inputs)
        for left, right in _aligned(old[1:], wanted[1:]):
            # The outermost of dimensions that become others is in one piece a device.
            outer, inner = (
                next((i for i in range(of.start, of.stop) if shape[1 + i] != 1), None)
                for of, shape in ((left, old), (right, wanted))
            )
            if axis - 1 == outer and inner is not None and not wanted[1 + inner] % ways:
                sizes = list(self.output_shape)
                if sizes[1 + inner] != -1:
                    sizes[1 + inner] //= ways
                return Divided(self.replace(output_shape=tuple(sizes)), 1 + inner)
        return None

    def following(self, before: Shapes, after: Shapes) -> Layer:
        """Return the reshape that merges the same dimensions.

        Raises ShapeError if one that it cuts in several has changed: none of those is known to
        grow.
        """
        if len(before[0]) != len(after[0]):
            return self
        old, new = before[0][1:], after[0][1:]
        wanted = self.infer_shape(before)[1:]
        sizes: list[Any] = []
        for left, right in _aligned(old, wanted):
            if old[left] == new[left]:
                sizes += wanted[right]
            elif right.stop - right.start == 1:
                sizes.append(product(new[left]))
            else:
                raise ShapeError("it cuts a dimension that has changed", "output_shape")
        last = -1 if self.output_shape[-1] == -1 else sizes[-1]
        return self.replace(output_shape=(self.output_shape[0], *sizes[:-1], last))


def _aligned(old: tuple[Any, ...], wanted: tuple[Any, ...]) -> list[tuple[slice, slice]]:
    """Return which dimensions become which: the smallest groups of equal products.

    Dimensions of 1 at the end belong to the last group.
    """
    groups: list[tuple[slice, slice]] = []
    i = j = 0
    while i < len(old) and j < len(wanted):
        first, begin = i, j
        left, right = old[i], wanted[j]
        while left != right:
            if left < right:
                i += 1
                left = left * old[i]
            else:
                j += 1
                right = right * wanted[j]
        i, j = i + 1, j + 1
        groups.append((slice(first, i), slice(begin, j)))
    left_over, right_over = groups.pop()
    return [*groups, (slice(left_over.start, len(old)), slice(right_over.start, len(wanted)))]


@layer_type("Flatten")
class Flatten(_View):
    """All dimensions but the batch made one; a view, which moves nothing."""

    def divided(self, ways: int, inputs: Shapes, axes: tuple[int | None, ...]) -> Divided | None:
        (axis,) = axes
        if axis is None or axis == TERMS:
            return Divided(self, axis)
        return Divided(self, 1) if product(inputs[0][1:axis]) == 1 else None

    def infer_shape(self, inputs: Shapes) -> Shape:
        return (inputs[0][0], product(inputs[0][1:]))


@layer_type("Transpose")
class Transpose(_Moving):
    """The dimensions in another order."""

    perm: tuple[int, ...] = key(
        Permutation(), "the order of the input's dimensions, [0, 2, 1]; the batch, 0, stays first"
    )

    def divided(self, ways: int, inputs: Shapes, axes: tuple[int | None, ...]) -> Divided | None:
        (axis,) = axes
        if axis is None or axis == TERMS:
            return Divided(self, axis)
        return Divided(self, self.perm.index(axis))

    def infer_shape(self, inputs: Shapes) -> Shape:
        if len(self.perm) != len(inputs[0]):
            raise ShapeError(
                f"expected an order of {len(inputs[0])} dimensions, as {format_shape(inputs[0])} "
                f"has, got {list(self.perm)}",
                "perm",
            )
        return tuple(inputs[0][position] for position in self.perm)

    def viewed(self, shape: Shape, strides: Strides) -> Strides | None:
        return tuple(strides[position] for position in self.perm)

    def viewed_back(self, shape: Shape, strides: Strides) -> Strides | None:
        return tuple(strides[self.perm.index(position)] for position in range(len(shape)))


@layer_type("Expand")
class Expand(_Moving):
    """Dimensions of 1 repeated."""

    output_shape: tuple[int, ...] = key(Sizes(derived=(0,)), "the batch (-1), and what is wanted")

    def infer_shape(self, inputs: Shapes) -> Shape:
        shape, wanted = inputs[0], self.output_shape
        missing = len(wanted) - len(shape)
        fits = missing >= 0 and all(
            is_one(own) or every(own == size)
            for own, size in zip(shape[1:], wanted[1 + missing :], strict=True)
        )
        if not fits:
            raise ShapeError(
                f"{format_shape(shape)} cannot be repeated to {list(wanted)}", "output_shape"
            )
        return _with_batch(wanted, shape)

    def following(self, before: Shapes, after: Shapes) -> Layer:
        missing = len(self.output_shape) - len(before[0])
        if missing < 0 or len(before[0]) != len(after[0]):
            return self
        n, *front = self.output_shape[: 1 + missing]
        sizes = (
            size if old == 1 else new
            for size, old, new in zip(
                self.output_shape[1 + missing :], before[0][1:], after[0][1:], strict=True
            )
        )
        return self.replace(output_shape=(n, *front, *sizes))


@layer_type("Pad")
class Pad(_Moving):
    """Elements added at the ends of dimensions."""

    margins: tuple[tuple[int, int], ...] = key(
        Margins(), "[before, after] of each dimension but the batch"
    )

    def infer_shape(self, inputs: Shapes) -> Shape:
        n, *sizes = inputs[0]
        if len(self.margins) != len(sizes):
            raise ShapeError(
                f"expected {len(sizes)} pairs, for {format_shape(inputs[0])}, "
                f"got {len(self.margins)}",
                "margins",
            )
        padded = (size + sum(pair) for size, pair in zip(sizes, self.margins, strict=True))
        return (n, *padded)


@layer_type("Rearrange")
class Rearrange(_Moving):
    """The same elements at other places: rolled, flipped, shuffled, depth to space."""

    output_shape: tuple[int, ...] | None = key(
        Sizes(derived=(0,), optional=True),
        "the batch (-1), and the shape; null: the input's",
        default=None,
    )

    def infer_shape(self, inputs: Shapes) -> Shape:
        if self.output_shape is None:
            return inputs[0]
        if product(self.output_shape[1:]) != product(inputs[0][1:]):
            raise _no_reshape(inputs[0], self.output_shape)
        return _with_batch(self.output_shape, inputs[0])


@layer_type("Gather")
class Gather(Layer):
    """Some of the input's elements, rows or planes, picked by indices.

    The indices are a second parent, or fixed.
    """

    only_moves: ClassVar[bool] = True
    takes_any_order: ClassVar[bool] = True
    num_parents: ClassVar[tuple[int, int | None]] = (1, 2)

    output_shape: tuple[int, ...] = key(Sizes(derived=(0,)), "the batch (-1), and what is picked")
    distinct: bool = key(
        Flag(),
        "whether none is picked twice, so that there must be as many, as of a table of positions",
        default=False,
    )

    def infer_shape(self, inputs: Shapes) -> Shape:
        if self.distinct:
            there, picked, _ = self.rows(inputs)
            if some(picked > there):
                raise ShapeError(
                    f"it picks {picked} different rows, such as positions, of {there}",
                    "output_shape",
                )
        return (batch_of(inputs), *self.output_shape[1:])

    def rows(self, inputs: Shapes) -> tuple[Any, Any, Shape]:
        """Return of how many rows of a sample it picks how many, and the shape of a row.

        A row is as many of the last dimensions as input and output have in common, less one if
        those are all; with indices, as many as leave one of these for each row, if any do.
        """
        source, picked = inputs[0][1:], self.output_shape[1:]
        most = min(len(source) - 1, len(picked))
        pairs = zip(reversed(source), reversed(picked), strict=False)
        common = next((k for k, (have, take) in enumerate(pairs) if not every(have == take)), most)
        choices = [
            (
                product(source[: len(source) - k]),
                product(picked[: len(picked) - k]),
                source[len(source) - k :],
            )
            for k in range(min(common, most), -1, -1)
        ]
        indices = product(inputs[1][1:]) if len(inputs) > 1 else None
        fits = (choice for choice in choices if indices is not None and every(choice[1] == indices))
        return next(fits, choices[0])

    def index_limit(self, k: int, inputs: Shapes) -> int | None:
        return self.rows(inputs)[0] if k == 1 else None

    def operations(self, direction: Pass, inputs: Shapes, element_size: int) -> Operations:
        source, *indices = tensor_bytes(inputs, element_size)
        (picked,) = tensor_bytes((self.infer_shape(inputs),), element_size)
        written = picked if direction is Pass.FORWARD else source
        reads = (picked, *indices)
        return (Stream(Kind.COPY, reads, (written,), direction=direction, label="gather"),)

    def following(self, before: Shapes, after: Shapes) -> Layer:
        """Return the layer that picks as many along the one dimension along which it does.

        Raises ShapeError where that is not to be seen.
        """
        old, new, kept = before[0][1:], after[0][1:], self.output_shape[1:]
        if before[1:] == after[1:] and len(old) == len(new) == len(kept):
            picked = [own != size for own, size in zip(kept, old, strict=True)]
            if sum(picked) == 1:
                sizes = (a if own else b for a, b, own in zip(kept, new, picked, strict=True))
                return self.replace(output_shape=(self.output_shape[0], *sizes))
        if [shape[1:] for shape in before] == [shape[1:] for shape in after]:
            return self
        raise ShapeError("what it picks of other inputs is not known", "output_shape")

    def keeps(self, inputs: Shapes, element_size: int, needed: tuple[bool, ...]) -> MemoryNeeds:
        return MemoryNeeds(inputs=tuple(range(1, len(inputs))))


#: Reductions whose gradient is the output's, up to a factor.
_SUMS = ("mean", "sum")


@layer_type("Reduce")
class Reduce(_Moving):
    """A sum, a mean, a maximum, ... over some dimensions."""

    kind: ClassVar[Kind] = Kind.REDUCTION
    only_moves: ClassVar[bool] = False

    function: str = key(
        Name(("mean", "sum", "maximum", "minimum", "product", "norm", "argmax")),
        "which",
        default="mean",
    )
    dims: tuple[int, ...] = key(Dimensions(), "the dimensions that are reduced, 1 or more")
    keep_dims: bool = key(Flag(), "whether they stay, with a size of 1", default=False)

    def infer_shape(self, inputs: Shapes) -> Shape:
        for each in self.dims:
            dimension(each, inputs[0], "dims")
        kept = tuple(
            1 if i in self.dims else size
            for i, size in enumerate(inputs[0])
            if i not in self.dims or self.keep_dims
        )
        return kept if len(kept) > 1 else (*kept, 1)

    def operations(self, direction: Pass, inputs: Shapes, element_size: int) -> Operations:
        found = super().operations(direction, inputs, element_size)
        if direction is Pass.FORWARD or self.function in _SUMS:
            return found
        if self.function == "argmax":
            return ()
        # The gradient of a maximum, a product or a norm also reads the input.
        (step,) = found
        assert isinstance(step, Stream)
        return (replace(step, reads=(*step.reads, *tensor_bytes(inputs, element_size))),)

    def keeps(self, inputs: Shapes, element_size: int, needed: tuple[bool, ...]) -> MemoryNeeds:
        if self.function in _SUMS:
            return MemoryNeeds()
        if self.function == "argmax":
            return MemoryNeeds(ends=True)
        return MemoryNeeds(inputs=(0,), output=True)


@layer_type("Unknown")
class Unknown(Layer):
    """What an importer did not understand: it costs nothing, and results list it."""

    is_known: ClassVar[bool] = False
    num_parents: ClassVar[tuple[int, int | None]] = (1, None)

    operator: str = key(Name(), "what it is called where it comes from")
    output_shape: tuple[int, ...] = key(Sizes(derived=(0,)), "the batch (-1), and the shape")

    def infer_shape(self, inputs: Shapes) -> Shape:
        return (batch_of(inputs), *self.output_shape[1:])

    def following(self, before: Shapes, after: Shapes) -> Layer:
        """Return the layer for inputs of the same shapes; raises ShapeError for others."""
        if [shape[1:] for shape in before] == [shape[1:] for shape in after]:
            return self
        raise ShapeError("what it gives of other inputs is not known", "output_shape")

    def operations(self, direction: Pass, inputs: Shapes, element_size: int) -> Operations:
        return (Unpriced(self.operator),) if direction is Pass.FORWARD else ()
