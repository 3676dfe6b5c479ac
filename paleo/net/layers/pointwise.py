"""Layers that compute each element by itself: activations, dropout, softmax, sums.

Each is a stream through memory; how often an operand is read follows from the arithmetic
of a training step, without fusion.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from paleo.core.operations import Kind, Pass, Role, Stream
from paleo.core.quantity import Quantity, every, where_positive
from paleo.core.tensor import Shape, Shapes, format_shapes, num_elements
from paleo.net.layers.base import (
    TERMS,
    Divided,
    Layer,
    MemoryNeeds,
    Operations,
    ShapeError,
    are_same,
    batch_of,
    dimension,
    is_one,
    layer_type,
    parameter_stream,
    stream,
    tensor_bytes,
)
from paleo.net.layers.fields import Dimension, Flag, Name, Probability, Whole, key
from paleo.net.layers.functions import ELEMENTWISE, FUNCTIONS, Gradient, spellings


class Pointwise(Layer):
    """A layer whose output has its input's shape.

    `forward_reads` and `backward_reads` say how many tensors of that size each pass reads.
    """

    #: What its operations are.
    kind: ClassVar[Kind] = Kind.FUNCTION
    leads = True
    keeps_shape: ClassVar[bool] = True
    forward_reads: ClassVar[int] = 1
    backward_reads: ClassVar[int] = 2  # the output's gradient, and the input or the output
    #: How often each pass reads a row of `_row` elements if the chip cannot keep it.
    forward_passes: ClassVar[int] = 1
    backward_passes: ClassVar[int] = 1
    #: What the passes read, where that is not what is usual.
    forward_roles: ClassVar[tuple[Role, ...]] = ()
    backward_roles: ClassVar[tuple[Role, ...]] = ()
    parameter_roles: ClassVar[tuple[Role, ...]] = ()

    #: The function of each element that it computes, if that is one.
    function_name: ClassVar[str] = ""
    #: Whether libraries' kernels move it element by element, not in the device's widest accesses.
    by_element: ClassVar[bool] = False

    @property
    def said(self) -> dict[str, str]:
        """What is said of its operations: the function of each element, what they are called."""
        return {"function": self.function_name, "label": self.type_name.lower()}

    def _row(self, shape: Shape) -> Quantity:
        """Return the elements that are summed up before any of them is written."""
        return 0

    def infer_shape(self, inputs: Shapes) -> Shape:
        return inputs[0]

    def operations(self, direction: Pass, inputs: Shapes, element_size: int) -> Operations:
        if direction is Pass.WEIGHT_GRADIENT:  # from the input and the output's gradient
            return parameter_stream(
                self.kind, inputs[0], self.num_params(inputs), element_size, reads=2,
                roles=self.parameter_roles, **self.said,
            )  # fmt: skip
        reads, passes, roles = self.forward_reads, self.forward_passes, self.forward_roles
        if direction is Pass.INPUT_GRADIENT:
            reads, passes = self.backward_reads, self.backward_passes
            roles = self.backward_roles
        return stream(
            self.kind, direction, inputs[0], element_size, reads,
            row=self._row(inputs[0]), passes=passes, roles=roles,
            width=element_size * self.by_element, **self.said,
        )  # fmt: skip


@layer_type("Activation")
class Activation(Pointwise):
    """A function of each element."""

    is_pointwise: ClassVar[bool] = True

    function: str = key(Name(FUNCTIONS, aliases=spellings(FUNCTIONS, "aliases")), "which function")
    custom: bool = key(
        Flag(),
        "whether the net's own code composes it of simpler functions, as some do GELU",
        default=False,
    )

    @property
    def said(self) -> dict[str, str]:
        return {"function": self.function}

    def operations(self, direction: Pass, inputs: Shapes, element_size: int) -> Operations:
        is_kept = FUNCTIONS[self.function].gradient is not Gradient.NOTHING
        if direction is not Pass.INPUT_GRADIENT or is_kept:
            return super().operations(direction, inputs, element_size)
        # It takes the output's gradient alone, as of x times a number.
        name = self.function
        return stream(self.kind, direction, inputs[0], element_size, function=name)

    def keeps(self, inputs: Shapes, element_size: int, needed: tuple[bool, ...]) -> MemoryNeeds:
        row = FUNCTIONS[self.function]
        made = row.made * element_size * num_elements(inputs[0])
        match row.gradient:
            case Gradient.INPUT:
                return MemoryNeeds(inputs=(0,), backward=made)
            case Gradient.OUTPUT:
                return MemoryNeeds(output=True, backward=made)
        return MemoryNeeds(ends=row.gradient is Gradient.NONE)


@layer_type("Gated")
class Gated(Layer):
    """A function of a gate's elements times those of another tensor, in one kernel.

    (Shazeer, GLU Variants Improve Transformer, arXiv:2002.05202.) Of one parent, the last dimension
    holds both: the gate, then the factor. Its gradient reads both and writes those of both.
    """

    leads = True
    is_pointwise: ClassVar[bool] = True
    num_parents: ClassVar[tuple[int, int | None]] = (1, 2)

    function: str = key(
        Name(FUNCTIONS, aliases=spellings(FUNCTIONS, "aliases")),
        "which function of the gate",
        default="silu",
    )

    def infer_shape(self, inputs: Shapes) -> Shape:
        *front, last = inputs[0]
        if len(inputs) == 2:
            if not are_same(inputs[0][1:], inputs[1][1:]):
                raise ShapeError(f"its parents differ in shape: {format_shapes(inputs)}")
            return (batch_of(inputs), *front[1:], last)
        if last % 2 or last < 2:
            raise ShapeError(f"{last} elements are no gate and as many others")
        return (*front, last // 2)

    def operations(self, direction: Pass, inputs: Shapes, element_size: int) -> Operations:
        if direction is Pass.INPUT_GRADIENT:
            return self.input_gradient(inputs, element_size, (True,) * len(inputs))
        written = tensor_bytes((self.infer_shape(inputs),), element_size)
        reads = tensor_bytes(inputs, element_size)
        return (Stream(Kind.ELEMENTWISE, reads, written),)

    def input_gradient(
        self, inputs: Shapes, element_size: int, needed: tuple[bool, ...]
    ) -> Operations:
        whole, *parts = tensor_bytes((self.infer_shape(inputs), *inputs), element_size)
        gradients = tuple(part for part, wanted in zip(parts, needed, strict=True) if wanted)
        return (passing((whole, *parts), *gradients),)

    def keeps(self, inputs: Shapes, element_size: int, needed: tuple[bool, ...]) -> MemoryNeeds:
        return MemoryNeeds(inputs=tuple(range(len(inputs))))


@layer_type("Sigmoid")
class Sigmoid(Pointwise):
    """The logistic function, with one output a sample, as the 2017 format has it.

    Cost models newer than `paleo2017` keep the input's shape.
    """

    serves_as: ClassVar[str] = "score"

    kept: ClassVar[MemoryNeeds | None] = MemoryNeeds(output=True)
    is_pointwise: ClassVar[bool] = True
    keeps_shape: ClassVar[bool] = False
    function_name: ClassVar[str] = "sigmoid"

    def keeping_shape(self) -> Layer:
        return Activation(function="sigmoid")

    def infer_shape(self, inputs: Shapes) -> Shape:
        return (inputs[0][0], 1)


@layer_type("Dropout")
class Dropout(Pointwise):
    """Elements kept with a probability, the others set to zero: one FLOP an element."""

    kind: ClassVar[Kind] = Kind.DROPOUT
    is_pointwise: ClassVar[bool] = True
    is_training_only: ClassVar[bool] = True
    backward_reads: ClassVar[int] = 1  # the mask can be drawn again from the seed

    dropout_keep_prob: float = key(Probability(), "the probability of keeping an element")

    def operations(self, direction: Pass, inputs: Shapes, element_size: int) -> Operations:
        count = num_elements(inputs[0])
        moved = (element_size * count,)
        drawn = count if direction is Pass.FORWARD else 0
        return (Stream(self.kind, moved, moved, count, drawn=drawn, direction=direction),)

    def keeps(self, inputs: Shapes, element_size: int, needed: tuple[bool, ...]) -> MemoryNeeds:
        # The mask, as numbers to multiply by.
        return MemoryNeeds(saved=element_size * num_elements(inputs[0]))


@layer_type("PReLU")
class PReLU(Pointwise):
    """A rectifier whose slope below zero is a parameter of each channel."""

    is_pointwise: ClassVar[bool] = True
    function_name: ClassVar[str] = "leaky_relu"

    shared: bool = key(Flag(), "whether all channels have one slope", default=False)

    def num_params(self, inputs: Shapes) -> int:
        return 1 if self.shared else int(inputs[0][-1])

    def keeps(self, inputs: Shapes, element_size: int, needed: tuple[bool, ...]) -> MemoryNeeds:
        # The slopes' gradient is that of each element before it is summed.
        return MemoryNeeds(inputs=(0,), backward=element_size * num_elements(inputs[0]))


@layer_type("Softmax")
class Softmax(Pointwise):
    """Scores to probabilities, N x num_classes whatever the input's rank.

    It looks for a row's largest score, sums the exponentials up, and writes them.
    """

    serves_as: ClassVar[str] = "score"

    kept: ClassVar[MemoryNeeds | None] = MemoryNeeds(output=True)
    kind: ClassVar[Kind] = Kind.SOFTMAX
    keeps_shape: ClassVar[bool] = False
    forward_passes: ClassVar[int] = 3
    backward_passes: ClassVar[int] = 2

    num_classes: int | None = key(
        Whole(optional=True), "classes; by default the input's last dimension", default=None
    )
    dim: int | None = key(
        Dimension(optional=True),
        "the dimension whose elements add up to 1; if given, the output has the input's shape",
        default=None,
    )

    def across(self, inputs: Shapes) -> Collection[int] | None:
        if self.dim is None:
            return None
        return (dimension(self.dim, inputs[0], "dim") - len(inputs[0]),)

    def _row(self, shape: Shape) -> Quantity:
        return self.num_classes or shape[-1 if self.dim is None else self.dim]

    def infer_shape(self, inputs: Shapes) -> Shape:
        if self.dim is not None:
            dimension(self.dim, inputs[0], "dim")
            return inputs[0]
        return (inputs[0][0], self.num_classes or inputs[0][-1])

    def following(self, before: Shapes, after: Shapes) -> Layer:
        if self.num_classes != before[0][-1]:
            return self
        return self.replace(num_classes=int(after[0][-1]))


@layer_type("Elementwise")
class Elementwise(Layer):
    """The sum of tensors, or another function of one element of each.

    Dimensions are compared from the last, as NumPy does; those of 1 are repeated.
    """

    serves_as: ClassVar[str] = "sum"

    leads = True
    is_pointwise: ClassVar[bool] = True
    num_parents: ClassVar[tuple[int, int | None]] = (1, None)

    function: str = key(
        Name(ELEMENTWISE, aliases=spellings(ELEMENTWISE, "aliases")),
        "which function",
        default="sum",
    )
    adds_to_product: bool = key(
        Flag(),
        "whether the first parent is a product and the others are its bias, which mixed precision "
        "adds in the product's element type",
        default=False,
    )

    def divided(self, ways: int, inputs: Shapes, axes: tuple[int | None, ...]) -> Divided | None:
        if self.function == "sum" and set(axes) == {TERMS}:
            return Divided(self, TERMS)
        return super().divided(ways, inputs, axes)

    def infer_shape(self, inputs: Shapes) -> Shape:
        longest = max(inputs, key=len)
        sizes = list(longest[1:])
        for shape in inputs:
            for i, size in enumerate(reversed(shape[1:]), start=1):
                if is_one(sizes[-i]):
                    sizes[-i] = size
                elif not (is_one(size) or every(size == sizes[-i])):
                    raise ShapeError(f"its parents differ in shape: {format_shapes(inputs)}")
        return (batch_of(inputs), *sizes)

    def operations(self, direction: Pass, inputs: Shapes, element_size: int) -> Operations:
        if direction is Pass.INPUT_GRADIENT:
            return self.input_gradient(inputs, element_size, (True,) * len(inputs))
        written = tensor_bytes((self.infer_shape(inputs),), element_size)
        return (Stream(Kind.ELEMENTWISE, tensor_bytes(inputs, element_size), written),)

    def input_gradient(
        self, inputs: Shapes, element_size: int, needed: tuple[bool, ...]
    ) -> Operations:
        gradient = ELEMENTWISE[self.function].gradient
        if gradient is Gradient.NONE:
            return ()
        output = self.infer_shape(inputs)
        whole, *parts = tensor_bytes((output, *inputs), element_size)
        if gradient is Gradient.NOTHING:
            # It is handed to every parent as it is, summed where a parent was repeated.
            return tuple(
                found
                for part, shape, wanted in zip(parts, inputs, needed, strict=True)
                for found in _summed(shape, output, whole, part)
                if wanted
            )
        gradients = tuple(part for part, wanted in zip(parts, needed, strict=True) if wanted)
        return (passing((whole, *parts), *gradients),)

    def gradients_apart(
        self, inputs: Shapes, element_size: int, needed: tuple[bool, ...]
    ) -> Operations:
        """Return a product, or what a quotient takes, for each input, and its sum behind it.

        An input that was repeated has a gradient of the output's size first, which is then summed
        (torch/csrc/autograd/FunctionsManual.cpp, mul_tensor_backward and div_tensor_other_grad;
        sum_to).
        """
        if self.function not in ("product", "quotient"):
            return self.input_gradient(inputs, element_size, needed)
        output = self.infer_shape(inputs)
        whole, *parts = tensor_bytes((output, *inputs), element_size)
        found: Operations = ()
        for k, shape in enumerate(inputs):
            if not needed[k]:
                continue
            others = tuple(parts[:k] + parts[k + 1 :])
            if self.function == "quotient" and k > 0:
                found += quotient_apart(whole, parts[0], parts[k])
            else:
                found += (passing((whole, *others), whole),)
            found += _summed(shape, output, whole, parts[k])
        return found

    def keeps(self, inputs: Shapes, element_size: int, needed: tuple[bool, ...]) -> MemoryNeeds:
        everything = tuple(range(len(inputs)))
        output = self.infer_shape(inputs)
        whole = element_size * num_elements(output)
        alike = [k for k in everything if not _repeats_anything(inputs[k], output)]
        # What the first two give, the first three, ...: of sums one at a time, else all.
        others = max(0, len(inputs) - 2)
        sums = whole * min(1, others)
        match self.function:
            case "compare" | "logical":
                return MemoryNeeds(ends=True)
            case "sum":
                return MemoryNeeds(aliased=tuple(alike), forward=sums)
            case "difference":
                return MemoryNeeds(aliased=(0,) if 0 in alike else (), forward=sums)
            case "mean":
                return MemoryNeeds(forward=sums)
        # The gradient of what is repeated is summed when it has the output's size.
        repeated = any(wanted and k not in alike for k, wanted in enumerate(needed))
        found: tuple[int, ...] = everything
        if self.function == "product":
            found = tuple(k for k in everything if any(needed[:k] + needed[k + 1 :]))
        elif self.function == "quotient":
            found = everything if any(needed[1:]) else everything[1:]
        elif self.function == "where":
            found, others = tuple(k for k in everything if not needed[k]), 0
        return MemoryNeeds(
            inputs=found,
            output=self.function == "power",
            own=whole * others,
            backward=whole * repeated,
        )


def passing(reads: tuple[Quantity, ...], *writes: Quantity) -> Stream:
    """Return a kernel of element functions that reads and writes these bytes for gradients."""
    return Stream(Kind.ELEMENTWISE, reads, writes, direction=Pass.INPUT_GRADIENT)


def _summed(shape: Shape, output: Shape, whole: Quantity, part: Quantity) -> Operations:
    """Return the sum of a gradient of `whole` bytes to the `part` of an input that was repeated."""
    if _repeats(shape, output):
        return (passing((whole,), part),)
    if is_one(shape[0]) and not is_one(output[0]):
        # Repeated for every sample, unless there is only one.
        more = output[0] - 1
        return (passing((where_positive(more, whole),), where_positive(more, part)),)
    return ()


def quotient_apart(whole: Quantity, above: Quantity, below: Quantity) -> tuple[Stream, ...]:
    """Return the kernels of -g ((a / b) / b): of the divisor's gradient, before any sum.

    Letters: the gradient g of the quotient, of `whole` bytes; a of `above`, b of `below`.
    """
    negated, product = passing((whole,), whole), passing((whole, whole), whole)
    return (negated, passing((above, below), whole), passing((whole, below), whole), product)


def _repeats_anything(shape: Shape, output: Shape) -> bool:
    """Tell whether a shape is repeated to give the output's, or is the same for every sample."""
    return _repeats(shape, output) or (is_one(shape[0]) and not is_one(output[0]))


def _repeats(shape: Shape, output: Shape) -> bool:
    """Tell whether a shape is repeated to give the output's, the batch left aside."""
    missing = len(output) - len(shape)
    return any(not is_one(size) for size in output[1 : 1 + missing]) or any(
        not every(own == size) for own, size in zip(shape[1:], output[1 + missing :], strict=True)
    )
