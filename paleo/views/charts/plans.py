"""Plans beside each other: how quick they are, what their steps consist of, and their memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paleo.core.attributes import at_ends
from paleo.core.units import Scale
from paleo.step.pieces import WholeStep
from paleo.studies.compare.plans import PlansComparison
from paleo.views.charts.base import Chart, Series, bars
from paleo.views.charts.scaling import in_its_unit, line_of
from paleo.views.tables.plans import plan_labels

_THOUSAND = 1000.0
#: Rates are in thousands from where these tell them apart.
_MANY = 10 * _THOUSAND


def plans_charts(found: PlansComparison) -> tuple[Chart, ...]:
    """Return the rates of plans, the parts of their steps, and the memory of the fullest stage."""
    variants = found.variants
    labels, common = plan_labels(variants)
    nets = ", ".join(dict.fromkeys(each.net for each in variants))
    said: dict[str, Any] = {"setting": common, "x_label": "plan"}
    speed = _rates([each.step for each in variants], labels, f"Speed of {nets}", said)
    parts: dict[str, list[float | None]] = {
        "computation": [float(each.row.compute) for each in variants],
        "exposed communication": [each.value("exposed_communication_s") for each in variants],
        "waiting for others": [float(each.row.waiting) for each in variants],
    }
    parts = {name: own for name, own in parts.items() if any(own)}
    title = f"Parts of a step of {nets}"
    parted = bars(labels, parts, "s", "time of a step", key="steps", title=title, **said)
    memory: dict[str, list[float | None]] = {
        "fullest stage": [float(each.memory) for each in variants]
    }
    capacities = [float(each.run.memory_capacity or 0) for each in variants]
    references = ["memory of the device"] if all(capacities) else []
    for name in references:
        memory[name] = list(capacities)
    used = bars(
        labels, memory, "bytes", "memory of a device", references,
        key="memory", title=f"Memory of training {nets}", **said,
    )  # fmt: skip
    return speed, parted, used


def _rates(
    steps: Sequence[WholeStep], labels: Sequence[str], title: str, said: dict[str, Any]
) -> Chart:
    """Return tokens a second of plans, samples where a net has no tokens, with their bands."""
    has_tokens = all(step.tokens_per_s for step in steps)

    def rate(step: WholeStep) -> float:
        return (step.tokens_per_s if has_tokens else None) or step.throughput

    # Rates are high where steps are short.
    ends = [at_ends(step.ends, rate)[::-1] for step in steps]
    line = line_of((rate(step), *pair) for step, pair in zip(steps, ends, strict=True))
    thousands = min(map(rate, steps)) >= _MANY
    (shown,) = in_its_unit([line], Scale(_THOUSAND if thousands else 1.0, "", 0.0))
    what = f"{'thousand ' * thousands}{'tokens' if has_tokens else 'samples'}"
    series = Series(
        what, tuple(labels), tuple(shown.values), low=tuple(shown.low), high=tuple(shown.high)
    )
    return Chart("rates", "grouped", title, y_label=f"{what} a second", series=(series,), **said)
