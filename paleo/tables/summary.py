"""The tables of a summary: its layers, and why one of them takes what it takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paleo.charts.layers import summary_setting
from paleo.costs import Time
from paleo.explain import ExplainedLayer, ExplainedOperation
from paleo.report import Column, Table, in_unit
from paleo.summary import NetSummary
from paleo.tables.base import CONVOLUTION_KEYS
from paleo.tensor import format_shape

__all__ = ["explanation_table", "summary_table"]

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


def summary_table(summary: NetSummary) -> Table:
    """Return the layers of a net, with their times if it has any."""
    timed_on = summary.timed_on
    same = {
        "net": summary.name,
        "dtype": summary.dtype,
        **(timed_on.to_dict() if timed_on else {}),
    }
    rows = [
        {
            **same,
            **layer.to_dict(),
            "output": format_shape(layer.output),
            "first_parents": _short(layer.parents),
        }
        for layer in summary.layers
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
    plural = "s" * (len(rows) != 1)
    title = f"{summary.name}, {summary_setting(summary, f'{len(rows)} layer{plural}')}"
    columns: tuple[Column, ...] = _COLUMNS
    if timed_on:
        columns += _TIMES
        for name, time in (("forward", summary.forward_time), ("backward", summary.backward_time)):
            total[f"{name}_bound"] = time.bound if time else ""
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
