"""Operations of one form as one operation whose sizes are arrays, and their times.

Nets repeat a few forms of operations at many sizes. A cost model whose formulas hold for arrays
prices all of a form at once: that is sooner done than one by one, and gives the same numbers.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any, TypeAlias

from paleo.core.frozen import NamedTuple
from paleo.core.operations import (
    BatchMatMul,
    Convolution,
    Fused,
    GroupedMatMul,
    MatMul,
    Operation,
    Pooling,
    Stream,
)
from paleo.core.quantity import Quantity, has_arrays, identity, is_array, np, product, total
from paleo.core.window import Axis
from paleo.costs.convolutions.libraries import ASKED
from paleo.costs.model import Target
from paleo.costs.times import StackedTimes, Time, Times

#: Returns what is the same of windows that the same formulas price: they are one form then, however
#: large windows, channels and groups are.
Decides: TypeAlias = Callable[[Convolution | Pooling], Hashable]

#: Fewer operations of numbers, not arrays, are sooner priced one by one.
_LEAST = 3
#: Numbers that are priced at a time, so that the processor's cache holds them.
_MOST = 2048
#: Arrays of so many numbers and more are not copied to stand together.
_LONG = 256
#: The types of sizes that are no arrays.
_NUMBERS = {int, float}
#: So many tensors that an operation reads or writes are told apart; of more, the last are one.
_TOLD_APART = 5


class _Fields(NamedTuple):
    """The fields of a kind of operation: of those with `sizes`, and of those that tell its form."""

    sizes: tuple[str, ...]
    get_sizes: Callable[[Any], tuple[Any, ...]]
    get_form: Callable[[Any], Hashable]


def _fields(kind: type[Any], sizes: tuple[str, ...], *others: str) -> _Fields:
    """Return the fields of a kind; neither are `others`."""
    form = [each.name for each in fields(kind) if each.name not in (*sizes, *others)]
    return _Fields(sizes, attrgetter(*sizes), attrgetter(*form))


_WINDOWED = ("batch", "in_channels", "out_channels")
#: The fields that may be arrays: by the others cost models decide.
_KINDS: dict[type[Any], _Fields] = {
    MatMul: _fields(MatMul, ("m", "n", "k")),
    BatchMatMul: _fields(BatchMatMul, ("count", "m", "n", "k")),
    GroupedMatMul: _fields(GroupedMatMul, ("groups", "rows", "n", "k")),
    Convolution: _fields(Convolution, _WINDOWED),
    Pooling: _fields(Pooling, _WINDOWED),
    Stream: _fields(Stream, ("reads", "writes", "flops", "row", "drawn"), "label"),
}
#: Those of windows where a cost model says by what it decides.
_DECIDED: dict[type[Any], _Fields] = {
    Convolution: _fields(Convolution, (*_WINDOWED, "groups"), "axes"),
    Pooling: _fields(Pooling, _WINDOWED, "axes"),
}


class _Apart(NamedTuple):
    """An operation by its form, which operations that are stacked share, and its sizes."""

    operation: Operation
    form: Hashable
    sizes: tuple[Quantity, ...] = ()


def can_be_stacked(target: Target) -> bool:
    """Tell whether operations on a target can be stacked, with NumPy, which is not imported for it.

    Rates must be numbers, and there must be no library that looks at each convolution by itself.
    """
    varied = any(map(is_array, (target.share, *target.constants.values())))
    return has_arrays() and not varied and target.convolutions.library != ASKED


def price_stacked(
    operations: Sequence[Operation],
    price: Callable[[Operation], Time],
    decides: Decides | None = None,
) -> Times:
    """Return the time of each operation, by a `price` that takes arrays.

    Without `decides`, only operations of equal windows and groups are of one form; with it, of many
    tensors that one reads or writes the last are priced as one.
    """
    distinct = {id(each): each for each in operations}
    apart = [_apart(each, decides) for each in distinct.values()]
    forms: dict[Hashable, list[int]] = {}
    for place, each in enumerate(apart):
        forms.setdefault(each.form, []).append(place)
    found: list[tuple[tuple[int, ...], Time]] = []
    for places in forms.values():
        found += _priced([apart[place] for place in places], price, decides)
    shape = np.broadcast_shapes(*(tuple(own) for (_, *own), _ in found))
    rest = itertools.chain(*forms.values())
    of_each = [(list(itertools.islice(rest, count)), own, time) for (count, *own), time in found]
    times = _stacked_times(of_each, shape) if product(shape) < _LONG else _long_times(of_each)
    if len(distinct) == len(operations):
        return times
    where = {which: place for place, which in enumerate(distinct)}
    return times.at([where[id(each)] for each in operations])


def _stacked_times(
    of_each: Sequence[tuple[list[int], list[int], Time]], shape: tuple[int, ...]
) -> StackedTimes:
    """Return times, put together of those at some places, of parts of a shape of their own."""
    all_parts = np.empty((len(Time._fields), sum(len(places) for places, _, _ in of_each), *shape))
    for places, own, time in of_each:
        count, missing = len(places), (1,) * (len(shape) - len(own))
        for all_of, part in zip(all_parts, time, strict=True):
            if count == 1:
                all_of[places[0]] = part
            else:
                all_of[places] = np.broadcast_to(part, (count, *own)).reshape(count, *missing, *own)
    return StackedTimes(all_parts)


def _long_times(of_each: Sequence[tuple[list[int], list[int], Time]]) -> Times:
    """Return the same where parts are long: they stay as they are, and numbers numbers."""
    times: dict[int, Time] = {}
    for places, own, time in of_each:
        shape = len(places), *own
        each: list[Any] = [
            np.broadcast_to(part, shape) if is_array(part) else part for part in time
        ]
        for row, place in enumerate(places):
            times[place] = Time(*(part[row] if is_array(part) else part for part in each))
    return Times([times[place] for place in range(len(times))])


def _priced(
    alike: list[_Apart], price: Callable[[Operation], Time], decides: Decides | None
) -> Iterator[tuple[tuple[int, ...], Time]]:
    """Yield the times of these operations of one form, some in succession at a time.

    The parts of each can be made the shape that comes with it: how many there are, then their own.
    """
    columns = list(zip(*(each.sizes for each in alike), strict=True))
    varied = [column for column in columns if not _NUMBERS.issuperset(map(type, column))]
    shapes = {size.shape for column in varied for size in column if type(size) not in _NUMBERS}
    shape = next(iter(shapes), ())
    if not columns:  # they are equal
        yield _alone(price(alike[0].operation), len(alike))
        return
    rows = max(1, _MOST // int(product(shape)))
    if len(shapes) > 1 or rows == 1 or len(alike) < (2 if shape else _LEAST):
        yield from (_alone(price(each.operation)) for each in alike)
        return
    for first in range(0, len(alike), rows):
        count = min(rows, len(alike) - first)
        sizes = (_stacked(column[first : first + rows], shape) for column in columns)
        operation = _joined(alike[first].operation, iter(sizes), decides)
        yield (count, *shape), price(operation)


def _alone(time: Time, count: int = 1) -> tuple[tuple[int, ...], Time]:
    """Return the time of an operation, and of so many equal ones, with its shape."""
    return (count, *np.broadcast_shapes(*map(np.shape, time))), time


def _stacked(sizes: tuple[Any, ...], shape: tuple[int, ...]) -> Quantity:
    """Return sizes of this shape, or numbers, as one with one more dimension in front."""
    types = set(map(type, sizes))
    if types <= _NUMBERS:
        first: Quantity = sizes[0]
        is_one = sizes.count(first) == len(sizes)
        return first if is_one else np.array(sizes).reshape(-1, *(1,) * len(shape))
    if types & _NUMBERS:
        zeros = np.zeros(shape, np.int64)
        sizes = tuple(size + zeros for size in sizes)
    return np.array(sizes)


def _has_loads(operation: Operation) -> bool:
    """Tell whether a grouped product says the rows of its groups by arrays, which make no form."""
    loads = operation.loads if isinstance(operation, GroupedMatMul) else ()
    return any(is_array(size) for load in loads for size in load)


def _apart(operation: Operation, decides: Decides | None) -> _Apart:
    kind = type(operation)
    form: Any
    if isinstance(operation, Stream):
        reads, writes, *others = _KINDS[kind].get_sizes(operation)
        if decides and not operation.roles:
            reads, writes = _told_apart(reads), _told_apart(writes)
        form = (kind, len(reads), len(writes), _KINDS[kind].get_form(operation))
        return _Apart(operation, form, (*reads, *writes, *others))
    if isinstance(operation, Convolution | Pooling) and decides:
        along, ceil = _along(operation.axes)
        form = (kind, ceil, _DECIDED[kind].get_form(operation), decides(operation))
        return _Apart(operation, form, (*_DECIDED[kind].get_sizes(operation), *along))
    if isinstance(operation, Fused):
        parts = [_apart(each, decides) for each in (operation.head, *operation.tail)]
        sizes = tuple(size for each in parts for size in each.sizes)
        return _Apart(operation, (kind, *(each.form for each in parts)), sizes)
    if kind not in _KINDS or _has_loads(operation):
        return _Apart(operation, identity(operation))
    form = (kind, _KINDS[kind].get_form(operation))
    return _Apart(operation, form, _KINDS[kind].get_sizes(operation))


def _told_apart(sizes: tuple[Quantity, ...]) -> tuple[Quantity, ...]:
    """Return the sizes of tensors, the last of many as one."""
    if len(sizes) <= _TOLD_APART:
        return sizes
    return (*sizes[: _TOLD_APART - 1], total(sizes[_TOLD_APART - 1 :]))


@functools.lru_cache(maxsize=1024)
def _along(axes: tuple[Axis, ...]) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    """Return the numbers of axes in the order of `_axis`, and which of them round up."""
    found: list[int] = []
    for axis in axes:
        before = axis.padding_before
        after = axis.total_padding - before
        found += (axis.size, axis.window, axis.stride, before, after, axis.dilation)
    return tuple(found), tuple(axis.ceil for axis in axes)


def _axis(sizes: Iterator[Any], ceil: bool) -> Axis:
    size, window, stride, before, after, dilation = itertools.islice(sizes, 6)
    return Axis(size, window, stride, (before, after), dilation, ceil)


def _joined(like: Operation, sizes: Iterator[Any], decides: Decides | None) -> Operation:
    """Return an operation of the same form with these sizes, in the order of `_apart`."""
    if isinstance(like, Fused):
        head = _joined(like.head, sizes, decides)
        tail: Any = tuple(_joined(each, sizes, decides) for each in like.tail)
        return Fused(head, tail)
    changed: dict[str, Any] = {}
    known = _DECIDED if decides and type(like) in _DECIDED else _KINDS
    for name in known[type(like)].sizes:
        old = getattr(like, name)
        if isinstance(old, tuple):
            count = len(_told_apart(old) if decides and not getattr(like, "roles", ()) else old)
            changed[name] = tuple(itertools.islice(sizes, count))
        else:
            changed[name] = next(sizes)
    if isinstance(like, Convolution | Pooling) and decides:
        changed["axes"] = tuple(_axis(sizes, axis.ceil) for axis in like.axes)
    return replace(like, **changed)  # type: ignore[type-var]
