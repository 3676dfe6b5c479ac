"""A schedule in a picture: rows of bars over time."""

from __future__ import annotations

import statistics
from typing import Any

from paleo.views.charts.base import Series
from paleo.views.plots.axis import Axis, Ticks
from paleo.views.plots.panels import PAD, Panel
from paleo.views.plots.style import DARK, GRID, LABEL_SIZE, SMALL_SIZE, part

#: How thick bars are, of their row, and inches of a row: the least, as suits, and the most.
_THICK = 0.86
_ROWS = (0.1, 0.28, 0.4)
#: Rows are lower where there are so many, so that a picture is no longer than a page.
_MOST = 6.0
#: Inches of bars in the middle below which hatches and edges would hide them.
_NARROW = 0.12


class Turns(Panel):
    """Bars that begin anywhere, in the rows of their categories, with marks where there is room."""

    axes_width = 9.4
    is_wide = True

    def prepare(self) -> None:
        self.rows = list(dict.fromkeys(str(name) for each in self.series for name in each.x))
        ends = [
            start + (length or 0.0)
            for each in self.series
            for start, length in zip(each.starts, each.y, strict=True)
        ]
        self.x = Axis(0.0, max(ends), False)
        least, suits, most = (len(self.rows) * row for row in _ROWS)
        self.heights = least, max(least, min(suits, _MOST)), most
        lengths = [length or 0.0 for each in self.series for length in each.y]
        self.are_narrow = self.width * statistics.median(lengths) / self.x.high < _NARROW
        self.bottom = self.x.ticks(self.ruler, LABEL_SIZE, self.width)
        self.bottom_label, self.left_label = self.chart.y_label, self.chart.x_label

    def fit(self, height: float) -> None:
        row = height / len(self.rows)
        self.left_size = LABEL_SIZE if row >= self.ruler.height(LABEL_SIZE) else SMALL_SIZE
        every = 1 + int(self.ruler.height(self.left_size) / row)
        places = range(0, len(self.rows), every)
        self.left_ticks = Ticks(places, [self.rows[place] for place in places])

    def handle(self, series: Series) -> Any:
        return part("patches").Rectangle((0, 0), 1, 1, **self._style(series))

    def _style(self, series: Series) -> dict[str, Any]:
        look = self.looks[series.name]
        if self.are_narrow:
            return {"facecolor": look.colour, "edgecolor": look.colour, "linewidth": 0.4}
        return {
            "facecolor": look.colour, "hatch": look.hatch, "edgecolor": DARK, "linewidth": 0.3
        }  # fmt: skip

    def fill(self, axes: Any) -> None:
        """Draw the bars of each series, and what is marked in those that are long enough."""
        axes.set_ylim(len(self.rows) - 0.5, -0.5)
        axes.grid(axis="x", color=GRID, linewidth=0.6)
        places = {name: i for i, name in enumerate(self.rows)}
        row = self.height / len(self.rows)
        for series in self.series:
            bars: dict[int, list[tuple[float, float]]] = {}
            for name, start, length in zip(series.x, series.starts, series.y, strict=True):
                place = places[str(name)]
                bars.setdefault(place, []).append((start, length or 0.0))
            for place, own in bars.items():
                how = self._style(series)
                axes.broken_barh(own, (place - _THICK / 2, _THICK), zorder=2, **how)
            if row >= self.ruler.height(SMALL_SIZE):
                self._mark(axes, series, places)

    def _mark(self, axes: Any, series: Series, places: dict[str, int]) -> None:
        for name, start, length, mark in zip(
            series.x, series.starts, series.y, series.marks, strict=True
        ):
            wide = self.width * (length or 0.0) / self.x.high
            if mark and self.ruler.width(mark, SMALL_SIZE) + PAD <= wide:
                axes.text(
                    start + (length or 0.0) / 2, places[str(name)], mark, size=SMALL_SIZE,
                    ha="center", va="center_baseline", color=DARK, zorder=3,
                    bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.85},
                )  # fmt: skip
