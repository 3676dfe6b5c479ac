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
from typing import Any, TypeAlias, cast

from paleo.core.frozen import NamedTuple
from paleo.core.loads import Loads, row_tiles
from paleo.core.operations import MatMul
from paleo.core.quantity import (
    Quantity,
    is_array,
    maximum,
    minimum,
    np,
    root,
    smallest,
    where_positive,
)
from paleo.costs.model import Detail, Explanation
from paleo.costs.tiled.alignment import load_share, share_of
from paleo.costs.tiled.machine import LANES, RESIDENT, Machine
from paleo.costs.tiled.product_kernels import PRODUCT_KERNELS
from paleo.costs.tiled.stream import CACHED, DECAY, missed
from paleo.costs.times import Time


class _Unit(NamedTuple):
    """What a kind of unit computes with: tiles of C, splits of K, and the steps along K.

    `extra_steps` are those in which a tile fills and drains its pipeline while no other multiplies.
    """

    name: str
    tiles: tuple[tuple[int, int], ...]
    splits: tuple[int, ...]
    step: int
    extra_steps: int
    is_matrix: bool


#: The tiles are among those that profiles of cuBLAS 12 and 13 name: "nvjet_tst_256x96_64x5_...",
#: "nvjet_sm100 176x128", "nvjet_tst_128x192_64x5_...". (Of all in steps of 8, these do most.)
_MATRIX = _Unit(
    "matrix",
    (
        (256, 256), (256, 128), (128, 256), (192, 128), (128, 192), (160, 128), (128, 160),
        (128, 128), (96, 128), (128, 96), (256, 64), (64, 256), (128, 64), (64, 128), (64, 64),
        (128, 32), (32, 128), (64, 32), (32, 64),
    ),
    (1, 2, 3, 4, 6, 8, 12, 16, 24, 32),
    64,
    1,
    True,
)  # fmt: skip
#: Where warps keep the sums of a tile in registers, which 256 x 256 would fill, the library has no
#: kernel of 96, 160 or 192 rows or columns, and its kernels step along K by 32 ("_stages_32x3").
_OF_WARPS = ("Volta", "Turing", "Ampere", "Ada", "Blackwell RTX")
_WARPS = _MATRIX._replace(
    tiles=tuple(
        tile for tile in _MATRIX.tiles if tile != (256, 256) and not {96, 160, 192} & set(tile)
    ),
    step=32,
    extra_steps=2,
)
#: No profile at hand names 96 or 160 of them for operands of bytes.
_OF_BYTES = _MATRIX._replace(
    tiles=tuple(tile for tile in _MATRIX.tiles if not {96, 160} & set(tile))
)
#: Architectures of the graphics line of dies.
_GRAPHICS = ("Ada", "Blackwell RTX")
_VECTOR = _Unit(
    "vector",
    ((128, 128), (128, 64), (64, 128), (64, 64), (128, 32), (32, 128)),
    (1, 2, 4, 8, 16, 32),
    8,
    1,
    False,
)
#: What cuDNN 6 has for sums of halves, two of which a lane keeps: on the P100 DeepBench's forward
#: passes take 0.25 us for each element of K and each tile of 256 positions and 128 channels on a
#: multiprocessor, whatever the shape, and half of that where there are 64 channels.
_HALVES, _HALVES_COLUMNS = _VECTOR._replace(tiles=((256, 128), (256, 64))), 128
#: Elements of C of one warp on the lanes: 8 x 8 a thread.
_WARP = 2048
#: A tile of 128 x 128 loads an element from shared memory for each so many multiplications; a
#: smaller one loads more, which takes its share of the time, and of the power. That share is the
#: larger, the more lanes a multiprocessor has: its shared memory moves 128 bytes a clock with 64
#: lanes as with 128. (One value for tiles of A100, V100, T4, M40 and TITAN X, of NeuSight and
#: DeepBench: a fifth of the shapes; so 64 x 64 on Maxwell's 128 lanes are 12 % slower.)
_LARGE, _LOADING = 128, 0.06
#: Share of its power that a multiprocessor takes without a tile: clocks go on, and leak. (Of 0, a
#: quarter, a half and three, the half fits fp32 products and convolutions on A100 and T4 best.)
_IDLE = 0.5
#: Elements of K that the constant `latency` is of, and of halves of their size.
_LATENCY_STEP = 64
#: Bytes of the elements that the constant `load_share` was measured with.
_LOADED_SIZE = 2
#: Types that only devices have which copy operands to shared memory past the registers (from Ada
#: on): bytes decide there how long elements take. Elsewhere those of one byte come no faster.
_COPIED = ("fp8",)
#: Writing a tile takes as long as loading this many times its bytes: nothing else goes on then. On
#: the graphics line (a tenth of the RTX PRO 6000's products) it takes half as long.
_WRITING, _WRITING_GRAPHICS = 2, 1
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
#: Kernels shorter than the first number of seconds may take `_BURST` times the power that the
#: board can take without end; longer than the second, none. (Operator tables time each kernel 54
#: times in a row, so that these are 27 and 81 ms of load.)
_BURST_UNTIL, _BURST_GONE = 0.5e-3, 1.5e-3
_BURST = 1.2
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
#: Products times tiles and splits that are priced at a time: the processor's cache holds them.
_AT_ONCE = 16384


#: M, N and K of a product.
Shape: TypeAlias = tuple[Quantity, Quantity, Quantity]


class Choice(NamedTuple):
    """How a product is computed: bytes and seconds besides, each a number or an array."""

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
    fill: float = 0.0,
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
    tile that the library has, 0 for any, `fill` the seconds in which each tile starts and ends.
    """
    # As floating point, in which whole numbers are exact and division is quick.
    m, n, k, count = (1.0 * each for each in (m, n, k, count))
    size_a, size_b, size_c = sizes
    a, b = stored or (count * (size_a * m * k), count * (size_b * k * n))
    sets = 1 if loads else _SETS
    memory, num_bytes = _memory(a + b, count * (size_c * m * n), machine, sets, operands)
    flops = 2 * m * n * k * count
    filling: Quantity = 0.0
    powered: Quantity = math.inf
    first: Quantity = 0.0
    if machine.matrix_peak is None:
        unit = _HALVES if machine.in_halves else _VECTOR
        if machine.in_halves:
            least_tile = _HALVES_COLUMNS * (n > _HALVES_COLUMNS / 2)
        rate, filling = machine.filled_rate, machine.filling * machine.lanes / LANES
        powered = share * machine.powered_lanes / machine.multiprocessors
    else:
        unit = _MATRIX if size_a >= _LOADED_SIZE else _OF_BYTES
        if machine.architecture in _OF_WARPS:
            unit = _WARPS
        if least_matrix_tile:
            tiles = tuple(tile for tile in unit.tiles if min(tile) >= least_matrix_tile)
            unit = unit._replace(tiles=tiles)
        if sides:
            tiles = tuple(tile for tile in unit.tiles if max(tile) <= sides)
            unit = unit._replace(tiles=tiles)
        least_tile = 0
        whole = _left_whole(m, n, k, machine.architecture)
        rate = minimum(machine.matrix_peak * machine.matrix_share, _BURST * machine.powered_rate)
        first = minimum(_FIRST, machine.launch)
    rate = rate / machine.multiprocessors
    # Whatever a device calls its multiprocessors, they can be fed: in their largest tiles, and
    # together from memory.
    side = max(unit.tiles[0])
    fed = maximum(size_a * rate / side, machine.bandwidth / machine.multiprocessors)
    slower = 1.0 if machine.dtype in _COPIED else min(1.0, size_a / _LOADED_SIZE)
    load_rate = maximum(machine.load_rate * slower, fed)
    if unit.is_matrix:
        load_rate = load_rate * load_share((size_a, size_b), (k, n), machine.architecture)
    memory = memory + first
    products = _Products(
        m, n, k, count, machine, sizes, unit, rate * share, load_rate, _fourth(memory),
        0.0 if unit.is_matrix and machine.architecture not in _GRAPHICS else _vectors(m, n),
        machine.partial * (m * n * count) / machine.bandwidth, filling, powered, least_tile, whole,
        loads, fill,
    )  # fmt: skip
    rows, columns, parts = (*tile, 1.0) if tile else products.quickest(splits or unit.splits)
    tiling, split = products.tiled(rows, columns), products.split(parts)
    total, busy, waves = products.timed(tiling, split)
    if unit.is_matrix:
        longer = slowed_by_power(flops, total, machine, num_bytes)
    else:
        # What fills up tiles is zeros, which take little power beside the bytes.
        needed = flops / (share * machine.powered_lanes) + num_bytes / machine.powered_bandwidth
        longer = maximum(needed / total, 1.0)
    graphics = machine.architecture in _GRAPHICS
    launch = machine.launch - (_LAUNCHED_GRAPHICS if graphics else _LAUNCHED) * first
    time = Time(busy * longer, memory, launch + split.again, total * longer + launch)
    return Choice(time, rows, columns, parts, tiling.number * parts, waves, num_bytes, unit.name)


class _Tiling(NamedTuple):
    """Seconds of an element of K in a tile and of writing it, and how many tiles there are.

    On the lanes `element` is of a multiprocessor that is full, and without the fourth power
    `wait_4` of the seconds in which loads come; power allows it in `powered` seconds. A tile is the
    work of `warps`.
    """

    element: Quantity
    written: Quantity
    number: Quantity
    warps: Quantity = 0.0
    wait_4: Quantity = 0.0
    powered: Quantity = 0.0


class _Split(NamedTuple):
    """K in `parts`: elements that a tile walks along, and seconds in which the parts are added."""

    parts: Any
    depth: Quantity
    again: Quantity


class _Products(NamedTuple):
    """Products on one kind of unit, and what their seconds follow from; numbers or arrays.

    There are `times` of them. `rate` is FLOP/s and `load_rate` bytes/s of a multiprocessor,
    `memory_4` the fourth power of the seconds of memory traffic, `pass_over_c` the seconds in which
    a part of all sums passes. `vectors` is 1 where one of the operands is a vector, else 0. With
    `filling` warps the lanes reach half of what they do with any number, for `powered` FLOP/s of
    which the power suffices. Tiles have `least_tile` rows and columns at least; where `whole` is 1,
    K is not split.
    """

    m: Quantity
    n: Quantity
    k: Quantity
    times: Quantity
    machine: Machine
    sizes: tuple[float, float, float]
    unit: _Unit
    rate: Quantity
    load_rate: Quantity
    memory_4: Quantity
    vectors: Quantity
    pass_over_c: Quantity
    filling: Quantity
    powered: Quantity
    least_tile: Quantity
    whole: Quantity
    loads: Loads = ()
    fill: float = 0.0

    def tiles(self, rows: Any, columns: Any) -> Quantity:
        """Return how many tiles of this size there are."""
        across = _ceil(self.n / columns)
        if self.loads:
            return row_tiles(self.loads, rows) * across
        return self.times * _ceil(self.m / rows) * across

    def tiled(self, rows: Any, columns: Any) -> _Tiling:
        """Return the products in tiles of this size.

        A step takes as long as its multiplications, its loads and its latency allow. (Fourth powers
        round the corner between them, as queues do.)
        """
        size_a, size_b, size_c = self.sizes
        in_rows, in_columns = minimum(self.m, rows), minimum(self.n, columns)
        loaded = (size_a * in_rows + size_b * in_columns) / self.load_rate
        copied = self.machine.dtype in _COPIED
        step = _LATENCY_STEP * (_LOADED_SIZE / size_a if copied else 1)
        wait = maximum(loaded, self.machine.latency / step)
        vectors = self.vectors
        computed = rows * columns * (1 - vectors) + in_rows * in_columns * vectors
        seconds, number = (
            2 * computed / self.rate,
            self.tiles(rows, columns),
        )
        if not self.unit.is_matrix:
            loads = (_LARGE / rows + _LARGE / columns) / 2 - 1
            loads = _LOADING * loads * (1 - vectors)
            # Another tile multiplies while one is written.
            return _Tiling(
                seconds * (1 + loads * self.machine.lanes / LANES), 0.0, number,
                rows * columns / _WARP, _fourth(wait), 2 * computed / self.powered * (1 + loads),
            )  # fmt: skip
        writing = _WRITING_GRAPHICS if self.machine.architecture in _GRAPHICS else _WRITING
        return _Tiling(
            _fourth_root(_fourth(seconds) + _fourth(wait)),
            writing * size_c * in_rows * in_columns / self.load_rate + self.fill,
            number,
        )

    def split(self, parts: Any) -> _Split:
        """Return the products with K in so many parts."""
        steps = _ceil(self.k / (parts * self.unit.step))
        again = where_positive(parts - 1, self.machine.reduction + parts * self.pass_over_c)
        if self.unit.is_matrix:
            # A kernel for a vector adds up its parts by itself.
            again = again * (1.0 - self.vectors)
        return _Split(parts, self.unit.step * (steps + self.unit.extra_steps), again)

    def timed(self, tiling: _Tiling, split: _Split) -> tuple[Quantity, Quantity, Quantity]:
        """Return the seconds but for the launch, those of computing and loading, and the waves."""
        full = tiling.number * split.parts / self.machine.multiprocessors
        waves = _ceil(full)
        element = tiling.element
        if not self.unit.is_matrix:
            warps = minimum(waves * tiling.warps, RESIDENT)
            slower = (1 + self.filling / warps) / (1 + self.filling / RESIDENT)
            # Power is the chip's: multiprocessors without a tile leave a part to the others.
            taken = _IDLE + (1 - _IDLE) * full / waves
            element = maximum(element * slower, tiling.powered * taken)
            element = _fourth_root(_fourth(element) + tiling.wait_4)
        busy = waves * (split.depth * element + tiling.written)
        return _fourth_root(_fourth(busy) + self.memory_4) + split.again, busy, waves

    def quickest(self, splits: tuple[int, ...]) -> tuple[Quantity, Quantity, Quantity]:
        """Return the rows and columns of a tile, and the split, that are quickest.

        Of equals the first.
        """
        machine = self.machine
        varied = (
            *self[:4], self.rate, self.load_rate, self.memory_4,
            self.filling, self.powered, self.least_tile, self.whole,
            machine.multiprocessors, machine.reduction, machine.partial, machine.latency,
        )  # fmt: skip
        if any(map(is_array, varied)):
            return self._quickest_of_arrays(varied, splits)
        along_k = [self.split(parts) for parts in splits if parts == 1 or not self.whole]
        best, found = math.inf, (*self.unit.tiles[0], splits[0])
        for tile in self.unit.tiles:
            if min(tile) < self.least_tile:
                continue
            tiling = self.tiled(*tile)
            for split in along_k:
                seconds, _, _ = self.timed(tiling, split)
                if seconds < best:
                    best, found = cast(float, seconds), (*tile, split.parts)
        return found

    def _quickest_of_arrays(
        self, varied: tuple[Quantity, ...], splits: tuple[int, ...]
    ) -> tuple[Any, Any, Any]:
        """Return `quickest` of arrays: tiles and splits are two more dimensions in front."""
        trailing = np.broadcast(*varied)
        tiles = np.array(self.unit.tiles, np.float64)
        in_front = (1,) * trailing.ndim
        split = self.split(np.array(splits, np.float64).reshape(-1, *in_front))
        at_once = max(1, _AT_ONCE // (trailing.size * len(splits)))
        best: Any = np.inf
        which: Any = 0
        for first in range(0, len(tiles), at_once):
            rows, columns = tiles[first : first + at_once].T.reshape(2, -1, 1, *in_front)
            seconds, _, _ = self.timed(self.tiled(rows, columns), split)
            small = np.minimum(rows, columns) < self.least_tile
            split_up = (split.parts > 1) & np.asarray(self.whole, bool)
            seconds = np.where(small | split_up, np.inf, seconds)
            seconds = np.asarray(seconds).reshape(-1, *trailing.shape)
            least = seconds.min(axis=0)
            which = np.where(least < best, seconds.argmin(axis=0) + first * len(splits), which)
            best = np.minimum(least, best)
        tile, part = np.divmod(which, len(splits))
        return tiles[tile, 0], tiles[tile, 1], np.asarray(splits)[part]


def rounded(a: Quantity, b: Quantity) -> Quantity:
    """Return the longer of two that overlap, the corner between them rounded as by queues."""
    return _fourth_root(_fourth(a) + _fourth(b))


def _fourth(x: Quantity) -> Quantity:
    return (x * x) * (x * x)


def _fourth_root(x: Quantity) -> Quantity:
    return root(root(x))


def _vectors(m: Quantity, n: Quantity) -> Quantity:
    """Return 1 where a product is one with a vector, which is a kernel of its own, else 0."""
    return 1.0 * ((m <= 1) | (n <= 1))


def _left_whole(m: Quantity, n: Quantity, k: Quantity, architecture: str) -> Quantity:
    """Return 1 where the library does not split K on matrix units, else 0."""
    if architecture not in _GRAPHICS:
        return 0
    short = (m * n * k < _SPLIT_VOLUME) & (k <= _SPLIT_ALWAYS)
    return (1.0 - _vectors(m, n)) * (short | (k < _SPLIT_FROM.get(architecture, 0)))


def _memory(
    read: Quantity, written: Quantity, machine: Machine, sets: int = _SETS, share: Quantity = 1.0
) -> tuple[Quantity, Quantity]:
    """Return the seconds of memory traffic, and the bytes that leave or enter the chip.

    So many `sets` pass before one is read again; a single one comes at the cache's own rate.
    """
    parted, graphics = (machine.architecture in which for which in (_PARTED, _GRAPHICS))
    kept, decay = (1.0, _FULL_DECAY) if graphics else (_KEPT, DECAY)
    out = missed(sets * read + written, machine, kept / 2 if parted else kept, decay) * read
    out = out + missed(read + written, machine, kept, decay) * written
    hit = read + written - out
    rate = machine.bandwidth * machine.memory_share * machine.operand_share * share
    if graphics or sets == 1:
        cached = _CACHED if graphics else CACHED
        return out / rate + hit / (cached * machine.clock * machine.multiprocessors), out
    return (out + hit / machine.cache_ratio) / rate, out


def slowed_by_power(
    flops: Quantity, seconds: Quantity, machine: Machine, num_bytes: Quantity = 0.0
) -> Quantity:
    """Return how many times longer a kernel takes that the power limit slows down.

    `num_bytes` are those that leave or enter the chip.
    """
    over = (seconds - _BURST_UNTIL) / (_BURST_GONE - _BURST_UNTIL)
    long = minimum(maximum(over, 0.0), 1.0)
    needed = flops / machine.powered_rate + num_bytes / machine.powered_bandwidth
    return 1.0 + long * maximum(needed / seconds - 1.0, 0.0)


def _ceil(x: Quantity) -> Quantity:
    if is_array(x):
        return cast(Quantity, np.ceil(x))
    return float(math.ceil(x))


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
        return choose(m, n, k, machine, sizes=sizes, share=share, splits=(1,))
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
