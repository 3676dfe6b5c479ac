"""Layers that hold a matrix: its columns may be split, its numbers stored in few bits.

Letters: D features in, K out. Numbers in few bits come with scales, one for each group of them.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

from paleo.core.frozen import NamedTuple
from paleo.core.quantity import ceil_div
from paleo.core.tensor import Shape, Shapes
from paleo.net.layers import fields
from paleo.net.layers.base import TERMS, Divided, Layer, MemoryNeeds, ShapeError, share
from paleo.net.layers.fields import Whole, key


class Storage(NamedTuple):
    """Bytes of a number and of a scale; the numbers of a group, None where a file may say."""

    number: float
    scale: int
    group: int | None = None


#: Element types of stored weights. Those of 4 bits with a block are of the OCP Microscaling Formats
#: specification (version 1.0, table 1) and of NVIDIA's Blackwell (cuBLAS, "Narrow Precision").
STORED = {
    "int8": Storage(1, 2),
    "fp8": Storage(1, 2),
    "int4": Storage(0.5, 2),
    "fp4": Storage(0.5, 2),
    "mxfp4": Storage(0.5, 1, 32),
    "nvfp4": Storage(0.5, 1, 16),
}


class _StoredAs(fields.Name):
    """One of `STORED`; null too."""

    def parse(self, value: Any) -> Any:
        return None if value is None else super().parse(value)

    @property
    def schema(self) -> fields.Schema:
        return {"enum": [*self.choices, None]}


class Matrix(Layer):
    """A layer with a matrix of parameters, whose columns can be split over devices."""

    kept: ClassVar[MemoryNeeds | None] = MemoryNeeds(inputs=(0,))
    num_outputs: int

    def split(self, ways: int, inputs: Shapes) -> Divided | None:
        if self.num_outputs % ways:
            return None
        return Divided(self.shard(ways), len(self.infer_shape(inputs)) - 1)

    def padded(self, multiple: int) -> Layer:
        return self.replace(num_outputs=multiple * ceil_div(self.num_outputs, multiple))

    def divided(self, ways: int, inputs: Shapes, axes: tuple[int | None, ...]) -> Divided | None:
        (axis,) = axes
        first = self.first_feature(inputs[0])
        if axis is None or axis == TERMS:
            return Divided(self) if axis is None else None
        if axis < first:
            return Divided(self, axis)
        # Rows of the matrix: each device has a term of every sum.
        return Divided(self, TERMS) if axis == first else None

    def first_feature(self, shape: Shape) -> int:
        """Return the first of the dimensions that are a row of features."""
        return len(shape) - 1

    def shard(self, splits: int) -> Layer:
        return self.replace(num_outputs=share(self.num_outputs, splits, "num_outputs"))


class StoredMatrix(Matrix):
    """One whose matrix may be stored in fewer bits than are computed with, for inference.

    The kernel of the product makes numbers of the element type of them. Gradients and updates are
    of the net's own type.
    """

    weights: str | None = key(
        _StoredAs(STORED),
        "the type in which the matrix is stored for inference; by default that of the layer",
        default=None,
    )
    group: int | None = key(
        Whole(optional=True),
        "numbers of the matrix that share a scale; by default those of an output",
        default=None,
    )

    def check_storage(self) -> None:
        """Raise ShapeError where `weights` and `group` do not fit."""
        if self.group is None:
            return
        if self.weights is None:
            raise ShapeError("a group shares a scale of weights in few bits: say which", "group")
        own = STORED[self.weights].group
        if own is not None and own != self.group:
            raise ShapeError(f"{self.weights} has groups of {own}, not of {self.group}", "group")

    def multiplied_by(self, inputs: Shapes) -> tuple[int, int, int] | None:
        rows, columns = self.features(inputs), self.num_outputs
        return (
            None if self.weights else (self.num_weights(inputs) // (rows * columns), rows, columns)
        )

    def weight_size(self, features: int) -> float:
        """Return the bytes of a number of the matrix with its part of a scale, 0 if as all else."""
        if self.weights is None:
            return 0
        stored = STORED[self.weights]
        return stored.number + stored.scale / min(stored.group or self.group or features, features)

    def stored_bytes(self, inputs: Shapes, element_size: int) -> int:
        size, numbers = self.weight_size(self.features(inputs)), self.num_weights(inputs)
        whole = super().stored_bytes(inputs, element_size)
        return whole + math.ceil(size * numbers) - element_size * numbers if size else whole

    def features(self, inputs: Shapes) -> int:
        """Return D."""
        return int(inputs[0][-1])

    def num_weights(self, inputs: Shapes) -> int:
        """Return the numbers of the matrix, without a bias."""
        return self.features(inputs) * self.num_outputs
