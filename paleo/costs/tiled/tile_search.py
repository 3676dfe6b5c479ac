"""The search for the tiles of matrix products, and the split of K, that are quickest.

Of all tiles the one is taken whose kernel computes and loads for the least time, which is the same
for any traffic of memory; and of all splits of K the quickest. Of many products at once tiles are
tried where they may be.
"""

from __future__ import annotations

import math
from typing import Any, cast

from paleo.core.quantity import Array, Quantity, is_array, largest, maximum, minimum, np, smallest
from paleo.costs.tiled.machine import RESIDENT
from paleo.costs.tiled.tiles import Found, Products, Split, ceiling, fourth, fourth_root

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
    is_many = math.prod(shape) >= _MANY
    if not is_many or products.loads or any(map(is_array, of_machine)):
        return _quickest_of_arrays(products, shape, splits, named=not is_many)
    alike = _alike(products, shape)
    if alike is not None or not any(map(is_array, (products.m, products.n, products.times))):
        return _quickest_of_arrays(products, shape, splits, alike)
    whole = _of_one_split(products, shape, splits[0])
    if len(splits) == 1:
        return whole
    places = np.flatnonzero(whole.total > _MARGIN * _least_in_parts(products, splits[1]))
    if not len(places):
        return whole
    run = _run(places)
    found = _quickest_of_arrays(_at(products, run, shape), places.shape, splits)
    pairs = zip(whole[:3], found[:3], strict=True)
    return Found(*(_with(np.broadcast_to(all_of, shape), run, own) for all_of, own in pairs))


def _alike(products: Products, shape: tuple[int, ...]) -> Array | None:
    """Return of products a number that is the same for those whose tiles are ranked alike.

    How many tiles there are along M follows from how many there would be of a divisor of their
    rows, where M is no smaller than the largest. None where more than M varies, or few are alike.
    """
    if not _rows_alone(products):
        return None
    sides = [rows for rows, _ in products.unit.tiles]
    rows, most = math.gcd(*sides), max(sides)
    if largest(products.m) > rows * math.prod(shape) / 2:
        return None
    m = np.broadcast_to(products.m, shape)
    number = np.where(m < most, m, most + np.ceil(m / rows))
    return number.astype(np.int64) if (number == np.floor(number)).all() else None


def _rows_alone(products: Products) -> bool:
    """Tell whether of what tiles are ranked by M varies, and nothing but what goes with it."""
    others = (
        products.n, products.times, products.rate, products.load_rate, products.filling,
        products.powered, products.least_tile,
        *([products.k] if products.unit.is_matrix else []),
    )  # fmt: skip
    return is_array(products.m) and not any(map(is_array, others))


def _of_one_split(products: Products, shape: tuple[int, ...], parts: int) -> Found:
    """Return `quickest` of many products with a single split of K.

    For large M, where one tile is quickest for certain, no other is tried.
    """
    is_plain = _rows_alone(products) and not is_array(products.vectors)
    if not is_plain or products.vectors or products.least_tile:
        return _quickest_of_arrays(products, shape, (parts,))
    (rows, columns), least = _settled(products, parts)
    is_large = np.broadcast_to(products.m, shape) >= least
    if not is_large.any():
        return _quickest_of_arrays(products, shape, (parts,))
    size = float(rows), float(columns), float(parts)
    if is_large.all():
        return Found(*products.by(*size)[:3])
    found = np.empty((2, is_large.size))
    large, small = (_run(np.flatnonzero(which)) for which in (is_large, ~is_large))
    few = _at(products, small, shape)
    found[:, large] = _at(products, large, shape).by(*size)[:2]
    found[:, small] = _quickest_of_arrays(few, np.shape(few.m), (parts,))[:2]
    total, busy = found.reshape(2, *shape)
    return Found(total, busy, products.split(size[2]).again)


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
    products: Products,
    shape: tuple[int, ...],
    splits: tuple[int, ...],
    alike: Array | None = None,
    *,
    named: bool = False,
) -> Found:
    """Return `quickest` of arrays, if `named` with their tiles.

    Splits are one more dimension in front. Of products that are `alike` one is ranked.
    """
    split = products.split(_in_front(splits, shape))
    if alike is None:
        rank, tile = _ranked(products, shape, split, named=named)
    else:
        places = np.zeros(int(alike.max()) + 1, np.int64)
        places[alike.ravel()] = np.arange(alike.size)
        few = _at(products, places, shape)
        rank, tile = _ranked(few, places.shape, few.split(_in_front(splits, places.shape)))
        rank = rank[:, alike]
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
    rows, columns = (
        np.array(products.unit.tiles, np.float64)[tile].reshape(-1, 2).T.reshape(2, *shape)
    )
    parts = np.array(splits)[which[0]]
    number = products.tiles(rows, columns) * parts
    waves = ceiling(number / products.machine.multiprocessors)
    return Found(total, busy, again, rows, columns, parts, number, waves)


def _in_front(splits: tuple[int, ...], shape: tuple[int, ...]) -> Any:
    """Return splits along a dimension in front of a shape; a number if there is one."""
    if len(splits) == 1:
        return float(splits[0])
    return np.array(splits, np.float64).reshape(-1, *(1,) * len(shape))


def _ranked(
    products: Products, shape: tuple[int, ...], split: Split, *, named: bool = False
) -> tuple[Any, Any]:
    """Return by split the rank of the quickest tile, and if `named` which it is.

    Tiles are one more dimension in front.
    """
    # On the lanes what tiles are ranked by is as large as they are numerous, not as K is.
    of_k = products.unit.is_matrix and is_array(products.k)
    is_slow = of_k or any(map(is_array, (products.m, products.n, products.times)))
    sides = np.array(products.unit.tiles, np.float64)
    at_once = len(sides)
    if is_slow:
        at_once = max(1, _AT_ONCE // (math.prod(shape) * np.size(split.parts)))
    rank: Any = np.inf
    tile: Any = 0
    is_small = is_array(products.least_tile) or products.least_tile
    for first in range(0, len(sides), at_once):
        here = sides[first : first + at_once].T
        rows, columns = here.reshape(2, -1, 1, *(1,) * len(shape))
        own: Any = products.timed(products.tiled(rows, columns), split)[1]
        if is_small:
            own = np.where(minimum(rows, columns) < products.least_tile, np.inf, own)
        if named:
            which = own.argmin(axis=0)
            tile = np.where(own.min(axis=0) < rank, which + first, tile)
        rank = np.minimum(rank, own.min(axis=0))
    return rank, tile


def _least_in_parts(products: Products, parts: int) -> Quantity:
    """Return seconds below which products are not with K in so many parts or more.

    Multiprocessors that are all full do as much in parts as whole, but for what fills and drains
    each tile's pipeline; and adding up more parts takes longer. Where M varies, its last tile is
    not taken to be full.
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
    busy = least * products.m
    return fourth_root(fourth(busy) + products.memory_4) + products.split(parts).again


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
