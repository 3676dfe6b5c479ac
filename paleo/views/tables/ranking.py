"""The table that ranks metrics: a row for each plan, with what most ask of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from paleo.core.attributes import at_ends, attributes
from paleo.studies.metrics import Metrics
from paleo.studies.training import ENERGY_BOUND
from paleo.views.answers.base import durations, spread
from paleo.views.answers.metrics import INFERENCE, Purpose
from paleo.views.table import Column, Table
from paleo.views.tables.metrics import columns_of_metrics, row_of_metrics

#: The settings that metrics may differ in, each with what heads it.
_VARIED = {
    "net": "net",
    "device": "device",
    "network": "network",
    "cluster": "cluster",
    "cost_model": "cost model",
    "dtype": "type",
    "workers": "workers",
    "batch_size": "batch",
}
#: So many stand beside each other on a screen.
_BESIDE = 2
#: Those that play no part in inference, which is on one device.
_OF_CLUSTER = ("network", "cluster", "workers")


def is_ranking(found: Sequence[Metrics]) -> bool:
    """Tell whether metrics are too many to stand beside each other, or differ in more than that.

    What stands beside each other is headed by the net and the number of workers.
    """
    settings = [
        _settings(each, INFERENCE) | {"net": "", "batch_size": each.scenario.batch_size}
        for each in found
    ]
    return len(found) > _BESIDE or any(each != settings[0] for each in settings)


def ranking_table(found: Sequence[Metrics], purpose: Purpose) -> Table:
    """Return the table of plans for a purpose, with a column for each setting that differs."""
    values = [_settings(each, purpose) for each in found]
    if any(own["cluster"] for own in values):  # which has devices and networks of its own
        values = [
            own | {"network": "", "cluster": each.plan.topology.name}
            for own, each in zip(values, found, strict=True)
        ]
    varied = [key for key in _VARIED if len({each[key] for each in values}) > 1]
    same = [_said(key, values[0][key]) for key in _VARIED if key not in varied and values[0][key]]
    programs = columns_of_metrics(found[0].plan.optimizer)
    return Table(
        ", ".join([purpose.name, *same]),
        (
            *(Column(f"its_{key}", _VARIED[key], for_people=True) for key in varied),
            *_columns(found, purpose),
            *(replace(column, title="") for column in programs if not column.for_people),
        ),
        [
            row_of_metrics(each)
            | {f"its_{key}": value for key, value in own.items()}
            | _row(each, purpose)
            for each, own in zip(found, values, strict=True)
        ],
        notes=_notes(found, values, varied),
    )


def _notes(
    found: Sequence[Metrics], values: Sequence[dict[str, Any]], varied: Sequence[str]
) -> tuple[str, ...]:
    """Return the notes, each once; those that are not of all say of whom they are.

    That is said by one setting, if it decides who has the note.
    """
    plans: dict[str, list[int]] = {}
    for i, each in enumerate(found):
        for note in dict.fromkeys(each.notes):
            if note == ENERGY_BOUND:  # of what a ranking does not show
                continue
            plans.setdefault(note, []).append(i)
    said = []
    for note, own in plans.items():
        others = [i for i in range(len(found)) if i not in own]
        keys = [key for key in varied if not _both(key, values, own, others)][:1] or varied
        names = [", ".join(str(values[i][key]) for key in keys) for i in own if others]
        said += [f"{name}: {note}" for name in names] or [note]
    return tuple(dict.fromkeys(said))


def _both(
    key: str, values: Sequence[dict[str, Any]], own: Sequence[int], others: Sequence[int]
) -> bool:
    """Tell whether a value of a setting is one of both."""
    return not {values[i][key] for i in own}.isdisjoint(values[i][key] for i in others)


def _said(key: str, value: Any) -> str:
    return f"{_VARIED[key]} {value:,}" if isinstance(value, int) else str(value)


def _settings(each: Metrics, purpose: Purpose) -> dict[str, Any]:
    values = attributes(each, *_VARIED)
    if purpose is INFERENCE:
        values |= {"batch_size": each.worker_batch_size, **dict.fromkeys(_OF_CLUSTER)}
    return values


def _columns(found: Sequence[Metrics], purpose: Purpose) -> list[Column]:
    digits = max(each.plan.digits for each in found)
    currencies = ", ".join(dict.fromkeys(each.price.currency for each in found if each.price))
    has_runs = purpose is not INFERENCE and any(each.training_time for each in found)
    cost = "cost" if has_runs else "cost of a\nmillion"
    columns = [
        Column("latency", purpose.time, "s", digits=digits, least_is_best=True),
        Column("band", "80 % of cases", right=True),
        Column("rate", f"{purpose.samples(found[0])}/s", digits=digits),
    ]
    if has_runs:
        columns.append(Column("time", "training", "duration", digits=digits, least_is_best=True))
    if currencies:
        columns.append(Column("cost", f"{cost} ({currencies})", digits=digits, least_is_best=True))
    columns += [
        Column("memory", "memory", "bytes", digits=3, least_is_best=True),
        Column("fits", "fits"),
    ]
    return [replace(column, for_people=True) for column in columns]


def _row(each: Metrics, purpose: Purpose) -> dict[str, Any]:
    """Return what a ranking says of one."""
    memory = purpose.memory(each)
    digits, like = each.plan.digits, purpose.seconds(each)
    ends = durations(at_ends(each.ends, purpose.seconds), digits, like)
    whole = purpose is not INFERENCE and each.training_cost is not None
    return {
        "latency": purpose.seconds(each),
        "band": spread(ends).strip(" ()"),
        "rate": purpose.rate(each),
        "time": each.training_time,
        "cost": each.training_cost if whole else purpose.cost(each),
        "memory": memory.peak if memory else None,
        "fits": {True: "yes", False: "no", None: ""}[purpose.fits(each)],
    }
