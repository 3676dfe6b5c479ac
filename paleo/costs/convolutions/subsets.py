"""Some of several convolutions as one, whose numbers are arrays with an entry for each in front."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from paleo.costs import base
from paleo.costs.base import Time
from paleo.quantity import is_array, some
from paleo.window import Axis
from paleo.work import Convolution

__all__ = ["Part", "whole"]


class Part(NamedTuple):
    """Those of `many` convolutions that stand at `rows`: all of them, if that is None.

    One whose windows and groups are numbers, whatever its batch is, has no parts but the whole.
    """

    operation: Convolution
    many: int
    rows: Any = None

    def where(self, condition: Any) -> Part | None:
        """Return those for which a condition holds, for any batch; None if there are none."""
        if not some(condition):
            return None
        if not (self.many and is_array(condition)):
            return self
        import numpy as np

        kept = condition.any(axis=tuple(range(1, condition.ndim)))
        if kept.all():
            return self
        rows = np.flatnonzero(kept)
        return Part(
            _at(rows, self.operation), self.many, rows if self.rows is None else self.rows[rows]
        )

    def taken(self, values: Any) -> Any:
        """Return those of the values of all that are of these."""
        return values if self.rows is None or not is_array(values) else values[self.rows]

    def of(self, time: Time) -> Time:
        """Return those of the times of all that are of these."""
        return time if self.rows is None else Time(*map(self.taken, time))

    def quicker(self, best: Time | None, time: Time) -> Time:
        """Return the times of all, those of these the quicker ones of the best and `time`."""
        found = time if best is None else base.quicker(self.of(best), time)[1]
        if self.rows is None:
            return found
        return Time(*self._replaced(best or Time(total=float("inf")), found))

    def _replaced(self, old: Time, new: Time) -> Iterator[Any]:
        import numpy as np

        trailing = np.broadcast_shapes(*(np.shape(each)[1:] for each in (*old, *new)))
        for before, own in zip(old, new, strict=True):
            full = np.empty((self.many, *trailing))
            full[:] = before
            full[self.rows] = own
            yield full


def whole(operation: Convolution) -> Part:
    """Return one convolution, or several as one."""
    found: list[int] = []

    def note(value: Any) -> Any:
        if is_array(value):
            found.append(len(value))
        return value

    note(operation.groups)
    for axis in operation.axes:
        _changed(axis, note)
    return Part(operation, found[0] if found else 0)


def _at(rows: Any, operation: Convolution) -> Convolution:
    """Return those of several convolutions that stand at `rows`."""

    def at(value: Any) -> Any:
        return value[rows] if is_array(value) else value

    return replace(
        operation,
        batch=at(operation.batch),
        in_channels=at(operation.in_channels),
        out_channels=at(operation.out_channels),
        groups=at(operation.groups),
        axes=tuple(_changed(axis, at) for axis in operation.axes),
    )


def _changed(axis: Axis, change: Callable[[Any], Any]) -> Axis:
    """Return an axis whose numbers are changed."""
    padding: Any = axis.padding
    if not isinstance(padding, str):
        padding = tuple(map(change, padding))
    size, window, stride, dilation = map(
        change, (axis.size, axis.window, axis.stride, axis.dilation)
    )
    return Axis(size, window, stride, padding, dilation, axis.ceil)
