"""The contract of an algorithm for convolutions: what it computes, moves and needs besides.

To add one: a subclass of Algorithm in a file of this folder, registered by
`ALGORITHMS.add(name, instance)`, the file imported in `__init__.py`, and its place in the
tables of `libraries.py` that say which library offers it.

Letters: N batch, H x W input, C channels in, R x S filter, K channels out, P x Q output, g groups.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

from paleo.quantity import Quantity, product
from paleo.registry import Registry
from paleo.work import Convolution, Pass, Work

__all__ = ["ALGORITHMS", "Algorithm", "Counts", "Kernel", "Roles", "lowered", "roles"]


class Kernel(NamedTuple):
    """What one kernel computes and moves: FLOPs, and bytes of each transfer.

    `is_product` tells whether it is a matrix product, which matrix units can do. It runs `times`
    times, each after the one before.
    """

    flops: Quantity = 0
    reads: tuple[Quantity, ...] = ()
    writes: tuple[Quantity, ...] = ()
    is_product: bool = False
    times: int = 1

    @property
    def work(self) -> Work:
        """FLOPs and bytes, all times."""
        return self.times * Work(self.flops, sum(self.reads), sum(self.writes))


class Counts(NamedTuple):
    """The kernels of a convolution, one after another, and the bytes they need besides operands."""

    kernels: tuple[Kernel, ...]
    workspace: Quantity = 0

    @property
    def work(self) -> Work:
        """FLOPs and bytes of all kernels."""
        return sum((each.work for each in self.kernels), Work())


class Algorithm(ABC):
    """A way to compute one pass of a convolution. All quantities may be arrays."""

    name: ClassVar[str]
    #: One line for lists and help.
    summary: ClassVar[str]
    #: Where its counts are from: a paper and its equation, a library's documentation.
    source: ClassVar[str]
    #: Whether it is a matrix product of the convolution's own FLOPs.
    is_gemm: ClassVar[bool] = False

    def applies(self, operation: Convolution) -> Any:
        """Return whether a convolution can be computed so, by any library.

        An array of that where windows are arrays: of several convolutions.
        """
        return True

    @abstractmethod
    def counts(self, operation: Convolution) -> Counts:
        """Return what it takes; also where it does not apply, if the formulas have an answer."""


ALGORITHMS: Registry[Algorithm] = Registry("convolution algorithm")


def lowered(operation: Convolution) -> Quantity:
    """Return N P Q R S C, the elements of the matrix whose rows are the windows of the input."""
    # As floating point, since there may be many times the elements of the image.
    positions = 1.0 * operation.batch * product(axis.output for axis in operation.axes)
    elements: Quantity = positions * operation.window_elements * operation.in_channels
    return elements


class Roles(NamedTuple):
    """What is of the input, of the filter and of the output, in the order of a pass.

    The first two are read, the third is written.
    """

    first: Quantity
    second: Quantity
    result: Quantity


def roles(operation: Convolution, input_: Quantity, filter_: Quantity, output: Quantity) -> Roles:
    """Return the values of the three tensors, those that this pass reads first."""
    if operation.direction is Pass.FORWARD:
        return Roles(input_, filter_, output)
    if operation.direction is Pass.INPUT_GRADIENT:
        return Roles(output, filter_, input_)
    return Roles(input_, output, filter_)
