"""What something takes, and what many things in order take, in arrays where NumPy is at hand.

A net has thousands of operations: to add their times up one by one takes longer than to price
them. Sums of arrays are of one after the other, too, so that they round alike.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

from paleo.core.frozen import NamedTuple
from paleo.core.quantity import Array, Quantity, is_array, np, total, where_positive


class Time(NamedTuple):
    """Seconds of computation, memory traffic and overhead, and of them together.

    `total` is what the model says they take together, by its own rule of what overlaps.
    """

    compute: Quantity = 0.0
    memory: Quantity = 0.0
    overhead: Quantity = 0.0
    total: Quantity = 0.0

    def __add__(self, other: Time) -> Time:  # type: ignore[override]
        return Time(*map(operator.add, self, other))

    def times(self, count: Quantity) -> Time:
        """Return what so many of it take, one after the other."""
        return Time(*(count * part for part in self))

    def where_positive(self, condition: Quantity) -> Time:
        """Return it where a condition is above 0, else no time."""
        return Time(*(where_positive(condition, part) for part in self))

    def to_dict(self, of: str) -> dict[str, Quantity]:
        """Return the parts under the keys of the JSON output; `of` says what takes them."""
        return {f"{of}_{part}_s": getattr(self, part) for part in _PARTS}

    @property
    def bound(self) -> Any:
        """What it takes most of: "compute", "memory" or "overhead"; "" if it takes nothing.

        An array of these where the parts are arrays.
        """
        parts = (self.compute, self.memory, self.overhead)
        if any(map(is_array, parts)):
            stacked = np.stack(np.broadcast_arrays(*parts))
            return np.where(stacked.max(0) > 0, np.array(_PARTS)[stacked.argmax(0)], "")
        longest = max(parts)
        return _PARTS[parts.index(longest)] if longest > 0 else ""


#: The parts of a Time, in order.
_PARTS = ("compute", "memory", "overhead")


class Times(Sequence[Time]):
    """Times in order."""

    def __init__(self, times: Sequence[Time]) -> None:
        self._times = times

    def __len__(self) -> int:
        return len(self._times)

    @overload
    def __getitem__(self, place: int) -> Time: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Time]: ...
    def __getitem__(self, place: Any) -> Any:
        return self._times[place]

    def at(self, places: Sequence[int]) -> Times:
        """Return the times at these places."""
        return Times([self[place] for place in places])

    def sums(self, lengths: Sequence[int]) -> Times:
        """Return the sums of the first so many, of the next so many, and so on."""
        times = iter(self)
        return Times([_sum(itertools.islice(times, length)) for length in lengths])

    def total(self, seconds: Callable[[Time], Quantity]) -> Quantity:
        """Return the sum of the seconds of all."""
        return total(map(seconds, self))

    @property
    def time(self) -> Time:
        """The sum of all."""
        return _sum(iter(self))


class StackedTimes(Times):
    """Times whose parts are arrays: four of them, with an entry for each time in front."""

    def __init__(self, parts: Array) -> None:
        self._parts = parts
        super().__init__(())

    def __len__(self) -> int:
        return len(self._parts[0])

    def __getitem__(self, place: Any) -> Any:
        own = self._parts[:, place]
        return StackedTimes(own) if isinstance(place, slice) else _time(own)

    def __iter__(self) -> Iterator[Time]:
        each = self._parts.swapaxes(0, 1)
        return map(Time._make, each if each.ndim > 2 else each.tolist())

    def at(self, places: Sequence[int]) -> Times:
        return StackedTimes(self._parts[:, list(places)])

    def sums(self, lengths: Sequence[int]) -> Times:
        many = np.array(lengths, np.int64)
        first = np.cumsum(many) - many
        found = np.zeros((len(self._parts), len(many), *self._parts.shape[2:]))
        for next_one in range(many.max(initial=0)):
            rows = np.flatnonzero(many > next_one)
            found[:, rows] += self._parts[:, first[rows] + next_one]
        return StackedTimes(found)

    def total(self, seconds: Callable[[Time], Quantity]) -> Quantity:
        return _last_sum(seconds(Time(*self._parts)), 0) if len(self) else 0

    @property
    def time(self) -> Time:
        return _time(_last_sum(self._parts, 1)) if len(self) else Time()


def _sum(times: Iterator[Time]) -> Time:
    """Return the sum of times in their order."""
    return sum(times, next(times, Time()))


def _time(parts: Array) -> Time:
    """Return a time, of numbers of Python if they are."""
    return Time._make(parts if parts.ndim > 1 else parts.tolist())


def _last_sum(values: Any, axis: int) -> Any:
    """Return the sum along an axis, one added to those before."""
    found = np.take(np.add.accumulate(values, axis), -1, axis)
    return found if found.ndim else found.item()
