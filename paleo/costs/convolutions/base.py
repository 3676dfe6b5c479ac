"""The contract of an algorithm for convolutions: what it computes, moves and needs besides.

To add one: a subclass of Algorithm in a file of this folder, registered by
`ALGORITHMS.add(name, instance)`, the file imported in `__init__.py`, and its place in the
tables of `libraries.py` that say which library offers it.

Letters: N batch, H x W input, C channels in, R x S filter, K channels out, P x Q output, g groups.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from paleo.core.frozen import NamedTuple
from paleo.core.operations import Convolution, InOrder, Work
from paleo.core.quantity import Quantity, product
from paleo.core.registry import Registry


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
    workspace_bytes: Quantity = 0

    @property
    def work(self) -> Work:
        """FLOPs and bytes of all kernels."""
        return sum((each.work for each in self.kernels), Work())


class Algorithm:
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

    def counts(self, operation: Convolution) -> Counts:
        """Return what it takes; also where it does not apply, if the formulas have an answer.

        By default the convolution's FLOPs, and each tensor moved once.
        """
        reads, writes = operation.reads, operation.writes
        return Counts((Kernel(operation.flops, reads, writes, is_product=self.is_gemm),))


#: Bytes of the smallest numbers that libraries transform to: halves are for storage, and computed
#: with in fp32 (cuDNN API, PSEUDO_HALF_CONFIG: data in CUDNN_DATA_HALF, computation in
#: CUDNN_DATA_FLOAT, which is what frameworks ask for).
_COMPUTED = 4


class Transform(NamedTuple):
    """What tiles of all images are transformed to: `numbers` each, of `parts` real ones.

    What is transformed is moved `moves` times.
    """

    tiles: Quantity
    numbers: Quantity
    parts: int = 1
    moves: Quantity = 1

    def spectra(self, operation: Convolution, computed: int = _COMPUTED) -> InOrder:
        """Return the bytes of the transformed tensors, those that are read first.

        Numbers of `computed` bytes at least are computed with.
        """
        c, k = operation.in_channels, operation.out_channels
        # As floating point, since tiles may have many times the numbers of their image.
        tiles = 1.0 * self.tiles
        each = self.parts * transformed_size(operation, computed) * self.numbers
        return operation.in_order(each * tiles * c, each * c * k, each * tiles * k)


def transformed_size(operation: Convolution, computed: int = _COMPUTED) -> int:
    """Return the bytes of a real number that a convolution is transformed to."""
    return max(operation.element_size, computed)


class Transforming(Algorithm):
    """An algorithm that transforms tiles and filters, multiplies them, and transforms back."""

    @abstractmethod
    def transform(self, operation: Convolution) -> Transform:
        """Return what it transforms tiles to."""


ALGORITHMS: Registry[Algorithm] = Registry("convolution algorithm")


def lowered(operation: Convolution) -> Quantity:
    """Return N P Q R S C, the elements of the matrix whose rows are the windows of the input."""
    # As floating point, since there may be many times the elements of the image.
    positions = 1.0 * operation.batch * product(axis.output for axis in operation.axes)
    return positions * operation.window_elements * operation.in_channels
