"""Layers that pass over their input without changing how much there is of it.

Activations, normalizations, sums. Each is a stream through memory; how often an operand
is read follows from the arithmetic of a training step, without fusion.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from paleo.layers.base import (
    Layer,
    Operations,
    ShapeError,
    layer_type,
    parameter_stream,
    stream,
)
from paleo.layers.keys import Flag, Name, Probability, Whole, key
from paleo.tensor import Shape, format_shapes, num_elements
from paleo.work import Pass, Stream

__all__ = [
    "LRN",
    "Activation",
    "BatchNorm",
    "Dropout",
    "Elementwise",
    "Scale",
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
)


class Pointwise(Layer):
    """A layer whose output has its input's shape.

    `forward_reads` and `backward_reads` say how many tensors of that size each pass reads.
    """

    forward_reads: ClassVar[int] = 1
    backward_reads: ClassVar[int] = 2  # the output's gradient, and the input or the output

    @property
    def label(self) -> str:
        """What its operation is called."""
        return self.type_name.lower()

    def infer_shape(self, inputs: tuple[Shape, ...]) -> Shape:
        return inputs[0]

    def operations(
        self, direction: Pass, inputs: tuple[Shape, ...], element_size: int
    ) -> Operations:
        if direction is Pass.FORWARD:
            return stream(self.label, inputs[0], element_size, self.forward_reads)
        if direction is Pass.INPUT_GRADIENT:
            return stream(self.label, inputs[0], element_size, self.backward_reads)
        return ()


@layer_type("Activation")
class Activation(Pointwise):
    """A function of each element."""

    function: str = key(Name(FUNCTIONS), "which function")

    @property
    def label(self) -> str:
        return self.function


@layer_type("Sigmoid")
class Sigmoid(Pointwise):
    """The logistic function, with one output a sample, as the 2017 format has it.

    Cost models newer than `paleo2017` keep the input's shape.
    """

    def infer_shape(self, inputs: tuple[Shape, ...]) -> Shape:
        return (inputs[0][0], 1)


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
        return (Stream(self.label, moved, moved, num_flops=count),)


@layer_type("LRN")
class LRN(Pointwise):
    """Local response normalization across `local_size` channels."""

    backward_reads: ClassVar[int] = 3  # input, output, the output's gradient

    local_size: int = key(Whole(), "channels that each element is normalized over", 5)


class _Affine(Pointwise):
    """A layer with parameters for each channel."""

    @abstractmethod
    def _per_channel(self) -> int:
        """Return the number of parameters of one channel."""

    def num_params(self, inputs: tuple[Shape, ...]) -> int:
        return self._per_channel() * int(inputs[0][-1])

    def operations(
        self, direction: Pass, inputs: tuple[Shape, ...], element_size: int
    ) -> Operations:
        params = self.num_params(inputs)
        if direction is Pass.WEIGHT_GRADIENT:
            if not params:
                return ()
            # From the input and the output's gradient.
            return parameter_stream(self.label, inputs[0], params, element_size, reads=2)
        return super().operations(direction, inputs, element_size)


@layer_type("BatchNorm")
class BatchNorm(_Affine):
    """Each channel brought to mean 0 and variance 1 over the batch, then scaled and shifted.

    It reads its input twice: for the statistics, and to apply them.
    """

    forward_reads: ClassVar[int] = 2
    backward_reads: ClassVar[int] = 4

    affine: bool = key(
        Flag(), "whether it has a scale and a shift for each channel (Caffe's has not)", True
    )

    def _per_channel(self) -> int:
        return 2 if self.affine else 0


@layer_type("Scale")
class Scale(_Affine):
    """Each channel multiplied by a parameter, and shifted by another."""

    backward_reads: ClassVar[int] = 1

    bias_term: bool = key(Flag(), "whether it also shifts", True)

    def _per_channel(self) -> int:
        return 2 if self.bias_term else 1


@layer_type("Softmax")
class Softmax(Pointwise):
    """Scores to probabilities, N x num_classes whatever the input's rank."""

    num_classes: int | None = key(
        Whole(optional=True), "classes; by default the input's last dimension", None
    )

    def infer_shape(self, inputs: tuple[Shape, ...]) -> Shape:
        return (inputs[0][0], self.num_classes or inputs[0][-1])


@layer_type("Elementwise")
class Elementwise(Layer):
    """The sum of tensors of one shape."""

    num_parents: ClassVar[tuple[int, int | None]] = (1, None)

    def infer_shape(self, inputs: tuple[Shape, ...]) -> Shape:
        for shape in inputs[1:]:
            if shape[1:] != inputs[0][1:]:
                raise ShapeError(f"its parents differ in shape: {format_shapes(inputs)}")
        return inputs[0]

    def operations(
        self, direction: Pass, inputs: tuple[Shape, ...], element_size: int
    ) -> Operations:
        # The gradient of a sum is handed to every parent as it is: nothing moves.
        if direction is not Pass.FORWARD:
            return ()
        return stream("elementwise", inputs[0], element_size, reads=len(inputs))
