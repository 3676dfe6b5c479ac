"""How a training step scales: speedup, time and efficiency against the number of workers."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from paleo.step.results import Run
from paleo.views.charts.base import Chart, Series, in_one_unit
from paleo.views.charts.numbers import counted
from paleo.views.charts.settings import best_said, run_setting

#: What a share is multiplied by to be in percent.
_PERCENT = 100
#: The line of all schemes on one worker.
_ALL_THE_SAME = "any scheme: one worker exchanges nothing"
#: The parts of a hybrid step are no bars that run side by side.
_BOTH = "step: one after the other"
#: What a timeline calls it, too.
_SAID = {"sync": "exchange"}


def scaling_charts(run: Run, scheme: str | None = None) -> tuple[Chart, ...]:
    """Return the charts of a run.

    Of data parallelism: speedup, step and efficiency, a line for each scheme, of which `scheme`
    (None: the best on most workers) is chosen. Of model parallelism the bounds of the passes, of
    hybrid parallelism what the parts of a step take, and the step.
    """
    if run.largest:
        return _by_scheme(run, looked_at(run, scheme))
    return (_parts(run),) if run.step else (_bounds(run),)


def looked_at(run: Run, scheme: str | None) -> dict[str, str]:
    """Return the scheme to look at with why it is the one, for `Series.chosen`.

    It is `scheme` or the best on most workers; none where there is nothing to choose from.
    """
    if run.largest is None or len(schemes_shown(run)) == 1:
        return {}
    if scheme:
        return {scheme: "chosen"}
    on = counted(run.largest.workers, "worker")
    return {run.best_scheme: f"the {best_said(run.largest)} on {on}"}


def schemes_shown(run: Run) -> dict[str, str]:
    """Return the names of lines, with the scheme that each is of, under data parallelism.

    One worker alone exchanges nothing: there all schemes are one line.
    """
    assert run.largest is not None
    schemes = list(run.largest.exchanges)
    if len(schemes) > 1 and run.largest.workers == 1:
        return {_ALL_THE_SAME: schemes[0]}
    return {scheme: scheme for scheme in schemes}


def over_workers(
    key: str,
    title: str,
    y_label: str,
    columns: Iterable[Sequence[float | None]],
    references: Iterable[Series] = (),
    *,
    workers: Mapping[str, Sequence[int]],
    chosen: Mapping[str, str],
    **chart: Any,
) -> Chart:
    """Return a chart of lines over numbers of workers, which are given by the name of each.

    `chosen` are lines to look at, with why, `chart` is what else a Chart has.
    """
    lines = [
        Series(name, tuple(counts), tuple(column), chosen=chosen.get(name, ""))
        for (name, counts), column in zip(workers.items(), columns, strict=True)
    ]
    known: dict[str, Any] = {"x_label": "workers", "log_x": True, "log_y": True} | chart
    return Chart(key, "lines", title, y_label=y_label, series=(*lines, *references), **known)


def _by_scheme(run: Run, chosen: Mapping[str, str]) -> tuple[Chart, ...]:
    workers = tuple(row.workers for row in run.rows)
    wholes = {
        name: [row.whole_step(scheme) for row in run.rows]
        for name, scheme in schemes_shown(run).items()
    }
    draw = functools.partial(
        over_workers,
        workers=dict.fromkeys(wholes, workers),
        chosen=chosen,
        setting=run_setting(run),
        notes=run.notes,
    )
    seconds = [[step.seconds for step in steps] for steps in wholes.values()]
    scale, times = in_one_unit(seconds, "s", by_largest=True)
    none: list[list[float | None]] = [[None] * len(workers)] * len(wholes)
    speedups = efficiencies = none
    if all(row.compute for row in run.rows):
        speedups = [[step.speedup for step in steps] for steps in wholes.values()]
        efficiencies = [[_PERCENT * step.efficiency for step in steps] for steps in wholes.values()]
    ideal = Series("ideal", workers, tuple(map(float, workers)), is_reference=True)
    return (
        draw("speedup", f"Speedup of {run.net}", "speedup over one worker", speedups, [ideal]),
        draw("step", f"Training step of {run.net}", f"time of a step ({scale.unit})", times),
        draw("efficiency", f"Efficiency of {run.net}", "efficiency (%)", efficiencies, log_y=False),
    )


def _bounds(run: Run) -> Chart:
    """Return what passes take with all branches at the same time, and one after the other."""
    scale, (lower, upper) = in_one_unit(
        [[row.total() for row in run.rows], [row.busy for row in run.rows]], "s"
    )
    bounds = ("at least", "at most")
    categories = tuple(f"{row.label}, {bound}" for row in run.rows for bound in bounds)
    both = tuple(value for pair in zip(lower, upper, strict=True) for value in pair)
    return Chart(
        "bounds", "bars", f"Passes of {run.net}", run_setting(run), "pass",
        f"time ({scale.unit})", (Series("time", categories, both),), notes=run.notes,
    )  # fmt: skip


def _parts(run: Run) -> Chart:
    """Return what the parts of a step take, and the step."""
    rows = run.rows
    parts = (*(f"{row.label}-parallel part" for row in rows), _BOTH)
    names = [piece.name for piece in rows[0].pieces]
    seconds = [[row[name] for row in rows] for name in names]
    scale, columns = in_one_unit([[*each, sum(each)] for each in seconds], "s")
    setting = f"{run_setting(run)}, {counted(rows[0].workers, 'worker')}"
    return Chart(
        "parts", "bars", f"Training step of {run.net}", setting, "part", f"time ({scale.unit})",
        tuple(
            Series(_SAID.get(name, name), parts, column)
            for name, column in zip(names, columns, strict=True)
            if any(column)
        ),
        notes=run.notes,
    )  # fmt: skip
