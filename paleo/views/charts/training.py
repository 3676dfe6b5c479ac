"""What a whole training takes against the number of workers: time and money."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from paleo.studies.metrics import Metrics
from paleo.studies.overview import Overview
from paleo.studies.training import Training
from paleo.views.charts.base import Chart, in_one_unit
from paleo.views.charts.scaling import looked_at, over_workers, schemes_shown
from paleo.views.charts.settings import plan_setting, run_setting


def training_charts(found: Overview) -> tuple[Chart, Chart]:
    """Return the charts of time and cost, a line for each scheme.

    They are empty where epochs, dataset or price are not known.
    """
    lines = {
        name: [found.training(row, scheme) for row in found.rows]
        for name, scheme in schemes_shown(found.run).items()
    }
    setting = f"{run_setting(found.run)}{_schedule(next(iter(lines.values()))[0])}"
    return _charts(lines, found.run.net, setting, looked_at(found.run, found.scheme))


def metrics_charts(found: Sequence[Metrics]) -> tuple[Chart, Chart]:
    """Return the charts of time and cost, a line for each net."""
    lines: dict[str, list[Training]] = {}
    for each in found:
        lines.setdefault(each.net, []).append(each.training)
    first = found[0]
    scheme = first.scheme or ""
    common = scheme if len({each.scheme for each in found}) == 1 else ""
    strong = first.scaling == "strong"
    batch = first.batch_size if strong else first.worker_batch_size  # as it was asked for
    setting = plan_setting(first, f"batch {batch}", common) + _schedule(first.training)
    return _charts(lines, ", ".join(lines), setting, {})


def _schedule(training: Training) -> str:
    """Return what else a setting has to say."""
    schedule, price = training.schedule, training.price
    if schedule.num_samples is None:
        return ""
    of = schedule.dataset or f"{schedule.size:,} samples"
    said = f", {schedule.epochs:g} epoch{'s' * (schedule.epochs != 1)} of {of}"
    return f"{said}, {price.amount:g} {price.currency} a device-hour" if price else said


def _charts(
    lines: Mapping[str, Sequence[Training]], net: str, setting: str, chosen: Mapping[str, str]
) -> tuple[Chart, Chart]:
    scale, times = in_one_unit(
        [[each.seconds for each in trainings] for trainings in lines.values()], "duration"
    )
    costs = [[each.cost for each in trainings] for trainings in lines.values()]
    price = next((each.price for trainings in lines.values() for each in trainings), None)

    workers = {name: [each.step.workers for each in trainings] for name, trainings in lines.items()}
    draw = functools.partial(over_workers, setting=setting, workers=workers, chosen=chosen)
    money = f"training cost ({price.currency})" if price else "training cost"
    return (
        draw("time", f"Training time of {net}", f"training time ({scale.unit})", times),
        draw("cost", f"Training cost of {net}", money, costs),
    )
