"""What a picture shows, before anybody draws it: Matplotlib, a terminal or the page.

Values are in the unit that the chart names, chosen and scaled here, so that whoever draws does no
arithmetic.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from paleo.core.attributes import attributes
from paleo.core.errors import SettingError
from paleo.core.frozen import NamedTuple, dataclass
from paleo.core.units import Scale, scale_for
from paleo.views.charts.numbers import shown

#: How the series of a chart are drawn: as lines over numbers, as points over numbers, or as bars of
#: categories, one series stacked on the other or, "grouped", beside it. "columns" are upright bars
#: over numbers, stacked. A "schedule" has bars that begin anywhere, many in the row of a category.
#: "curves" are lines through named points in their order, whose references are marks below them.
KINDS = ("lines", "points", "bars", "grouped", "columns", "schedule", "curves")
#: Those of lines: they stand apart from bars, and side by side have one legend.
OF_LINES = ("lines", "curves")
#: More bars are no picture any more.
MOST_BARS = 40
#: So many groups of bars there are at least, however many bars stand beside each other.
_LEAST_ROWS = 10
#: What the bars are of that can be summed.
_SUMMED = "layer"
#: An axis is logarithmic only where the largest value is so many times the smallest: over less, it
#: makes much of little, and has few round numbers.
_WIDE = 10.0
#: The bar of all others is drawn to scale up to so many times the longest of those beside it.
_BEYOND = 1.25
#: Of more lines than these, only the one to look at has its band shaded.
_BANDS = 2
#: How far the reference of predicted against measured goes on beyond the points.
_MARGIN = 1.5
_MICRO = "\u00b5"


@dataclass(frozen=True)
class Series:
    """One line, set of points or layer of bars: `y` over `x`, None where there is no value.

    `labels` are names of its points. A series that `is_reference` is no prediction of its own but
    something to hold others against, such as the ideal speedup or a roof. `chosen` says why it is
    the one to look at among its like, such as "the best on 128 workers"; "" if it is not. `low` and
    `high` are the ends of the error bands of `y`, None where one is not known; () for no bands.
    These stand at `low_x` and `high_x`, where that is not `x`.
    Of a schedule `y` are lengths of bars in the rows `x`, `starts` is where they begin, and `marks`
    are what is written in them where there is room.
    """

    name: str
    x: tuple[Any, ...]
    y: tuple[float | None, ...]
    labels: tuple[str, ...] = ()
    is_reference: bool = False
    chosen: str = ""
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()
    starts: tuple[float, ...] = field(default=(), kw_only=True)
    marks: tuple[str, ...] = field(default=(), kw_only=True)
    low_x: tuple[float, ...] = field(default=(), kw_only=True)
    high_x: tuple[float, ...] = field(default=(), kw_only=True)

    @property
    def band(self) -> dict[int, tuple[float, float]]:
        """The ends of the band, where both are known, under the places of the values."""
        ends = enumerate(zip(self.low, self.high, strict=True))
        return {i: (low, high) for i, (low, high) in ends if low is not None and high is not None}

    @property
    def outline(self) -> list[tuple[float, float]]:
        """The corners of the band: along its low end, and back along the high one."""
        low_x, high_x = self.low_x or self.x, self.high_x or self.x
        ends = self.band.items()
        lows = [(float(low_x[i]), low) for i, (low, _) in ends]
        highs = [(float(high_x[i]), high) for i, (_, high) in ends]
        return [*lows, *highs[::-1]]

    @property
    def title(self) -> str:
        """The name for a legend, with why it is the one to look at."""
        return f"{self.name} ({self.chosen})" if self.chosen else self.name

    @property
    def texts(self) -> tuple[str, ...]:
        """The values as people read them, "" where there is none."""
        return tuple("" if value is None else shown(value) for value in self.y)

    def to_dict(self) -> dict[str, Any]:
        """Return the values for JSON."""
        values = attributes(self, "name", "x", "y", "texts", "labels", "is_reference", "chosen")
        if self.starts:
            values |= attributes(self, "starts", "marks")
        if self.band:
            values |= {**attributes(self, "low", "high"), "outline": self.outline}
        return values


@dataclass(frozen=True)
class Chart:
    """One picture: series under a title, with the units in the labels of the axes.

    `key` is short and stays, `setting` says what the numbers are of (net, device, batch, ...),
    `notes` what a reader must know. An axis is logarithmic where `log_x`, `log_y` say so. `x` of
    bars are the names of categories, drawn from top to bottom; the last one is the sum of `others`
    that have no bar of their own, if there are any.
    """

    key: str
    kind: str
    title: str
    setting: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    log_x: bool = False
    log_y: bool = False
    notes: tuple[str, ...] = ()
    others: int = 0

    def __post_init__(self) -> None:
        assert self.kind in KINDS

    @property
    def predictions(self) -> list[Series]:
        """The series that are no references."""
        return [series for series in self.series if not series.is_reference]

    @property
    def references(self) -> list[Series]:
        """The series that are."""
        return [series for series in self.series if series.is_reference]

    @property
    def is_empty(self) -> bool:
        """Tell whether there is nothing to draw but references: no value, or none but 0."""
        return not any(value for series in self.predictions for value in series.y)

    @functools.cached_property
    def others_scale(self) -> float:
        """What the bar of the `others` is to be drawn at, so that it does not dwarf the rest.

        It is 1, but where that bar would be far the longest: there it is broken off, and says so.
        """
        if not self.others:
            return 1.0
        columns = zip(*(series.y for series in self.predictions), strict=True)
        join = max if self.kind == "grouped" else sum
        *own, last = (join(value or 0.0 for value in values) for values in columns)
        most = _BEYOND * max(own, default=0.0)
        return most / last if last > most > 0 else 1.0

    @property
    def shaded(self) -> list[Series]:
        """The series whose bands are to be drawn: of many lines, only those to look at."""
        banded = [series for series in self.series if series.band]
        if self.kind not in OF_LINES or len(self.predictions) <= _BANDS:
            return banded
        return [series for series in banded if series.chosen]

    def checked(self) -> Chart:
        """Return the chart; raises SettingError if there is nothing to draw."""
        if self.is_empty:
            raise SettingError(f"plot: {self.title}: there is nothing to draw")
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return the values for JSON; `look` of a series is its number of `looks_of`."""
        numbers = looks_of(series.name for series in self.predictions)
        return {
            **attributes(self, "key", "kind", "title", "setting", "x_label", "y_label"),
            "series": [
                {
                    **series.to_dict(),
                    "look": numbers.get(series.name),
                    "is_shaded": series in self.shaded,
                }
                for series in self.series
            ],
            **attributes(self, "log_x", "log_y", "notes", "others", "others_scale"),
        }


#: The looks of what many charts show, wherever it stands in them; none twice in one chart.
_KNOWN = {
    "forward": 0,
    "computation": 0,
    "computation that hides communication": 5,
    "backward": 1,
    "update": 2,
    "exchange": 3,
    "communication": 3,
    "exposed communication": 3,
    "weights": 2,
    "outputs": 5,
    "activations": 5,
    "gradients": 4,
    "optimizer state": 3,
    "workspace": 6,
    "gradients of parameters": 4,
    "computed again": 4,
    "messages": 3,
    "exchange of gradients": 3,
    "waiting for others": 5,
}


def looks_of(names: Iterable[str]) -> dict[str, int]:
    """Return the numbers of the looks of series: well-known ones have their own, others the rest.

    Whatever else there is, weights look like weights.
    """
    several = list(dict.fromkeys(names))
    taken = {_KNOWN[name] for name in several if name in _KNOWN}
    free = (number for number in itertools.count() if number not in taken)
    return {name: _KNOWN[name] if name in _KNOWN else next(free) for name in several}


def unit_shown(unit: str) -> str:
    """Return a unit as pictures and pages write it, where tables of text keep to ASCII."""
    return _MICRO + unit[1:] if unit == "us" else unit


def in_one_unit(
    groups: Iterable[Sequence[float | None]],
    dimension: str,
    *,
    by_largest: bool = False,
    others: int = 0,
) -> tuple[Scale, list[tuple[float | None, ...]]]:
    """Return the unit that suits all these values in SI units, and the values in it.

    `dimension` is one of paleo.core.units, such as "s" or "bytes". With `by_largest` it is the
    largest of which the largest value is one or more: small ones are short bars in any unit. Where
    there are `others`, their sums, which are last, do not count.
    """
    known = [list(group) for group in groups]
    alone = [group[:-1] if others else group for group in known]
    sized = [[v for v in group if v is not None] for group in alone]
    if by_largest:
        # A unit suits what is a tenth of it, too.
        sized = [[max((abs(v) for group in sized for v in group), default=0.0) / 10]]
    scale = scale_for(sized, dimension)
    scale = Scale(scale.factor, unit_shown(scale.unit), scale.least)
    return scale, [
        tuple(None if value is None else value / scale.factor for value in group) for group in known
    ]


def bars(
    names: Iterable[str],
    columns: Mapping[str, Sequence[float | None]],
    dimension: str,
    label: str,
    references: Collection[str] = (),
    by: Sequence[float] | None = None,
    notes: Iterable[str] = (),
    bands: Mapping[str, tuple[Sequence[float | None], ...]] | None = None,
    **chart: Any,
) -> Chart:
    """Return a chart of the categories `names`: SI units by series, shown in that of the largest.

    `label` says what they are of, `references` are the series that are no predictions, `by` ranks
    the categories, of which `summed` leaves as many as there is room for, `bands` are the low and
    the high ends of series that are not summed, `chart` is what else a Chart has.
    """
    categories = tuple(names)
    beside = len(columns) - len(references) if chart.get("kind") == "grouped" else 1
    said = {"beside": beside, "title": chart["title"], "what": chart["x_label"]}
    categories, columns, others, note = summed(categories, columns, by, **said)
    scale, scaled = in_one_unit(columns.values(), dimension, by_largest=True, others=others)

    def ends(name: str) -> Iterable[tuple[float | None, ...]]:
        for part in (bands or {}).get(name, ()):
            yield tuple(end and end / scale.factor for end in part[: len(categories)])

    series = tuple(
        Series(name, categories, own, (), name in references, "", *ends(name))
        for name, own in zip(columns, scaled, strict=True)
    )
    known: dict[str, Any] = {"kind": "bars", "others": others, "notes": (*notes, *note)}
    return Chart(series=series, y_label=f"{label} ({scale.unit})", **known | chart)


class Rows(NamedTuple):
    """Categories of bars and their columns, how many `others` the last one is, and what to say."""

    names: tuple[str, ...]
    columns: Mapping[str, Sequence[float | None]]
    others: int = 0
    notes: tuple[str, ...] = ()


def summed(
    names: Sequence[str],
    columns: Mapping[str, Sequence[float | None]],
    by: Sequence[float] | None = None,
    *,
    beside: int,
    title: str,
    what: str,
) -> Rows:
    """Return the categories of which there are MOST_BARS bars, `beside` each other in each.

    Of more layers, those that rank highest in `by` (None: in their largest value, or their sum)
    have bars of their own, in the order in which they stand; the rest is the last category, their
    sum. Other things do not add up: the first ones are left.
    """
    most = max(_LEAST_ROWS, MOST_BARS // max(1, beside))
    if len(names) <= most:
        return Rows(tuple(names), columns)
    if what != _SUMMED:
        first = {name: own[:most] for name, own in columns.items()}
        note = f"{title}: the first {most} of {len(names):,} {what}s are shown"
        return Rows(tuple(names[:most]), first, 0, (note,))
    join = max if beside > 1 else sum
    values = list(zip(*columns.values(), strict=True))
    ranks = by or [join(value or 0.0 for value in row) for row in values]
    order = sorted(range(len(names)), key=lambda i: (-ranks[i], i))
    kept, rest = sorted(order[: most - 1]), order[most - 1 :]
    found: dict[str, Sequence[float | None]] = {}
    for name, own in columns.items():
        known = [value for i in rest if (value := own[i]) is not None]
        found[name] = [*(own[i] for i in kept), math.fsum(known) if known else None]
    note = (
        f"{title}: {len(kept)} of {len(names):,} {what}s have bars of their own, the {len(rest):,} "
        "others are summed in the last one"
    )
    return Rows((*(names[i] for i in kept), f"{len(rest):,} others"), found, len(rest), (note,))


def against(series: Sequence[Series], unit: str, by: str = "", **chart: Any) -> Chart:
    """Return predicted over measured times in this unit; `by` says what predicts.

    The names of the series get the number of their points. The reference is where both are the
    same. `chart` is what else a Chart has.
    """
    every = [value for each in series for value in (*each.x, *each.y)]
    ends = (min(every) / _MARGIN, max(every) * _MARGIN) if every else ()
    counted = [replace(each, name=f"{each.name} ({len(each.x):,})") for each in series]
    drawn = (*counted, Series("predicted as measured", ends, ends, is_reference=True))
    chart |= {"x_label": f"measured ({unit})", "y_label": f"predicted{by} ({unit})"}
    return Chart(kind="points", series=drawn, log_x=True, log_y=True, **chart)


def is_wide(columns: Iterable[Iterable[float | None]]) -> bool:
    """Tell whether these values are so far apart that an axis of them is to be logarithmic."""
    known = [value for own in columns for value in own if value]
    return bool(known) and min(known) > 0 and max(known) >= _WIDE * min(known)


def drawable(charts: Iterable[Chart]) -> tuple[Chart, ...]:
    """Return the charts that have something to draw; raises SettingError if there is none."""
    every = list(charts)
    found = tuple(chart for chart in every if not chart.is_empty)
    if not found:
        if every:
            every[0].checked()
        raise SettingError("plot: there is nothing to draw")
    return found
