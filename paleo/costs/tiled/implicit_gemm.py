"""Convolutions as matrix products whose left operand is never written out.

Each position of the output is a row of R S C inputs: N P Q x R S C times R S C x K (Chetlur et
al., cuDNN: Efficient Primitives for Deep Learning, arXiv:1410.0759). The rows overlap, so memory
is read once where the chip loads each element R S times. The gradient of the input is
N H W x R S K times R S K x C; that of the filter sums over all positions, K x N P Q times
N P Q x R S C, and is cut into parts so that there is work for all multiprocessors. With groups
each is a product for every group.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from paleo.core.frozen import NamedTuple
from paleo.core.operations import Convolution, Pass
from paleo.core.quantity import (
    Quantity,
    every,
    is_array,
    largest,
    maximum,
    product,
    rounded_up,
    smallest,
    some,
)
from paleo.costs.convolutions.base import lowered
from paleo.costs.convolutions.direct import is_depthwise
from paleo.costs.convolutions.gemm import PHASED, SCATTERED, is_plain, phases
from paleo.costs.convolutions.settings import CHANNELS_LAST
from paleo.costs.model import only_where
from paleo.costs.tiled.algorithm import (
    ConvolutionTime,
    extended,
    images,
    in_passes,
    positions,
    product_shape,
    quicker,
    repeated,
)
from paleo.costs.tiled.gemm import choose
from paleo.costs.tiled.machine import Machine
from paleo.costs.tiled.stream import moved
from paleo.costs.tiled.untiled import is_untiled, untiled
from paleo.costs.times import Time

#: Kernels do not split the sum over R S C; those for the filter's gradient do, over N P Q.
_WHOLE: tuple[int, ...] = (1,)
_PARTS: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128)
#: The channels of an operand of the matrix units are a whole number of so many bytes.
_ALIGNMENT = 16
#: Speed beside that of the forward pass: of the filter's gradient, whose operands both run along
#: the positions; of products whose results are scattered; and of those phase by phase.
_FILTER_SHARE = 0.8
_SCATTER_SHARE = 0.72
_PHASE_SHARE = 0.9
#: Kernels for Maxwell came with cuDNN 3; those before reach so much of their speed there. (Ten
#: layers of convnet-benchmarks on the TITAN X, cuDNN 2, which are 17 to 24 % longer; whole nets,
#: to which nothing was fitted, are off by 13 % with it, 29 without.)
_TUNED, _UNTUNED_SHARE = 3, 0.8
#: How many times an element's bytes are moved to add it to what is in memory.
_ADDED = 4
#: Kernels beside the product: where the windows are, and layouts; and the filter's parts.
_LANES_KERNELS, _MATRIX_KERNELS, _PARTS_KERNELS = 2, 1, 1
#: From this generation on libraries compute all groups in one kernel.
_GROUPED = 7
#: From this generation on the kernels of the matrix units are for channels last alone. (cuDNN 7
#: had kernels that wrote the other order themselves: DeepBench's times on Volta and Turing are
#: those of products without any pass besides.)
_CONVERTING = 8
#: The sides of a tile that is transposed for them, as usual (Ruetsch, Micikevicius, Optimizing
#: Matrix Transpose in CUDA: 32 lanes read a row of it and write a column). Narrow nets show it:
#: steps of 80 of timm's take longer contiguous than channels last by a time that the tiles' bytes
#: explain to 6 % of a step, those of the images to 8 %.
_TRANSPOSED = 32
#: Until then they compute one element of the window after the other: channels are summed up in
#: steps of so many bytes, and a filter's gradient is a product for each. Tiles have so many rows
#: and columns at least, of a filter's gradient what the architecture's constants say. (DeepBench's
#: convolutions on the V100 and the T4, cuDNN 7.6: half of the shapes, checked on the others.)
_STEP, _PLACE_TILE = 64, 64
#: Bytes of the largest elements for which that holds: there are kernels of TF32 for either order.
_HALF = 2
#: Shares of the lanes' and of the memory's rate in a kernel without tiles. (Those back: steps of a
#: random half of timm's depthwise nets on the RTX 3090; the other half is off by 8 and 6 % with
#: them, 12 and 7 without, contiguous and channels last.)
_DIRECT_COMPUTE = 0.25
_DIRECT_MEMORY = {Pass.FORWARD: 0.7, Pass.INPUT_GRADIENT: 0.5, Pass.WEIGHT_GRADIENT: 0.35}

#: M, N and K of products, and how many there are.
_Shape: TypeAlias = tuple[Quantity, Quantity, Quantity, Quantity]
#: Channels in and out of one group, and the machine, to those.
_Shaped = Callable[[Quantity, Quantity, Machine], _Shape]


class _Products(NamedTuple):
    """Products of a shape for each group, as a kernel.

    There are `more_kernels` before or after, and passes over so many bytes.
    """

    shape: _Shaped
    splits: tuple[int, ...] = _WHOLE
    share: float = 1.0
    more_kernels: int = 0
    passes: tuple[Quantity, ...] = ()


def decides(operation: Convolution, machine: Machine) -> bool:
    """Tell whether channels have to be filled up for the matrix units: then the lanes compete."""
    if machine.matrix_peak is None:
        return False
    groups = operation.groups
    each = (operation.in_channels // groups, operation.out_channels // groups)
    return any(_aligned(channels, operation, machine) != channels for channels in each)


def implicit(operation: Convolution, machine: Machine) -> ConvolutionTime | None:
    """Return it as one product for each group."""
    return _on_units(operation, machine, _implicit(operation, machine))


def _implicit(operation: Convolution, machine: Machine) -> _Products:
    """Return its product.

    The gradient of the input of a strided convolution is as of one with zeros in between the
    gradients of the output.
    """
    window = operation.window_elements

    def shape(c: Quantity, k: Quantity, unit: Machine) -> _Shape:
        if operation.direction is Pass.FORWARD:
            return positions(operation), k, window * _stepped(c, unit), 1
        if operation.direction is Pass.INPUT_GRADIENT:
            return images(operation), c, window * _stepped(k, unit), 1
        terms = _aligned(positions(operation), operation, unit)
        if _by_place(unit):
            return k, c, terms, window
        return (window * c, k, terms, 1) if unit.in_halves else (k, window * c, terms, 1)

    if operation.direction is not Pass.WEIGHT_GRADIENT:
        return _Products(shape)
    # Sums of halves are a kernel for each row of the output: on the P100 the part of DeepBench's
    # times that does not grow with the batch is 6.7 us for each, from 7 to 112 rows.
    share = 1.0 if _by_place(machine) or machine.in_halves else _FILTER_SHARE
    more = operation.axes[0].output - 1 - _LANES_KERNELS if machine.in_halves else _PARTS_KERNELS
    return _Products(shape, splits=_PARTS, share=share, more_kernels=more)


def _by_place(unit: Machine) -> bool:
    """Tell whether kernels take one element of the window after the other."""
    return unit.matrix_peak is not None and bool(smallest(unit.library) < _CONVERTING)


def _least_tile(operation: Convolution, unit: Machine) -> float:
    """Return the least rows and columns of a tile on the matrix units."""
    if not _by_place(unit):
        return 0
    is_filter = operation.direction is Pass.WEIGHT_GRADIENT
    return float(smallest(unit.filter_tile)) if is_filter else _PLACE_TILE


def _stepped(channels: Quantity, unit: Machine) -> Quantity:
    """Return the channels that a sum takes for each element of the window."""
    return rounded_up(channels, _STEP // unit.element_size) if _by_place(unit) else channels


def explicit(operation: Convolution, machine: Machine) -> ConvolutionTime | None:
    """Return it as `implicit` does, of a matrix that is written and read besides.

    The gradient of the input is such a matrix, which is added up afterwards.
    """
    matrix = operation.element_size * lowered(operation)
    if operation.direction is not Pass.INPUT_GRADIENT:
        way = implicit(operation, machine)
        passes = (matrix, matrix)
        return way and way._replace(time=extended(way.time, machine, passes=passes, kernels=1))
    image = operation.element_size * operation.input_elements
    products = _Products(_with_all_windows(operation), more_kernels=1, passes=(image + matrix,))
    return _on_units(operation, machine, products)


def plain(operation: Convolution, machine: Machine) -> ConvolutionTime | None:
    """Return a 1 x 1 convolution as the product that it is, by a library for products."""
    allowed = is_plain(operation.axes) & (operation.groups == 1)
    if not some(allowed):
        return None
    shape, size = product_shape(operation, positions(operation)), operation.element_size
    chosen = choose(*shape, machine, sizes=(size, size, size))
    return ConvolutionTime(only_where(allowed, chosen.time), *shape, 1, chosen)


def scattered(operation: Convolution, machine: Machine) -> ConvolutionTime | None:
    """Return the input's gradient as a product with all windows, which are then added up.

    It does not multiply zeros, but adds R S C numbers for each position to the image, which was
    filled with zeros, in memory.
    """
    if not every(SCATTERED.applies(operation)):
        return None
    return _on_units(operation, machine, _scattered(operation, machine))


def _scattered(operation: Convolution, _: Machine) -> _Products:
    window, size = operation.window_elements, operation.element_size
    image = size * operation.input_elements
    # Lines of the image that a window of one element reaches are written once more.
    touched = image / operation.axes[0].stride
    added = _ADDED * size * positions(operation) * window * operation.in_channels
    return _Products(
        _with_all_windows(operation),
        share=_SCATTER_SHARE,
        more_kernels=1,
        passes=(image + touched, added),
    )


def by_phases(operation: Convolution, machine: Machine) -> ConvolutionTime | None:
    """Return the input's gradient without the zeros that strides put between the outputs."""
    if not every(PHASED.applies(operation)):
        return None
    return _on_units(operation, machine, _by_phases(operation, machine))


def _by_phases(operation: Convolution, _: Machine) -> _Products:
    found = phases(operation)

    def shape(c: Quantity, k: Quantity, unit: Machine) -> _Shape:
        rows = operation.batch * found.positions
        return rows, c, found.elements * _stepped(k, unit), found.places

    return _Products(shape, share=_PHASE_SHARE)


#: The products of algorithms by their names.
PRODUCTS: dict[str, Callable[[Convolution, Machine], _Products]] = {
    "implicit_gemm": _implicit,
    "scattered_gemm": _scattered,
    "phased_gemm": _by_phases,
}


def least(name: str, operation: Convolution, machine: Machine) -> Quantity:
    """Return seconds below which an algorithm of this name is not on the lanes.

    No tile multiplies less than the products that it is of, nor quicker than the lanes go on.
    """
    if machine.in_halves:  # whose largest tile loads less for each multiplication
        return 0.0
    products = PRODUCTS[name](operation, machine)
    c, k = operation.in_channels // operation.groups, operation.out_channels // operation.groups
    m, n, terms, count = products.shape(c, k, machine)
    share = products.share * machine.convolution_share
    if smallest(machine.library) < _TUNED:
        share = share * _UNTUNED_SHARE
    flops = 2 * (n * terms * count * operation.groups / share) * m
    kernels = 1 + _LANES_KERNELS + products.more_kernels
    return in_passes(flops, products.passes, machine, kernels=kernels)


def direct(operation: Convolution, machine: Machine) -> ConvolutionTime | None:
    """Return a convolution of each channel by itself, without a product: memory feeds the lanes."""
    allowed = is_depthwise(operation) & (1 * is_untiled(operation, machine) == 0)
    if machine.vector_peak is None or not some(allowed):
        return None
    compute = operation.flops / (machine.vector_rate * _DIRECT_COMPUTE)
    share = _DIRECT_MEMORY[operation.direction]
    memory = moved(operation.work.num_bytes, machine, share=share)
    time = Time(compute, memory, machine.launch, maximum(compute, memory) + machine.launch)
    return ConvolutionTime(only_where(allowed, time))


def _converting(operation: Convolution, machine: Machine) -> Time:
    """Return the time to bring images into the order of the matrix units, and back.

    Their kernels read and write channels last. What transposes has tiles of 32 channels by 32
    positions of an image, and fewer take as long.
    """
    is_old = smallest(machine.library) < _CONVERTING
    if machine.memory_format == CHANNELS_LAST or is_old or operation.element_size > _HALF:
        return Time()
    size, tile = operation.element_size, _TRANSPOSED
    axes = operation.axes
    images = (
        (operation.in_channels, product(axis.size for axis in axes)),
        (operation.out_channels, product(axis.output for axis in axes)),
    )
    tiles = [operation.batch * rounded_up(c, tile) * rounded_up(hw, tile) for c, hw in images]
    time = extended(Time(), machine, passes=[2 * size * each for each in tiles], kernels=2)
    # Of a window of one element each image is a product as it lies.
    converts = 1 - 1 * (is_plain(operation.axes) & (operation.direction is Pass.FORWARD))
    return repeated(time, converts)


def _aligned(value: Quantity, operation: Convolution, machine: Machine) -> Quantity:
    """Return `value` elements as the matrix units take them, and as it is for the lanes."""
    if machine.matrix_peak is None:
        return value
    return rounded_up(value, max(_ALIGNMENT // operation.element_size, 1))


def _with_all_windows(operation: Convolution) -> _Shaped:
    """Return the shape of the product that gives the gradients of all windows."""
    window, rows = operation.window_elements, positions(operation)
    return lambda c, k, _: (rows, window * c, k, 1)


def _on_units(
    operation: Convolution,
    machine: Machine,
    products: _Products,
) -> ConvolutionTime:
    """Return what products take.

    It is the quicker of the matrix units, with channels filled up, and the lanes without.
    """
    shape, splits, share, more_kernels, passes = products
    size, groups = operation.element_size, operation.groups
    # One kernel for all groups, or one after the other.
    times = groups if smallest(machine.library) < _GROUPED else 1
    read, other = operation.reads
    converted = _converting(operation, machine)
    if smallest(machine.library) < _TUNED:
        share = share * _UNTUNED_SHARE

    def build(c: Quantity, k: Quantity, unit: Machine) -> ConvolutionTime:
        kernels = _LANES_KERNELS if unit.matrix_peak is None else _MATRIX_KERNELS
        m, n, terms, count = shape(c, k, unit)
        chosen = choose(
            m, n, terms, unit, sizes=(size, size, size), splits=splits,
            count=count * groups // times,
            share=share * unit.convolution_share, stored=(read / times, other / times),
            least_matrix_tile=_least_tile(operation, unit),
        )  # fmt: skip
        time = repeated(extended(chosen.time, unit, kernels=kernels + more_kernels), times)
        if unit.matrix_peak is not None:
            time = time + converted
        if passes:
            time = extended(time, machine, passes=passes)
        return ConvolutionTime(time, m, n, terms, count * groups, chosen)

    has_none = is_untiled(operation, machine)
    if not is_array(has_none) and has_none:
        return ConvolutionTime(untiled(operation, machine))
    c, k = operation.in_channels // groups, operation.out_channels // groups
    filled_c, filled_k = (_aligned(each, operation, machine) for each in (c, k))
    way = build(filled_c, filled_k, machine)
    odd = (filled_c != c) | (filled_k != k)
    if machine.vector_peak is not None and largest(odd):
        lanes = build(c, k, replace(machine, matrix_peak=None))
        way = quicker(way, lanes._replace(time=only_where(odd, lanes.time)))
    if not some(has_none):
        return way
    tiled = way._replace(time=only_where(1 * has_none == 0, way.time))
    return quicker(tiled, ConvolutionTime(only_where(has_none, untiled(operation, machine))))
