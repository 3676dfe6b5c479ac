"""A scatter plot: many points around a line, on two logarithmic axes of one length."""

from __future__ import annotations

from typing import Any

from paleo.charts.base import Chart
from paleo.plots.axis import Axis
from paleo.plots.figure import title_of
from paleo.plots.style import (
    DARK,
    GRID,
    LABEL_SIZE,
    QUIET,
    SETTING_SIZE,
    TITLE_SIZE,
    Figure,
    look,
    part,
)
from paleo.plots.style import context as styled
from paleo.plots.texts import DPI, Ruler

__all__ = ["scatter"]

#: Inches of the axes, and what is around them: on the left, on the right and below.
_SIDE, _LEFT, _RIGHT, _BELOW = 5.0, 0.85, 0.3, 0.6
#: Inches around the picture, and between its title, legend and axes.
_EDGE, _GAP = 0.2, 0.08
#: From this number of points on, they are small.
_MANY = 1000


def scatter(chart: Chart) -> Figure:
    """Return the plot of a validation, whose last series is the reference.

    Raises PaleoError without Matplotlib, SettingError if there is nothing to draw.
    """
    series = chart.checked().series
    with styled():
        figure = part("figure").Figure(dpi=DPI)
        ruler = Ruler()
        figure.set_label(ruler.text(title_of([chart])))
        names = [ruler.cut(each.name, LABEL_SIZE, 4) for each in series]
        width = _LEFT + _SIDE + _RIGHT
        inner = width - 2 * _EDGE
        heads = [
            (line, SETTING_SIZE, "normal", QUIET)
            for line in ruler.wrapped(chart.setting, SETTING_SIZE, inner)
        ]
        heads += [
            (line, TITLE_SIZE, "bold", DARK)
            for line in ruler.wrapped(chart.title, TITLE_SIZE, inner, "bold")
        ]
        legend = _EDGE + sum(ruler.height(size) for _, size, _, _ in heads) + _GAP / 2
        above = legend + ruler.height(LABEL_SIZE, len(names)) + 2 * _GAP
        height = above + _SIDE + _BELOW
        figure.set_size_inches(width, height)
        y = _EDGE
        for line, size, weight, colour in heads:
            figure.text(
                _EDGE / width, 1 - y / height, line, va="top", size=size, weight=weight,
                color=colour,
            )  # fmt: skip
            y += ruler.height(size)
        axes: Any = figure.add_axes((_LEFT / width, _BELOW / height, _SIDE / width, _SIDE / height))
        _fill(axes, chart, names, ruler)
        figure.legend(
            loc="upper left", bbox_to_anchor=(_EDGE / width, 1 - legend / height),
            frameon=False, fontsize=LABEL_SIZE, borderpad=0, borderaxespad=0, labelspacing=0.32,
            handletextpad=0.5, markerscale=1.3,
        )  # fmt: skip
        figure.draw_without_rendering()
    return figure


def _fill(axes: Any, chart: Chart, names: list[str], ruler: Ruler) -> None:
    *series, reference = chart.series
    low, high = reference.x
    axis = Axis(low, high, True)
    axes.set(
        xscale="log", yscale="log", xlim=axis[:2], ylim=axis[:2], xlabel=chart.x_label,
        ylabel=chart.y_label,
    )  # fmt: skip
    for number, (each, name) in enumerate(zip(series, names[:-1], strict=True)):
        own, is_few = look(number), len(each.x) < _MANY
        axes.scatter(
            each.x, each.y, s=22 if is_few else 3, alpha=0.85 if is_few else 0.6, linewidths=0,
            color=own.colour, marker=own.marker, label=name, rasterized=True,
        )  # fmt: skip
    axes.plot(reference.x, reference.y, color=DARK, linewidth=0.8, label=names[-1])
    axes.grid(color=GRID, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    for own, ticks in (
        (axes.xaxis, axis.ticks(ruler, LABEL_SIZE, _SIDE)),
        (axes.yaxis, axis.upright_ticks(ruler, LABEL_SIZE, _SIDE)),
    ):
        own.set_ticks(ticks.places, labels=ticks.texts)
        own.set_ticks([], minor=True)
