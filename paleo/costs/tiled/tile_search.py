"""The search for the tiles of matrix products, and the split of K, that are quickest.

Of all tiles the one is taken whose kernel computes and loads for the least time, which is the same
for any traffic of memory; and of all splits of K the quickest. Of many products at once tiles are
tried where they may be.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, TypeAlias, cast

from paleo.core.quantity import Array, Quantity, is_array, maximum, minimum, np, smallest
from paleo.costs.tiled.machine import RESIDENT
from paleo.costs.tiled.tiles import Found, Products, ceiling, fourth, fourth_root

#: Products times tiles and splits that are priced at a time, so that the processor's cache holds
#: them; and how many products are so many that nobody asks for the tiles of each.
_AT_ONCE, _MANY = 32768, 1024
#: More than sums of seconds are rounded by.
_MARGIN = 1 - 1e-9


#: What finds the quickest of products of a shape, without their tiles.
_Find: TypeAlias = Callable[[Products, tuple[int, ...]], Found]


def quickest(products: Products, splits: tuple[int, ...]) -> Found:
    """Return what they take in the tiles, and with the split of K, that are quickest.

    Of equals the first.
    """
    machine = products.machine
    of_machine = (
        machine.multiprocessors, machine.reduction, machine.partial, machine.latency,
    )  # fmt: skip
    varied = (
        *products[:4], products.rate, products.load_rate, products.memory_4, products.pass_over_c,
        products.filling, products.powered, products.least_tile, products.whole, *of_machine,
    )  # fmt: skip
    if not any(map(is_array, varied)):
        return _quickest_of_numbers(products, splits)
    shape = np.broadcast(*varied).shape
    is_many = math.prod(shape) >= _MANY
    if not is_many or products.loads or any(map(is_array, of_machine)):
        return _quickest_of_arrays(products, shape, splits, named=not is_many)
    if is_array(products.vectors):  # which have kernels of their own
        is_vector = np.broadcast_to(products.vectors, shape) > 0
        return _of_both(products, is_vector, _vectors(1.0, splits), _vectors(0.0, splits))
    if not any(map(is_array, (products.m, products.n, products.times))):
        return _quickest_of_arrays(products, shape, splits)  # tiles are as many whatever K is
    whole = _of_one_split(products, shape, splits[0])
    return _in_parts(products, shape, whole, splits[1:]) if len(splits) > 1 else whole


def _vectors(which: float, splits: tuple[int, ...]) -> _Find:
    """Return what finds the quickest of products that all are with a vector, or none."""
    return lambda products, _: quickest(products._replace(vectors=which), splits)


def _of_both(products: Products, chosen: Array, one: _Find, other: _Find) -> Found:
    """Return what `one` finds of the chosen products, and `other` of those that are not."""
    each: list[tuple[Array | slice, Found]] = []
    for which, find in ((chosen, one), (~chosen, other)):
        places = np.flatnonzero(which)
        if len(places) == which.size:
            return find(products, which.shape)
        if len(places):
            run = _run(places)
            each.append((run, find(_at(products, run, which.shape), places.shape)))
    whole: list[Any] = []
    for values in zip(*(found[:3] for _, found in each), strict=True):
        if not any(map(is_array, values)) and len({*values}) == 1:
            whole.append(values[0])
            continue
        whole.append(np.empty(chosen.size))
        for (run, _), value in zip(each, values, strict=True):
            whole[-1][run] = value
        whole[-1] = whole[-1].reshape(chosen.shape)
    return Found(*whole)


def _of_one_split(products: Products, shape: tuple[int, ...], parts: int) -> Found:
    """Return `quickest` of many products with a single split of K.

    For large M, where one tile is quickest for certain, no other is tried.
    """
    fixed = (
        products.n, products.times, products.rate, products.load_rate, products.filling,
        products.powered, products.vectors, products.least_tile,
        *([products.k] if products.unit.is_matrix else []),
    )  # fmt: skip
    of_any = functools.partial(_quickest_of_arrays, splits=(parts,))
    if any(map(is_array, fixed)) or products.vectors or products.least_tile:
        return of_any(products, shape)
    (rows, columns), least = _settled(products, parts)
    size = float(rows), float(columns), float(parts)
    is_large = np.broadcast_to(products.m, shape) >= least
    return _of_both(products, is_large, lambda large, _: Found(*large.by(*size)[:3]), of_any)


def _in_parts(
    products: Products, shape: tuple[int, ...], whole: Found, splits: tuple[int, ...]
) -> Found:
    """Return `quickest` of products of which the `whole` is known, without these splits of K.

    Each is tried where it may be quicker: the more parts, the longer they take to be added up.
    """
    found = whole
    least = fourth_root(fourth(_least_busy(products, splits[0])) + products.memory_4)
    for parts in splits:
        again = products.split(float(parts)).again
        places = np.flatnonzero(found.total > _MARGIN * (least + again))
        if not len(places):
            break
        run = _run(places)
        some = _at(products, run, shape)
        own = _of_one_split(some, places.shape, parts)
        known = [np.broadcast_to(each, shape) for each in found[:3]]
        is_quicker = (own.total < known[0].ravel()[run]) & (np.asarray(some.whole) == 0)
        if is_quicker.any():
            pairs = zip(known, own[:3], strict=True)
            found = Found(*(_with(all_of, run, is_quicker, value) for all_of, value in pairs))
    return found


def _at(products: Products, places: Array | slice, shape: tuple[int, ...]) -> Products:
    """Return the products at these places of them, in the order of memory."""
    varied_fields: dict[str, Any] = {
        name: np.broadcast_to(value, shape).ravel()[places]
        for name, value in products._asdict().items()
        if is_array(value)
    }
    return products._replace(**varied_fields)


def _settled(products: Products, parts: int) -> tuple[tuple[int, int], float]:
    """Return the tile that is quickest for large M, and the M from which on it is for certain.

    M / rows are the tiles along M at least, of the quickest one more at most; and waves are as
    many as tiles fill, of the quickest one more. M is all that varies.
    """
    most = float(max(max(tile) for tile in products.unit.tiles))
    large = products._replace(m=most)
    depth: Any = products.split(parts).depth
    ranked: list[tuple[float, float, float, tuple[int, int]]] = []
    for rows, columns in products.unit.tiles:
        tiling: Any = large.tiled(rows, columns)
        each: Any
        if products.unit.is_matrix:
            each = depth * tiling.element + tiling.written
        else:
            element = fourth(maximum(tiling.element, tiling.powered))
            each = fourth_root(element + tiling.wait_4)
        # Of a row of tiles: the waves that it fills.
        waves: Any = products.times * ceiling(products.n / columns) * parts
        waves = waves / products.machine.multiprocessors
        filled = 0.0 if products.unit.is_matrix else RESIDENT / tiling.warps * rows / waves
        ranked.append((waves * each / rows, (waves + 1) * each, filled, (rows, columns)))
    (slope, more, filled, tile), *others = sorted(ranked)
    gap = min((other[0] for other in others), default=math.inf) * _MARGIN - slope
    least = more / gap if gap > 0 else math.inf
    return tile, max(least, filled, most)


def _quickest_of_numbers(products: Products, splits: tuple[int, ...]) -> Found:
    tilings = [
        (rows, columns, products.tiled(rows, columns))
        for rows, columns in products.unit.tiles
        if min(rows, columns) >= products.least_tile
    ]
    best: Found | None = None
    for parts in splits:
        if products.whole and parts > 1:
            continue
        split = products.split(parts)
        ranked = [products.timed(tiling, split) for _, _, tiling in tilings]
        place = min(range(len(ranked)), key=lambda i: cast(float, ranked[i][1]))
        waves, rank = ranked[place]
        found = products.found(split, rank)
        if best is None or found.total < best.total:
            rows, columns, tiling = tilings[place]
            best = Found(*found[:3], rows, columns, parts, tiling.number * parts, waves)
    assert best
    return best


def _quickest_of_arrays(
    products: Products, shape: tuple[int, ...], splits: tuple[int, ...], *, named: bool = False
) -> Found:
    """Return `quickest` of arrays, if `named` with their tiles.

    Tiles and splits are two more dimensions in front.
    """
    in_front, count = (1,) * len(shape), math.prod(shape)
    parts: Any = float(splits[0])
    if len(splits) > 1:
        parts = np.array(splits, np.float64).reshape(-1, *in_front)
    split = products.split(parts)
    # On the lanes what tiles are ranked by is as large as they are numerous, not as K is.
    of_k = products.unit.is_matrix and is_array(products.k)
    is_slow = of_k or any(map(is_array, (products.m, products.n, products.times)))
    at_once = max(1, _AT_ONCE // (count * len(splits))) if is_slow else len(products.unit.tiles)
    sides = np.array(products.unit.tiles, np.float64)
    rank: Any = np.inf
    tile: Any = 0
    is_small = is_array(products.least_tile) or products.least_tile
    for first in range(0, len(sides), at_once):
        rows, columns = sides[first : first + at_once].T.reshape(2, -1, 1, *in_front)
        own: Any = products.timed(products.tiled(rows, columns), split)[1]
        if is_small:
            own = np.where(minimum(rows, columns) < products.least_tile, np.inf, own)
        if named:
            which = own.argmin(axis=0)
            tile = np.where(own.min(axis=0) < rank, which + first, tile)
        rank = np.minimum(rank, own.min(axis=0))
    found: Any = products.found(split, rank)
    if len(splits) == 1 and not named:
        return Found(*(each[0] if is_array(each) else each for each in found[:3]))
    every = (len(splits), *shape)
    total = np.broadcast_to(found.total, every)
    if is_array(products.whole) or products.whole:
        total = np.where((split.parts > 1) & (np.asarray(products.whole) > 0), np.inf, total)
    which = total.argmin(axis=0)[None]
    busy, again = (_taken(each, which, every) for each in found[1:3])
    if not named:
        return Found(total.min(axis=0), busy, again)
    total, tile = (_taken(each, which, every) for each in (total, tile))
    rows, columns = sides[tile].reshape(-1, 2).T.reshape(2, *shape)
    parts = np.array(splits)[which[0]]
    number = products.tiles(rows, columns) * parts
    waves = ceiling(number / products.machine.multiprocessors)
    return Found(total, busy, again, rows, columns, parts, number, waves)


def _least_busy(products: Products, parts: int) -> Quantity:
    """Return seconds below which none computes and loads with K in so many parts or more.

    Multiprocessors that are all full do as much in parts as whole, but for what fills and drains
    each tile's pipeline. Where M varies, the last tiles along it are not rounded up.
    """
    few = products._replace(m=smallest(products.m))
    depth = products.k + parts * products.unit.step * products.unit.extra_steps
    least: Any = np.inf
    for rows, columns in products.unit.tiles:
        tiling = few.tiled(rows, columns)
        number = tiling.number / few.m
        if is_array(products.m):
            number = products._replace(m=rows).tiles(rows, columns) / rows
        full = number / products.machine.multiprocessors
        if products.unit.is_matrix:
            own = full * (depth * tiling.element + parts * tiling.written)
        else:
            element = fourth(maximum(tiling.element, tiling.powered)) + tiling.wait_4
            own = full * fourth_root(element) * depth
        least = minimum(least, own)
    return least * products.m


def _run(places: Array) -> Array | slice:
    """Return rising places as a slice, of which nothing is copied, if they follow one another."""
    first, last = places[0], places[-1]
    return slice(first, last + 1) if last - first < len(places) else places


def _taken(values: Any, which: Array, shape: tuple[int, ...]) -> Array:
    """Return of values that broadcast to a shape those at places of its dimension in front."""
    found: Array
    if np.shape(values) == (shape[0], *(1,) * (len(shape) - 1)):  # the same for all products
        found = values.ravel()[which[0]]
    else:
        found = np.take_along_axis(np.broadcast_to(values, shape), which, 0)[0]
    return found


def _with(values: Array, places: Array | slice, those: Array, others: Any) -> Array:
    """Return values with others in those of these places, in the order of memory."""
    found: Array = values.copy()
    flat = found.ravel()
    flat[places] = np.where(those, others, flat[places])
    return found
