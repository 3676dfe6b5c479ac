"""Layers that compute each element by itself: activations, dropout, softmax, sums.

Each is a stream through memory; how often an operand is read follows from the arithmetic
of a training step, without fusion.
"""

from __future__ import annotations

from typing import ClassVar

from paleo.layers.base import (
    Kept,
    Layer,
    Operations,
    ShapeError,
    batch_of,
    dimension,
    is_one,
    layer_type,
    parameter_stream,
    stream,
)
from paleo.layers.keys import Dimension, Flag, Name, Probability, Whole, key
from paleo.quantity import Quantity, where_positive
from paleo.tensor import Shape, format_shapes, num_elements
from paleo.work import Pass, Stream

__all__ = [
    "ELEMENTWISE",
    "FUNCTIONS",
    "Activation",
    "Dropout",
    "Elementwise",
    "PReLU",
    "Pointwise",
    "Sigmoid",
    "Softmax",
]

FUNCTIONS = (
    "relu",
    "relu6",
    "leaky_relu",
    "elu",
    "selu",
    "gelu",
    "silu",
    "softplus",
    "sigmoid",
    "hard_sigmoid",
    "hard_swish",
    "tanh",
    "absval",
    "exp",
    "log",
    "power",
    "celu",
    "hard_tanh",
    "mish",
    "softsign",
    "threshold",
    "clip",
    "affine",
    "sqrt",
    "reciprocal",
    "erf",
    "sin",
    "cos",
    "round",
    "sign",
    "compare",
    "cast",
    "other",
)

#: Functions whose gradient takes the output; it is there or not, but for a factor; there is none.
_BY_OUTPUT = ("relu", "sigmoid", "tanh", "exp", "sqrt", "reciprocal")
_BY_NEITHER = ("affine", "cast")
_STEPS = ("round", "sign", "compare")
#: Tensors that the formula of the gradient makes besides the result, where it makes any.
_ON_THE_WAY = {
    "absval": 1, "power": 2, "erf": 4, "sin": 1, "cos": 2, "sqrt": 1, "reciprocal": 2
}  # fmt: skip

#: Functions of several elements, one of each parent.
ELEMENTWISE = (
    "sum",
    "difference",
    "product",
    "quotient",
    "maximum",
    "minimum",
    "mean",
    "power",
    "where",
    "compare",
    "logical",
)
#: Those whose gradient is the output's, up to a factor.
_LINEAR = ("sum", "difference", "mean")
#: Those without a gradient.
_DISCRETE = ("compare", "logical")


class Pointwise(Layer):
    """A layer whose output has its input's shape.

    `forward_reads` and `backward_reads` say how many tensors of that size each pass reads.
    """

    forward_reads: ClassVar[int] = 1
    backward_reads: ClassVar[int] = 2  # the output's gradient, and the input or the output
    #: How often each pass reads a row of `_row` elements if the chip cannot keep it.
    forward_passes: ClassVar[int] = 1
    backward_passes: ClassVar[int] = 1

    @property
    def label(self) -> str:
        """What its operation is called."""
        return self.type_name.lower()

    def _row(self, shape: Shape) -> Quantity:
        """Return the elements that are summed up before any of them is written."""
        return 0

    def infer_shape(self, inputs: tuple[Shape, ...]) -> Shape:
        return inputs[0]

    def operations(
        self, direction: Pass, inputs: tuple[Shape, ...], element_size: int
    ) -> Operations:
        reads, passes = self.forward_reads, self.forward_passes
        if direction is Pass.INPUT_GRADIENT:
            reads, passes = self.backward_reads, self.backward_passes
        elif direction is Pass.WEIGHT_GRADIENT:
            return ()
        row = self._row(inputs[0])
        return stream(self.label, inputs[0], element_size, reads, row=row, passes=passes)


@layer_type("Activation")
class Activation(Pointwise):
    """A function of each element."""

    function: str = key(Name(FUNCTIONS), "which function")

    @property
    def label(self) -> str:
        return self.function

    def keeps(self, inputs: tuple[Shape, ...], element_size: int, needed: tuple[bool, ...]) -> Kept:
        if self.function in (*_BY_NEITHER, *_STEPS):
            return Kept(ends=self.function in _STEPS)
        made = _ON_THE_WAY.get(self.function, 0) * element_size * num_elements(inputs[0])
        if self.function in _BY_OUTPUT:
            return Kept(output=True, backward=made)
        return Kept(inputs=(0,), backward=made)


@layer_type("Sigmoid")
class Sigmoid(Pointwise):
    """The logistic function, with one output a sample, as the 2017 format has it.

    Cost models newer than `paleo2017` keep the input's shape.
    """

    def infer_shape(self, inputs: tuple[Shape, ...]) -> Shape:
        return (inputs[0][0], 1)

    def keeps(self, inputs: tuple[Shape, ...], element_size: int, needed: tuple[bool, ...]) -> Kept:
        return Kept(output=True)


@layer_type("Dropout")
class Dropout(Pointwise):
    """Elements kept with a probability, the others set to zero: one FLOP an element."""

    backward_reads: ClassVar[int] = 1  # the mask can be drawn again from the seed

    dropout_keep_prob: float = key(Probability(), "the probability of keeping an element")

    def operations(
        self, direction: Pass, inputs: tuple[Shape, ...], element_size: int
    ) -> Operations:
        if direction is Pass.WEIGHT_GRADIENT:
            return ()
        count = num_elements(inputs[0])
        moved = (element_size * count,)
        drawn = count if direction is Pass.FORWARD else 0
        return (Stream(self.label, moved, moved, num_flops=count, drawn=drawn),)

    def keeps(self, inputs: tuple[Shape, ...], element_size: int, needed: tuple[bool, ...]) -> Kept:
        # The mask, as numbers to multiply by.
        return Kept(saved=element_size * num_elements(inputs[0]))


@layer_type("PReLU")
class PReLU(Pointwise):
    """A rectifier whose slope below zero is a parameter of each channel."""

    backward_reads: ClassVar[int] = 2

    shared: bool = key(Flag(), "whether all channels have one slope", False)

    def num_params(self, inputs: tuple[Shape, ...]) -> int:
        return 1 if self.shared else int(inputs[0][-1])

    def operations(
        self, direction: Pass, inputs: tuple[Shape, ...], element_size: int
    ) -> Operations:
        if direction is Pass.WEIGHT_GRADIENT:
            params = self.num_params(inputs)
            return parameter_stream(self.label, inputs[0], params, element_size, reads=2)
        return super().operations(direction, inputs, element_size)

    def keeps(self, inputs: tuple[Shape, ...], element_size: int, needed: tuple[bool, ...]) -> Kept:
        # The slopes' gradient is that of each element before it is summed.
        return Kept(inputs=(0,), backward=element_size * num_elements(inputs[0]))


@layer_type("Softmax")
class Softmax(Pointwise):
    """Scores to probabilities, N x num_classes whatever the input's rank.

    It looks for a row's largest score, sums the exponentials up, and writes them.
    """

    forward_passes: ClassVar[int] = 3
    backward_passes: ClassVar[int] = 2

    num_classes: int | None = key(
        Whole(optional=True), "classes; by default the input's last dimension", None
    )
    dim: int | None = key(
        Dimension(optional=True),
        "the dimension whose elements add up to 1; if given, the output has the input's shape",
        None,
    )

    def _row(self, shape: Shape) -> Quantity:
        return self.num_classes or shape[-1 if self.dim is None else self.dim]

    def infer_shape(self, inputs: tuple[Shape, ...]) -> Shape:
        if self.dim is not None:
            dimension(self.dim, inputs[0], "dim")
            return inputs[0]
        return (inputs[0][0], self.num_classes or inputs[0][-1])

    def keeps(self, inputs: tuple[Shape, ...], element_size: int, needed: tuple[bool, ...]) -> Kept:
        return Kept(output=True)

    def following(self, before: tuple[Shape, ...], after: tuple[Shape, ...]) -> Layer:
        if self.num_classes != before[0][-1]:
            return self
        return self.replace(num_classes=int(after[0][-1]))


@layer_type("Elementwise")
class Elementwise(Layer):
    """The sum of tensors, or another function of one element of each.

    Dimensions are compared from the last, as NumPy does; those of 1 are repeated.
    """

    num_parents: ClassVar[tuple[int, int | None]] = (1, None)

    function: str = key(Name(ELEMENTWISE), "which function", "sum")

    def infer_shape(self, inputs: tuple[Shape, ...]) -> Shape:
        longest = max(inputs, key=len)
        sizes = list(longest[1:])
        for shape in inputs:
            for i, size in enumerate(reversed(shape[1:]), start=1):
                if sizes[-i] == 1:
                    sizes[-i] = size
                elif size not in (1, sizes[-i]):
                    raise ShapeError(f"its parents differ in shape: {format_shapes(inputs)}")
        return (batch_of(inputs), *sizes)

    def operations(
        self, direction: Pass, inputs: tuple[Shape, ...], element_size: int
    ) -> Operations:
        if direction is Pass.INPUT_GRADIENT:
            return self.input_gradient(inputs, element_size, (True,) * len(inputs))
        if direction is Pass.WEIGHT_GRADIENT:
            return ()
        whole = element_size * num_elements(self.infer_shape(inputs))
        parts = tuple(element_size * num_elements(shape) for shape in inputs)
        return (Stream("elementwise", parts, (whole,)),)

    def input_gradient(
        self, inputs: tuple[Shape, ...], element_size: int, needed: tuple[bool, ...]
    ) -> Operations:
        if self.function in _DISCRETE:
            return ()
        output = self.infer_shape(inputs)
        whole = element_size * num_elements(output)
        parts = tuple(element_size * num_elements(shape) for shape in inputs)
        label = "elementwise"
        if self.function in _LINEAR:
            # It is handed to every parent as it is, summed where a parent was repeated.
            found: Operations = ()
            for part, shape, wanted in zip(parts, inputs, needed, strict=True):
                if not wanted:
                    continue
                if _repeats(shape, output):
                    found += (Stream(label, (whole,), (part,)),)
                elif is_one(shape[0]) and not is_one(output[0]):
                    # Repeated for every sample, unless there is only one.
                    more = output[0] - 1
                    read, written = where_positive(more, whole), where_positive(more, part)
                    found += (Stream(label, (read,), (written,)),)
            return found
        gradients = tuple(part for part, wanted in zip(parts, needed, strict=True) if wanted)
        return (Stream(label, (whole, *parts), gradients),)

    def keeps(self, inputs: tuple[Shape, ...], element_size: int, needed: tuple[bool, ...]) -> Kept:
        everything = tuple(range(len(inputs)))
        output = self.infer_shape(inputs)
        whole = element_size * num_elements(output)
        alike = [k for k in everything if not _repeats_anything(inputs[k], output)]
        # What the first two give, the first three, ...: of sums one at a time, else all.
        others = max(0, len(inputs) - 2)
        sums = whole * min(1, others)
        match self.function:
            case "compare" | "logical":
                return Kept(ends=True)
            case "sum":
                return Kept(handed=tuple(alike), forward=sums)
            case "difference":
                return Kept(handed=(0,) if 0 in alike else (), forward=sums)
            case "mean":
                return Kept(forward=sums)
        # The gradient of what is repeated is summed when it has the output's size.
        repeated = any(wanted and k not in alike for k, wanted in enumerate(needed))
        found: tuple[int, ...] = everything
        if self.function == "product":
            found = tuple(k for k in everything if any(needed[:k] + needed[k + 1 :]))
        elif self.function == "quotient":
            found = everything if any(needed[1:]) else everything[1:]
        elif self.function == "where":
            found, others = tuple(k for k in everything if not needed[k]), 0
        return Kept(
            inputs=found,
            output=self.function == "power",
            own=whole * others,
            backward=whole * repeated,
        )


def _repeats_anything(shape: Shape, output: Shape) -> bool:
    """Tell whether a shape is repeated to give the output's, or is the same for every sample."""
    return _repeats(shape, output) or (is_one(shape[0]) and not is_one(output[0]))


def _repeats(shape: Shape, output: Shape) -> bool:
    """Tell whether a shape is repeated to give the output's, the batch left aside."""
    missing = len(output) - len(shape)
    return any(size != 1 for size in output[1 : 1 + missing]) or any(
        own != size for own, size in zip(shape[1:], output[1 + missing :], strict=True)
    )
