"""Which charts a result has: what `--plot` and `paleo.plots` draw of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from paleo.charts.base import Chart, Series, in_one_unit
from paleo.charts.difference import differences
from paleo.charts.layers import (
    computation_by_layer,
    footprint_by_layer,
    memory_by_layer,
    time_by_layer,
)
from paleo.charts.memory import memory_chart
from paleo.charts.numbers import counted
from paleo.charts.roofline import roofline
from paleo.charts.scaling import scaling_charts
from paleo.charts.training import metrics_charts
from paleo.compare import Comparison
from paleo.errors import SettingError
from paleo.memory import Fit
from paleo.metrics import Metrics
from paleo.rows import Simulation
from paleo.summary import NetSummary

__all__ = [
    "of_comparison",
    "of_fits",
    "of_metrics",
    "of_simulation",
    "of_summaries",
    "steps_chart",
]


def of_simulation(simulation: Simulation) -> tuple[Chart, ...]:
    """Return the charts of all runs; raises SettingError if nothing takes any time."""
    return _drawable(chart for run in simulation.runs for chart in scaling_charts(run))


def of_summaries(summaries: Iterable[NetSummary]) -> tuple[Chart, ...]:
    """Return the charts of layers: time, memory and the roofline or, without a device, counts.

    The bars of charts side by side are of the same layers.
    Raises SettingError if no layer has anything of it, or for an array of batch sizes.
    """
    found: list[Chart] = []
    for each in summaries:
        if each.timed_on is None:
            found += [memory_by_layer(each, every=True), computation_by_layer(each, every=True)]
        else:
            found += [time_by_layer(each, every=True), memory_by_layer(each, every=True)]
            found.append(roofline(each))
    return _drawable(found)


def of_comparison(comparison: Comparison) -> tuple[Chart, ...]:
    """Return the totals over the reference's and, where layers were compared, what differs."""
    return _drawable(differences(comparison))


def of_fits(fits: Sequence[Fit]) -> tuple[Chart, ...]:
    """Return the memory of all nets beside each other, then layer by layer."""
    return _drawable([memory_chart(fits), *(footprint_by_layer(each.footprint) for each in fits)])


def of_metrics(metrics: Sequence[Metrics]) -> tuple[Chart, ...]:
    """Return what a step takes and, as far as it is known, a whole training."""
    return _drawable([steps_chart(metrics), *metrics_charts(metrics)])


def steps_chart(metrics: Sequence[Metrics]) -> Chart:
    """Return a bar for each step: its computation, and its communication."""
    names = tuple(f"{each.net}, {counted(each.workers, 'worker')}" for each in metrics)
    parts: list[list[float | None]] = [
        [each.compute for each in metrics],
        [each.communication for each in metrics],
    ]
    scale, columns = in_one_unit(parts, "s", by_largest=True)
    charts = metrics_charts(metrics)
    return Chart(
        "steps",
        "bars",
        f"Training step of {', '.join(dict.fromkeys(each.net for each in metrics))}",
        charts[0].setting,
        "plan",
        f"time of a step ({scale.unit})",
        tuple(
            Series(name, names, column)
            for name, column in zip(("computation", "communication"), columns, strict=True)
            if any(column)
        ),
    )


def _drawable(charts: Iterable[Chart]) -> tuple[Chart, ...]:
    """Return the charts that have something to draw; raises SettingError if there is none."""
    every = list(charts)
    found = tuple(chart for chart in every if not chart.is_empty)
    if not found:
        if every:
            every[0].checked()
        raise SettingError("plot: there is nothing to draw")
    return found
