"""Plans beside each other: how quick they are, what their steps consist of, and their memory."""

from __future__ import annotations

from typing import Any

from paleo.studies.compare.plans import PlansComparison
from paleo.views.charts.base import Chart, Series, bars
from paleo.views.tables.plans import plan_labels


def plans_charts(found: PlansComparison) -> tuple[Chart, ...]:
    """Return the rates of plans, the parts of their steps, and the memory of the fullest stage."""
    variants = found.variants
    labels, common = plan_labels(variants)
    nets = ", ".join(dict.fromkeys(each.net for each in variants))
    said: dict[str, Any] = {"setting": common, "x_label": "plan"}
    has_tokens = all(each.step.tokens_per_s for each in variants)
    steps = [each.step for each in variants]
    rates = tuple(step.tokens_per_s if has_tokens else step.throughput for step in steps)
    what = "tokens" if has_tokens else "samples"
    speed = Chart(
        "rates", "grouped", f"Speed of {nets}",
        y_label=f"{what} a second", series=(Series(what, tuple(labels), rates),), **said,
    )  # fmt: skip
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
