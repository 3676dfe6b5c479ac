"""Some of several convolutions as one, whose numbers are arrays with an entry for each in front."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from paleo.core.frozen import NamedTuple
from paleo.core.operations import Convolution
from paleo.core.quantity import is_array, np, some
from paleo.core.window import Axis
from paleo.costs import model
from paleo.costs.times import Time


class Subset(NamedTuple):
    """Those of `many` convolutions that stand at `rows`: all of them, if that is None.

    One whose numbers have no common dimension in front is all or nothing of a subset.
    """

    operation: Convolution
    many: int
    rows: Any = None

    def where(self, condition: Any) -> Subset | None:
        """Return those for which a condition holds, for any batch; None if there are none."""
        if not some(condition):
            return None
        if not (self.many and is_array(condition)):
            return self
        kept = condition.any(axis=tuple(range(1, condition.ndim)))
        if kept.all():
            return self
        rows = np.flatnonzero(kept)
        return Subset(
            _at(rows, self.operation), self.many, rows if self.rows is None else self.rows[rows]
        )

    def likely(self, condition: Any) -> Subset | None:
        """Return those for which a condition holds, or all where that are most.

        They are sooner looked at, too, than taken apart.
        """
        if is_array(condition) and 2 * np.count_nonzero(condition) > condition.size:
            return self
        return self.where(condition)

    def taken(self, values: Any) -> Any:
        """Return those of the values of all that are of these."""
        return values if self.rows is None or not is_array(values) else values[self.rows]

    def of(self, time: Time) -> Time:
        """Return those of the times of all that are of these."""
        return time if self.rows is None else Time(*map(self.taken, time))

    def quicker(self, best: Time | None, time: Time) -> Time:
        """Return the times of all, those of these the quicker ones of the best and `time`."""
        found = time if best is None else model.quicker(self.of(best), time)[1]
        if self.rows is None:
            return found
        return Time(*self._replaced(best or Time(total=float("inf")), found))

    def _replaced(self, old: Time, new: Time) -> Iterator[Any]:
        trailing = np.broadcast_shapes(*(np.shape(each)[1:] for each in (*old, *new)))
        for before, own in zip(old, new, strict=True):
            full = np.empty((self.many, *trailing))
            full[:] = before
            full[self.rows] = own
            yield full


def all_of(operation: Convolution) -> Subset:
    """Return one convolution, or several as one."""
    found: list[int] = []

    def note(value: Any) -> Any:
        if is_array(value):
            found.append(len(value))
        return value

    note(operation.groups)
    for axis in operation.axes:
        _changed(axis, note)
    if found:
        return Subset(operation, found[0])
    # Of numbers for windows those of a batch each are several, too.
    varied: Any = (operation.batch, operation.in_channels, operation.out_channels)
    lengths = {len(value) for value in varied if is_array(value) and value.shape}
    return Subset(operation, lengths.pop() if len(lengths) == 1 else 0)


def _at(rows: Any, operation: Convolution) -> Convolution:
    """Return those of several convolutions that stand at `rows`."""

    def at(value: Any) -> Any:
        return value[rows] if is_array(value) else value

    sizes = ("batch", "in_channels", "out_channels", "groups")
    changed = {name: at(getattr(operation, name)) for name in sizes}
    return replace(operation, axes=tuple(_changed(axis, at) for axis in operation.axes), **changed)


def _changed(axis: Axis, change: Callable[[Any], Any]) -> Axis:
    """Return an axis whose numbers are changed."""
    padding: Any = axis.padding
    if not isinstance(padding, str):
        padding = tuple(map(change, padding))
    size, window, stride, dilation = map(
        change, (axis.size, axis.window, axis.stride, axis.dilation)
    )
    return Axis(size, window, stride, padding, dilation, axis.ceil)
