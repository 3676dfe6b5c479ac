"""What an algorithm for convolutions returns, and what all of them need.

Letters: N batch, H x W input, C input channels, R x S filter, K output channels, P x Q output,
g groups. A matrix product has M, N and K of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

from paleo.costs import base
from paleo.costs.base import Time
from paleo.costs.tiled.gemm import Choice
from paleo.costs.tiled.machine import Machine
from paleo.costs.tiled.stream import moved
from paleo.quantity import Quantity, is_array, product
from paleo.work import Convolution

__all__ = [
    "Algorithm",
    "Shape",
    "Way",
    "extended",
    "images",
    "in_passes",
    "positions",
    "quicker",
    "repeated",
]


class Way(NamedTuple):
    """A convolution computed by one algorithm: its time, and the matrix product in it.

    `products` of M x N x K are computed as `choice` says; None if there are none.
    """

    time: Time
    m: Quantity = 0
    n: Quantity = 0
    k: Quantity = 0
    products: Quantity = 0
    choice: Choice | None = None


#: M, N and K of a product.
Shape: TypeAlias = tuple[Quantity, Quantity, Quantity]
#: Returns how an algorithm computes a convolution, None where it does not apply.
Algorithm: TypeAlias = Callable[[Convolution, Machine], Way | None]


def positions(operation: Convolution) -> Quantity:
    """Return N P Q."""
    found: Quantity = product(axis.output for axis in operation.axes)
    return operation.batch * found


def images(operation: Convolution) -> Quantity:
    """Return N H W."""
    found: Quantity = product(axis.size for axis in operation.axes)
    return operation.batch * found


def extended(
    time: Time, machine: Machine, *, passes: Iterable[Quantity] = (), kernels: int = 0
) -> Time:
    """Return the time with passes over so many bytes, and so many kernels, before or after."""
    memory: Quantity = 0.0
    for num_bytes in passes:
        memory = memory + moved(num_bytes, machine)
    overhead = kernels * machine.launch
    return time + Time(0.0, memory, overhead, memory + overhead)


def in_passes(
    flops: Quantity, passes: Iterable[Quantity], machine: Machine, *, kernels: int
) -> Quantity:
    """Return the least seconds of so many FLOPs of products on the lanes, passes and kernels."""
    time = extended(Time(), machine, passes=passes, kernels=kernels)
    if machine.vector_peak is None:
        return time.total
    return time.total + flops / (machine.vector_peak * machine.vector_share)


def repeated(time: Time, times: Quantity) -> Time:
    """Return the time of doing it again and again, each after the one before."""
    return Time(
        times * time.compute, times * time.memory, times * time.overhead, times * time.total
    )


def quicker(a: Way, b: Way) -> Way:
    """Return the quicker of two; where times are arrays, with the times of the quicker."""
    second, time = base.quicker(a.time, b.time)
    if not is_array(second):
        return b if second else a
    return (b if second.all() else a)._replace(time=time)
