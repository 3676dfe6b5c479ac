"""The table of a simulated run: a row for each number of workers, pass or part."""

from __future__ import annotations

import re
from typing import Any

from paleo.charts.numbers import counted
from paleo.charts.settings import best_said, run_setting
from paleo.costs import Time
from paleo.report import Column, Table
from paleo.rows import DataRow, Run
from paleo.scaling import LIMIT
from paleo.tables.base import CONVOLUTION_KEYS
from paleo.units import scale_for

__all__ = ["simulation_table"]

_SETTINGS = tuple(
    map(
        Column,
        (
            "net",
            "device",
            "network",
            "cost_model",
            "dtype",
            "parallel",
            "scaling",
            "use_pipeline",
            "fuse",
            *CONVOLUTION_KEYS,
            "ppp_comp",
            "ppp_comm",
        ),
    )
)
_TIMES = (
    Column("forward_s", "forward", "s"),
    Column("backward_s", "backward", "s"),
    Column("update_s", "update", "s"),
)
_MODEL_COLUMNS = (
    *_SETTINGS,
    Column("batch_size"),
    Column("pass", "pass"),
    Column("lower_s", "lower bound", "s"),
    Column("upper_s", "upper bound", "s"),
)
_HYBRID_COLUMNS = (
    *_SETTINGS,
    Column("part", "part"),
    Column("workers", "workers"),
    Column("batch_size", "batch"),
    *_TIMES,
    Column("sync_s", "Tree\nAllReduce", "s"),
    Column("total_s", "total", "s"),
)
#: What an exact scheme is.
_EXACT = " (after it all workers have the sum)"
_HYBRID_SUMS = tuple(column.key for column in _HYBRID_COLUMNS if column.dimension)


def _data_columns(schemes: list[str]) -> tuple[Column, ...]:
    return (
        *_SETTINGS,
        Column("workers", "workers"),
        Column("batch_size", "batch"),
        Column("iterations"),
        *_TIMES,
        Column("compute_s", "compute", "s"),
        *(Column(f"{name}_s", _two_lines(name), "s") for name in schemes),
        Column("best_scheme"),
        Column("step_s", "step", "s"),
        Column("throughput_per_s", "samples\n/s"),
        Column("speedup", "speedup"),
        Column("efficiency", "efficiency", "percent"),
        *(Column(key) for of in ("forward", "backward", "update") for key in Time().to_dict(of)),
    )


def _two_lines(scheme: str) -> str:
    """Break the name of a scheme before its last word: it heads a narrow column."""
    return re.sub(r"(?<=[a-z])(?=(AllReduce|Mixing)$)", "\n", scheme)


def simulation_table(run: Run) -> Table:
    """Return the table of a run; of data parallelism, the best scheme is marked."""
    settings = run.to_dict()
    dicts = settings.pop("rows")
    title = f"{run.net} on {run_setting(run)}"
    rows: list[dict[str, Any]] = []
    marked, best_is = set(), ""
    columns: tuple[Column, ...] = _MODEL_COLUMNS if run.parallel == "model" else _HYBRID_COLUMNS
    for row, own in zip(run.rows, dicts, strict=True):
        values = settings | own
        if isinstance(row, DataRow):
            best = row.best_scheme
            if row.workers > 1:  # a worker alone exchanges nothing
                marked.add((len(rows), f"{best}_s"))
                best_is = best_said(row)
            values |= {f"{name}_s": seconds for name, seconds in row.communication.items()}
            for name in ("step_s", "throughput_per_s", "speedup", "efficiency"):
                values[name] = values[name][best]
            columns = _data_columns(list(row.communication))
        rows.append(values)
    total, footnotes = None, []
    if marked:
        which = f"{best_is} scheme{_EXACT if best_is != 'best' else ''}"
        footnotes.append(f"* the {which}; step, samples/s, speedup and efficiency are with it")
    if run.parallel == "model":
        sums = {key: sum(row[key] for row in rows) for key in ("lower_s", "upper_s")}
        total = {"pass": "both", **sums}
    elif run.step:
        total = {"part": "step", **{key: sum(row[key] for row in rows) for key in _HYBRID_SUMS}}
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
        marked=frozenset(marked),
    )


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
        scale = scale_for([[run.memory_capacity]], "bytes")
        size = f"{run.memory_capacity / scale.factor:g} {scale.unit}"
        lines.append(
            f"largest batch that fits {size} on one {run.device}: "
            f"{counted(run.worth.largest_batch, 'sample')} in training (sgd)"
        )
    return lines
