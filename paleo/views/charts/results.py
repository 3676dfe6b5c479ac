"""Which charts a result has: what `--plot` and `paleo.views.plots` draw of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from paleo.step.memory import Fit
from paleo.step.results import Simulation
from paleo.studies.compare import Comparison
from paleo.studies.metrics import Metrics
from paleo.studies.summary import NetSummary
from paleo.views.charts.base import Chart, bars, drawable
from paleo.views.charts.difference import differences
from paleo.views.charts.layers import (
    computation_by_layer,
    footprint_by_layer,
    memory_by_layer,
    time_by_layer,
)
from paleo.views.charts.measuring import of_calibration as of_calibration
from paleo.views.charts.measuring import of_fullpasses as of_fullpasses
from paleo.views.charts.measuring import of_profiles as of_profiles
from paleo.views.charts.memory import memory_chart
from paleo.views.charts.numbers import counted
from paleo.views.charts.roofline import roofline
from paleo.views.charts.scaling import scaling_charts
from paleo.views.charts.training import metrics_charts
from paleo.views.charts.validation import validation_chart

if TYPE_CHECKING:
    from paleo.measure.validate.report import Report


def of_simulation(simulation: Simulation) -> tuple[Chart, ...]:
    """Return the charts of all runs; raises SettingError if nothing takes any time."""
    return drawable(chart for run in simulation.runs for chart in scaling_charts(run))


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
    return drawable(found)


def of_comparison(comparison: Comparison) -> tuple[Chart, ...]:
    """Return the totals over the reference's and, where layers were compared, what differs."""
    return drawable(differences(comparison))


def of_fits(fits: Sequence[Fit]) -> tuple[Chart, ...]:
    """Return the memory of all nets beside each other, then layer by layer."""
    return drawable([memory_chart(fits), *(footprint_by_layer(each.footprint) for each in fits)])


def of_metrics(metrics: Sequence[Metrics]) -> tuple[Chart, ...]:
    """Return what a step takes and, as far as it is known, a whole training."""
    return drawable([steps_chart(metrics), *metrics_charts(metrics)])


def of_validation(report: Report) -> tuple[Chart, ...]:
    """Return predicted against measured times; raises SettingError if nothing was predicted."""
    return (validation_chart(report),)


def steps_chart(metrics: Sequence[Metrics]) -> Chart:
    """Return a bar for each step: its computation, and its communication."""
    parts = {
        "computation": [each.compute for each in metrics],
        "communication": [each.communication for each in metrics],
    }
    nets = ", ".join(dict.fromkeys(each.net for each in metrics))
    return bars(
        [f"{each.net}, {counted(each.workers, 'worker')}" for each in metrics],
        {name: own for name, own in parts.items() if any(own)},
        "s",
        "time of a step",
        key="steps",
        title=f"Training step of {nets}",
        setting=metrics_charts(metrics)[0].setting,
        x_label="plan",
    )
