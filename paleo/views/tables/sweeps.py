"""The table of why points of a sweep cannot be, and what programs get of a sweep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paleo.step.pieces import WholeStep
from paleo.studies.sweeps.tally import Tally
from paleo.views.table import Column, Table

_COLUMNS = (Column("points", "points"), Column("error", "that cannot be"))


def sweep_table(tally: Tally) -> Table:
    """Return the reasons why points cannot be, the most frequent first."""
    rows = [
        {"points": count, "error": text} for text, count in tally.most_frequent(len(tally.reasons))
    ]
    return Table("", _COLUMNS, rows)


def sweep_values(
    tally: Tally, labels: Mapping[str, Any], best: WholeStep | None, output: str
) -> dict[str, Any]:
    """Return the values under the keys of the JSON output."""
    frequent = tally.most_frequent(len(tally.reasons))
    return {
        "output": output,
        "points": tally.points - tally.left_out,
        "valid": tally.valid,
        "left_out": tally.left_out,
        "reasons": [{"error": text, "points": count} for text, count in frequent],
        "best": None if best is None else {"settings": dict(labels), **best.to_dict()},
    }
