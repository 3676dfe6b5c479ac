"""Layers that hold or rearrange data: Input, Concatenate, Reshape, Flatten."""

from __future__ import annotations

from typing import ClassVar

from paleo.layers.base import Layer, Operations, ShapeError, layer_type
from paleo.layers.keys import Sizes, Whole, key
from paleo.quantity import product
from paleo.tensor import Shape, format_shape, format_shapes, num_elements
from paleo.work import Pass, Stream

__all__ = ["Concatenate", "Flatten", "Input", "Reshape"]


@layer_type("Input")
class Input(Layer):
    """Where samples come in. Its first dimension is the batch."""

    num_parents: ClassVar[tuple[int, int | None]] = (0, 0)

    tensor: tuple[int, ...] = key(Sizes(), "[N, H, W, C], or any shape with the batch first")

    def infer_shape(self, inputs: tuple[Shape, ...]) -> Shape:
        return self.tensor


@layer_type("Concatenate")
class Concatenate(Layer):
    """Tensors joined along one dimension; the others must agree."""

    num_parents: ClassVar[tuple[int, int | None]] = (1, None)

    dim: int | None = key(
        Whole(optional=True), "the dimension, 3 for channels of an image; by default the last", None
    )

    def infer_shape(self, inputs: tuple[Shape, ...]) -> Shape:
        first = inputs[0]
        dim = len(first) - 1 if self.dim is None else self.dim
        if dim >= len(first):
            raise ShapeError(f"there is no dimension {dim} in {format_shape(first)}", "dim")
        for shape in inputs[1:]:
            # The batch, dimension 0, is everyone's and may be an array.
            if shape[1:dim] + shape[dim + 1 :] != first[1:dim] + first[dim + 1 :]:
                raise ShapeError(
                    f"its parents differ outside dimension {dim}: {format_shapes(inputs)}"
                )
        joined = sum(shape[dim] for shape in inputs)
        return (*first[:dim], joined, *first[dim + 1 :])

    def operations(
        self, direction: Pass, inputs: tuple[Shape, ...], element_size: int
    ) -> Operations:
        if direction is Pass.WEIGHT_GRADIENT:
            return ()
        pieces = tuple(element_size * num_elements(shape) for shape in inputs)
        whole = (sum(pieces),)
        if direction is Pass.FORWARD:
            return (Stream("concatenate", pieces, whole),)
        return (Stream("concatenate", whole, pieces),)


@layer_type("Reshape")
class Reshape(Layer):
    """The same elements in another shape; a view, which moves nothing."""

    output_shape: tuple[int, ...] = key(
        Sizes(derived=(0, -1)), "first entry the batch (-1); last entry -1 if it is to be derived"
    )

    def infer_shape(self, inputs: tuple[Shape, ...]) -> Shape:
        *front, last = self.output_shape[1:]
        have: int = product(inputs[0][1:])
        wanted: int = product(front)
        if last == -1:
            last = have // wanted
        if wanted * last != have:
            raise ShapeError(
                f"{format_shape(inputs[0])} cannot become {list(self.output_shape)}",
                "output_shape",
            )
        return (inputs[0][0], *front, last)


@layer_type("Flatten")
class Flatten(Layer):
    """All dimensions but the batch made one; a view, which moves nothing."""

    def infer_shape(self, inputs: tuple[Shape, ...]) -> Shape:
        return (inputs[0][0], product(inputs[0][1:]))
