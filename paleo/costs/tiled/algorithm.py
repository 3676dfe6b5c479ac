"""What an algorithm for convolutions returns, and what all of them need.

Letters: N batch, H x W input, C input channels, R x S filter, K output channels, P x Q output,
g groups. A matrix product has M, N and K of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from paleo.core.frozen import NamedTuple
from paleo.core.operations import Convolution, Pass
from paleo.core.quantity import Quantity, is_array, product
from paleo.costs import model
from paleo.costs.tiled.gemm import Choice, Shape
from paleo.costs.tiled.machine import Machine
from paleo.costs.tiled.stream import moved
from paleo.costs.times import Time


class ConvolutionTime(NamedTuple):
    """A convolution computed by one algorithm: its time, and the matrix product in it.

    `products` of M x N x K are computed as `choice` says; None if there are none.
    """

    time: Time
    m: Quantity = 0
    n: Quantity = 0
    k: Quantity = 0
    products: Quantity = 0
    choice: Choice | None = None


#: Returns how an algorithm computes a convolution, None where it does not apply.
Algorithm: TypeAlias = Callable[[Convolution, Machine], ConvolutionTime | None]


def product_shape(operation: Convolution, rows: Quantity) -> Shape:
    """Return M, N and K of the product of so many rows of C numbers by C x K, or of a gradient."""
    c, k = operation.in_channels, operation.out_channels
    shapes: dict[Pass, Shape] = {
        Pass.FORWARD: (rows, k, c),
        Pass.INPUT_GRADIENT: (rows, c, k),
        Pass.WEIGHT_GRADIENT: (k, c, rows),
    }
    return shapes[operation.direction]


def positions(operation: Convolution) -> Quantity:
    """Return N P Q."""
    return operation.batch * product(axis.output for axis in operation.axes)


def images(operation: Convolution) -> Quantity:
    """Return N H W."""
    return operation.batch * product(axis.size for axis in operation.axes)


def extended(
    time: Time, machine: Machine, *, passes: Iterable[Quantity] = (), kernels: int = 0
) -> Time:
    """Return the time with passes over so many bytes, and so many kernels, before or after."""
    memory: Quantity = 0.0
    for num_bytes in passes:
        memory = memory + moved(num_bytes, machine)
    overhead = kernels * machine.launch
    return Time(
        time.compute,
        time.memory + memory,
        time.overhead + overhead,
        time.total + (memory + overhead),
    )


def in_passes(
    flops: Quantity, passes: Iterable[Quantity], machine: Machine, *, kernels: int
) -> Quantity:
    """Return the least seconds of so many FLOPs of products on the lanes, passes and kernels."""
    time = extended(Time(), machine, passes=passes, kernels=kernels)
    if machine.vector_peak is None:
        return time.total
    return time.total + flops / machine.vector_rate


def repeated(time: Time, times: Quantity) -> Time:
    """Return the time of doing it again and again, each after the one before."""
    return time if not is_array(times) and times == 1 else time.times(times)


def quicker(a: ConvolutionTime, b: ConvolutionTime) -> ConvolutionTime:
    """Return the quicker of two; where times are arrays, with the times of the quicker."""
    second, time = model.quicker(a.time, b.time)
    if not is_array(second):
        return b if second else a
    return (b if second.all() else a)._replace(time=time)
