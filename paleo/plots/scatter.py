"""A scatter plot: many points around a line, on two logarithmic axes of one length."""

from __future__ import annotations

from typing import Any

from paleo.charts.base import Chart
from paleo.plots.axis import Axis
from paleo.plots.style import DARK, GRID, LABEL_SIZE, Figure, look, part
from paleo.plots.style import context as styled
from paleo.plots.texts import DPI, Ruler

__all__ = ["scatter"]

#: Inches of the axes, and what is around them: on the left, above, on the right and below.
_SIDE, _LEFT, _ABOVE, _RIGHT, _BELOW = 5.0, 0.85, 0.3, 0.3, 0.6
#: From this number of points on, they are small.
_MANY = 1000


def scatter(chart: Chart) -> Figure:
    """Return the plot of a validation, whose last series is the reference.

    Raises PaleoError without Matplotlib, SettingError if there is nothing to draw.
    """
    *series, _ = chart.checked().series
    with styled():
        figure = part("figure").Figure(dpi=DPI)
        ruler = Ruler()
        names = [ruler.cut(each.name, LABEL_SIZE, 4) for each in series]
        width, height = _LEFT + _SIDE + _RIGHT, _ABOVE + _SIDE + _BELOW
        legend = ruler.height(LABEL_SIZE, len(names)) + 0.15
        figure.set_size_inches(width, height + legend)
        axes: Any = figure.add_axes(
            (_LEFT / width, _BELOW / (height + legend), _SIDE / width, _SIDE / (height + legend))
        )
        _fill(axes, chart, names, ruler)
        figure.legend(
            loc="upper left", bbox_to_anchor=(_LEFT / width, 1 - 0.15 / (height + legend)),
            frameon=False, fontsize=LABEL_SIZE, borderpad=0, borderaxespad=0, labelspacing=0.32,
            markerscale=1.5,
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
    for number, (each, name) in enumerate(zip(series, names, strict=True)):
        own = look(number)
        axes.scatter(
            each.x, each.y, s=16 if len(each.x) < _MANY else 3, alpha=0.6, linewidths=0,
            color=own.colour, marker=own.marker, label=name, rasterized=True,
        )  # fmt: skip
    axes.plot(reference.x, reference.y, color=DARK, linewidth=0.8)
    axes.grid(color=GRID, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    for own, ticks in (
        (axes.xaxis, axis.ticks(ruler, LABEL_SIZE, _SIDE)),
        (axes.yaxis, axis.upright_ticks(ruler, LABEL_SIZE, _SIDE)),
    ):
        own.set_ticks(ticks.places, labels=ticks.texts)
        own.set_ticks([], minor=True)
