"""Bars in a picture: of categories from top to bottom, or upright over numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from paleo.views.charts.base import Chart, Series
from paleo.views.charts.numbers import plain, shown
from paleo.views.plots.axis import Axis, Ticks
from paleo.views.plots.panels import PAD, Panel, dash_of
from paleo.views.plots.style import DARK, GRID, LABEL_SIZE, QUIET, SMALL_SIZE, part
from paleo.views.plots.texts import POINTS, apart

#: Beside bars, values below about this share of the axis are said to be below a power of ten.
_LEAST_VALUE = 1e-4
#: The widest names of categories.
_NAMES = 2.4
#: How thick bars are, of the room that they have.
_THICK = 0.8
#: How far the gap of a bar that is broken off leans, as a share of the longest, and its points.
_SLANT, _GAP = 0.012, 4
#: The width of whiskers, and how long their ends are, in points.
_WHISKER, _CAP = 1.2, 2.5


def _stacked(chart: Chart) -> list[list[tuple[float, float]]]:
    """Return from where to where the bars of each series go; what is below 0 goes the other way.

    The sum of others is as long as it is drawn.
    """
    series, scale = chart.predictions, chart.others_scale
    count = len(chart.series[0].x)
    ups, downs = [0.0] * count, [0.0] * count
    found = []
    for each in series:
        own = []
        for i, value in enumerate(each.y):
            size = float(value or 0) * (scale if i == count - 1 else 1)
            ends = ups if size >= 0 else downs
            start = 0.0 if chart.kind == "grouped" else ends[i]
            own.append((start, start + size))
            ends[i] = start + size
        found.append(own)
    return found


class _AnyBars(Panel):
    """What bars have in common, whichever way they go."""

    def prepare(self) -> None:
        self.names = [str(name) for name in self.chart.series[0].x]
        self.stacks = _stacked(self.chart)
        ends = [end for own in self.stacks for _, end in own]
        ends += [value for each in self.references for value in each.y if value is not None]
        ends += [end for each in self.chart.shaded for own in each.band.values() for end in own]
        self.values = Axis.around(ends, self.chart.log_y, from_zero=True)

    def handle(self, series: Series) -> Any:
        return part("patches").Rectangle((0, 0), 1, 1, **self._style(series))

    def reference_handle(self, number: int) -> Any:
        return part("lines").Line2D([], [], color=DARK, linewidth=1.6, linestyle=dash_of(number))

    def _style(self, series: Series) -> dict[str, Any]:
        look = self.looks[series.name]
        return {
            "facecolor": look.colour,
            "hatch": look.hatch,
            "edgecolor": "white" if look.colour == "#000000" else DARK,
            "linewidth": 0.4,
        }

    def _whiskers(self, axes: Any, series: Series, shift: float = 0.0) -> None:
        """Draw the bands of a series, over the places of its values."""
        is_upright = self.chart.kind == "columns"
        for i, (low, high) in series.band.items():
            value = series.y[i] or 0.0
            ends = [[max(0.0, value - low)], [max(0.0, high - value)]]
            place = (i, value) if is_upright else (value, i + shift)
            axes.errorbar(
                *place, **{"yerr" if is_upright else "xerr": ends}, fmt="none", ecolor=DARK,
                elinewidth=_WHISKER, capsize=_CAP, capthick=_WHISKER, zorder=3,
            )  # fmt: skip


class Bars(_AnyBars):
    """Bars of categories, stacked, or beside each other where they are grouped."""

    axes_width = 4.2
    #: Inches of a bar and what is between two: the least that leaves room for a name, as is
    #: comfortable, and the most.
    _rows = (0.135, 0.24, 0.5)
    #: The most inches of comfortable bars, and up to how many values stand beside grouped ones.
    _most, _most_values = 5.4, 30

    def prepare(self) -> None:
        super().prepare()
        beside = len(self.series) if self.chart.kind == "grouped" else 1
        least, comfortable, most = self._rows
        least, comfortable = max(least, 0.08 * beside), max(comfortable, 0.11 * beside + 0.06)
        count = max(1, len(self.names))
        row = max(least, min(comfortable, self._most / count))
        self.heights = count * row, max(0.55, count * row), max(0.55, count * max(row, most))
        self.left_size = LABEL_SIZE if row == comfortable else SMALL_SIZE
        self.texts = self._value_texts()
        low, high = self.values[:2]
        if wide := self.ruler.widest(self.texts.values(), SMALL_SIZE):  # room for them
            longer = 1 / max(0.4, 1 - (wide + 2 * PAD) / self.width)
            self.values = Axis(low, low + (high - low) * longer, False)
        self.x = self.values
        self.bottom = self.x.ticks(self.ruler, LABEL_SIZE, self.width)
        texts = [self.ruler.cut(name, self.left_size, _NAMES) for name in self.names]
        self.left_ticks = Ticks(range(len(texts)), texts)
        self.bottom_label = self.chart.y_label

    def fit(self, height: float) -> None:
        label = self.chart.x_label
        self.left_label = label if height > self.ruler.width(label, LABEL_SIZE) else ""

    def _value_texts(self) -> dict[tuple[int, int], str]:
        """Return what stands at the ends of bars, by the numbers of series and category.

        That is few values of groups, and what is broken off.
        """
        if self.x_is_plain and self.chart.kind == "grouped":
            count = len(self.series) * len(self.names)
            least = 10.0 ** math.floor(math.log10(_LEAST_VALUE * self.values.high))
            return {
                (number, i): f"<{plain(least)}" if 0 < value < least else shown(value)
                for number, each in enumerate(self.series)
                for i, value in enumerate(each.y)
                if value is not None and (count <= self._most_values or self._is_broken(i))
            }
        if not self._is_broken(last := len(self.names) - 1):
            return {}
        return {(len(self.series) - 1, last): shown(sum(each.y[-1] or 0.0 for each in self.series))}

    @property
    def x_is_plain(self) -> bool:
        """Whether values go from 0 to the right."""
        return not self.values.is_log and self.values.low >= 0

    def _is_broken(self, place: int) -> bool:
        return self.chart.others_scale < 1 and place == len(self.names) - 1

    def fill(self, axes: Any) -> None:
        count, series = len(self.names), self.series
        axes.set_ylim(count - 0.5, -0.5)
        axes.grid(axis="x", color=GRID, linewidth=0.6)
        axes.tick_params(axis="y", labelsize=self.left_size, length=0)
        grouped = self.chart.kind == "grouped"
        thick = _THICK / max(1, len(series)) if grouped else _THICK
        for number, (each, stack) in enumerate(zip(series, self.stacks, strict=True)):
            shift = (number - (len(series) - 1) / 2) * thick if grouped else 0.0
            drawn = [i for i, (start, end) in enumerate(stack) if start != end]
            axes.barh(
                [i + shift for i in drawn], [stack[i][1] - stack[i][0] for i in drawn],
                left=[stack[i][0] for i in drawn] if not self.x.is_log else None,
                height=thick, **self._style(each),
            )  # fmt: skip
            self._whiskers(axes, each, shift)
            for i, (_, end) in enumerate(stack):
                if text := self.texts.get((number, i)):
                    beyond = max(end, each.band.get(i, (0.0, 0.0))[1], 0.0)
                    axes.annotate(
                        text, (beyond, i + shift), (PAD * POINTS / 2, 0),
                        textcoords="offset points", size=SMALL_SIZE, va="center_baseline",
                        color=QUIET,
                    )  # fmt: skip
        self._break(axes)
        if self.x.low < 0:
            axes.axvline(0, color=QUIET, linewidth=0.8)
        for number, each in enumerate(self.references):
            at = [(i, value) for i, value in enumerate(each.y) if value is not None]
            ends = [i - 0.46 for i, _ in at], [i + 0.46 for i, _ in at]
            for colour, wide, dash in (("white", 3.4, "solid"), (DARK, 1.6, dash_of(number))):
                axes.vlines(
                    [value for _, value in at], *ends, color=colour, linewidth=wide,
                    linestyle=dash, zorder=3,
                )  # fmt: skip
            self._whiskers(axes, each)

    def _break(self, axes: Any) -> None:
        """Draw a slanted gap through the bars of the others, where they are broken off."""
        last = len(self.names) - 1
        if not self._is_broken(last):
            return
        grouped = self.chart.kind == "grouped"
        ends = [stack[last][1] for stack in self.stacks]
        slant, count = _SLANT * max(ends), len(ends) if grouped else 1
        half = _THICK / count / 2
        for number, end in enumerate(ends if grouped else [max(ends)]):
            at, place = end - 3 * slant, last + (number - (count - 1) / 2) * 2 * half
            axes.plot(
                [at - slant, at + slant], [place + 1.2 * half, place - 1.2 * half], color="white",
                linewidth=_GAP, solid_capstyle="butt", zorder=2.5,
            )  # fmt: skip


class Columns(_AnyBars):
    """Upright bars over numbers, stacked; a reference is a mark across, with its band."""

    axes_width = 3.7
    heights = (2.6, 3.1, 3.8)

    def prepare(self) -> None:
        super().prepare()
        count = len(self.names)
        self.y = self.values
        self.x = Axis(-0.5, count - 0.5, False)
        self.left_label, self.bottom_label = self.chart.y_label, self.chart.x_label
        texts = [plain(float(x)) for x in self.chart.series[0].x]
        step = next(step for step in range(1, count + 1) if self._have_room(texts[::step], step))
        self.bottom = Ticks(range(0, count, step), texts[::step])

    def _have_room(self, texts: Sequence[str], step: int) -> bool:
        own = self.width / len(self.names) * step
        sizes = [self.ruler.width(text, LABEL_SIZE) for text in texts]
        return apart([i * own for i in range(len(texts))], sizes, PAD)

    def fit(self, height: float) -> None:
        self.left_ticks = self.y.ticks(self.ruler, LABEL_SIZE, height, upright=True)

    def fill(self, axes: Any) -> None:
        axes.set_ylim(self.y.low, self.y.high)
        axes.grid(axis="y", color=GRID, linewidth=0.6)
        axes.tick_params(axis="x", length=0)
        for each, stack in zip(self.series, self.stacks, strict=True):
            axes.bar(
                range(len(stack)), [end - start for start, end in stack],
                bottom=[start for start, _ in stack], width=_THICK, **self._style(each),
            )  # fmt: skip
        for number, each in enumerate(self.references):
            at = [(i, value) for i, value in enumerate(each.y) if value is not None]
            axes.hlines(
                [value for _, value in at], [i - _THICK / 2 for i, _ in at],
                [i + _THICK / 2 for i, _ in at], color=DARK, linewidth=1.6,
                linestyle=dash_of(number), zorder=3,
            )  # fmt: skip
            self._whiskers(axes, each)
