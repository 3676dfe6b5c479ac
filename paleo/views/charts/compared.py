"""Configurations beside each other, against the number of workers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

from paleo.core.attributes import at_ends
from paleo.core.units import Scale
from paleo.step.pieces import WholeStep
from paleo.step.settings import OF_CLUSTER
from paleo.studies.overview import Overview
from paleo.views.charts.base import Chart, in_one_unit
from paleo.views.charts.scaling import Line, in_its_unit, line_of, over_workers
from paleo.views.charts.settings import joined

#: A value of a step that an overview looks at, in SI units.
_Value = Callable[[Overview, WholeStep], float | None]


def compared_charts(configurations: Mapping[str, Overview]) -> tuple[Chart, ...]:
    """Return the charts of configurations by their names: throughput, step, time and cost.

    Each has a line for each, by the scheme that it looks at. Those of which nothing is known are
    empty.
    """
    overviews = list(configurations.values())
    nets = joined(dict.fromkeys(each.run.net for each in overviews))
    prices = {each.price.currency for each in overviews if each.price}
    workers = {name: [row.workers for row in each.rows] for name, each in configurations.items()}
    draw = functools.partial(
        over_workers, workers=workers, chosen={}, setting=_setting(overviews),
    )  # fmt: skip
    rates = [_line(each, _throughput) for each in overviews]
    steps = [_line(each, lambda _, step: step.seconds) for each in overviews]
    times = [_line(each, lambda own, step: own.trained(step).seconds) for each in overviews]
    costs = [_line(each, lambda own, step: own.trained(step).cost) for each in overviews]
    if len(prices) > 1:  # amounts in several currencies are no lines of one chart
        costs = [Line([None] * len(each.rows)) for each in overviews]
    of_step, of_training = _unit(steps, "s"), _unit(times, "duration")
    money = f"training cost ({next(iter(prices))})" if prices else "training cost"
    seconds = f"time of a step ({of_step.unit})"
    hours = f"training time ({of_training.unit})"
    return (
        draw("throughput", f"Throughput of {nets}", "samples a second", rates),
        draw("step", f"Training step of {nets}", seconds, in_its_unit(steps, of_step)),
        draw("time", f"Training time of {nets}", hours, in_its_unit(times, of_training)),
        draw("cost", f"Training cost of {nets}", money, costs),
    )


def _line(found: Overview, value: _Value) -> Line:
    """Return a value of the steps on each number of workers, with the ends of its error band."""
    steps = [row.whole_step(found.scheme_of(row)) for row in found.rows]
    ends = [at_ends(step.ends, lambda end: value(found, end)) for step in steps]
    lines = ((value(found, step), *pair) for step, pair in zip(steps, ends, strict=True))
    if value is _throughput:  # which is low where times are high
        lines = ((own, high, low) for own, low, high in lines)
    return line_of(lines)


def _throughput(_: Overview, step: WholeStep) -> float | None:
    return step.throughput if step.seconds else None


def _unit(lines: Sequence[Line], dimension: str) -> Scale:
    scale, _ = in_one_unit([line.values for line in lines], dimension, by_largest=True)
    return scale


def _setting(overviews: Sequence[Overview]) -> str:
    """Return what the configurations have in common."""
    first, *others = (
        {**each.run.settings(), "cluster": each.run.cluster, "scheme": each.scheme or ""}
        for each in overviews
    )
    where = ("cluster", "device") if any(each.run.cluster for each in overviews) else OF_CLUSTER
    keys = ("net", *where, "dtype", "cost_model", "scheme")
    same = [key for key in keys if all(first[key] == other[key] for other in others)]
    return joined([*(str(first[key]) for key in same if first[key]), f"{first['scaling']} scaling"])
