"""Points that no other dominates: of those that are no worse in anything, one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from paleo.core.quantity import Array, np

#: Points that are compared with each other at once.
_BLOCK = 256
#: So many comparisons of points take some seconds; what takes more is not tried.
MOST_COMPARED = 2_000_000_000


class TooManyError(Exception):
    """There are more points than can be compared."""


def undominated(columns: Sequence[Array]) -> Array:
    """Return the places of points that no other dominates, which is no more in any column.

    `columns` have a number for each point, of which less is better. Of equal points one is kept.
    Raises TooManyError where points of four columns or more are too many.
    """
    count = len(columns[0])
    if count < 2:
        return np.arange(count)
    apart = _apart(columns)
    if not apart:
        return np.arange(1)
    if len(apart) == 1:
        return np.array([apart[0].argmin()])
    for column in apart:
        if any(np.array_equal(column.max() - column, other) for other in apart):
            others = [each for each in apart if each is not column]
            rest = [e for e in others if not np.array_equal(column.max() - column, e)]
            return _by_value(column, rest)
    order = np.lexsort(apart[::-1])
    _, *rows = (column[order] for column in apart)
    if len(rows) == 1:
        least = np.minimum.accumulate(rows[0])
        keeps = np.ones(count, bool)
        keeps[1:] = rows[0][1:] < least[:-1]
        return order[keeps]
    return order[_stairs(*rows) if len(rows) == 2 else _kept(np.stack(rows, axis=1))]


def _apart(columns: Sequence[Array]) -> list[Array]:
    """Return the columns that tell points apart, as ranks, which compare as numbers do.

    What grows with another column does not; whole numbers are compared exactly so, too.
    """
    found: list[Array] = []
    for column in columns:
        ranks = np.unique(column, return_inverse=True)[1]
        if not ranks.any() or any(_grows(ranks, other) for other in found):
            continue
        found = [other for other in found if not _grows(other, ranks)]
        found.append(ranks)
    return found


def _grows(column: Array, other: Array) -> bool:
    """Tell whether the order of one column is that of another, but for values that are equal."""
    least = np.full(other.max() + 1, column.max())
    most = np.zeros_like(least)
    np.minimum.at(least, other, column)
    np.maximum.at(most, other, column)
    return bool((least == most).all() and (np.diff(most) >= 0).all())


def _by_value(column: Array, others: Sequence[Array]) -> Array:
    """Return the places of points that none of the same value dominates in the other columns."""
    order = np.lexsort([*others[::-1], column])
    starts = np.flatnonzero(np.diff(column[order], prepend=-1))
    if len(others) < 2:  # the least is the first
        return order[starts]
    groups = np.split(order, starts[1:])
    found = [group[undominated([each[group] for each in others])] for group in groups]
    return np.concatenate(found)


def _stairs(second: Array, third: Array) -> Array:
    """Return which points no point before is as little as in two columns.

    What is known of those before is a stair: the least of the third column up to each value of the
    second (H. Kung, F. Luccio, F. Preparata, On Finding the Maxima of a Set of Vectors, 1975).
    """
    keeps = np.zeros(len(second), bool)
    steps: list[int] = []
    heights: list[int] = []
    for place, (y, z) in enumerate(zip(second.tolist(), third.tolist(), strict=True)):
        at = bisect_right(steps, y)
        if at and heights[at - 1] <= z:
            continue
        keeps[place] = True
        end = at
        while end < len(heights) and heights[end] >= z:
            end += 1
        start = at - 1 if at and steps[at - 1] == y else at
        steps[start:end] = [y]
        heights[start:end] = [z]
    return keeps


def _kept(rows: Array) -> Array:
    """Return which rows no row before is everywhere as little as: what comes first is no less."""
    keeps = np.zeros(len(rows), bool)
    front = rows[:0]
    compared = 0
    for first in range(0, len(rows), _BLOCK):
        block = rows[first : first + _BLOCK]
        compared += len(front) * len(block)
        if compared > MOST_COMPARED:
            raise TooManyError
        alive = ~_covered(block, front)
        inner = block[alive]
        covers = (inner[:, None] <= inner[None]).all(axis=2)  # a row by those before
        own = np.triu(covers, 1).any(axis=0)
        places = np.flatnonzero(alive)[~own]
        keeps[first + places] = True
        front = np.concatenate([front, block[places]])
    return keeps


def _covered(block: Array, front: Array) -> Array:
    """Return which rows of a block some row of a front is everywhere as little as."""
    found = np.zeros(len(block), bool)
    for first in range(0, len(front), 16 * _BLOCK):
        part = front[first : first + 16 * _BLOCK]
        left = np.flatnonzero(~found)
        covers = np.ones((len(part), len(left)), bool)
        for column in range(block.shape[1]):
            covers &= part[:, column, None] <= block[left, column][None]
        found[left] = covers.any(axis=0)
    return found
