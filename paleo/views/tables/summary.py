"""The tables of a summary: its layers, and why one of them takes what it takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from paleo.charts.layers import summary_setting
from paleo.charts.numbers import counted
from paleo.costs import Time
from paleo.explain import ExplainedLayer, ExplainedOperation
from paleo.report import Column, Table, in_unit
from paleo.summary import NetSummary
from paleo.tables.base import CONVOLUTION_KEYS
from paleo.tensor import format_shape

__all__ = ["explanation_table", "summary_table"]

_Found = TypeVar("_Found")

_COLUMNS = (
    Column("net"),
    Column("dtype"),
    Column("name", "layer"),
    Column("type", "type"),
    Column("parents"),
    Column("first_parents", "parents", for_people=True),
    Column("output", "output"),
    Column("params", "parameters"),
    Column("forward_flops", "forward", "FLOP"),
    Column("weights_bytes", "weights", "bytes"),
    Column("activations_bytes", "activations", "bytes"),
)
_TIMES = (
    Column("forward_s", "forward", "s"),
    Column("forward_bound", "bound"),
    Column("backward_s", "backward", "s"),
    Column("backward_bound", "bound"),
    *(Column(key) for of in ("forward", "backward") for key in Time().to_dict(of)),
    *map(Column, ("device", "cost_model", "ppp_comp", "use_pipeline", "fuse")),
    *map(Column, CONVOLUTION_KEYS),
)
_EXPLAINED = (
    *map(Column, ("net", "layer", "type")),
    Column("pass"),
    Column("step", "operation", for_people=True),
    Column("operation"),
    Column("counted"),
    Column("algorithm", "algorithm"),
    Column("bound", "bound"),
    Column("compute_s", "compute", "s"),
    Column("memory_s", "memory", "s"),
    Column("overhead_s", "overhead", "s"),
    Column("total_s", "total", "s"),
    Column("flops", "computation", "FLOP"),
    Column("moved", "moved", "bytes", for_people=True),
    *map(Column, ("bytes_read", "bytes_written", "why", "details")),
    *map(Column, ("dtype", "device", "cost_model", "ppp_comp", "use_pipeline", "fuse")),
    *map(Column, CONVOLUTION_KEYS),
)


def _short(parents: tuple[str, ...]) -> str:
    """Return the first parents, and how many more there are: a table is to fit a screen."""
    more = f", +{len(parents) - 2}" if len(parents) > 2 else ""
    return ", ".join(parents[:2]) + more


def _of_each(what: Callable[[Any], _Found], values: Sequence[Any]) -> list[_Found]:
    """Return `what` of each of these values: equal layers have the same ones, so it is found once.

    They are told apart by what they are, not by what they equal: they may have arrays in them.
    """
    distinct = {id(value): value for value in values}
    found = {which: what(value) for which, value in distinct.items()}
    return [found[id(value)] for value in values]


def _shown(summary: NetSummary) -> list[dict[str, Any]]:
    """Return what people see of each layer."""
    layers = summary.layers
    outputs = _of_each(format_shape, [layer.output for layer in layers])
    rows: list[dict[str, Any]] = [
        {
            "name": layer.name,
            "type": layer.type_name,
            "first_parents": _short(layer.parents),
            "output": output,
            "params": layer.num_params,
            "forward_flops": layer.forward_flops,
            "weights_bytes": layer.weights_bytes,
            "activations_bytes": layer.activations_bytes,
        }
        for layer, output in zip(layers, outputs, strict=True)
    ]
    if summary.timed_on:
        bounds = (
            _of_each(_bound, [layer.forward_time for layer in layers]),
            _of_each(_bound, [layer.backward_time for layer in layers]),
        )
        for row, layer, forward, backward in zip(rows, layers, *bounds, strict=True):
            row["forward_s"] = layer.forward
            row["forward_bound"] = forward
            row["backward_s"] = layer.backward
            row["backward_bound"] = backward
    return rows


def _bound(time: Time | None) -> Any:
    return time.bound if time else ""


def summary_table(summary: NetSummary, *, only_shown: bool = False) -> Table:
    """Return the layers of a net, with their times if it has any.

    With `only_shown` the rows have nothing of the columns for programs: for whoever shows the table
    that is sooner made, where layers are many.
    """
    timed_on = summary.timed_on
    rows = _shown(summary)
    if not only_shown:
        same = {
            "net": summary.name,
            "dtype": summary.dtype,
            **(timed_on.to_dict() if timed_on else {}),
        }
        rows = [
            {**same, **layer.to_dict(), **shown}
            for layer, shown in zip(summary.layers, rows, strict=True)
        ]
    total = {
        "name": "total",
        "params": summary.num_params,
        "forward_flops": summary.forward_flops,
        "weights_bytes": summary.weights_bytes,
        "activations_bytes": summary.activations_bytes,
        "forward_s": summary.forward,
        "backward_s": summary.backward,
    }
    title = f"{summary.name}, {summary_setting(summary, counted(len(rows), 'layer'))}"
    columns: tuple[Column, ...] = _COLUMNS
    if timed_on:
        columns += _TIMES
        for name, time in (("forward", summary.forward_time), ("backward", summary.backward_time)):
            total[f"{name}_bound"] = _bound(time)
    footnotes = [f"whole passes {timed_on.band.said}"] if timed_on and timed_on.band else []
    return Table(title, columns, rows, total, footnotes=footnotes, notes=summary.notes)


def explanation_table(summary: NetSummary, layer: ExplainedLayer) -> Table:
    """Return the operations of a layer, with why they take what they take below."""
    timed_on = summary.timed_on
    assert timed_on
    rows = []
    for each in layer.operations:
        values = each.to_dict()
        rows.append(
            {
                "net": summary.name,
                "dtype": summary.dtype,
                "layer": layer.name,
                "type": layer.type_name,
                **timed_on.to_dict(),
                **values,
                "step": _step(each),
                "moved": values["bytes_read"] + values["bytes_written"],
                "details": "; ".join(_details(each, plain=True)),
            }
        )
    footnotes = [
        f"what is not here of its {name} pass runs in the kernel of {other}"
        for name, other in layer.runs_in
    ]
    if not rows and not footnotes:
        footnotes.append("it makes the device do nothing: there is no kernel, no memory traffic")
    for each in layer.operations:
        said = [each.explanation.why] * bool(each.explanation.why) + _details(each)
        said += [f"error band {each.band}"] if each.band else []
        if said:
            footnotes.append(f"{_step(each)}: {'; '.join(said)}")
    footnotes = list(dict.fromkeys(footnotes))
    title = f"{layer.name} ({layer.type_name}) of {summary.name}, {summary_setting(summary)}"
    total = {"step": "total", **_sums(rows)} if len(rows) > 1 else None
    return Table(
        title,
        _EXPLAINED,
        rows,
        total,
        footnotes=footnotes,
        notes=_left_out(layer, timed_on.cost_model),
    )


def _sums(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    keys = ("compute_s", "memory_s", "overhead_s", "total_s", "flops", "moved")
    return {key: sum(row[key] for row in rows) for key in keys}


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


def _left_out(layer: ExplainedLayer, cost_model: str) -> tuple[str, ...]:
    names = dict.fromkeys(each.operation.name for each in layer.operations if not each.is_counted)
    return (f"not counted by {cost_model}: {', '.join(names)}",) if names else ()
