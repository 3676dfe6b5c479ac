"""Normalizations: elements brought to mean 0 and variance 1, or the like, over some dimensions.

Each is a stream through memory. Those over a sample's own last dimensions keep a row on the
chip if they can and read it once; those over images or the batch read twice, for statistics and
result.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from paleo.layers.base import Kept, Operations, ShapeError, layer_type, parameter_stream
from paleo.layers.keys import Flag, Whole, key
from paleo.layers.pointwise import Pointwise
from paleo.quantity import Quantity, product
from paleo.tensor import Shape, format_shape, num_elements
from paleo.work import Pass

__all__ = [
    "LRN",
    "BatchNorm",
    "GroupNorm",
    "InstanceNorm",
    "L2Norm",
    "LayerNorm",
    "RMSNorm",
    "Scale",
]

_AFFINE = "whether it has a scale and a shift for each channel"


@layer_type("LRN")
class LRN(Pointwise):
    """Local response normalization across `local_size` channels."""

    backward_reads: ClassVar[int] = 3  # input, output, the output's gradient

    local_size: int = key(Whole(), "channels that each element is normalized over", 5)

    def keeps(self, inputs: tuple[Shape, ...], element_size: int, needed: tuple[bool, ...]) -> Kept:
        # The sums in each window and their powers; the squares that are summed, with a margin, are
        # given back before the powers are made unless the backward pass needs them.
        *front, c = inputs[0]
        rows = element_size * num_elements(tuple(front))
        one, squares = rows * c, rows * (c + self.local_size - 1)
        return Kept(inputs=(0,), own=2 * one, saved=squares, backward=3 * one)


class _Affine(Pointwise):
    """A layer with parameters, for each channel or each element of the last dimensions."""

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

    @abstractmethod
    def _statistics(self, shape: Shape) -> Quantity:
        """Return how many numbers it normalizes with: means, variances, lengths."""

    def keeps(self, inputs: tuple[Shape, ...], element_size: int, needed: tuple[bool, ...]) -> Kept:
        return Kept(inputs=(0,), saved=element_size * self._statistics(inputs[0]))


@layer_type("BatchNorm")
class BatchNorm(_Affine):
    """Each channel brought to mean 0 and variance 1 over the batch, then scaled and shifted.

    It reads its input twice: for the statistics, and to apply them.
    """

    forward_reads: ClassVar[int] = 2
    backward_reads: ClassVar[int] = 4

    affine: bool = key(Flag(), _AFFINE + " (Caffe's has not)", True)

    def _per_channel(self) -> int:
        return 2 if self.affine else 0

    def _statistics(self, shape: Shape) -> Quantity:
        return 2 * shape[-1]


@layer_type("Scale")
class Scale(_Affine):
    """Each channel multiplied by a parameter, and shifted by another."""

    backward_reads: ClassVar[int] = 1

    bias_term: bool = key(Flag(), "whether it also shifts", True)

    def _per_channel(self) -> int:
        return 2 if self.bias_term else 1

    def _statistics(self, shape: Shape) -> Quantity:
        return 0

    def keeps(self, inputs: tuple[Shape, ...], element_size: int, needed: tuple[bool, ...]) -> Kept:
        # The product and the sum are a tensor each.
        product = element_size * num_elements(inputs[0])
        return Kept(inputs=(0,), forward=product * self.bias_term)


class _OverLast(_Affine):
    """A normalization over the last dimensions."""

    forward_passes: ClassVar[int] = 2
    backward_passes: ClassVar[int] = 2

    num_dims: int = key(Whole(), "how many of the last dimensions are normalized over", 1)

    def infer_shape(self, inputs: tuple[Shape, ...]) -> Shape:
        if self.num_dims >= len(inputs[0]):
            raise ShapeError(
                f"{format_shape(inputs[0])} has no {self.num_dims} dimensions besides the batch",
                "num_dims",
            )
        return inputs[0]

    def _row(self, shape: Shape) -> Quantity:
        elements: Quantity = product(shape[-self.num_dims :])
        return elements

    def num_params(self, inputs: tuple[Shape, ...]) -> int:
        elements: int = product(map(int, inputs[0][-self.num_dims :]))
        return self._per_channel() * elements


@layer_type("LayerNorm")
class LayerNorm(_OverLast):
    """Each sample's last dimensions brought to mean 0 and variance 1, then scaled and shifted."""

    affine: bool = key(Flag(), "whether it has a scale for each element", True)
    bias_term: bool = key(Flag(), "whether, if it scales, it also shifts", True)

    def _per_channel(self) -> int:
        return (1 + self.bias_term) * self.affine

    def _statistics(self, shape: Shape) -> Quantity:
        return 2 * num_elements(shape[: -self.num_dims])


@layer_type("RMSNorm")
class RMSNorm(_OverLast):
    """Each sample's last dimensions divided by their root mean square, then scaled."""

    affine: bool = key(Flag(), "whether it has a scale for each element", True)

    def _per_channel(self) -> int:
        return int(self.affine)

    def _statistics(self, shape: Shape) -> Quantity:
        return num_elements(shape[: -self.num_dims])


@layer_type("GroupNorm")
class GroupNorm(_Affine):
    """Groups of each sample's channels brought to mean 0 and variance 1."""

    forward_reads: ClassVar[int] = 2
    backward_reads: ClassVar[int] = 4

    num_groups: int = key(Whole(), "groups of channels")
    affine: bool = key(Flag(), _AFFINE, True)

    def infer_shape(self, inputs: tuple[Shape, ...]) -> Shape:
        if inputs[0][-1] % self.num_groups:
            raise ShapeError(
                f"{inputs[0][-1]} channels do not divide into {self.num_groups} groups",
                "num_groups",
            )
        return inputs[0]

    def _per_channel(self) -> int:
        return 2 * self.affine

    def _statistics(self, shape: Shape) -> Quantity:
        return 2 * self.num_groups * shape[0]


@layer_type("InstanceNorm")
class InstanceNorm(_Affine):
    """Each channel of each sample brought to mean 0 and variance 1."""

    forward_reads: ClassVar[int] = 2
    backward_reads: ClassVar[int] = 4

    affine: bool = key(Flag(), _AFFINE, True)

    def _per_channel(self) -> int:
        return 2 * self.affine

    def _statistics(self, shape: Shape) -> Quantity:
        return 2 * shape[0] * shape[-1]


@layer_type("L2Norm")
class L2Norm(Pointwise):
    """The last dimension brought to a length of 1."""

    forward_passes: ClassVar[int] = 2
    backward_passes: ClassVar[int] = 2

    def _row(self, shape: Shape) -> Quantity:
        return shape[-1]

    def keeps(self, inputs: tuple[Shape, ...], element_size: int, needed: tuple[bool, ...]) -> Kept:
        return Kept(inputs=(0,), saved=element_size * num_elements(inputs[0][:-1]))
