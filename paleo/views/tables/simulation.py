"""The table of a simulated run: a row for each number of workers, pass or part."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from paleo.step.parallelism import PARALLELISMS
from paleo.step.pieces import Step
from paleo.step.plan import HOW, SHARES
from paleo.step.results import Run
from paleo.studies.knee import LIMIT
from paleo.views.charts.numbers import counted
from paleo.views.charts.settings import best_said, run_setting
from paleo.views.table import Column, Table, in_unit, plain

_SETTINGS = plain(
    "net", "device", "network", "cost_model", "dtype", "parallel", "scaling", *HOW, *SHARES
)
#: What an exact scheme is.
_EXACT = " (after it all workers have the sum)"


def _columns(row: Step) -> tuple[Column, ...]:
    """Return the columns of rows such as this one."""
    columns: list[Column] = []
    for entry in sorted(row.fields, key=lambda entry: entry.place):
        if entry.is_wide:
            columns += (Column(f"{name}_s", _two_lines(name), "s") for name in entry.value(row))
        else:
            columns.append(Column(entry.key, entry.title, entry.dimension))
    batch = [] if any(column.key == "batch_size" for column in columns) else [Column("batch_size")]
    return (*_SETTINGS, *batch, *columns)


def _two_lines(scheme: str) -> str:
    """Break the name of a scheme before its last word: it heads a narrow column."""
    return re.sub(r"(?<=[a-z])(?=(AllReduce|Mixing)$)", "\n", scheme)


def simulation_table(run: Run) -> Table:
    """Return the table of a run; where there are schemes to choose from, the best is marked."""
    settings = run.to_dict()
    settings.pop("rows")
    title = f"{run.net} on {run_setting(run)}"
    columns = _columns(run.rows[0])
    rows = [settings | _values(row) for row in run.rows]
    # A worker alone exchanges nothing.
    several = {i: row for i, row in enumerate(run.rows) if row.exchanges and row.workers > 1}
    total, footnotes = None, []
    if several:
        best_is = best_said(several[max(several)])
        which = f"{best_is} scheme{_EXACT if best_is != 'best' else ''}"
        footnotes.append(f"* the {which}; step, samples/s, speedup and efficiency are with it")
    if label := PARALLELISMS[run.parallel].total_label:
        sums = [column.key for column in columns if column.dimension]
        total = dict([label, *((key, sum(row[key] for row in rows)) for key in sums)])
    if run.step:
        footnotes.append(
            f"{run.step.throughput:,.0f} samples/s, speedup {run.step.speedup:.3f} over one "
            f"worker, efficiency {100 * run.step.efficiency:.1f} %"
        )
    if run.band:
        footnotes.append(f"computation {run.band.said}")
    footnotes += _worth(run)
    return Table(
        title,
        columns,
        rows,
        total,
        footnotes=footnotes,
        notes=run.notes,
        marked=frozenset((i, f"{row.best_scheme}_s") for i, row in several.items()),
    )


def _values(row: Step) -> dict[str, Any]:
    """Return the values of a row, of those by scheme the best scheme's but for times."""
    values: dict[str, Any] = {}
    for entry in row.fields:
        value = entry.value(row)
        if entry.is_wide:
            values |= {f"{name}_s": seconds for name, seconds in value.items()}
        else:
            values[entry.key] = value[row.best_scheme] if isinstance(value, Mapping) else value
    return values


def _worth(run: Run) -> list[str]:
    """Return how many workers are worth it, and the batch that one device holds."""
    lines = []
    if run.worth.knee:
        found = [f"{scheme} {count:,}" for scheme, count in run.worth.knee.items() if count]
        none = [scheme for scheme, count in run.worth.knee.items() if not count]
        parts = [", ".join(found)] if found else []
        parts += [f"no knee up to {LIMIT:,}: {', '.join(none)}"] if none else []
        lines.append(f"workers worth it (knee of the curve): {'; '.join(parts)}")
    if run.worth.largest_batch is not None and run.memory_capacity:
        size = in_unit(run.memory_capacity, "bytes")
        lines.append(
            f"largest batch that fits {size} on one {run.device}: "
            f"{counted(run.worth.largest_batch, 'sample')} in training (sgd)"
        )
    return lines
