"""What a search found: what is chosen at each place, and the nets of the front."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from paleo.studies.search.quantities import Asked
from paleo.studies.search.results import FoundNet, Search
from paleo.views.answers.base import band_said
from paleo.views.table import Column, Table, plain

#: So many nets of a front are shown to people, from one end to the other.
_SHOWN = 20


def search_tables(found: Search, *, for_people: bool) -> list[Table]:
    """Return the tables of a search: choices and the front; for programs the front, if any."""
    tables = [choices_table(found)]
    if found.front:
        front = front_table(found, for_people=for_people)
        tables = [*tables, front] if for_people else [front]
    return tables


def choices_table(found: Search) -> Table:
    """Return what is chosen at each place, and what the layers there take."""
    rows: list[dict[str, Any]] = [
        {
            "choice": each.name,
            "chosen": each.label,
            "output": None if each.output is None else "x".join(map(str, each.output[1:])),
            "params": each.num_params,
            "forward_flops": each.forward_flops,
            "time_s": each.seconds,
        }
        for each in found.layers
    ]
    columns = (
        Column("choice", "choice"),
        Column("chosen", "chosen", right=True),
        Column("output", "output", right=True),
        Column("params", "params"),
        Column("forward_flops", "forward", "FLOP"),
        Column("time_s", "time", "s", least_is_best=True),
    )
    passes = "the forward pass" if found.is_inference else "both passes"
    band = found.band(Asked("latency" if found.is_inference else "time"))
    said = band_said("passes" if found.is_inference else "steps", band)
    footnotes = [f"time: of {passes} of the layers there", said]
    plan = found.scenario.plan
    title = (
        f"{found.net.name}, space {found.space.name}: {plan.device.name}, batch "
        f"{found.scenario.batch_size}, {plan.dtype}, cost model {plan.cost_model.name}"
    )
    return Table(title, columns, rows, footnotes=footnotes, notes=found.notes)


def front_table(found: Search, *, for_people: bool) -> Table:
    """Return the nets of the front, to people some from one end to the other."""
    asked = list(dict.fromkeys(goal.asked for goal in (found.goal, *found.front_goals)))
    others = dict.fromkeys(each.asked for each in found.constraints)
    asked += [each for each in others if each not in asked]
    nets = _spread(found.front) if for_people else found.front
    rows = [_row(net, asked) for net in nets]
    columns = (
        *(_column(each, found) for each in asked),
        Column("choices", "choices", for_people=True),
        *plain(*(choice.name for choice in found.space.choices)),
    )
    left = len(found.front) - len(nets)
    footnotes = [f"{left:,} between are left out: --format=csv has all"] if left else []
    return Table("the front", columns, rows, footnotes=footnotes, notes=found.notes)


def _column(asked: Asked, found: Search) -> Column:
    quantity, band = asked.quantity, found.band(asked)
    dimension = quantity.unit if quantity.unit in ("s", "bytes", "J", "FLOP") else ""
    key = quantity.key if asked.device is None else f"{quantity.key}@{asked.device}"
    title = str(asked).replace("@", "\n@")
    digits = band.digits if band else 0
    return Column(key, title, dimension, digits=digits, least_is_best=not quantity.is_more)


def _row(net: FoundNet, asked: Sequence[Asked]) -> dict[str, Any]:
    values = {
        each.quantity.key + (f"@{each.device}" if each.device else ""): net.values[str(each)]
        for each in asked
    }
    return {**values, **net.choices, "choices": in_short(net.choices.values())}


def _spread(front: Sequence[FoundNet]) -> Sequence[FoundNet]:
    if len(front) <= _SHOWN:
        return front
    last = len(front) - 1
    return [front[round(i * last / (_SHOWN - 1))] for i in range(_SHOWN)]


def in_short(labels: Iterable[str]) -> str:
    """Return labels in a line, equal ones behind each other as one.

    >>> in_short(["64", "none", "none", "none"])
    '64, 3 x none'
    """
    runs = ((label, len(list(own))) for label, own in itertools.groupby(labels))
    return ", ".join(f"{count} x {label}" if count > 1 else label for label, count in runs)
