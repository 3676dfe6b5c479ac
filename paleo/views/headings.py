"""Rows of repeated blocks under headings, so that a table of a deep net fits a terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from paleo.net.spec import in_file
from paleo.views.table import Table, columns_of, to_text

#: What a table is told of that has rows of several instances.
SUMS = "rows of a repeated block are sums over its instances"


def called(
    name: str, instances: int, repeats: Mapping[str, int], key: str = "name"
) -> dict[str, Any]:
    """Return what a row is called that is of so many instances of a layer, in a folded table.

    Its `key` is what it is called by itself. Its `heading` is its block and how often that repeats,
    and it is called as in `within` below.
    """
    known = in_file(name, repeats)
    block = max((prefix for prefix in repeats if known.startswith(prefix)), key=len, default="")
    if not block:
        return {key: name}
    every = math.prod(count for prefix, count in repeats.items() if block.startswith(prefix))
    times = f" x {instances}" if instances > 1 else ""
    inside = name.removeprefix(block if name == known else block[:-2])
    return {
        key: name + times,
        "heading": f"{block[:-3]} x {every}",
        "within": inside + times * (instances != every),
    }


def footnotes(layers: Sequence[Any]) -> list[str]:
    """Return what is said of a table in which rows are sums over instances, if they are."""
    return [SUMS] if any(layer.instances > 1 for layer in layers) else []


def under_headings(table: Table, width: int | None) -> Table:
    """Return a table whose rows of a repeated block stand below its name, if it has such rows.

    Where it is wider than `width`, columns that are spare are left out, and named below it.
    """
    if not any("heading" in row for row in table.rows):
        return table
    first = next(column.key for column in table.columns if column.title and not column.wide)
    rows: list[Mapping[str, Any]] = []
    last = None
    for row in table.rows:
        heading = row.get("heading")
        if heading and heading != last:
            rows.append({first: heading})
        last = heading
        rows.append({**row, first: f"  {row['within']}"} if heading else row)
    table = replace(table, rows=rows)
    shown = [column for column in table.columns if column.title and not column.wide]
    while width and _columns(table) > width and any(column.spare for column in table.columns):
        most = max(column.spare for column in table.columns)
        columns = [column for column in table.columns if column.spare < most]
        table = replace(table, columns=columns)
    gone = [column.title.replace("\n", " ") for column in shown if column not in table.columns]
    if gone:
        said = f"left out for want of room: {', '.join(gone)} (--wide)"
        table = replace(table, footnotes=[said, *table.footnotes])
    return table


def _columns(table: Table) -> int:
    """Return the columns of a terminal that a table takes."""
    text = to_text([replace(table, title="", footnotes=(), notes=())])
    return max(map(columns_of, text.splitlines()))
