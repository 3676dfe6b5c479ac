"""Functions of a step's parts in tables, between whose points they are taken to be straight.

Loads ask for thousands of steps, and so do arrays of deployments; each function is evaluated once,
for all points of its table. It is asked for one number, or for an array of them.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from typing import Any

from paleo.core.errors import SettingError
from paleo.core.quantity import Array, Quantity, is_array, np

#: Points of a table in each doubling: products go up in stairs of tiles, attention nearly straight.
OF_ROWS, OF_LENGTHS = 8, 2
#: No step has more tokens, no request more keys.
MOST = 2**20


class Line:
    """A function of one number in a table, straight between its points, made when asked for."""

    def __init__(self, of: Callable[[Any], Any], per_doubling: int) -> None:
        self._of, self._per = of, per_doubling
        self._points: list[float] = []
        self._values: list[float] = []

    def at(self, number: Any) -> Any:
        """Return the function of a number above 0, of none 0."""
        if is_array(number):
            return self._at_all(number)
        if number <= 0:
            return 0.0
        if not self._points or number > self._points[-1]:
            self._make(number)
        return _straight(self._values, *_place(self._points, number))

    def _at_all(self, numbers: Array) -> Quantity:
        most = float(numbers.max(initial=0))
        if most <= 0:
            return 0.0 * numbers
        if not self._points or most > self._points[-1]:
            self._make(most)
        # Below the first point a function is as at that.
        found = np.interp(numbers, self._points, self._values)
        return np.where(numbers > 0, found, 0.0)

    def _make(self, most: float) -> None:
        points = points_to(max(most, 256), self._per)
        values = self._of(np.array(points))
        self._points = points
        self._values = np.broadcast_to(values, len(points)).tolist()


class Plane:
    """The same of two numbers; `least` is the smallest of the second."""

    def __init__(self, of: Callable[[Any, Any], Any], least: int = 1) -> None:
        self._of, self._least = of, least
        self._first: list[float] = []
        self._second: list[float] = []
        self._values: list[list[float]] = []

    def at(self, first: Any, second: Any) -> Any:
        """Return the function of two numbers, the first above 0, of none 0."""
        if is_array(first) or is_array(second):
            return self._at_all(*np.broadcast_arrays(first, second))
        if first <= 0:
            return 0.0
        if not self._first or first > self._first[-1] or second > self._second[-1]:
            self._make(first, second)
        (row, down), (column, along) = _place(self._first, first), _place(self._second, second)
        low = _straight(self._values[row], column, along)
        if not down:
            return low
        return low + down * (_straight(self._values[row + 1], column, along) - low)

    def _at_all(self, first: Array, second: Array) -> Quantity:
        asked = first > 0
        if not asked.any():
            return np.zeros(first.shape)
        most = float(first.max()), float(second[asked].max())
        if not self._first or most[0] > self._first[-1] or most[1] > self._second[-1]:
            self._make(*most)
        table = np.array(self._values)
        row, down = _places(self._first, first)
        column, along = _places(self._second, second)

        def on(row: Array) -> Array:
            found = table[row, column]
            right = table[row, np.minimum(column + 1, table.shape[1] - 1)]
            straight: Array = found + along * (right - found)
            return straight

        low, high = on(row), on(np.minimum(row + 1, table.shape[0] - 1))
        return np.where(asked, low + down * (high - low), 0.0)

    def _make(self, first: float, second: float) -> None:
        one = points_to(max(first, 64, *self._first[-1:]), OF_LENGTHS)
        two = points_to(max(second, 4096, *self._second[-1:]), OF_LENGTHS)
        if not self._least:
            two = [0.0, *two]
        a, b = np.meshgrid(np.array(one), np.array(two), indexing="ij")
        values = self._of(a.ravel(), b.ravel())
        table = np.broadcast_to(values, a.size).reshape(a.shape)
        self._first, self._second, self._values = one, two, table.tolist()


def points_to(most: float, per_doubling: int) -> list[float]:
    """Return whole numbers from 1 to the first power of 2 that is no less, so many a doubling."""
    if most > MOST:
        raise SettingError(f"{most:,.0f} tokens are more than {MOST:,}")
    doublings = max(math.ceil(most) - 1, 1).bit_length()
    found = {round(2 ** (i / per_doubling)) for i in range(doublings * per_doubling + 1)}
    return [float(each) for each in sorted(found)]


def _place(points: list[float], number: float) -> tuple[int, float]:
    """Return the point before a number, and how far it is on the way to the next."""
    place = bisect_right(points, number) - 1
    if place < 0:  # below the first point a function is as at that
        return 0, 0.0
    if place == len(points) - 1:
        return place, 0.0
    low = points[place]
    return place, (number - low) / (points[place + 1] - low)


def _places(points: list[float], numbers: Array) -> tuple[Array, Array]:
    """Return the same of an array of numbers."""
    known = np.array(points)
    places = np.clip(np.searchsorted(known, numbers, side="right") - 1, 0, len(points) - 1)
    after = np.minimum(places + 1, len(points) - 1)
    lengths = np.where(after > places, known[after] - known[places], 1.0)
    shares = np.where(after > places, (numbers - known[places]) / lengths, 0.0)
    return places, np.maximum(shares, 0.0)


def _straight(values: list[float], place: int, share: float) -> float:
    """Return what is so far on the way from one value to the next."""
    found = values[place]
    return found + share * (values[place + 1] - found) if share else found
