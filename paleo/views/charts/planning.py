"""The plans that a search found: how quick the best are, and the Pareto front."""

from __future__ import annotations

from paleo.core.attributes import at_ends
from paleo.core.units import Scale
from paleo.studies.planning import FoundPlan, Planning
from paleo.views.charts.base import Chart, Series, in_one_unit, is_wide
from paleo.views.charts.scaling import in_its_unit, line_of
from paleo.views.tables.planning import labels

_THOUSAND = 1000.0


def planning_charts(found: Planning) -> tuple[Chart, ...]:
    """Return the rates of the best plans with their bands, and of the front memory and cost.

    Those of the front are against time; there is no cost where no price is known.
    """
    serves = found.question.serves
    charts = [_rates(found)]
    scale, (times,) = in_one_unit(
        [[plan.seconds if serves else plan.time() for plan in found.front]],
        "s" if serves else "duration",
    )
    of = "latency" if serves else f"time of {found.cost_of}"
    names, common = labels(found.front)

    def against_time(key: str, what: str, unit: str, values: tuple[float | None, ...]) -> Chart:
        front = Series("best of its kind", times, values, tuple(names))
        return Chart(
            key, "points", f"{what} against time of {_net(found)}", common,
            f"{of} ({scale.unit})", f"{what.lower()} ({unit})", (front,), log_x=is_wide([times]),
            log_y=is_wide([values]),
        )  # fmt: skip

    unit, (memory,) = in_one_unit([[float(plan.memory) for plan in found.front]], "bytes")
    charts.append(against_time("plan_memory", "Memory of a device", unit.unit, memory))
    if all(plan.rates.price for plan in found.front):
        costs = tuple(plan.cost() for plan in found.front)
        money = found.question.currency
        charts.append(against_time("plan_cost", f"Cost of {found.cost_of}", money, costs))
    return tuple(charts)


def _net(found: Planning) -> str:
    return found.best.scenario.net.name


def _rates(found: Planning) -> Chart:
    """Return tokens a second of each device of the best plans, samples where there are none."""
    names, common = labels(found.plans)
    things = "tokens" if found.best.tokens else "samples"

    def ends(plan: FoundPlan) -> tuple[float, float | None, float | None]:
        return (plan.rate(), *at_ends(plan.ends, plan.rate)[::-1])

    line = line_of(map(ends, found.plans))
    thousands = min(plan.rate() for plan in found.plans) >= 10 * _THOUSAND
    (shown,) = in_its_unit([line], Scale(_THOUSAND if thousands else 1.0, "", 0.0))
    what = f"{'thousand ' * thousands}{things}"
    series = Series(
        what, tuple(names), tuple(shown.values), low=tuple(shown.low), high=tuple(shown.high)
    )
    return Chart(
        "plan_rates", "grouped", f"Speed of the best plans of {_net(found)}", common, "plan",
        f"{what} a second of a device", (series,),
    )  # fmt: skip
