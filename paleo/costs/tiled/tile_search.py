"""The search for the tiles of matrix products, and the split of K, that are quickest.

Of all tiles the one is taken whose kernel computes and loads for the least time, which is the same
for any traffic of memory; and of all splits of K the quickest. Of many products at once tiles are
tried where they may be.
"""

from __future__ import annotations

import math
from typing import Any, cast

from paleo.core.quantity import Array, Quantity, is_array, maximum, minimum, np
from paleo.costs.tiled.machine import RESIDENT
from paleo.costs.tiled.tiles import Found, Products, ceiling, fourth, fourth_root

#: Products times tiles and splits that are priced at a time, so that the processor's cache holds
#: them; and how many products are so many that nobody asks for the tiles of each.
_AT_ONCE, _MANY = 32768, 1024
#: More than sums of seconds are rounded by.
_MARGIN = 1 - 1e-9


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
    count = math.prod(shape)
    # Where tiles are as many whatever K is, all splits are soon tried.
    is_slow = any(map(is_array, (products.m, products.n, products.times)))
    is_odd = bool(products.loads) or any(map(is_array, of_machine))
    if count < _MANY or not is_slow or is_odd:
        return _quickest_of_arrays(products, splits, shape)
    whole = _of_one_split(products, splits[:1], shape)
    if len(splits) == 1:
        return whole
    places = np.flatnonzero(whole.total > _MARGIN * _least_split(products, splits[1]))
    if 2 * len(places) > count:
        return _quickest_of_arrays(products, splits, shape)
    if not len(places):
        return whole
    some = _at(products, _run(places), shape)
    found = _quickest_of_arrays(some, splits, places.shape)
    return Found(*(
        _with(np.broadcast_to(all_of, shape), _run(places), own)
        for all_of, own in zip(whole[:3], found[:3], strict=True)
    ))  # fmt: skip


def _of_one_split(products: Products, splits: tuple[int, ...], shape: tuple[int, ...]) -> Found:
    """Return `quickest` of many products with a single split of K.

    For large M, where one tile is quickest for certain, no other is tried.
    """
    fixed = (
        products.n, products.times, products.rate, products.load_rate, products.filling,
        products.powered, products.vectors, products.least_tile,
        *([products.k] if products.unit.is_matrix else []),
    )  # fmt: skip
    if any(map(is_array, fixed)) or products.vectors or products.least_tile:
        return _quickest_of_arrays(products, splits, shape)
    tile, least = _settled(products, splits[0])
    is_large = np.broadcast_to(products.m, shape) >= least
    large = np.flatnonzero(is_large)
    count = is_large.size
    if 2 * len(large) < count:
        return _quickest_of_arrays(products, splits, shape)
    rows, columns, parts = *map(float, tile), float(splits[0])
    if len(large) == count:
        return Found(*products.by(rows, columns, parts)[:3])
    small = np.flatnonzero(~is_large)
    of_small = _quickest_of_arrays(_at(products, _run(small), shape), splits, small.shape)
    of_large = _at(products, _run(large), shape).by(rows, columns, parts)
    whole = np.empty((2, count))
    for where, own in ((small, of_small), (large, of_large)):
        for all_of, value in zip(whole, own[:2], strict=True):
            all_of[_run(where)] = value
    total, busy = whole.reshape(2, *shape)
    return Found(total, busy, products.split(parts).again)


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
    products: Products, splits: tuple[int, ...], shape: tuple[int, ...]
) -> Found:
    """Return `quickest` of arrays: tiles and splits are two more dimensions in front."""
    in_front, count = (1,) * len(shape), math.prod(shape)
    parts: Any = float(splits[0])
    if len(splits) > 1:
        parts = np.array(splits, np.float64).reshape(-1, *in_front)
    split = products.split(parts)
    # On the lanes what tiles are ranked by is as large as they are numerous, not as K is.
    of_k = products.unit.is_matrix and is_array(products.k)
    is_slow = of_k or any(map(is_array, (products.m, products.n, products.times)))
    at_once = max(1, _AT_ONCE // (count * len(splits))) if is_slow else len(products.unit.tiles)
    is_many = count >= _MANY
    sides = np.array(products.unit.tiles, np.float64)
    rank: Any = np.inf
    tile: Any = 0
    is_small = is_array(products.least_tile) or products.least_tile
    for first in range(0, len(sides), at_once):
        rows, columns = sides[first : first + at_once].T.reshape(2, -1, 1, *in_front)
        own: Any = products.timed(products.tiled(rows, columns), split)[1]
        if is_small:
            own = np.where(minimum(rows, columns) < products.least_tile, np.inf, own)
        if not is_many:
            which = own.argmin(axis=0)
            tile = np.where(own.min(axis=0) < rank, which + first, tile)
        rank = np.minimum(rank, own.min(axis=0))
    found: Any = products.found(split, rank)
    if len(splits) == 1 and is_many:
        return Found(*(each[0] if is_array(each) else each for each in found[:3]))
    every = (len(splits), *shape)
    total = np.broadcast_to(found.total, every)
    if is_array(products.whole) or products.whole:
        total = np.where((split.parts > 1) & (np.asarray(products.whole) > 0), np.inf, total)
    which = total.argmin(axis=0)[None]
    busy, again = (_taken(each, which, every) for each in found[1:3])
    if is_many:
        return Found(total.min(axis=0), busy, again)
    total, tile = (_taken(each, which, every) for each in (total, tile))
    rows, columns = sides[tile].reshape(-1, 2).T.reshape(2, *shape)
    parts = np.array(splits)[which[0]]
    number = products.tiles(rows, columns) * parts
    waves = ceiling(number / products.machine.multiprocessors)
    return Found(total, busy, again, rows, columns, parts, number, waves)


def _least_split(products: Products, parts: int) -> Quantity:
    """Return seconds below which products are not with K in so many parts or more.

    Multiprocessors that are all full do as much in parts as whole, but for what fills and
    drains each tile's pipeline; and adding up more parts takes longer.
    """
    depth = products.k + parts * products.unit.step * products.unit.extra_steps
    least: Any = np.inf
    for rows, columns in products.unit.tiles:
        tiling = products.tiled(rows, columns)
        full = tiling.number / products.machine.multiprocessors
        if products.unit.is_matrix:
            own = full * (depth * tiling.element + parts * tiling.written)
        else:
            element = fourth(maximum(tiling.element, tiling.powered)) + tiling.wait_4
            own = full * depth * fourth_root(element)
        least = minimum(least, own)
    return fourth_root(fourth(least) + products.memory_4) + products.split(parts).again


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


def _with(values: Array, places: Array | slice, others: Any) -> Array:
    """Return values with others at these places of them, in the order of memory."""
    found: Array = values.copy()
    found.ravel()[places] = others
    return found
