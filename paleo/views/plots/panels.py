"""One chart in a picture: its axes, what is drawn in them, how much room its texts take.

Lengths are in inches. A panel is made in two steps: it says how large it is to be, and draws itself
into the axes that it is given, so that nothing overlaps.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from paleo.views.charts.base import Chart, Series
from paleo.views.plots.axis import Axis, Ticks
from paleo.views.plots.style import (
    GRID,
    LABEL_SIZE,
    QUIET,
    REFERENCE,
    SMALL_SIZE,
    SOLID,
    Look,
    part,
)
from paleo.views.plots.texts import POINTS, Box, Ruler

#: Between an axis and the texts beside it.
PAD = 0.07
#: Ticks are so long.
TICK = 0.05
#: The dashes of references, which are thinner than series, grey, and have no markers.
REFERENCE_DASHES: tuple[tuple[int, tuple[float, ...]], ...] = ((0, ()), (0, (4, 1.5)), (0, (1, 1)))
#: Markers of a line stand so far apart, from left to right.
_MARKERS_APART = 0.12
#: Between a name, and points and references.
_CLEAR = 0.02
#: How references of curves are drawn.
_MARKED = {
    "color": GRID, "linewidth": 7, "marker": "o", "markersize": 11, "markeredgewidth": 0,
    "solid_capstyle": "round",
}  # fmt: skip


class Panel(ABC):
    """A chart, drawn with the looks of its series; `width` of it is what the axes take."""

    axes_width: ClassVar[float]
    #: Whether it stands in a row of its own.
    is_wide: ClassVar[bool] = False

    def __init__(self, chart: Chart, looks: Mapping[str, Look], ruler: Ruler, width: float) -> None:
        self.chart, self.looks, self.ruler = chart, looks, ruler
        self.series, self.references = chart.predictions, chart.references
        self.width = width
        self.prepare()
        self.stretch(self.heights[1])

    def stretch(self, height: float) -> None:
        """Make the axes as high, or as near to it as suits them."""
        least, _, most = self.heights
        self.height = max(least, min(height, most))
        self.fit(self.height)

    @abstractmethod
    def prepare(self) -> None:
        """Choose the axes, and `heights`."""

    @abstractmethod
    def fit(self, height: float) -> None:
        """Choose ticks for axes of this height."""

    @abstractmethod
    def fill(self, axes: Any) -> None:
        """Draw the series."""

    #: The least height of the axes, that which suits, and the most.
    heights: tuple[float, float, float]
    height: float
    x: Axis
    bottom: Ticks
    left_ticks: Ticks
    left_size: float = LABEL_SIZE
    left_label: str
    bottom_label: str

    @property
    def left(self) -> float:
        """What stands on the left of the axes."""
        label = self.ruler.height(LABEL_SIZE) + PAD if self.left_label else 0.0
        return self.ruler.widest(self.left_ticks.texts, self.left_size) + TICK + 2 * PAD + label

    @property
    def right(self) -> float:
        """What stands out on the right: half of the last number."""
        return self.ruler.widest(self.bottom.texts[-1:], LABEL_SIZE) / 2 + PAD

    @property
    def top(self) -> float:
        """What stands above the axes."""
        return PAD

    @property
    def below(self) -> float:
        """What stands below the axes."""
        lines = 1 + len(self._below_lines)
        return TICK + 2 * PAD + self.ruler.height(LABEL_SIZE, lines)

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
            [], [], color=REFERENCE, linewidth=1.2, linestyle=dash_of(number)
        )

    def draw(self, axes: Any) -> None:
        """Draw everything into axes that have their place already."""
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(length=TICK * 72, pad=PAD * 72 / 2)
        axes.set_xscale("log" if self.x.is_log else "linear")
        axes.set_xlim(self.x.low, self.x.high)
        self.fill(axes)
        axes.set_yticks(self.left_ticks.places, labels=self.left_ticks.texts)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_ticks([], minor=True)
        axes.set_xticks(self.bottom.places, labels=self.bottom.texts)
        size = axes.figure.get_size_inches()
        place = axes.get_position()
        left, bottom = place.x0 * size[0], place.y0 * size[1]
        figure = axes.figure
        figure.text(
            (left + self.width / 2) / size[0],
            (bottom - TICK - PAD - self.ruler.height(LABEL_SIZE)) / size[1],
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


def dash_of(number: int) -> tuple[int, tuple[float, ...]]:
    """Return the dashes of a reference."""
    return REFERENCE_DASHES[number % len(REFERENCE_DASHES)]


class _Plane(Panel):
    """Numbers over numbers."""

    heights = (2.6, 3.1, 3.8)

    def prepare(self) -> None:
        chart = self.chart
        every = [(x, y) for series in chart.series for x, y in _drawable(chart, series).values()]
        xs, ys = [float(x) for x, _ in every], [float(y) for _, y in every]
        corners = [corner for series in chart.shaded for corner in series.outline]
        xs += [x for x, _ in corners]
        ys += [y for _, y in corners]
        self.x = Axis.around(xs, chart.log_x)
        self.y = Axis.around(ys, chart.log_y, from_zero=True)
        own = xs if chart.kind == "lines" else ()
        self.bottom = self.x.ticks(self.ruler, LABEL_SIZE, self.width, own)
        self.left_label, self.bottom_label = chart.y_label, chart.x_label

    def fit(self, height: float) -> None:
        self.left_ticks = self.y.ticks(self.ruler, LABEL_SIZE, height, upright=True)

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
            dash = dash_of(number)
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


class Lines(_Plane):
    """Lines, of which the one to look at is the strongest: thick and without gaps."""

    axes_width = 3.7

    def _style(self, series: Series) -> dict[str, Any]:
        found = super()._style(series)
        dash = self.looks[series.name].dash
        chosen = next((each for each in self.series if each.chosen), None)
        if chosen is None:
            return {**found, "linestyle": dash, "linewidth": 1.4}
        if series.chosen:
            return {**found, "linestyle": SOLID, "linewidth": 3.0, "markersize": 6.5}
        if dash == SOLID:  # which the chosen one has for its own dashes
            dash = self.looks[chosen.name].dash
        thin = {"linestyle": dash, "linewidth": 1.1, "markersize": 4, "alpha": 0.8}
        return {**found, **thin}

    def fill(self, axes: Any) -> None:
        super().fill(axes)
        for series in self.chart.shaded:
            ends = sorted((float(series.x[i]), *own) for i, own in series.band.items())
            axes.fill_between(
                *zip(*ends, strict=True), color=self.looks[series.name].colour, alpha=0.15,
                linewidth=0, zorder=1.2,
            )  # fmt: skip
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


class Points(_Plane):
    """Points, the first of which are named where there is room."""

    axes_width = 4.6
    heights = (2.6, 3.8, 5.6)
    #: So many names at most, and so many points that are tried; one of those that are nearer than
    #: this to each other.
    names = 14
    tries = 60
    near = 0.03
    #: Whether a name that points of several series have is written at each.
    repeats = False
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

    @property
    def lines(self) -> list[Series]:
        """The series of which the points are joined."""
        return self.references

    def _at(self, x: float, y: float) -> tuple[float, float]:
        return self.x.share(x) * self.width, self.y.share(y) * self.height

    def _name(self, axes: Any) -> None:
        """Write names beside points, those that come first in their series, where there is room."""
        room = Box(0, 0, self.width, self.height)
        half = self._style(self.series[0])["markersize"] / 2 / POINTS + _CLEAR
        taken = [
            Box(x - half, y - half, x + half, y + half)
            for series in self.series
            for x, y in itertools.starmap(self._at, _drawable(self.chart, series).values())
        ]
        taken += self._roof()
        named: set[tuple[str, str]] = set()
        tried: list[tuple[float, float]] = []
        for series, name, x, y in self._named_points():
            key = (series if self.repeats else "", name)
            if len(named) == self.names or len(tried) == self.tries:
                break
            text = self.ruler.cut(name, SMALL_SIZE, 1.3)
            at = self._at(x, y)
            if key in named or not text or any(self._are_near(at, other) for other in tried):
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
                    taken.append(box._replace(left=box.left - PAD, right=box.right + PAD))
                    named.add(key)
                    break

    def _are_near(self, one: tuple[float, float], other: tuple[float, float]) -> bool:
        return max(abs(one[0] - other[0]), abs(one[1] - other[1])) < self.near

    def _named_points(self) -> list[tuple[str, str, float, float]]:
        """Return points with series and names: the first of each series, then the second, ..."""
        lists = [
            [
                (series.name, series.labels[i], x, y)
                for i, (x, y) in _drawable(self.chart, series).items()
                if series.labels
            ]
            for series in self.series
        ]
        turns = itertools.zip_longest(*lists)
        return [point for turn in turns for point in turn if point is not None]

    def _roof(self) -> list[Box]:
        """Return small boxes along the lines, where no name is to stand."""
        boxes = []
        for series in self.lines:
            places = itertools.starmap(self._at, _drawable(self.chart, series).values())
            for (x, y), (to_x, to_y) in itertools.pairwise(places):
                steps = 1 + round(max(abs(to_x - x), abs(to_y - y)) / _CLEAR)
                for i in range(steps + 1):
                    at_x, at_y = x + (to_x - x) * i / steps, y + (to_y - y) * i / steps
                    boxes.append(Box(at_x - _CLEAR, at_y - _CLEAR, at_x + _CLEAR, at_y + _CLEAR))
        return boxes


class Curves(Points):
    """Lines through named points in their order; points of references are marked below them."""

    heights = (2.8, 3.6, 4.6)
    names = tries = 40
    repeats = True

    def _style(self, series: Series) -> dict[str, Any]:
        found = {**super()._style(series), "linestyle": self.looks[series.name].dash}
        return {**found, "linewidth": 1.4}

    @property
    def lines(self) -> list[Series]:
        """All of them."""
        return [*self.references, *self.series]

    def reference_handle(self, number: int) -> Any:
        """Return a mark and a piece of line as wide as those that are drawn."""
        return part("lines").Line2D([], [], **_MARKED)

    def plot(self, axes: Any, series: Series, **style: Any) -> None:
        """Draw a line, with its band; a reference is wide and pale, so that others lie on it."""
        if series.is_reference:
            super().plot(axes, series, zorder=1.3, **_MARKED)
            return
        if series in self.chart.shaded:
            colour = self.looks[series.name].colour
            axes.fill(
                *zip(*series.outline, strict=True), color=colour, alpha=0.15, linewidth=0,
                zorder=1.2,
            )  # fmt: skip
        super().plot(axes, series, **style)


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
