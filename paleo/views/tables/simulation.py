"""The table of a simulation: a row for each number of workers, pass or part."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from paleo.core.attributes import at_ends
from paleo.step.parallelism import PARALLELISMS
from paleo.step.pieces import Step
from paleo.step.plan import SHARES
from paleo.step.plan_keys import EXCHANGED, HOW, TRAINED, UPDATED
from paleo.step.results import Run, Simulation
from paleo.studies.knee import LIMIT
from paleo.views.answers.base import amounts, band_said, rounded, utilization_said
from paleo.views.charts.settings import best_said, joined, run_setting
from paleo.views.table import Column, Table, in_unit, plain
from paleo.views.tables.base import common_notes

_SETTINGS = plain(
    "net",
    "device",
    "network",
    "cluster",
    "cost_model",
    "dtype",
    "parallel",
    "scaling",
    *HOW,
    *UPDATED,
    *TRAINED,
    *EXCHANGED,
    *SHARES,
)
#: What heads those that may differ from run to run.
_VARIED = ("net", "cluster", "device", "network", "cost_model", "dtype", "scaling")
#: What an exact scheme is.
_EXACT = " that gives all workers the whole sum"
#: The parts of computation, which stand in the sum of them.
_PARTS = ("forward_s", "recomputation_s", "backward_s", "update_s")
_EXCHANGE = Column("exchange_s", "communi-\ncation", "s", for_people=True, digits=3)
#: A part of it, to as many digits.
_EXPOSED = "exposed_communication_s"
#: How many workers there are on devices of all kinds.
_IN_ALL = Column("all_workers", "workers\nin all")
#: Of a whole training, where its length is given.
_TRAINING = (
    *plain("num_steps"),
    Column("training_time_s", "training", "duration"),
    Column("device_hours", "device-\nhours"),
    Column("training_energy_j", "energy", "J"),
    Column("training_cost", "cost"),
)
_BAND = Column("band", "80 % of cases", for_people=True, right=True)


def simulation_tables(simulation: Simulation, *, all_schemes: bool = False) -> list[Table]:
    """Return one table of all runs, beside each other; of passes and parts, a table for each.

    With `all_schemes` every scheme that was asked for has a column, else the best alone.
    """
    runs = simulation.runs
    if len(runs) == 1 or not all(run.largest for run in runs):
        return [_of_plan(plan, all_schemes=all_schemes) for plan in simulation.plans]
    tables = [simulation_table(run, all_schemes=all_schemes) for run in runs]
    settings = [run.settings() for run in runs]
    varied = [key for key in _VARIED if len({each[key] for each in settings}) > 1]
    columns = {column.key: column for column in tables[0].columns}
    columns |= {key: Column(key, key.replace("_", " ")) for key in varied}
    columns |= {
        key: replace(columns[key], wide=True)
        for key in ("speedup", "compute_s")
        if key in columns  # steps on a mesh have no speedup
    }
    if any(run.band for run in runs):
        columns[_BAND.key] = _BAND
    counts = [0]
    for table in tables:
        counts.append(counts[-1] + len(table.rows))
    return [
        Table(
            joined([f"{len(runs)} runs", *_in_common(runs, varied)]),
            tuple(columns.values()),
            [row for table in tables for row in table.rows],
            footnotes=[*_by_scheme(runs, all_schemes=all_schemes), *_utilization(runs)],
            notes=common_notes([(_named(run, varied), run.notes) for run in runs]),
            marked=frozenset(
                (start + i, key)
                for start, table in zip(counts, tables, strict=False)
                for i, key in table.marked
            ),
        )
    ]


def _of_plan(runs: Sequence[Run], *, all_schemes: bool) -> Table:
    """Return the table of a run, or of runs of one plan that differ in the number of workers."""
    tables = [simulation_table(run, all_schemes=all_schemes) for run in runs]
    if len(tables) == 1:
        return tables[0]
    counts = [run.step.workers if run.step else 0 for run in runs]
    rates = [
        f"{count:,} workers: {table.footnotes[0]}"
        for count, table in zip(counts, tables, strict=True)
    ]
    columns = list(tables[0].columns)
    columns.insert(len(_SETTINGS), _IN_ALL)
    others = [line for table in tables for line in table.footnotes[1:]]
    return replace(
        tables[0],
        columns=columns,
        rows=[
            {**row, _IN_ALL.key: count}
            for count, table in zip(counts, tables, strict=True)
            for row in table.rows
        ],
        footnotes=[*rates, *dict.fromkeys(others)],
        notes=list(dict.fromkeys(note for table in tables for note in table.notes)),
    )


def _named(run: Run, varied: Sequence[str]) -> str:
    return ", ".join(str(run.settings()[key]) for key in varied)


def _in_common(runs: Sequence[Run], varied: Sequence[str]) -> list[str]:
    """Return what all runs share of what a title says."""
    values = runs[0].settings() | {"scaling": f"{runs[0].scaling} scaling"}
    return [values[key] for key in _VARIED if key not in varied]


def _columns(run: Run, row: Step, *, all_schemes: bool) -> tuple[Column, ...]:
    """Return the columns of rows such as this one."""
    columns: list[Column] = []
    digits = run.plan.digits if run.band else 0
    for entry in sorted(row.fields, key=lambda entry: entry.place):
        if entry.is_nested:
            continue
        if entry.is_wide:
            columns += (
                Column(f"{name}_s", _two_lines(name), "s", digits=3, wide=not all_schemes)
                for name in entry.value(row)
            )
            columns.append(replace(_EXCHANGE, wide=all_schemes))
            continue
        column = Column(entry.key, entry.title, entry.dimension)
        if entry.key == _EXPOSED:
            column = replace(column, digits=3)
        if entry.banded:
            column = replace(column, digits=digits, least_is_best=entry.banded == "time")
        if run.band and column.dimension == "percent":
            column = replace(column, dimension="share")
        if run.band and column.key == "speedup":
            column = replace(column, digits=run.plan.ratio_digits)
        if row.exchanges and entry.key in _PARTS:
            column = replace(column, wide=True)
        columns.append(column)
    batch = [] if any(column.key == "batch_size" for column in columns) else [Column("batch_size")]
    bands = [replace(_BAND, wide=True)] if run.band and row.exchanges else []
    trained = run.trained(row)
    columns += (replace(each, digits=digits) for each in _TRAINING if each.key in trained)
    return (*_SETTINGS, *batch, *columns, *bands)


def _two_lines(scheme: str) -> str:
    """Break the name of a scheme before its last word: it heads a narrow column."""
    return re.sub(r"(?<=[a-z])(?=(AllReduce|Mixing)$)", "\n", scheme)


def _band_said(run: Run) -> str:
    """Return the error band in a sentence, in seconds where there is one row."""
    whole = run.band is not None and run.band.whole
    seconds = None
    if len(run.rows) == 1:
        (row,) = run.rows
        seconds = float(row.total(row.best_scheme) if whole else row.compute)
    return band_said("steps" if whole else "computation", run.band, seconds, run.plan.digits)


def simulation_table(run: Run, *, all_schemes: bool = False) -> Table:
    """Return the table of a run; where there are schemes to choose from, the best is marked."""
    settings = run.settings()
    title = f"{run.net} on {run_setting(run)}"
    columns = _columns(run, run.rows[0], all_schemes=all_schemes)
    rows = [settings | _values(run, row) for row in run.rows]
    total, footnotes = None, _by_scheme([run], all_schemes=all_schemes)
    if label := PARALLELISMS[run.parallel].total_label:
        sums = [column.key for column in columns if column.dimension and not column.for_people]
        total = dict([label, *((key, sum(row[key] for row in rows)) for key in sums)])
    if run.step:
        footnotes.append(
            f"{rounded(run.step.throughput, run.plan.digits)} samples/s, speedup "
            f"{rounded(run.step.speedup, run.plan.ratio_digits)} over one worker, efficiency "
            f"{100 * run.step.efficiency:.1f} %"
        )
    footnotes.append(_band_said(run))
    footnotes += _utilization([run])
    footnotes += _worth(run, all_schemes=all_schemes)
    return Table(
        title,
        columns,
        rows,
        total,
        footnotes=footnotes,
        notes=run.notes,
        # A worker alone exchanges nothing.
        marked=frozenset(
            (i, f"{row.best_scheme}_s")
            for i, row in enumerate(run.rows)
            if row.exchanges and row.workers > 1
        ),
    )


def _utilization(runs: Sequence[Run]) -> list[str]:
    """Return what MFU means, where the table has it."""
    shown = {entry.key for run in runs for entry in run.rows[0].fields if entry.title}
    return [utilization_said(with_hfu="hfu" in shown)] if "mfu" in shown else []


def _by_scheme(runs: Sequence[Run], *, all_schemes: bool) -> list[str]:
    """Return by which scheme workers communicate."""
    chosen = [run for run in runs if run.best_scheme in run.plan.exchange_schemes]
    rows = [run.largest for run in chosen if run.largest and run.largest.workers > 1]
    schemes = ", ".join(dict.fromkeys(row.best_scheme for row in rows))
    if not schemes:
        return []
    which = ""
    if len(rows[0].exchanges) > 1:
        which = f", the quickest scheme{_EXACT if best_said(rows[0]) != 'best' else ''}"
    return [f"{'* ' if all_schemes else 'communication is by '}{schemes}{which}"]


def _values(run: Run, row: Step) -> dict[str, Any]:
    """Return the values of a row, of those by scheme the best scheme's but for times."""
    values: dict[str, Any] = {}
    wide = [entry.key for entry in row.fields if entry.is_wide]
    nested = [entry.key for entry in row.fields if entry.is_nested]
    for key, value in row.to_dict().items():
        if key in nested:
            continue
        if key in wide:
            values |= {f"{name}_s": seconds for name, seconds in value.items()}
            values[_EXCHANGE.key] = value[row.best_scheme]
        else:
            values[key] = value[row.best_scheme] if isinstance(value, Mapping) else value
    values |= run.trained(row)
    if run.band and row.exchanges:
        digits = run.plan.digits
        ends = row.whole_step(row.best_scheme).ends
        slow, quick = amounts(at_ends(ends, lambda end: end.throughput), digits)[::-1]
        values[_BAND.key] = f"{slow or 'any'} to {quick or 'any'}"
    return values


def _worth(run: Run, *, all_schemes: bool) -> list[str]:
    """Return how many workers are worth it, and the batch that one device holds."""
    lines = []
    is_alone = run.largest is not None and run.largest.workers == 1
    knees = run.worth.knee.items() if all_schemes or not is_alone else ()
    schemes = [scheme for scheme, _ in knees if all_schemes or scheme == run.best_scheme]
    if schemes:
        none = f"none up to {min(LIMIT, run.plan.topology.size):,}"
        counts = (f"{run.worth.knee[name] or none} by {name}" for name in schemes)
        what = "knee, beyond which more workers waste more than they gain"
        lines.append(f"{what}: {', '.join(counts)}")
    if run.worth.largest_batch is not None and run.memory_capacity:
        lines.append(
            f"largest batch that fits {in_unit(run.memory_capacity, 'bytes')} of one {run.device}: "
            f"{run.worth.largest_batch:,} samples in training with {run.plan.optimizer}"
        )
    return lines
