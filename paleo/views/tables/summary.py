"""The tables of a summary: its layers, and why one of them takes what it takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from paleo.core.quantity import is_array
from paleo.core.tensor import format_shape
from paleo.costs import Time
from paleo.step.plan import RATED
from paleo.step.plan_keys import HOW
from paleo.studies.explain import ExplainedLayer, ExplainedOperation
from paleo.studies.grouping import Group, by_block, by_type
from paleo.studies.summary import LayerSummary, NetSummary, counts, of_each, timed_values
from paleo.views.answers.base import band_said
from paleo.views.charts.layers import summary_setting
from paleo.views.charts.numbers import counted
from paleo.views.headings import called, footnotes
from paleo.views.table import Column, Table, in_unit, plain
from paleo.views.tables.groups import groups_table

_COLUMNS = (
    *plain("net", "dtype"),
    Column("name", "layer"),
    Column("type", "type", spare=3),
    Column("parents"),
    Column("first_parents", "parents", for_people=True, spare=6),
    Column("output", "output", spare=2),
    Column("params", "parameters", spare=1),
    Column("forward_flops", "forward", "FLOP"),
    Column("weights_bytes", "weights", "bytes", spare=5),
    Column("activations_bytes", "activations", "bytes", spare=4),
)
#: What gives way to the times.
_LESS = (
    *("first_parents", "weights_bytes", "activations_bytes"),
    *("forward_s", "forward_bound", "backward_s", "backward_bound"),
)


def _times(digits: int) -> tuple[Column, ...]:
    """Return the columns of times, in so many digits."""
    return (
        Column("forward_s", "forward", "s", digits=digits),
        Column("forward_bound", "bound"),
        Column("backward_s", "backward", "s", digits=digits),
        Column("backward_bound", "bound"),
        Column("time_s", "time", "s", digits=digits, for_people=True),
        Column("time_share", "share", "share", for_people=True),
        Column("longer_bound", "bound by", for_people=True),
        *plain(*Time().to_dict("forward"), *Time().to_dict("backward")),
        *plain(*RATED, *HOW),
    )


_EXPLAINED = (
    *plain("net", "layer", "type", "pass"),
    Column("step", "operation", for_people=True),
    *plain("operation", "counted"),
    Column("algorithm", "algorithm"),
    Column("bound", "bound"),
    Column("compute_s", "compute", "s"),
    Column("memory_s", "memory", "s"),
    Column("overhead_s", "overhead", "s"),
    Column("total_s", "total", "s"),
    Column("flops", "computation", "FLOP"),
    Column("moved", "moved", "bytes", for_people=True),
    *plain("bytes_read", "bytes_written", "why", "details", "dtype", *RATED, *HOW),
)


def _short(parents: tuple[str, ...]) -> str:
    """Return the first parents, and how many more there are: a table is to fit a screen."""
    more = f", +{len(parents) - 2}" if len(parents) > 2 else ""
    return ", ".join(parents[:2]) + more


def _shown(summary: NetSummary) -> list[dict[str, Any]]:
    """Return what people see of each layer."""
    layers = summary.layers
    is_folded = any(layer.instances > 1 for layer in layers)
    repeats = summary.repeats if is_folded else {}
    every = _time(summary).get("time_s", 0)
    outputs = of_each(format_shape, [layer.output for layer in layers])
    bounds = (
        of_each(_bound, [layer.forward_time for layer in layers]),
        of_each(_bound, [layer.backward_time for layer in layers]),
    )
    return [
        {
            **called(layer.name, layer.instances, repeats),
            "type": layer.type_name,
            "first_parents": _short(layer.parents),
            "output": output,
            **counts(layer),
            "forward_s": layer.forward,
            "forward_bound": forward,
            "backward_s": layer.backward,
            "backward_bound": backward,
            **_time(layer, every),
            "longer_bound": forward if (layer.forward or 0) > (layer.backward or 0) else backward,
        }
        for layer, output, forward, backward in zip(layers, outputs, *bounds, strict=True)
    ]


def _time(of: LayerSummary | NetSummary, every: Any = None) -> dict[str, Any]:
    """Return the seconds of both passes, and their share of those of every layer."""
    if of.forward is None or of.backward is None:
        return {}
    seconds = of.forward + of.backward
    return {"time_s": seconds, "time_share": seconds / every if every else None}


def _bound(time: Time | None) -> Any:
    return time.bound if time else ""


def _common(summary: NetSummary) -> dict[str, Any]:
    """Return what all rows of a summary have, for programs."""
    priced = summary.timed_on.to_dict() if summary.timed_on else {}
    return {"net": summary.name, "dtype": summary.dtype, **priced}


def summary_table(summary: NetSummary, *, only_shown: bool = False) -> Table:
    """Return the layers of a net, with their times if it has any.

    With `only_shown` the rows have nothing of the columns for programs: for whoever shows the table
    that is sooner made, where layers are many.
    """
    timed_on = summary.timed_on
    rows = _shown(summary)
    if not only_shown:
        same = _common(summary)
        rows = [
            {**same, **layer.to_dict(), **shown}
            for layer, shown in zip(summary.layers, rows, strict=True)
        ]
    total = {
        "name": "total",
        **counts(summary),
        **timed_values(summary),
        **_time(summary, _time(summary).get("time_s")),
        "longer_bound": "",
    }
    number = sum(layer.instances for layer in summary.layers)
    title = summary_setting(summary, counted(number, "layer"))
    columns: tuple[Column, ...] = _COLUMNS
    if timed_on:
        digits = timed_on.plan.digits if timed_on.plan.band else 0
        columns += _times(digits)
        columns = tuple(replace(each, wide=each.key in _LESS) for each in columns)
    sums = footnotes(summary.layers)
    if timed_on:
        seconds = total.get("time_s")
        alone = None if seconds is None or is_array(seconds) else float(seconds)
        sums.append(band_said("both passes", timed_on.plan.band, alone, timed_on.plan.digits))
    return Table(title, columns, rows, total, footnotes=sums, notes=summary.notes)


def by_type_table(summary: NetSummary) -> Table:
    """Return sums over the layers of each type, those that take longest or compute most first."""
    is_timed = summary.timed_on is not None

    def size(group: Group) -> float:
        return float((group.time if is_timed else group.forward_flops) or 0)

    return groups_table(summary, sorted(by_type(summary), key=size, reverse=True), "type")


def summary_tables(
    summaries: Sequence[NetSummary], *, depth: int | None = None, types: bool = False
) -> list[Table]:
    """Return the layers of nets or, to a `depth` of blocks or by `types`, sums over them."""
    if types:
        return [groups_table(each, by_type(each), "type") for each in summaries]
    if depth is not None:
        return [groups_table(each, by_block(each, depth), "block") for each in summaries]
    return list(map(summary_table, summaries))


def explanation_table(summary: NetSummary, layer: ExplainedLayer) -> Table:
    """Return the operations of a layer, with why they take what they take below."""
    timed_on = summary.timed_on
    assert timed_on
    same = {**_common(summary), "layer": layer.name, "type": layer.type_name}
    rows = [
        {
            **same,
            **each.to_dict(),
            "step": _step(each),
            "moved": each.operation.work.bytes_read + each.operation.work.bytes_written,
            "details": "; ".join(_details(each, plain=True)),
        }
        for each in layer.operations
    ]
    said_below = [
        f"what is not here of its {name} pass runs in the kernel of {other}"
        for name, other in layer.runs_in
    ]
    if not rows and not said_below:
        said_below.append("it makes the device do nothing: there is no kernel, no memory traffic")
    for each in layer.operations:
        said = [each.explanation.why] * bool(each.explanation.why) + _details(each)
        said += [f"error band {each.band}"] if each.band else []
        if said:
            said_below.append(f"{_step(each)}: {'; '.join(said)}")
    if layer.waits:
        waits = in_unit(layer.waits, "s")
        said_below.append(f"besides, the device waits {waits} for the host to hand kernels over")
    said_below = list(dict.fromkeys(said_below))
    times = f" x {layer.instances}" if layer.instances > 1 else ""
    title = f"{layer.name}{times} ({layer.type_name}) of {summary_setting(summary)}"
    total = None
    if len(rows) > 1:
        sums = ("compute_s", "memory_s", "overhead_s", "total_s", "flops", "moved")
        total = {"step": "total", **{key: sum(row[key] for row in rows) for key in sums}}
    free = dict.fromkeys(each.operation.name for each in layer.operations if not each.is_counted)
    model = timed_on.plan.cost_model.name
    notes = [f"not counted by {model}: {', '.join(free)}"] if free else []
    return Table(title, _EXPLAINED, rows, total, footnotes=said_below, notes=notes)


def _step(each: ExplainedOperation) -> str:
    return f"{each.direction.value.replace('_', ' ')}: {each.operation.name}"


def _details(each: ExplainedOperation, *, plain: bool = False) -> list[str]:
    """Return what went into the price of an operation, for people or in SI units."""
    found = []
    for name, value, unit in each.explanation.details:
        if isinstance(value, str):
            shown = value
        elif plain:
            shown = f"{value} {unit}".rstrip()
        else:
            shown = in_unit(value, unit)
        found.append(f"{name} {shown}")
    return found
