"""Matrix products by tiles: C[M, N] = A[M, K] B[K, N], any number of them in one kernel.

A tile of C is the work of one multiprocessor; it walks along K in steps, loading its rows of A
and columns of B and multiplying them at the same time, and writes its part of C at the end.
Tiles run in waves over the multiprocessors, so that M, N and the number of tiles are rounded
up. K may be split, each part computed by another multiprocessor, at the price of one more
pass over C. The library is taken to choose the quickest tile and split. All tiles together
move the operands from and to memory at a share of its bandwidth.

The roundings are those that NVIDIA describes in "Matrix Multiplication Background User's
Guide" (tile and wave quantization); the choice of tiles is of the sizes that cuBLAS and CUTLASS
have.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TypeAlias

from paleo.core.frozen import NamedTuple
from paleo.core.loads import Loads
from paleo.core.operations import MatMul
from paleo.core.quantity import Quantity, maximum, minimum, smallest, some
from paleo.costs.model import Detail, Explanation
from paleo.costs.tiled.alignment import Pitches, load_share, share_of
from paleo.costs.tiled.machine import LANES, Machine
from paleo.costs.tiled.power import BURST, slowed_by_power
from paleo.costs.tiled.product_kernels import PRODUCT_KERNELS
from paleo.costs.tiled.stream import CACHED, DECAY, missed
from paleo.costs.tiled.tile_search import quickest
from paleo.costs.tiled.tiles import (
    COPIED,
    GRAPHICS,
    HALVES,
    HALVES_COLUMNS,
    LOADED_SIZE,
    MATRIX,
    OF_BYTES,
    OF_WARPS,
    VECTOR,
    WARPS,
    Products,
    fourth,
    fourth_root,
)
from paleo.costs.times import Time

#: The largest tile of CUTLASS 2 of which the registers hold two at a time.
_BESIDE = 128 * 128
#: How many sets of operands pass before one is used again: a set is found in the cache if as
#: many fit, as the next layer finds what the one before wrote.
_SETS = 6
#: The cache keeps all of what fits this share of it. Where it has two partitions, each keeps what
#: its own multiprocessors read (NVIDIA, Ampere Architecture In-Depth), operands are in both.
_KEPT = 0.9
_PARTED = ("Ampere", "Hopper", "Blackwell")
#: Dies of the graphics line have one cache, which keeps what fits all of it; operands that pass six
#: times are gone as soon as they are more. It has a rate of its own, in bytes a clock of each
#: multiprocessor, whatever the memory gives. (A tenth of the RTX PRO 6000's products: sets of up to
#: 128 MiB / 6 come quickly, 24 MiB do not. On the L40S, of 96 MiB, 16 and 18 MiB are the limits.)
_FULL_DECAY, _CACHED = 0.1, 7.5
#: Seconds until the first bytes come from memory, for which all that is multiplied later waits: the
#: latency of HBM and GDDR behind the caches of recent devices (0.4 to 0.8 us fit the products of
#: Hopper and both Blackwells). A kernel's launch, as other kernels show it, has this share of it;
#: on the graphics line (a tenth of the RTX PRO 6000's products) the second.
_FIRST = 0.5e-6
_LAUNCHED, _LAUNCHED_GRAPHICS = 0.7, 0.4
#: The generation from which on the library for products has the matrix units multiply bytes.
_MATRIX_BYTES = 8
#: The generation from which on it splits K of products whose K is not many times the other sides,
#: and has tiles of less than so many rows and columns. (DeepBench's rows of cuBLAS 7.5 on M40 and
#: TITAN X: of 16 and 32 columns as long as of one tile that walks along all of K.) And the one from
#: which on it has smaller tiles for so few rows or columns, too. (Its rows of cuBLAS 8 on the P100:
#: of 16 columns up to three times as long as of 32.)
_SPLITTING, _LONG, _LEAST_TILE = 6, 16, 64
_NARROWING, _FEW = 7, 16
#: Where it leaves sums whole on dies of the graphics line: products of fewer multiplications, but
#: for sums of more elements of K than the second. (Of 32 columns, bf16, 8 rows are split from 8,192
#: elements of K on, 16 from 4,096, 64 from 1,024, in the tables of three frameworks on the L40S and
#: the RTX PRO 6000 alike: 35 us along 8,192, and 4.7.)
_SPLIT_VOLUME, _SPLIT_ALWAYS = 2**21, 8192
#: And the least K that it splits at all. (On the RTX PRO 6000 one tile takes 7.3 us along 1,536
#: elements, and 3.9 along 2,048.)
_SPLIT_FROM = {"Blackwell RTX": 2048}
#: M, N and K of a product.
Shape: TypeAlias = tuple[Quantity, Quantity, Quantity]


class Choice(NamedTuple):
    """How a product is computed: bytes and seconds besides, each a number or an array.

    What its tiles are is 0 of many products at once.
    """

    time: Time
    rows: Quantity
    columns: Quantity
    split: Quantity
    tiles: Quantity
    waves: Quantity
    num_bytes: Quantity
    unit: str


def choose(
    m: Quantity,
    n: Quantity,
    k: Quantity,
    machine: Machine,
    *,
    sizes: tuple[float, float, float],
    count: Quantity = 1,
    share: Quantity = 1.0,
    stored: tuple[Quantity, Quantity] | None = None,
    splits: tuple[int, ...] | None = None,
    tile: tuple[Quantity, Quantity] | None = None,
    least_tile: Quantity = 0,
    least_matrix_tile: float = 0,
    whole: Quantity = 0,
    loads: Loads = (),
    operands: Quantity = 1.0,
    sides: int = 0,
    least_rows: int = 0,
    fill: float = 0.0,
    rows: Pitches | None = None,
) -> Choice:
    """Return the quickest way to compute `count` products in one kernel, and its time.

    `sizes` are bytes an element of A, B, C. `share` is the share of a plain product's speed that
    the inner loop reaches; on the lanes what else it does takes power, too. `stored` are the bytes
    of A and of B in memory, of all products
    together, where they are fewer than M K and K N elements, as the images of a convolution.
    `splits` are those of K that the library has, `least_tile` the least rows and columns of a tile
    on the lanes, `least_matrix_tile` those on the matrix units; where `whole` is 1 no kernel on the
    lanes splits K. `tile` are the rows and columns of a tile where the library does not choose, and
    then it does not split K either.

    With `loads` products have rows of their own, so many each, as in `GroupedMatMul`: `m` is the
    mean of those that have any. Their operands pass again each time, as those of a layer that is
    measured by itself, at `operands` times the rate. `sides` are the most rows and columns of a
    tile that the library has, 0 for any, `least_rows` the least rows, `fill` the seconds in which
    each tile starts and ends. `rows` are the pitches of the operands, K and N where not given.
    """
    # As floating point, in which whole numbers are exact and division is quick.
    m, n, k, count = (1.0 * each for each in (m, n, k, count))
    size_a, size_b, size_c = sizes
    a, b = stored or (count * (size_a * m * k), count * (size_b * k * n))
    sets = 1 if loads else _SETS
    memory, num_bytes = _memory(a + b, count * (size_c * m * n), machine, sets, operands)
    flops = 2 * count * n * m * k  # numbers first: there is less of them to multiply
    filling: Quantity = 0.0
    powered: Quantity = math.inf
    first: Quantity = 0.0
    if machine.matrix_peak is None:
        unit = HALVES if machine.in_halves else VECTOR
        if machine.in_halves:
            least_tile = HALVES_COLUMNS * (n > HALVES_COLUMNS / 2)
        rate, filling = machine.filled_rate, machine.filling * machine.lanes / LANES
        powered = share * machine.powered_lanes / machine.multiprocessors
    else:
        unit = MATRIX if size_a >= LOADED_SIZE else OF_BYTES
        if machine.architecture in OF_WARPS:
            unit = WARPS
        if least_matrix_tile:
            tiles = tuple(tile for tile in unit.tiles if min(tile) >= least_matrix_tile)
            unit = unit._replace(tiles=tiles)
        if sides:
            tiles = tuple(tile for tile in unit.tiles if max(tile) <= sides)
            unit = unit._replace(tiles=tiles)
        if least_rows:
            tiles = tuple(tile for tile in unit.tiles if tile[0] >= least_rows)
            unit = unit._replace(tiles=tiles)
        least_tile = 0
        whole = _left_whole(m, n, k, machine.architecture)
        rate = minimum(machine.long_rate(share), BURST * machine.powered_rate)
        first = minimum(_FIRST, machine.launch)
    rate = rate / machine.multiprocessors
    # Whatever a device calls its multiprocessors, they can be fed: in their largest tiles, and
    # together from memory.
    side = max(unit.tiles[0])
    fed = maximum(size_a * rate / side, machine.bandwidth / machine.multiprocessors)
    slower = 1.0 if machine.dtype in COPIED else min(1.0, size_a / LOADED_SIZE)
    load_rate = maximum(machine.load_rate * slower, fed)
    if unit.is_matrix:
        load_rate = load_rate * load_share((size_a, size_b), rows or (k, n), machine.architecture)
    memory = memory + first
    splits = splits or unit.splits
    pass_over_c: Quantity = 0.0
    if not tile and splits != (1,):
        pass_over_c = machine.partial * (count * n * m) / machine.bandwidth
    products = Products(
        m, n, k, count, machine, sizes, unit, rate * share, load_rate, fourth(memory),
        0.0 if unit.is_matrix and machine.architecture not in GRAPHICS else _vectors(m, n),
        pass_over_c, filling, powered, least_tile, whole, loads, fill,
    )  # fmt: skip
    found = products.by(*tile) if tile else quickest(products, splits)
    total = found.total
    if unit.is_matrix:
        longer = slowed_by_power(flops, total, machine, num_bytes)
    else:
        # What fills up tiles is zeros, which take little power beside the bytes.
        needed = flops / (share * machine.powered_lanes) + num_bytes / machine.powered_bandwidth
        longer = maximum(needed / total, 1.0)
    graphics = machine.architecture in GRAPHICS
    launch = machine.launch - (_LAUNCHED_GRAPHICS if graphics else _LAUNCHED) * first
    time = Time(found.busy * longer, memory, launch + found.again, total * longer + launch)
    return Choice(time, *found[3:], num_bytes, unit.name)


def rounded(a: Quantity, b: Quantity) -> Quantity:
    """Return the longer of two that overlap, the corner between them rounded as by queues."""
    return fourth_root(fourth(a) + fourth(b))


def _vectors(m: Quantity, n: Quantity) -> Quantity:
    """Return 1 where a product is one with a vector, which is a kernel of its own, else 0."""
    found = (m <= 1) | (n <= 1)
    return 1.0 * found if some(found) else 0.0


def _left_whole(m: Quantity, n: Quantity, k: Quantity, architecture: str) -> Quantity:
    """Return 1 where the library does not split K on matrix units, else 0."""
    if architecture not in GRAPHICS:
        return 0
    short = (m * n * k < _SPLIT_VOLUME) & (k <= _SPLIT_ALWAYS)
    return (1.0 - _vectors(m, n)) * (short | (k < _SPLIT_FROM.get(architecture, 0)))


def _memory(
    read: Quantity, written: Quantity, machine: Machine, sets: int = _SETS, share: Quantity = 1.0
) -> tuple[Quantity, Quantity]:
    """Return the seconds of memory traffic, and the bytes that leave or enter the chip.

    So many `sets` pass before one is read again; a single one comes at the cache's own rate.
    """
    parted, graphics = (machine.architecture in which for which in (_PARTED, GRAPHICS))
    kept, decay = (1.0, _FULL_DECAY) if graphics else (_KEPT, DECAY)
    out = missed(sets * read + written, machine, kept / 2 if parted else kept, decay) * read
    out = out + missed(read + written, machine, kept, decay) * written
    hit = read + written - out
    rate = machine.bandwidth * machine.memory_share * machine.operand_share * share
    if graphics or sets == 1:
        cached = _CACHED if graphics else CACHED
        return out / rate + hit / (cached * machine.clock * machine.multiprocessors), out
    return (out + hit / machine.cache_ratio) / rate, out


def price(operation: MatMul, machine: Machine) -> Time:
    """Return the time of a product."""
    return _chosen(operation, machine).time


def on_units_of_library(machine: Machine) -> Machine:
    """Return the machine with the units that the library for products computes on.

    Before cuBLAS 11, of the time of cuDNN 8, it multiplies bytes on the lanes, four at a time
    (DP4A): the matrix units are for operands in layouts of their own (CUBLASLT_ORDER_COL32).
    """
    old = machine.dtype == "int8" and smallest(machine.library) < _MATRIX_BYTES
    if old and machine.vector_peak is not None:
        return replace(machine, matrix_peak=None)
    return machine


def _chosen(operation: MatMul, machine: Machine) -> Choice:
    m, n, k, size = operation.m, operation.n, operation.k, operation.element_size
    sizes = (size, size, operation.output_size or size)
    if not operation.kernel:
        library = smallest(machine.library)
        whole: Quantity = 0
        least: Quantity = 0
        if library < _SPLITTING:
            whole = 1 * (k < _LONG * maximum(m, n))
            least = _LEAST_TILE * whole
        elif library < _NARROWING:
            few = minimum(m, n)
            least = _LEAST_TILE * ((few > 1) & (few <= _FEW))
        machine = on_units_of_library(machine)
        # What is stored in few bits passes so, and is multiplied as all else is.
        stored = (size * m * k, operation.weight_size * k * n) if operation.weight_size else None
        share: Quantity = 1.0
        if machine.matrix_peak is not None:
            share = share_of(operation, machine.architecture)
        return choose(
            m, n, k, machine,
            sizes=sizes, whole=whole, least_tile=least, stored=stored, share=share,
        )  # fmt: skip
    kernel = PRODUCT_KERNELS[operation.kernel]
    share = kernel.share.get(machine.architecture, 1.0)
    tile = kernel.tile(m, n, machine)
    if tile is None:
        least = kernel.least_rows.get(machine.architecture, 0)
        return choose(m, n, k, machine, sizes=sizes, share=share, splits=(1,), least_rows=least)
    waiting = kernel.waiting.get(machine.architecture, 1.0)
    chosen = choose(
        m, n, k, replace(machine, latency=waiting * machine.latency), sizes=sizes, tile=tile,
        share=share, stored=kernel.stored(tile, size, (m, n, k), machine),
    )  # fmt: skip
    # Of larger tiles a multiprocessor has one at a time, which it writes while none is multiplied.
    passes = kernel.writing.get(machine.architecture, 0.0) * (1.0 + (tile[0] * tile[1] > _BESIDE))
    written = passes * (sizes[2] * m * n)
    memory = written / (machine.bandwidth * machine.memory_share)
    return chosen._replace(time=chosen.time + Time(memory=memory, total=memory))


def explain(operation: MatMul, machine: Machine) -> Explanation:
    """Return why it takes what `price` says."""
    chosen = _chosen(operation, machine)
    name = f"product ({operation.kernel})" if operation.kernel else "product"
    return explained(name, chosen, (operation.m, operation.n, operation.k), machine)


def explained(
    algorithm: str, chosen: Choice, shape: Shape, machine: Machine, *details: Detail
) -> Explanation:
    """Return the explanation of an operation that is computed as this product."""
    tiles, waves, split = int(chosen.tiles), int(chosen.waves), int(chosen.split)
    multiprocessors = int(machine.multiprocessors)
    full = 100 * (tiles - (waves - 1) * multiprocessors) / multiprocessors
    tile = f"{int(chosen.rows)}x{int(chosen.columns)}"
    why = (
        f"{tiles} tiles of {tile} on {multiprocessors} multiprocessors: {waves} "
        f"wave{'s' * (waves > 1)}, the last {full:.0f} % full"
    )
    own: tuple[Detail, ...] = (
        *((name, size, "") for name, size in zip("MNK", shape, strict=True)),
        ("tile", tile, ""),
        ("split of K", split, ""),
        ("tiles", tiles, ""),
        ("waves", waves, ""),
        ("memory traffic", chosen.num_bytes, "bytes"),
    )
    return Explanation(f"{algorithm} on {chosen.unit} units", chosen.time, (*details, *own), why)
