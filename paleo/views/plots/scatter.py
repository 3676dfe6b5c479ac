"""A scatter plot: many points around a line, on two logarithmic axes of one length."""

from __future__ import annotations

from typing import Any

from paleo.views.charts.base import Chart
from paleo.views.plots import style
from paleo.views.plots.axis import Axis
from paleo.views.plots.figure import EDGE, Sheet
from paleo.views.plots.texts import Ruler

#: Inches of the axes, and what is around them: on the left, on the right and below.
_SIDE, _LEFT, _RIGHT, _BELOW = 5.0, 0.85, 0.3, 0.6
#: Inches between title, legend and axes.
_GAP = 0.08
#: From this number of points on, they are small.
_MANY = 1000


def scatter(chart: Chart) -> style.Figure:
    """Return the plot of a validation, whose last series is the reference.

    Raises PaleoError without Matplotlib, SettingError if there is nothing to draw.
    """
    series = chart.checked().series
    with style.context():
        sheet = Sheet([chart])
        figure, ruler, width = sheet.figure, sheet.ruler, _LEFT + _SIDE + _RIGHT
        sheet.width = width
        names = [ruler.cut(each.name, style.LABEL_SIZE, 4) for each in series]
        y, inner = EDGE, width - 2 * EDGE
        y = sheet.texts(chart.setting, EDGE, y, inner, style.SETTING_SIZE, colour=style.QUIET)
        y = sheet.texts(chart.title, EDGE, y, inner, style.TITLE_SIZE, weight="bold")
        legend = y + _GAP / 2
        above = legend + ruler.height(style.LABEL_SIZE, len(names)) + 2 * _GAP
        height = above + _SIDE + _BELOW
        sheet.finish(height)
        axes: Any = figure.add_axes((_LEFT / width, _BELOW / height, _SIDE / width, _SIDE / height))
        _fill(axes, chart, names, ruler)
        figure.legend(
            loc="upper left", bbox_to_anchor=(EDGE / width, 1 - legend / height),
            frameon=False, fontsize=style.LABEL_SIZE, borderpad=0, borderaxespad=0,
            labelspacing=0.32, handletextpad=0.5, markerscale=1.3,
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
        own, is_few = style.look(number), len(each.x) < _MANY
        axes.scatter(
            each.x, each.y, s=22 if is_few else 3, alpha=0.85 if is_few else 0.6, linewidths=0,
            color=own.colour, marker=own.marker, label=name, rasterized=True,
        )  # fmt: skip
    axes.plot(reference.x, reference.y, color=style.DARK, linewidth=0.8, label=names[-1])
    axes.grid(color=style.GRID, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    for own, ticks in (
        (axes.xaxis, axis.ticks(ruler, style.LABEL_SIZE, _SIDE)),
        (axes.yaxis, axis.ticks(ruler, style.LABEL_SIZE, _SIDE, upright=True)),
    ):
        own.set_ticks(ticks.places, labels=ticks.texts)
        own.set_ticks([], minor=True)
