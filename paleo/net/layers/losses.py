"""Where a net ends: what is made smaller in training, and how good it is."""

from __future__ import annotations

from typing import ClassVar

from paleo.layers.base import Kept, Layer, Operations, batch_of, layer_type
from paleo.layers.keys import Name, key
from paleo.tensor import Shape, num_elements
from paleo.work import Pass, Stream

__all__ = ["Accuracy", "Loss"]

_LOSSES = (
    "softmax_cross_entropy",
    "sigmoid_cross_entropy",
    "cross_entropy",
    "squared_error",
    "absolute_error",
    "smooth_absolute_error",
    "hinge",
    "contrastive",
    "other",
)


#: Those that need no more than what they compare.
_OF_DIFFERENCES = (
    "sigmoid_cross_entropy",
    "squared_error",
    "absolute_error",
    "smooth_absolute_error",
)


class _Judging(Layer):
    """A number for each sample, from its scores and, if there are some, its labels."""

    num_parents: ClassVar[tuple[int, int | None]] = (1, None)

    @property
    def label(self) -> str:
        """What its operation is called."""
        return self.type_name.lower()

    def infer_shape(self, inputs: tuple[Shape, ...]) -> Shape:
        return (batch_of(inputs), 1)

    def operations(
        self, direction: Pass, inputs: tuple[Shape, ...], element_size: int
    ) -> Operations:
        sizes = tuple(element_size * num_elements(shape) for shape in inputs)
        if direction is Pass.FORWARD:
            return (Stream(self.label, sizes, (element_size * batch_of(inputs),)),)
        return ()


@layer_type("Loss")
class Loss(_Judging):
    """What training makes smaller: N x 1, of scores and labels."""

    function: str = key(Name(_LOSSES), "which", "softmax_cross_entropy")

    def operations(
        self, direction: Pass, inputs: tuple[Shape, ...], element_size: int
    ) -> Operations:
        if direction is Pass.INPUT_GRADIENT:
            sizes = tuple(element_size * num_elements(shape) for shape in inputs)
            return (Stream(self.label, sizes, (sizes[0],)),)
        return super().operations(direction, inputs, element_size)

    def keeps(self, inputs: tuple[Shape, ...], element_size: int, needed: tuple[bool, ...]) -> Kept:
        found = tuple(range(len(inputs)))
        if self.function in _OF_DIFFERENCES:
            return Kept(inputs=found)
        # The scores' logarithms, and their gradient on the way to that of the scores.
        scores = element_size * num_elements(inputs[0])
        return Kept(inputs=found, own=scores, backward=scores)


@layer_type("Accuracy")
class Accuracy(_Judging):
    """Whether each sample's best score is that of its label: N x 1. It has no gradient."""

    def keeps(self, inputs: tuple[Shape, ...], element_size: int, needed: tuple[bool, ...]) -> Kept:
        return Kept(ends=True)
