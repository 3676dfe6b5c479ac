"""Normalizations: elements brought to mean 0 and variance 1, or the like, over some dimensions.

Each is a stream through memory. Those over a sample's own last dimensions keep a row on the
chip if they can and read it once; those over images or the batch read twice, for statistics and
result.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from paleo.core.operations import Kind, Role
from paleo.core.quantity import Quantity, product
from paleo.core.tensor import Shape, Shapes, format_shape, num_elements
from paleo.net.layers.base import MemoryNeeds, Operations, ShapeError, layer_type, tensor_bytes
from paleo.net.layers.fields import Flag, Whole, key
from paleo.net.layers.pointwise import Pointwise, passing, quotient_apart

#: What those read that go over a tensor twice: for the statistics, and to apply them.
_TWICE = (Role.INPUT, Role.AGAIN)
_TWICE_BACK = (Role.OUTPUT_GRADIENT, Role.KEPT, Role.AGAIN, Role.AGAIN)
_AFFINE = "whether it has a scale and a shift for each channel"


@layer_type("LRN")
class LRN(Pointwise):
    """Local response normalization across `local_size` channels."""

    kind: ClassVar[Kind] = Kind.LOCAL_RESPONSE_NORM
    backward_reads: ClassVar[int] = 3  # input, output, the output's gradient

    local_size: int = key(Whole(), "channels that each element is normalized over", default=5)

    def keeps(self, inputs: Shapes, element_size: int, needed: tuple[bool, ...]) -> MemoryNeeds:
        # The sums in each window and their powers; the squares that are summed, with a margin, are
        # given back before the powers are made unless the backward pass needs them.
        *front, c = inputs[0]
        rows = element_size * num_elements(tuple(front))
        one, squares = rows * c, rows * (c + self.local_size - 1)
        return MemoryNeeds(inputs=(0,), own=2 * one, saved=squares, backward=3 * one)


class _Affine(Pointwise):
    """A layer with parameters, for each channel or each element of the last dimensions."""

    kind: ClassVar[Kind] = Kind.NORMALIZATION

    #: Whether it has a scale for each element of the last dimensions, so many, and also a shift.
    #: Where a type leaves the choice, these are keys of it.
    affine: bool = True
    bias_term: bool = True
    num_dims: int = 1

    def num_params(self, inputs: Shapes) -> int:
        elements = product(map(int, inputs[0][-self.num_dims :]))
        return (1 + self.bias_term) * self.affine * elements

    def num_tensors(self, inputs: Shapes) -> int:
        return (1 + self.bias_term) * self.affine

    def _statistics(self, shape: Shape) -> Quantity:
        """Return how many numbers it normalizes with: means, variances, lengths."""
        return num_elements(shape[: -self.num_dims])

    def keeps(self, inputs: Shapes, element_size: int, needed: tuple[bool, ...]) -> MemoryNeeds:
        return MemoryNeeds(inputs=(0,), saved=element_size * self._statistics(inputs[0]))


class _ReadTwice(_Affine):
    """A normalization that reads its input twice: for the statistics, and to apply them."""

    forward_reads: ClassVar[int] = 2
    backward_reads: ClassVar[int] = 4
    forward_roles: ClassVar[tuple[Role, ...]] = _TWICE
    backward_roles: ClassVar[tuple[Role, ...]] = _TWICE_BACK


@layer_type("BatchNorm")
class BatchNorm(_ReadTwice):
    """Each channel brought to mean 0 and variance 1 over the batch, then scaled and shifted.

    It reads its input twice: for the statistics, and to apply them. The gradients of scale and
    shift take what that of the input has just read. (Kernels of cuDNN and of PyTorch,
    aten/src/ATen/native/cuda/Normalization.cuh, load an element at a time.)
    """

    kind: ClassVar[Kind] = Kind.BATCH_NORM
    parameter_roles: ClassVar[tuple[Role, ...]] = (Role.AGAIN, Role.AGAIN)
    takes_statistics: ClassVar[bool] = True
    by_element: ClassVar[bool] = True

    affine: bool = key(Flag(), _AFFINE + " (Caffe's has not)", default=True)

    def across(self, inputs: Shapes) -> Collection[int] | None:
        return range(-len(inputs[0]), -1)

    def buffers(self, inputs: Shapes) -> tuple[int, ...]:
        """Return those of running means, running variances and the number of batches."""
        channels = int(inputs[0][-1])
        return channels, channels, 1

    def _statistics(self, shape: Shape) -> Quantity:
        return 2 * shape[-1]


@layer_type("Scale")
class Scale(_Affine):
    """Each channel multiplied by a parameter, and shifted by another."""

    kind: ClassVar[Kind] = Kind.FUNCTION
    is_pointwise: ClassVar[bool] = True
    backward_reads: ClassVar[int] = 1
    function_name: ClassVar[str] = "affine"

    bias_term: bool = key(Flag(), "whether it also shifts", default=True)

    def keeps(self, inputs: Shapes, element_size: int, needed: tuple[bool, ...]) -> MemoryNeeds:
        # The product and the sum are a tensor each.
        product = element_size * num_elements(inputs[0])
        return MemoryNeeds(inputs=(0,), forward=product * self.bias_term)


class _ByRow(_Affine):
    """A normalization of rows: the elements of the last dimensions."""

    forward_passes: ClassVar[int] = 2
    backward_passes: ClassVar[int] = 2

    def _row(self, shape: Shape) -> Quantity:
        return product(shape[-self.num_dims :])

    def across(self, inputs: Shapes) -> Collection[int] | None:
        return range(-self.num_dims, 0)


class _OverLast(_ByRow):
    """One over as many of the last dimensions as a file says."""

    num_dims: int = key(Whole(), "how many of the last dimensions are normalized over", default=1)

    @property
    def orders_channels_last(self) -> bool:
        return self.num_dims == 1

    def infer_shape(self, inputs: Shapes) -> Shape:
        if self.num_dims >= len(inputs[0]):
            raise ShapeError(
                f"{format_shape(inputs[0])} has no {self.num_dims} dimensions besides the batch",
                "num_dims",
            )
        return inputs[0]


@layer_type("LayerNorm")
class LayerNorm(_OverLast):
    """Each sample's last dimensions brought to mean 0 and variance 1, then scaled and shifted."""

    serves_as: ClassVar[str] = "norm"

    kind: ClassVar[Kind] = Kind.LAYER_NORM

    affine: bool = key(Flag(), "whether it has a scale for each element", default=True)
    bias_term: bool = key(Flag(), "whether, if it scales, it also shifts", default=True)
    custom: bool = key(
        Flag(),
        "whether it is a layer of the net's own, not the framework's: a fast norm computes it",
        default=False,
    )

    def _statistics(self, shape: Shape) -> Quantity:
        return 2 * super()._statistics(shape)


@layer_type("RMSNorm")
class RMSNorm(_OverLast):
    """Each sample's last dimensions divided by their root mean square, then scaled."""

    serves_as: ClassVar[str] = "norm"

    affine: bool = key(Flag(), "whether it has a scale for each element", default=True)
    bias_term: bool = False


@layer_type("GroupNorm")
class GroupNorm(_ReadTwice):
    """Groups of each sample's channels brought to mean 0 and variance 1."""

    num_groups: int = key(Whole(), "groups of channels")
    affine: bool = key(Flag(), _AFFINE, default=True)

    def infer_shape(self, inputs: Shapes) -> Shape:
        if inputs[0][-1] % self.num_groups:
            raise ShapeError(
                f"{inputs[0][-1]} channels do not divide into {self.num_groups} groups",
                "num_groups",
            )
        return inputs[0]

    def _statistics(self, shape: Shape) -> Quantity:
        return 2 * self.num_groups * shape[0]


@layer_type("InstanceNorm")
class InstanceNorm(_ReadTwice):
    """Each channel of each sample brought to mean 0 and variance 1."""

    affine: bool = key(Flag(), _AFFINE, default=True)

    def _statistics(self, shape: Shape) -> Quantity:
        return 2 * shape[0] * shape[-1]


@layer_type("L2Norm")
class L2Norm(_ByRow):
    """The last dimension brought to a length of 1."""

    affine: bool = False

    def gradients_apart(
        self, inputs: Shapes, element_size: int, needed: tuple[bool, ...]
    ) -> Operations:
        """Return the kernels of x / |x|: of the quotient's gradients, of the length's, their sum.

        (torch/nn/functional.py, normalize; FunctionsManual.cpp, norm_backward.)
        """
        whole, rows = tensor_bytes((inputs[0], inputs[0][:-1]), element_size)
        return (
            passing((whole, rows), whole),
            *quotient_apart(whole, whole, rows),
            passing((whole,), rows),
            passing((whole, rows), whole),
            passing((whole, whole), whole),
        )
