"""Tiles of matrix products, and what their seconds are.

C is cut into tiles, K into parts; paleo.costs.tiled.gemm says what of a kernel follows from that.
Every size may be an array. paleo.costs.tiled.tile_search finds the quickest.
"""

from __future__ import annotations

import math
from typing import Any, cast

from paleo.core.frozen import NamedTuple
from paleo.core.loads import Loads, row_tiles
from paleo.core.quantity import (
    Quantity,
    is_array,
    largest,
    maximum,
    minimum,
    np,
    root,
    smallest,
    where_positive,
)
from paleo.costs.tiled.machine import LANES, RESIDENT, Machine


class Unit(NamedTuple):
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
MATRIX = Unit(
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
OF_WARPS = ("Volta", "Turing", "Ampere", "Ada", "Blackwell RTX")
WARPS = MATRIX._replace(
    tiles=tuple(
        tile for tile in MATRIX.tiles if tile != (256, 256) and not {96, 160, 192} & set(tile)
    ),
    step=32,
    extra_steps=2,
)
#: No profile at hand names 96 or 160 of them for operands of bytes.
OF_BYTES = MATRIX._replace(tiles=tuple(tile for tile in MATRIX.tiles if not {96, 160} & set(tile)))
#: Architectures of the graphics line of dies.
GRAPHICS = ("Ada", "Blackwell RTX")
VECTOR = Unit(
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
HALVES, HALVES_COLUMNS = VECTOR._replace(tiles=((256, 128), (256, 64))), 128
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
LOADED_SIZE = 2
#: Types that only devices have which copy operands to shared memory past the registers (from Ada
#: on): bytes decide there how long elements take. Elsewhere those of one byte come no faster.
COPIED = ("fp8",)
#: Writing a tile takes as long as loading this many times its bytes: nothing else goes on then. On
#: the graphics line (a tenth of the RTX PRO 6000's products) it takes half as long.
_WRITING, _WRITING_GRAPHICS = 2, 1


class Tiling(NamedTuple):
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


class Split(NamedTuple):
    """K in `parts`: elements that a tile walks along, and seconds in which the parts are added."""

    parts: Any
    depth: Quantity
    again: Quantity


class Found(NamedTuple):
    """The quickest tile and split: seconds but for the launch, and of computing and loading.

    `again` are those in which parts are added. The others are 0 of many products at once: nobody
    asks which tile each has.
    """

    total: Quantity
    busy: Quantity
    again: Quantity
    rows: Quantity = 0
    columns: Quantity = 0
    parts: Quantity = 0
    tiles: Quantity = 0
    waves: Quantity = 0


class Products(NamedTuple):
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
    unit: Unit
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
        across = ceiling(self.n / columns)
        if self.loads:
            return row_tiles(self.loads, rows) * across
        return self.times * across * ceiling(self.m / rows)

    def tiled(self, rows: Any, columns: Any) -> Tiling:
        """Return the products in tiles of this size.

        A step takes as long as its multiplications, its loads and its latency allow. (Fourth powers
        round the corner between them, as queues do.)
        """
        size_a, size_b, size_c = self.sizes
        in_rows, in_columns = _at_most(self.m, rows), _at_most(self.n, columns)
        loaded = (size_a * in_rows + size_b * in_columns) / self.load_rate
        copied = self.machine.dtype in COPIED
        step = _LATENCY_STEP * (LOADED_SIZE / size_a if copied else 1)
        wait = maximum(loaded, self.machine.latency / step)
        vectors = self.vectors
        computed = rows * columns
        if is_array(vectors) or vectors:
            computed = computed * (1 - vectors) + in_rows * in_columns * vectors
        seconds, number = 2 * computed / self.rate, self.tiles(rows, columns)
        if not self.unit.is_matrix:
            loads = (_LARGE / rows + _LARGE / columns) / 2 - 1
            loads = _LOADING * loads * (1 - vectors)
            # Another tile multiplies while one is written.
            return Tiling(
                seconds * (1 + loads * self.machine.lanes / LANES), 0.0, number,
                rows * columns / _WARP, fourth(wait), 2 * computed / self.powered * (1 + loads),
            )  # fmt: skip
        writing = _WRITING_GRAPHICS if self.machine.architecture in GRAPHICS else _WRITING
        return Tiling(
            fourth_root(fourth(seconds) + fourth(wait)),
            writing * size_c * in_rows * in_columns / self.load_rate + self.fill,
            number,
        )

    def split(self, parts: Any) -> Split:
        """Return the products with K in so many parts."""
        steps = ceiling(self.k / (parts * self.unit.step))
        again: Quantity = 0.0
        if largest(parts) > 1:
            again = where_positive(parts - 1, self.machine.reduction + parts * self.pass_over_c)
            if self.unit.is_matrix:
                # A kernel for a vector adds up its parts by itself.
                again = again * (1.0 - self.vectors)
        return Split(parts, self.unit.step * (steps + self.unit.extra_steps), again)

    def timed(self, tiling: Tiling, split: Split) -> tuple[Quantity, Quantity]:
        """Return the waves, and by what tiles are ranked that walk along as much of K.

        That is the seconds of computing and loading; on the lanes, where these are so many times
        the elements of K, the fourth power of the seconds of one, which has the same order.
        """
        full = tiling.number * split.parts / self.machine.multiprocessors
        waves = ceiling(full)
        if self.unit.is_matrix:
            return waves, waves * (split.depth * tiling.element + tiling.written)
        computed = waves * tiling.element
        if smallest(waves) * smallest(tiling.warps) < RESIDENT:
            warps = minimum(waves * tiling.warps, RESIDENT)
            slower = (1 + self.filling / warps) / (1 + self.filling / RESIDENT)
            computed = computed * slower
        # Power is the chip's: multiprocessors without a tile leave a part to the others.
        powered = _IDLE * tiling.powered * waves + (1 - _IDLE) * tiling.powered * full
        return waves, fourth(maximum(computed, powered)) + tiling.wait_4 * fourth(waves)

    def found(self, split: Split, rank: Quantity) -> Found:
        """Return what products of this rank take."""
        busy = rank if self.unit.is_matrix else split.depth * fourth_root(rank)
        total = fourth_root(fourth(busy) + self.memory_4) + split.again
        return Found(total, busy, split.again)

    def by(self, rows: Any, columns: Any, parts: float = 1.0) -> Found:
        """Return what they take in tiles of this size, with K in so many parts."""
        tiling, split = self.tiled(rows, columns), self.split(parts)
        waves, rank = self.timed(tiling, split)
        found = self.found(split, rank)
        return found._replace(
            rows=rows, columns=columns, parts=parts, tiles=tiling.number * parts, waves=waves
        )


def _at_most(size: Quantity, most: Any) -> Quantity:
    """Return the smaller of two: `most` as it is where that is so everywhere."""
    if smallest(size) >= largest(most):
        return cast(Quantity, most)
    return minimum(size, most)


def fourth(x: Quantity) -> Quantity:
    """Return the fourth power."""
    square = x * x
    square *= square  # an array in its place
    return square


def fourth_root(x: Quantity) -> Quantity:
    """Return the fourth root, rounded the same for numbers and arrays."""
    if is_array(x):
        found: Any = np.sqrt(x)
        return cast(Quantity, np.sqrt(found, out=found))
    return root(root(x))


def ceiling(x: Quantity) -> Quantity:
    """Return the least whole number that is no less, as floating point."""
    if is_array(x):
        return cast(Quantity, np.ceil(x))
    return float(math.ceil(x))
