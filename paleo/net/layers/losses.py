"""Where a net ends: what is made smaller in training, and how good it is."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from paleo.core.operations import Kind, Pass, Role, Stream
from paleo.core.quantity import product
from paleo.core.tensor import Shape, Shapes, num_elements
from paleo.net.layers.base import Layer, MemoryNeeds, Operations, batch_of, layer_type, tensor_bytes
from paleo.net.layers.fields import Name, key

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

#: Those whose labels are classes.
_BY_CLASS = ("softmax_cross_entropy", "cross_entropy", "hinge")
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
    is_judge: ClassVar[bool] = True

    @property
    def by_class(self) -> bool:
        """Whether a label may be the number of the class that is right."""
        return True

    def are_classes(self, inputs: Shapes) -> bool:
        """Tell whether labels name a class for each row of scores, not a number for each score."""
        if not self.by_class:
            return False
        return len(inputs) == 1 or bool(product(inputs[0][1:]) != product(inputs[1][1:]))

    def index_limit(self, k: int, inputs: Shapes) -> int | None:
        return int(inputs[0][-1]) if k == 1 and self.are_classes(inputs) else None

    def infer_shape(self, inputs: Shapes) -> Shape:
        return (batch_of(inputs), 1)

    def operations(self, direction: Pass, inputs: Shapes, element_size: int) -> Operations:
        if direction is not Pass.FORWARD:
            return ()
        sizes, written = tensor_bytes(inputs, element_size), (element_size * batch_of(inputs),)
        return (Stream(Kind.REDUCTION, sizes, written, label=self.type_name.lower()),)


@layer_type("Loss")
class Loss(_Judging):
    """What training makes smaller: N x 1, of scores and labels."""

    is_loss: ClassVar[bool] = True

    function: str = key(Name(_LOSSES), "which", default="softmax_cross_entropy")

    @property
    def by_class(self) -> bool:
        return self.function in _BY_CLASS

    def operations(self, direction: Pass, inputs: Shapes, element_size: int) -> Operations:
        found = super().operations(Pass.FORWARD, inputs, element_size)
        if direction is Pass.FORWARD:
            return found
        (step,) = found
        assert isinstance(step, Stream)
        # Nothing has been done since the forward pass read the scores.
        roles = (Role.AGAIN, *[Role.KEPT] * (len(inputs) - 1))
        return (replace(step, writes=step.reads[:1], direction=direction, roles=roles),)

    def keeps(self, inputs: Shapes, element_size: int, needed: tuple[bool, ...]) -> MemoryNeeds:
        found = tuple(range(len(inputs)))
        if self.function in _OF_DIFFERENCES:
            return MemoryNeeds(inputs=found)
        # The scores' logarithms, and their gradient on the way to that of the scores.
        scores = element_size * num_elements(inputs[0])
        return MemoryNeeds(inputs=found, own=scores, backward=scores)


@layer_type("Accuracy")
class Accuracy(_Judging):
    """Whether each sample's best score is that of its label: N x 1. It has no gradient."""

    kept: ClassVar[MemoryNeeds | None] = MemoryNeeds(ends=True)
