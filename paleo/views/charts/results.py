"""Which charts a result has: what `--plot` and `paleo.views.plots` draw of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from paleo.step.memory import Fit
from paleo.step.parallelism import PARALLELISMS
from paleo.step.results import Run, Simulation
from paleo.studies.collectives import CollectiveTime
from paleo.studies.compare import Comparison
from paleo.studies.metrics import Metrics
from paleo.studies.summary import NetSummary
from paleo.views.charts.base import Chart, bars, drawable
from paleo.views.charts.collectives import collectives_charts
from paleo.views.charts.difference import differences
from paleo.views.charts.layers import (
    computation_by_layer,
    footprint_by_layer,
    memory_by_layer,
    ranks,
    time_by_layer,
)
from paleo.views.charts.measuring import of_calibration as of_calibration
from paleo.views.charts.measuring import of_fullpasses as of_fullpasses
from paleo.views.charts.measuring import of_profiles as of_profiles
from paleo.views.charts.memory import memory_chart
from paleo.views.charts.numbers import counted
from paleo.views.charts.roofline import roofline
from paleo.views.charts.scaling import (
    EXPOSED,
    WHOLE,
    band_notes,
    columns,
    kinds_charts,
    line_of,
    scaling_charts,
)
from paleo.views.charts.training import metrics_charts, metrics_names
from paleo.views.charts.validation import validation_chart

if TYPE_CHECKING:
    from paleo.measure.validate.report import Report
    from paleo.studies.compare.plans import PlansComparison
    from paleo.studies.mesh_memory import MeshMemory
    from paleo.studies.planning import Planning
    from paleo.studies.search import Search
    from paleo.studies.serving.answers import Serving


def of_simulation(simulation: Simulation) -> tuple[Chart, ...]:
    """Return the charts of all runs; raises SettingError if nothing takes any time."""
    return drawable(chart for runs in simulation.plans for chart in _of_plan(runs))


def _of_plan(runs: Sequence[Run]) -> Iterable[Chart]:
    """Return the charts of the runs of a plan; of devices that share a net those of its stages.

    They are of most workers.
    """
    if len(runs) > 1:
        return kinds_charts(runs)
    (run,) = runs
    if not (PARALLELISMS[run.parallel].shares_net and run.largest):
        return scaling_charts(run)
    # Here, since most steps have no stages.
    from paleo.views.charts.stages import stages_charts

    scaling = scaling_charts(run) if len(run.rows) > 1 else ()
    return (*stages_charts(run, run.largest), *scaling)


def of_summaries(summaries: Iterable[NetSummary]) -> tuple[Chart, ...]:
    """Return the charts of layers: time, memory and the roofline or, without a device, counts.

    The bars of charts side by side are of the same layers.
    Raises SettingError if no layer has anything of it, or for an array of batch sizes.
    """
    found: list[Chart] = []
    for each in summaries:
        if each.timed_on is None:
            by = ranks(each, "memory", "flops")
            found += [memory_by_layer(each, by), computation_by_layer(each, by)]
        else:
            by = ranks(each, "time", "memory")
            found += [time_by_layer(each, by), memory_by_layer(each, by), roofline(each)]
    return drawable(found)


def of_mesh_memory(found: Sequence[MeshMemory]) -> tuple[Chart, ...]:
    """Return the memory of the stages of each net."""
    from paleo.views.charts.stages import memory_by_stage
    from paleo.views.tables.mesh_memory import mesh_setting

    return drawable(
        memory_by_stage(one.net, one.plan.device, one.stages, mesh_setting(one)) for one in found
    )


def of_plans(found: PlansComparison) -> tuple[Chart, ...]:
    """Return speed, parts of steps and memory of plans beside each other."""
    from paleo.views.charts.plans import plans_charts  # here, since few commands have plans

    return drawable(plans_charts(found))


def of_planning(found: Planning) -> tuple[Chart, ...]:
    """Return the charts of a search for plans; raises SettingError if there is nothing to draw."""
    from paleo.views.charts.planning import planning_charts

    return drawable(planning_charts(found))


def of_comparison(comparison: Comparison) -> tuple[Chart, ...]:
    """Return the totals over the reference's and, where layers were compared, what differs."""
    return drawable(differences(comparison))


def of_collectives(found: Sequence[CollectiveTime]) -> tuple[Chart, ...]:
    """Return time and bus bandwidth of each collective; one worker alone has none of either."""
    return drawable(collectives_charts(found))


def of_fits(fits: Sequence[Fit]) -> tuple[Chart, ...]:
    """Return the memory of all nets beside each other, then layer by layer."""
    return drawable([memory_chart(fits), *(footprint_by_layer(each.footprint) for each in fits)])


def of_search(found: Search) -> tuple[Chart, ...]:
    """Return the front of a search, or what the choices of the best net take."""
    from paleo.views.charts.search import search_charts  # here, since few search

    return drawable(search_charts(found))


def of_serving(found: Sequence[Serving]) -> tuple[Chart, ...]:
    """Return the throughput-latency curve of served models, and their first tokens."""
    from paleo.views.charts.serving import serving_charts  # here, since few serve

    return drawable(serving_charts(found))


def of_metrics(metrics: Sequence[Metrics]) -> tuple[Chart, ...]:
    """Return what a step takes and, as far as it is known, a whole training."""
    return drawable([steps_chart(metrics), *metrics_charts(metrics)])


def of_validation(report: Report) -> tuple[Chart, ...]:
    """Return predicted against measured times; raises SettingError if nothing was predicted."""
    return (validation_chart(report),)


def steps_chart(metrics: Sequence[Metrics]) -> Chart:
    """Return a bar for each step: its computation, and its communication, below the whole of it.

    Of one plan but for the workers they stand over the numbers of these.
    """
    parts: dict[str, Sequence[float | None]] = {
        "computation": [each.compute for each in metrics],
        EXPOSED: [each.exposed_communication for each in metrics],
    }
    parts = {name: own for name, own in parts.items() if any(own)}
    nets = list(dict.fromkeys(each.net for each in metrics))
    plans, setting = metrics_names(metrics)
    said: dict[str, Any] = {
        "title": f"Training step of {', '.join(nets)}",
        "setting": setting,
        "notes": band_notes(*metrics),
    }
    workers = [each.workers for each in metrics]
    ends = line_of((each.step.seconds, each.step.low, each.step.high) for each in metrics)
    if len(set(plans)) == 1 and len(set(workers)) == len(workers):
        return columns(workers, parts, ends, key="steps", **said)
    names = [
        f"{name}, {counted(each.workers, 'worker')}"
        for name, each in zip(plans, metrics, strict=True)
    ]
    said |= {"key": "steps", "x_label": "plan", "bands": {WHOLE: (ends.low, ends.high)}}
    return bars(names, parts | {WHOLE: ends.values}, "s", "time of a step", (WHOLE,), **said)
