"""A front of nets as points, or the time of what was chosen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paleo.core.units import Scale
from paleo.studies.search.quantities import Asked
from paleo.studies.search.results import Search
from paleo.views.charts.base import Chart, Series, bars, in_one_unit

#: Points of a front that are drawn: more lie on each other.
_MOST = 2000
_SCALED = ("s", "bytes", "J", "FLOP", "number")


def search_charts(found: Search) -> tuple[Chart, ...]:
    """Return a chart for each quantity of the front, or bars of what was chosen."""
    if found.front:
        return tuple(_front_chart(found, goal.asked) for goal in found.front_goals)
    own = [each for each in found.layers if each.seconds is not None]
    passes = "forward pass" if found.is_inference else "both passes"
    names = [f"{each.name} ({each.label})" for each in own]
    return (
        bars(
            names,
            {passes: [each.seconds for each in own]},
            "s",
            f"time of {passes}",
            key="choices",
            title=f"The best net of {found.space.name}",
            setting=_setting(found),
            x_label="choice",
        ),
    )


def _setting(found: Search) -> str:
    plan = found.scenario.plan
    return f"{found.net.name}, {plan.device.name}, batch {found.scenario.batch_size}"


def _front_chart(found: Search, asked: Asked) -> Chart:
    """Return the objective over a quantity: the front, the best and the original."""
    step = max(1, -(-len(found.front) // _MOST))
    nets = sorted(found.front, key=lambda net: net.values[str(asked)])[::step]
    original = [found.original] if found.original else []
    axes: list[tuple[Scale | None, list[list[Any]]]] = []
    for each in (asked, found.goal.asked):
        columns: list[list[Any]] = [
            [net.values[str(each)] for net in nets],
            [found.best.values[str(each)]],
            [values[str(each)] for values in original],
        ]
        axes.append(_scaled(each, columns))
    (x_scale, xs), (y_scale, ys) = axes
    names = ("front", "best", found.net.name)
    series = tuple(
        Series(name, tuple(x), tuple(y)) for name, x, y in zip(names, xs, ys, strict=True) if x
    )
    return Chart(
        f"front_{asked}",
        "points",
        f"Best nets of {found.space.name}",
        _setting(found),
        _label(asked, x_scale),
        _label(found.goal.asked, y_scale),
        series,
    )


def _scaled(asked: Asked, columns: Sequence[list[Any]]) -> tuple[Scale | None, list[list[Any]]]:
    unit = asked.quantity.unit or ("number" if asked.quantity.is_whole else "")
    if unit not in _SCALED:
        return None, list(columns)
    scale, scaled = in_one_unit([column for column in columns if column], unit)
    filled = iter(scaled)
    return scale, [list(next(filled)) if column else [] for column in columns]


def _label(asked: Asked, scale: Scale | None) -> str:
    title = asked.quantity.title + (f" on {asked.device}" if asked.device else "")
    return f"{title} ({scale.unit})" if scale and scale.unit else title
