"""The table of a summary by block or by type: sums over the layers, and their shares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paleo.studies.grouping import Group
from paleo.studies.summary import NetSummary
from paleo.views.charts.layers import summary_setting
from paleo.views.charts.numbers import counted
from paleo.views.table import Column, Table, plain


def groups_table(summary: NetSummary, groups: Sequence[Group], what: str) -> Table:
    """Return a row for each group, which is `what`: a block or a type."""
    rows = [group.to_dict() for group in groups]
    sums = [key for key in rows[0] if key not in ("name", "instances")]
    totals = {key: sum(row[key] for row in rows) for key in sums}
    is_timed = "time_s" in totals
    digits = summary.timed_on.plan.digits if summary.timed_on else 0
    times = (
        Column("time_s", "time", "s", digits=digits),
        Column("time_share", "share", "share", for_people=True),
    )
    columns = (
        *plain("net", "name", "instances"),
        Column("shown_name", what, for_people=True),
        Column("layers", "layers"),
        Column("params", "parameters"),
        Column("params_share", "share", "share", for_people=True),
        Column("forward_flops", "forward", "FLOP"),
        Column("flops_share", "share", "share", for_people=True),
        Column("weights_bytes", "weights", "bytes", wide=True),
        Column("activations_bytes", "activations", "bytes", wide=is_timed),
        *(times if is_timed else ()),
    )
    shared = {"params_share": "params", "flops_share": "forward_flops", "time_share": "time_s"}

    def with_shares(row: dict[str, Any]) -> dict[str, Any]:
        shares = {share: row[key] / totals[key] for share, key in shared.items() if totals.get(key)}
        count = row.get("instances", 1)
        name = row["name"] if count == 1 else f"{row['name'].removesuffix('/*')} x {count}"
        return {"net": summary.name, **row, "shown_name": name, **shares}

    title = summary_setting(summary, counted(len(summary.layers), "layer"))
    return Table(
        title,
        columns,
        [with_shares(row) for row in rows],
        with_shares({"name": "total", **totals}),
        notes=summary.notes,
    )
