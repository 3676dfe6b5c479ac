"""Points that no other dominates: of those that are no worse in anything, one."""

from __future__ import annotations

from collections.abc import Sequence

from paleo.core.quantity import Array, np

#: Points that are compared with each other at once.
_BLOCK = 256
#: So many comparisons of points take some seconds; what takes more is not tried.
MOST_COMPARED = 20_000_000_000


class TooManyError(Exception):
    """There are more points than can be compared."""


def undominated(columns: Sequence[Array]) -> Array:
    """Return the places of points that no other dominates, which is no more in any column.

    `columns` have a number for each point, of which less is better. Of equal points one is kept.
    Raises TooManyError where points of three columns or more are too many.
    """
    count = len(columns[0])
    apart: list[Array] = []
    for column in columns:
        varies = count > 1 and bool((column != column[0]).any())
        if varies and not any(np.array_equal(column, other) for other in apart):
            apart.append(column)
    if not apart:
        return np.arange(min(count, 1))
    if len(apart) == 1:
        return np.array([apart[0].argmin()])
    for column in apart:
        if any(np.array_equal(-column, other) for other in apart):
            others = [each for each in apart if each is not column]
            return _by_value(column, [e for e in others if not np.array_equal(-column, e)])
    order = np.lexsort(apart[::-1])
    if len(apart) == 2:
        second = apart[1][order]
        least = np.minimum.accumulate(second)
        keeps = np.ones(count, bool)
        keeps[1:] = second[1:] < least[:-1]
        return order[keeps]
    # Ranks compare as numbers of any size do.
    ranks = [np.unique(column, return_inverse=True)[1][order] for column in apart[1:]]
    return order[_kept(np.stack(ranks, axis=1))]


def _by_value(column: Array, others: Sequence[Array]) -> Array:
    """Return the places of points that none of the same value dominates in the other columns."""
    order = np.lexsort([*others[::-1], column])
    ends = np.flatnonzero(np.diff(column[order], prepend=np.nan))
    if len(others) < 2:  # the least is the first
        return order[ends]
    groups = np.split(order, ends[1:])
    found = [group[undominated([each[group] for each in others])] for group in groups]
    return np.concatenate(found)


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
