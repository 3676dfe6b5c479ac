"""Operations whose windows slide over images: convolutions and poolings."""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar

from paleo.core.frozen import NamedTuple, dataclass
from paleo.core.kinds import READ_WITH_WEIGHTS, Kind, Pass, Role
from paleo.core.operation import Operation
from paleo.core.quantity import Quantity, product
from paleo.core.window import Axis


@dataclass(frozen=True, slots=True)
class _Windowed(Operation):
    """An operation whose windows slide along `axes` over `batch` images."""

    direction: Pass = field()
    batch: Quantity
    axes: tuple[Axis, ...]
    in_channels: int
    out_channels: int
    element_size: int

    @property
    def window_elements(self) -> int:
        """R S."""
        return product(axis.window for axis in self.axes)

    @property
    def input_elements(self) -> Quantity:
        """N H W C."""
        return product(axis.size for axis in self.axes) * self.in_channels * self.batch

    @property
    def output_elements(self) -> Quantity:
        """N P Q K."""
        return product(axis.output for axis in self.axes) * self.out_channels * self.batch


class InOrder(NamedTuple):
    """What is of the input, of the filter and of the output of a convolution, in a pass' order.

    The first two are read, the third is written.
    """

    first: Quantity
    second: Quantity
    result: Quantity


#: Which pass of a transposed convolution which of the products of a convolution is.
TURNED = {
    Pass.FORWARD: Pass.INPUT_GRADIENT,
    Pass.INPUT_GRADIENT: Pass.FORWARD,
    Pass.WEIGHT_GRADIENT: Pass.WEIGHT_GRADIENT,
}


@dataclass(frozen=True, slots=True)
class Convolution(_Windowed):
    """One pass of a convolution of N x H x W x C by K filters of R x S, giving N x P x Q x K.

    With `groups` g, each filter sees the C / g channels of its group only.

    `axes` are the spatial dimensions. `direction` says which of the three products it is:
    the forward pass, the gradient with respect to the input, or to the filter. A
    transposed convolution's forward pass is a convolution's input gradient, and so on;
    `transposed` marks those, for cost models which price them apart.
    """

    transposed: bool = False
    groups: int = 1
    #: How often there are as many filters: once for all samples, or once for each.
    filters: Quantity = 1
    dtype: str = ""
    #: Whether its images lie channels last, whatever the order of others.
    is_last: bool = False
    kind: ClassVar[Kind] = Kind.CONVOLUTION

    @property
    def layer_pass(self) -> Pass:
        return TURNED[self.direction] if self.transposed else self.direction

    @property
    def read_roles(self) -> tuple[Role, ...]:
        if self.transposed and self.direction is Pass.WEIGHT_GRADIENT:
            return (Role.OUTPUT_GRADIENT, Role.KEPT)
        return READ_WITH_WEIGHTS[self.layer_pass]

    @property
    def filter_elements(self) -> int:
        """R S C K / g."""
        return self.window_elements * self.in_channels * self.out_channels // self.groups

    @property
    def flops(self) -> Quantity:
        """2 R S C N P Q K / g, the same in all three directions."""
        per_position = self.window_elements * self.in_channels // self.groups
        return 2 * per_position * self.output_elements

    @property
    def magnitude(self) -> Quantity:
        # A strided convolution's input gradient may be priced as if it were dense, and images
        # with their padding, or spread out by the stride.
        dense = 2 * self.window_elements * self.out_channels * self.input_elements
        spread: Quantity = product(
            max(axis.size + abs(axis.total_padding), axis.output * axis.stride) + axis.span
            for axis in self.axes
        )
        images = self.batch * max(self.in_channels, self.out_channels) * spread
        largest = max(images, self.filter_elements * self.filters)
        return max(self.flops, dense, self.element_size * largest)

    def in_order(self, input_: Quantity, filter_: Quantity, output: Quantity) -> InOrder:
        """Return what is of each of the three tensors, what this product reads first."""
        if self.direction is Pass.FORWARD:
            return InOrder(input_, filter_, output)
        if self.direction is Pass.INPUT_GRADIENT:
            return InOrder(output, filter_, input_)
        return InOrder(input_, output, filter_)

    @property
    def _tensors(self) -> InOrder:
        size = self.element_size
        image = size * self.input_elements
        filters = size * self.filter_elements * self.filters
        return self.in_order(image, filters, size * self.output_elements)

    @property
    def images(self) -> tuple[Quantity, Quantity]:
        """Bytes of the input and of the output."""
        size = self.element_size
        return size * self.input_elements, size * self.output_elements

    @property
    def reads(self) -> tuple[Quantity, ...]:
        return self._tensors[:2]

    @property
    def writes(self) -> tuple[Quantity, ...]:
        return self._tensors[2:]


@dataclass(frozen=True, slots=True)
class Pooling(_Windowed):
    """One pass of a maximum or an average over windows: one FLOP a window element.

    The gradient of a maximum also reads the input, to find which element was largest.
    """

    maximum: bool = True

    @property
    def kind(self) -> Kind:
        return Kind.MAX_POOLING if self.maximum else Kind.AVERAGE_POOLING

    @property
    def flops(self) -> Quantity:
        return self.window_elements * self.output_elements

    @property
    def reads(self) -> tuple[Quantity, ...]:
        image = self.element_size * self.input_elements
        if self.direction is Pass.FORWARD:
            return (image,)
        gradient = self.element_size * self.output_elements
        return (gradient, image) if self.maximum else (gradient,)

    @property
    def writes(self) -> tuple[Quantity, ...]:
        forward = self.direction is Pass.FORWARD
        return (self.element_size * (self.output_elements if forward else self.input_elements),)
