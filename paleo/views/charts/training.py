"""What a whole training takes against the number of workers: time and money."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from paleo.core.attributes import at_ends
from paleo.studies.metrics import Metrics
from paleo.studies.overview import Overview
from paleo.studies.training import Training
from paleo.views.charts.base import Chart, in_one_unit
from paleo.views.charts.scaling import (
    band_notes,
    in_its_unit,
    line_of,
    looked_at,
    over_workers,
    schemes_shown,
)
from paleo.views.charts.settings import places, plan_setting, run_setting


def training_charts(found: Overview) -> tuple[Chart, Chart]:
    """Return the charts of time and cost, a line for each scheme.

    They are empty where epochs, dataset or price are not known.
    """
    lines = {
        name: [found.training(row, scheme) for row in found.rows]
        for name, scheme in schemes_shown(found.run).items()
    }
    setting = f"{run_setting(found.run)}{_schedule(next(iter(lines.values()))[0])}"
    chosen = looked_at(found.run, found.scheme)
    return _charts(lines, found.run.net, setting, chosen, band_notes(found.run))


def metrics_names(found: Sequence[Metrics]) -> tuple[list[str], str]:
    """Return the name of each, with the settings that differ but for the workers, and the others.

    Those that share a name are one line over workers.
    """
    first, settings = (
        found[0],
        [
            {**_settings(each), **place}
            for each, place in zip(found, places([each.plan for each in found]), strict=True)
        ],
    )
    varied = [key for key in settings[0] if len({own[key] for own in settings}) > 1]
    scheme = first.scheme or ""
    common = scheme if len({each.scheme for each in found}) == 1 else ""
    batch = "" if "batch_size" in varied else settings[0]["batch_size"]
    names = [", ".join(own[key] for key in varied or ["net"]) for own in settings]
    setting = plan_setting(first, batch, common, varied=varied)
    return names, setting + _schedule(first.training)


def _settings(each: Metrics) -> dict[str, str]:
    asked = each.batch_size if each.scaling == "strong" else each.worker_batch_size
    named = {key: getattr(each, key) for key in ("net", "dtype")}
    return {**named, "cost_model": each.cost_model, "batch_size": f"batch {asked}"}


def metrics_charts(found: Sequence[Metrics]) -> tuple[Chart, Chart]:
    """Return the charts of time and cost, a line for each plan but for the workers."""
    names, setting = metrics_names(found)
    lines: dict[str, list[Training]] = {}
    for name, each in zip(names, found, strict=True):
        lines.setdefault(name, []).append(each.training)
    nets = ", ".join(dict.fromkeys(each.net for each in found))
    return _charts(lines, nets, setting, {}, band_notes(*found))


def _schedule(training: Training) -> str:
    """Return what else a setting has to say."""
    schedule, price = training.schedule, training.price
    if schedule.num_samples is None:
        return ""
    of = schedule.dataset or f"{schedule.size:,} samples"
    said = f", {schedule.epochs:g} epoch{'s' * (schedule.epochs != 1)} of {of}"
    return f"{said}, {price.amount:g} {price.currency} a device-hour" if price else said


def _charts(
    lines: Mapping[str, Sequence[Training]],
    net: str,
    setting: str,
    chosen: Mapping[str, str],
    notes: tuple[str, ...],
) -> tuple[Chart, Chart]:
    times = [
        line_of(_with_ends(each, lambda own: own.seconds) for each in trainings)
        for trainings in lines.values()
    ]
    costs = [
        line_of(_with_ends(each, lambda own: own.cost) for each in trainings)
        for trainings in lines.values()
    ]
    scale, _ = in_one_unit([line.values for line in times], "duration")
    price = next((each.price for trainings in lines.values() for each in trainings), None)

    workers = {name: [each.step.workers for each in trainings] for name, trainings in lines.items()}
    draw = functools.partial(over_workers, setting=setting, workers=workers, chosen=chosen)
    money = f"training cost ({price.currency})" if price else "training cost"
    hours = f"training time ({scale.unit})"
    return (
        draw("time", f"Training time of {net}", hours, in_its_unit(times, scale), notes=notes),
        draw("cost", f"Training cost of {net}", money, costs, notes=notes),
    )


def _with_ends(
    training: Training, value: Callable[[Training], float | None]
) -> tuple[float | None, float | None, float | None]:
    """Return a value of a training, and at both ends of the error band of its step."""
    low, high = at_ends(training.step.ends, lambda end: value(replace(training, step=end)))
    return value(training), low, high
