"""What a whole training takes against the number of workers: time and money."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paleo.charts.base import Chart, Series, in_one_unit
from paleo.charts.scaling import looked_at, schemes_shown
from paleo.charts.settings import cluster, joined, pricing, run_setting
from paleo.metrics import Metrics
from paleo.overview import Overview
from paleo.training import Training

__all__ = ["metrics_charts", "training_charts"]


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
    setting = joined(
        [*cluster(first), f"batch {batch}", common, first.dtype, *pricing(first).values()]
    )
    setting += _schedule(first.training)
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
    costs = [tuple(each.cost for each in trainings) for trainings in lines.values()]
    price = next((each.price for trainings in lines.values() for each in trainings), None)

    def series(columns: Sequence[tuple[float | None, ...]]) -> tuple[Series, ...]:
        return tuple(
            Series(
                name,
                tuple(each.step.workers for each in trainings),
                column,
                chosen=chosen.get(name, ""),
            )
            for (name, trainings), column in zip(lines.items(), columns, strict=True)
        )

    return (
        Chart(
            "time", "lines", f"Training time of {net}", setting, "workers",
            f"training time ({scale.unit})", series(times), True, True,
        ),
        Chart(
            "cost", "lines", f"Training cost of {net}", setting, "workers",
            f"training cost ({price.currency})" if price else "training cost", series(costs),
            True, True,
        ),
    )  # fmt: skip
