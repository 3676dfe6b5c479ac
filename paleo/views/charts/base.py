"""What a picture shows, before anybody draws it: Matplotlib, a terminal or the page.

Values are in the unit that the chart names, chosen and scaled here, so that whoever draws does no
arithmetic.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from paleo.core.attributes import attributes
from paleo.core.errors import SettingError
from paleo.core.frozen import dataclass
from paleo.core.units import Scale, scale_for
from paleo.views.charts.numbers import shown

#: How the series of a chart are drawn: as lines over numbers, as points over numbers, or as bars of
#: categories, one series stacked on the other or, "grouped", beside it.
KINDS = ("lines", "points", "bars", "grouped")

#: How far the reference of predicted against measured goes on beyond the points.
_MARGIN = 1.5
_MICRO = "\u00b5"


@dataclass(frozen=True)
class Series:
    """One line, set of points or layer of bars: `y` over `x`, None where there is no value.

    `labels` are names of its points. A series that `is_reference` is no prediction of its own but
    something to hold others against, such as the ideal speedup or a roof. `chosen` says why it is
    the one to look at among its like, such as "the best on 128 workers"; "" if it is not.
    """

    name: str
    x: tuple[Any, ...]
    y: tuple[float | None, ...]
    labels: tuple[str, ...] = ()
    is_reference: bool = False
    chosen: str = ""

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
        return attributes(self, "name", "x", "y", "texts", "labels", "is_reference", "chosen")


@dataclass(frozen=True)
class Chart:
    """One picture: series under a title, with the units in the labels of the axes.

    `key` is short and stays, `setting` says what the numbers are of (net, device, batch, ...),
    `notes` what a reader must know. An axis is logarithmic where `log_x`, `log_y` say so. `x` of
    bars are the names of categories, drawn from top to bottom.
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
                {**series.to_dict(), "look": numbers.get(series.name)} for series in self.series
            ],
            **attributes(self, "log_x", "log_y", "notes"),
        }


#: The looks of what many charts show, wherever it stands in them; none twice in one chart.
_KNOWN = {
    "forward": 0,
    "computation": 0,
    "backward": 1,
    "update": 2,
    "exchange": 3,
    "communication": 3,
    "weights": 2,
    "outputs": 5,
    "activations": 5,
    "gradients": 4,
    "optimizer state": 3,
    "workspace": 6,
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
    groups: Iterable[Sequence[float | None]], dimension: str, *, by_largest: bool = False
) -> tuple[Scale, list[tuple[float | None, ...]]]:
    """Return the unit that suits all these values in SI units, and the values in it.

    `dimension` is one of paleo.core.units, such as "s" or "bytes". With `by_largest` it is the
    largest of which the largest value is one or more: small ones are short bars in any unit.
    """
    known = [list(group) for group in groups]
    sized = [[v for v in group if v is not None] for group in known]
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
    **chart: Any,
) -> Chart:
    """Return a chart of the categories `names`: SI units by series, shown in that of the largest.

    `label` says what they are of, `references` are the series that are no predictions, `chart` what
    else a Chart has.
    """
    scale, scaled = in_one_unit(columns.values(), dimension, by_largest=True)
    categories = tuple(names)
    series = tuple(
        Series(name, categories, own, is_reference=name in references)
        for name, own in zip(columns, scaled, strict=True)
    )
    return Chart(series=series, y_label=f"{label} ({scale.unit})", **{"kind": "bars"} | chart)


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


def drawable(charts: Iterable[Chart]) -> tuple[Chart, ...]:
    """Return the charts that have something to draw; raises SettingError if there is none."""
    every = list(charts)
    found = tuple(chart for chart in every if not chart.is_empty)
    if not found:
        if every:
            every[0].checked()
        raise SettingError("plot: there is nothing to draw")
    return found
