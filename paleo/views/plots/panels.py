"""One chart in a picture: its axes, what is drawn in them, how much room its texts take.

Lengths are in inches. A panel is made in two steps: it says how large it is to be, and draws itself
into the axes that it is given, so that nothing overlaps.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from paleo.views.charts.base import Chart, Series
from paleo.views.charts.numbers import plain, shown
from paleo.views.plots.axis import Axis, Ticks
from paleo.views.plots.style import DARK, GRID, LABEL_SIZE, QUIET, REFERENCE, SMALL_SIZE, Look, part
from paleo.views.plots.texts import Box, Ruler

#: Between an axis and the texts beside it.
_PAD = 0.07
#: Ticks are so long.
_TICK = 0.05
#: The dashes of references, which are thinner than series, grey, and have no markers.
REFERENCE_DASHES: tuple[tuple[int, tuple[float, ...]], ...] = ((0, ()), (0, (4, 1.5)), (0, (1, 1)))
#: Markers of a line stand so far apart, from left to right.
_MARKERS_APART = 0.12
#: Of many bars, only those that are at least this share of the longest are named.
_SEEN = 0.01
#: Beside bars, values below about this share of the axis are said to be below a power of ten.
_LEAST_VALUE = 1e-4
#: The widest names of categories.
_NAMES = 2.4


class Panel(ABC):
    """A chart, drawn with the looks of its series; `width` of it is what the axes take."""

    axes_width: ClassVar[float]

    def __init__(self, chart: Chart, looks: Mapping[str, Look], ruler: Ruler, width: float) -> None:
        self.chart, self.looks, self.ruler = chart, looks, ruler
        self.series, self.references = chart.predictions, chart.references
        self.width = width
        self.prepare()

    @abstractmethod
    def prepare(self) -> None:
        """Choose axes, ticks and `height`, which is that of the axes alone."""

    @abstractmethod
    def fill(self, axes: Any) -> None:
        """Draw the series."""

    height: float
    x: Axis
    bottom: Ticks
    left_ticks: Ticks
    left_size: float = LABEL_SIZE
    left_label: str
    bottom_label: str
    #: Whether the numbers below stand above, too.
    is_tall = False

    @property
    def note(self) -> str:
        """What a reader must know of how it is drawn; "" for nothing."""
        return ""

    @property
    def left(self) -> float:
        """What stands on the left of the axes."""
        label = self.ruler.height(LABEL_SIZE) + _PAD if self.left_label else 0.0
        return self.ruler.widest(self.left_ticks.texts, self.left_size) + _TICK + 2 * _PAD + label

    @property
    def right(self) -> float:
        """What stands out on the right: half of the last number."""
        return self.ruler.widest(self.bottom.texts[-1:], LABEL_SIZE) / 2 + _PAD

    @property
    def top(self) -> float:
        """What stands above the axes."""
        return _TICK + _PAD + self.ruler.height(LABEL_SIZE) if self.is_tall else _PAD

    @property
    def below(self) -> float:
        """What stands below the axes."""
        lines = 1 + len(self._below_lines)
        return _TICK + 2 * _PAD + self.ruler.height(LABEL_SIZE, lines)

    @property
    def _below_lines(self) -> list[str]:
        return self.ruler.wrapped(self.bottom_label, LABEL_SIZE, self.width)

    @property
    def entries(self) -> list[tuple[str, Any]]:
        """The names and handles of a legend; none where the axes say it all."""
        drawn = [(series.title, self.handle(series)) for series in self.series]
        lines = [
            (series.name, self.reference_handle(number))
            for number, series in enumerate(self.references)
        ]
        return [*drawn, *lines] if len(drawn) + len(lines) > 1 else []

    @abstractmethod
    def handle(self, series: Series) -> Any:
        """Return what shows the look of a series in a legend."""

    def reference_handle(self, number: int) -> Any:
        """Return the same of a reference."""
        return part("lines").Line2D(
            [], [], color=REFERENCE, linewidth=1.2, linestyle=_dash_of(number)
        )

    def draw(self, axes: Any) -> None:
        """Draw everything into axes that have their place already."""
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(length=_TICK * 72, pad=_PAD * 72 / 2)
        axes.set_xscale("log" if self.x.is_log else "linear")
        axes.set_xlim(self.x.low, self.x.high)
        self.fill(axes)
        axes.set_yticks(self.left_ticks.places, labels=self.left_ticks.texts)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_ticks([], minor=True)
        axes.set_xticks(self.bottom.places, labels=self.bottom.texts)
        if self.is_tall:
            axes.tick_params(top=True, labeltop=True)
        size = axes.figure.get_size_inches()
        place = axes.get_position()
        left, bottom = place.x0 * size[0], place.y0 * size[1]
        figure = axes.figure
        figure.text(
            (left + self.width / 2) / size[0],
            (bottom - _TICK - _PAD - self.ruler.height(LABEL_SIZE)) / size[1],
            "\n".join(self._below_lines),
            ha="center", va="top", size=LABEL_SIZE,
        )  # fmt: skip
        if self.left_label:
            figure.text(
                (left - self.left) / size[0],
                (bottom + self.height / 2) / size[1],
                self.ruler.cut(self.left_label, LABEL_SIZE, self.height),
                ha="left", va="center", rotation="vertical", size=LABEL_SIZE,
            )  # fmt: skip


def _dash_of(number: int) -> tuple[int, tuple[float, ...]]:
    return REFERENCE_DASHES[number % len(REFERENCE_DASHES)]


class _Plane(Panel):
    """Numbers over numbers."""

    axes_height = 3.1

    def prepare(self) -> None:
        chart = self.chart
        every = [(x, y) for series in chart.series for x, y in _drawable(chart, series).values()]
        xs, ys = [float(x) for x, _ in every], [float(y) for _, y in every]
        self.x = Axis.around(xs, chart.log_x)
        self.y = Axis.around(ys, chart.log_y, from_zero=True)
        self.height = self.axes_height
        own = xs if chart.kind == "lines" else ()
        self.bottom = self.x.ticks(self.ruler, LABEL_SIZE, self.width, own)
        self.left_ticks = self.y.ticks(self.ruler, LABEL_SIZE, self.height, upright=True)
        self.left_label, self.bottom_label = chart.y_label, chart.x_label

    def handle(self, series: Series) -> Any:
        return part("lines").Line2D([], [], **self._style(series))

    def _style(self, series: Series) -> dict[str, Any]:
        look = self.looks[series.name]
        return {
            "color": look.colour,
            "marker": look.marker,
            "markersize": 5,
            "markeredgecolor": "white",
            "markeredgewidth": 0.5,
        }

    def fill(self, axes: Any) -> None:
        axes.set_yscale("log" if self.y.is_log else "linear")
        axes.set_ylim(self.y.low, self.y.high)
        axes.grid(color=GRID, linewidth=0.6)
        for number, series in enumerate(self.references):
            dash = _dash_of(number)
            self.plot(axes, series, color=REFERENCE, linewidth=1.2, linestyle=dash, zorder=1.5)

    def plot(self, axes: Any, series: Series, **style: Any) -> None:
        """Draw the points of a series that the axes can show."""
        points = _drawable(self.chart, series).values()
        axes.plot([x for x, _ in points], [y for _, y in points], **style)


def _drawable(chart: Chart, series: Series) -> dict[int, tuple[float, float]]:
    """Return the points that the axes can show, under their places in the series."""
    return {
        i: (x, y)
        for i, (x, y) in enumerate(zip(series.x, series.y, strict=True))
        if y is not None and (y > 0 or not chart.log_y) and (x > 0 or not chart.log_x)
    }


class _Lines(_Plane):
    axes_width = 3.7

    def _style(self, series: Series) -> dict[str, Any]:
        width = 2.4 if series.chosen else 1.4
        dash = self.looks[series.name].dash
        return {**super()._style(series), "linestyle": dash, "linewidth": width}

    def fill(self, axes: Any) -> None:
        super().fill(axes)
        for series in self.series:
            points = _drawable(self.chart, series)
            gap = (float("nan"),) * 2
            order = sorted(range(len(series.x)), key=lambda i: float(series.x[i]))
            places = [float(series.x[i]) for i in order]
            axes.plot(
                places, [points.get(i, gap)[1] for i in order],
                zorder=3 if series.chosen else 2, clip_on=False,
                markevery=self._marked([points[i][0] if i in points else None for i in order]),
                **self._style(series),
            )  # fmt: skip

    def _marked(self, places: Sequence[float | None]) -> list[int]:
        """Return which points have a marker: closer ones would hide lines, and one another."""
        found, free = [], -self.width
        for i, place in enumerate(places):
            if place is not None and (at := self.x.share(place) * self.width) >= free:
                found.append(i)
                free = at + _MARKERS_APART
        return found


class _Points(_Plane):
    axes_width = 4.6
    axes_height = 3.8
    #: So many names at most, and so many points that are tried; one of those that are nearer than
    #: this to each other.
    names = 14
    tries = 60
    near = 0.03
    #: From this number of points of all series on they are smaller, so that fewer are hidden.
    many = 100

    def _style(self, series: Series) -> dict[str, Any]:
        count = sum(len(own.x) for own in self.series)
        size, edge = (5.5, 0.5) if count < self.many else (3.5, 0.25)
        found = {**super()._style(series), "linestyle": "none"}
        return {**found, "markersize": size, "markeredgewidth": edge}

    def fill(self, axes: Any) -> None:
        super().fill(axes)
        for series in self.series:
            self.plot(axes, series, zorder=2, **self._style(series))
        self._name(axes)

    def _at(self, x: float, y: float) -> tuple[float, float]:
        return self.x.share(x) * self.width, self.y.share(y) * self.height

    def _name(self, axes: Any) -> None:
        """Write names beside points, those that come first in their series, where there is room."""
        room = Box(0, 0, self.width, self.height)
        taken = [
            Box(x - 0.03, y - 0.03, x + 0.03, y + 0.03)
            for series in self.series
            for x, y in itertools.starmap(self._at, _drawable(self.chart, series).values())
        ]
        taken += self._roof()
        named: set[str] = set()
        tried: list[tuple[float, float]] = []
        for name, x, y in self._named_points():
            if len(named) == self.names or len(tried) == self.tries:
                break
            text = self.ruler.cut(name, SMALL_SIZE, 1.3)
            at = self._at(x, y)
            if name in named or not text or any(self._are_near(at, other) for other in tried):
                continue
            tried.append(at)
            wide, high = self.ruler.width(text, SMALL_SIZE), self.ruler.height(SMALL_SIZE)
            for box in _beside(*at, wide, high):
                if box.within(room) and not any(map(box.meets, taken)):
                    axes.text(
                        box.left / self.width, (box.bottom + box.top) / 2 / self.height, text,
                        transform=axes.transAxes, size=SMALL_SIZE, ha="left", va="center_baseline",
                        color=QUIET,
                    )  # fmt: skip
                    taken.append(box._replace(left=box.left - _PAD, right=box.right + _PAD))
                    named.add(name)
                    break

    def _are_near(self, one: tuple[float, float], other: tuple[float, float]) -> bool:
        return max(abs(one[0] - other[0]), abs(one[1] - other[1])) < self.near

    def _named_points(self) -> list[tuple[str, float, float]]:
        """Return points with names: the first of each series, then the second, ..."""
        lists = [
            [
                (series.labels[i], x, y)
                for i, (x, y) in _drawable(self.chart, series).items()
                if series.labels
            ]
            for series in self.series
        ]
        turns = itertools.zip_longest(*lists)
        return [point for turn in turns for point in turn if point is not None]

    def _roof(self) -> list[Box]:
        """Return small boxes along the references, where no name is to stand."""
        boxes = []
        for series in self.references:
            places = itertools.starmap(self._at, _drawable(self.chart, series).values())
            for (x, y), (to_x, to_y) in itertools.pairwise(places):
                steps = 80
                for i in range(steps + 1):
                    at_x, at_y = x + (to_x - x) * i / steps, y + (to_y - y) * i / steps
                    boxes.append(Box(at_x - 0.02, at_y - 0.02, at_x + 0.02, at_y + 0.02))
        return boxes


def _beside(x: float, y: float, wide: float, high: float) -> list[Box]:
    """Return the places for a name around a point, the best first."""
    gap = 0.06
    corners = [
        (x + gap, y - high / 2),
        (x - gap - wide, y - high / 2),
        (x - wide / 2, y + gap),
        (x - wide / 2, y - gap - high),
        (x + gap, y + gap / 2),
        (x + gap, y - gap / 2 - high),
        (x - gap - wide, y + gap / 2),
        (x - gap - wide, y - gap / 2 - high),
    ]
    return [Box(left, low, left + wide, low + high) for left, low in corners]


class _Bars(Panel):
    """Bars of categories from top to bottom, stacked, or side by side where they are grouped."""

    axes_width = 4.2
    #: Inches of a bar and what is between two: as is comfortable, the least that leaves room for a
    #: name, and the most for all of them.
    _row, _least_row, _most = 0.24, 0.135, 22.0
    #: From this height on, the numbers stand above, too.
    _tall = 8.0
    #: Up to so many values stand beside grouped bars.
    _values = 30

    def prepare(self) -> None:
        chart, series = self.chart, self.series
        self.names = [str(name) for name in (series or self.references)[0].x]
        count = max(1, len(self.names))
        beside = len(series) if chart.kind == "grouped" else 1
        comfortable = max(self._row, 0.11 * beside + 0.06)
        least = max(self._least_row, 0.055 * beside)
        row = comfortable if count * comfortable <= self._tall else least
        self.height = min(self._most, max(0.55, count * row))
        self.left_size = LABEL_SIZE if row == comfortable else SMALL_SIZE
        self.is_tall = self.height >= self._tall
        self.stacks = self._stacked()
        ends = [end for own in self.stacks for start, end in own]
        ends += [value for each in self.references for value in each.y if value is not None]
        self.x = Axis.around(ends, chart.log_y, from_zero=True)
        self.values = self._value_texts()
        if self.values:  # room for the numbers at the ends of bars
            wide = self.ruler.widest(self.values, SMALL_SIZE) + 2 * _PAD
            longer = 1 / max(0.4, 1 - wide / self.width)
            self.x = Axis(self.x.low, self.x.low + (self.x.high - self.x.low) * longer, False)
        self.bottom = self.x.ticks(self.ruler, LABEL_SIZE, self.width)
        places = self._labelled()
        texts = [self.ruler.cut(self.names[i], self.left_size, _NAMES) for i in places]
        self.left_ticks = Ticks(places, texts)
        label = chart.x_label if self.height > self.ruler.width(chart.x_label, LABEL_SIZE) else ""
        self.left_label, self.bottom_label = label, chart.y_label

    def _stacked(self) -> list[list[tuple[float, float]]]:
        """Return from where to where the bars of each series go; what is below 0 goes left."""
        ups, downs = [0.0] * len(self.names), [0.0] * len(self.names)
        found = []
        for series in self.series:
            own = []
            for i, value in enumerate(series.y):
                size = float(value or 0)
                ends = ups if size >= 0 else downs
                start = 0.0 if self.chart.kind == "grouped" else ends[i]
                own.append((start, start + size))
                ends[i] = start + size
            found.append(own)
        return found

    def _value_texts(self) -> list[str]:
        if self.chart.kind != "grouped" or self.x.is_log or self.x.low < 0:
            return []
        values = [value for series in self.series for value in series.y]
        if len(values) > self._values:
            return []
        # What is too short to be seen is no long number either.
        least = 10.0 ** math.floor(math.log10(_LEAST_VALUE * self.x.high))
        return [
            "" if value is None else f"<{plain(least)}" if 0 < value < least else shown(value)
            for value in values
        ]

    def _labelled(self) -> list[int]:
        """Return which bars have their name beside them: if not all, the longest.

        Bars that one cannot see do not fill the gaps.
        """
        count = len(self.names)
        row = self.height / max(1, count)
        rows = -(-self.ruler.height(self.left_size) // row) if row else 1
        if rows <= 1:
            return list(range(count))
        long = [max((abs(own[i][1]) for own in self.stacks), default=0.0) for i in range(count)]
        least = _SEEN * max(long)
        free = [size >= least for size in long]
        chosen = []
        for i in sorted(range(count), key=lambda i: (-long[i], i)):
            if free[i]:
                chosen.append(i)
                near = range(max(0, i - int(rows) + 1), min(count, i + int(rows)))
                for j in near:
                    free[j] = False
        return sorted(chosen)

    @property
    def note(self) -> str:
        named, every = len(self.left_ticks.places), len(self.names)
        return f"{self.chart.title} names {named:,} of {every:,} bars" if named < every else ""

    def handle(self, series: Series) -> Any:
        return part("patches").Rectangle((0, 0), 1, 1, **self._style(series))

    def _style(self, series: Series) -> dict[str, Any]:
        look = self.looks[series.name]
        return {
            "facecolor": look.colour,
            "hatch": look.hatch,
            "edgecolor": "white" if look.colour == "#000000" else DARK,
            "linewidth": 0.4,
        }

    def fill(self, axes: Any) -> None:
        count, series = len(self.names), self.series
        axes.set_ylim(count - 0.5, -0.5)
        axes.grid(axis="x", color=GRID, linewidth=0.6)
        axes.tick_params(axis="y", labelsize=self.left_size, length=0)
        grouped = self.chart.kind == "grouped"
        thick = 0.8 / max(1, len(series)) if grouped else 0.8
        texts = iter(self.values)
        for number, (each, stack) in enumerate(zip(series, self.stacks, strict=True)):
            shift = (number - (len(series) - 1) / 2) * thick if grouped else 0.0
            drawn = [i for i, (start, end) in enumerate(stack) if start != end]
            style = self._style(each)
            row = self.height / max(1, count) * thick
            if row < 0.045:
                style |= {"linewidth": 0}
            axes.barh(
                [i + shift for i in drawn], [stack[i][1] - stack[i][0] for i in drawn],
                left=[stack[i][0] for i in drawn] if not self.x.is_log else None,
                height=thick, **style,
            )  # fmt: skip
            for i, (_, end) in enumerate(stack):
                text = next(texts, "")
                if text:
                    axes.annotate(
                        text, (max(end, 0.0), i + shift), (_PAD * 72 / 2, 0),
                        textcoords="offset points", size=SMALL_SIZE, va="center_baseline",
                        color=QUIET,
                    )  # fmt: skip
        if self.x.low < 0:
            axes.axvline(0, color=QUIET, linewidth=0.8)
        for number, each in enumerate(self.references):
            at = [(i, value) for i, value in enumerate(each.y) if value is not None]
            ends = [i - 0.46 for i, _ in at], [i + 0.46 for i, _ in at]
            for colour, wide, dash in (("white", 3.4, "solid"), (DARK, 1.6, _dash_of(number))):
                axes.vlines(
                    [value for _, value in at], *ends, color=colour, linewidth=wide,
                    linestyle=dash, zorder=3,
                )  # fmt: skip

    def reference_handle(self, number: int) -> Any:
        return part("lines").Line2D([], [], color=DARK, linewidth=1.6, linestyle=_dash_of(number))


_KINDS: dict[str, type[Panel]] = {
    "lines": _Lines,
    "points": _Points,
    "bars": _Bars,
    "grouped": _Bars,
}


def panel_of(chart: Chart, looks: Mapping[str, Look], ruler: Ruler, widen: float = 1.0) -> Panel:
    """Return the panel of a chart, its axes `widen` times as wide as usual."""
    kind = _KINDS[chart.kind]
    return kind(chart, looks, ruler, kind.axes_width * widen)
