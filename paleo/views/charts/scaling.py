"""How a training step scales: speedup, time and efficiency against the number of workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from paleo.charts.base import Chart, Series, in_one_unit
from paleo.charts.numbers import counted
from paleo.charts.settings import best_said, run_setting
from paleo.rows import DataRow, HybridRow, ModelRow, Run

__all__ = ["looked_at", "scaling_charts", "schemes_shown"]

#: What a share is multiplied by to be in percent.
_PERCENT = 100
_WORKERS = "workers"
#: The line of all schemes on one worker.
_ALL_THE_SAME = "any scheme: one worker exchanges nothing"
#: The parts of a hybrid step are no bars that run side by side.
_BOTH = "step: one after the other"
#: What a timeline calls it, too.
_SYNC = "exchange"


def scaling_charts(run: Run, scheme: str | None = None) -> tuple[Chart, ...]:
    """Return the charts of a run.

    Of data parallelism: speedup, step and efficiency, a line for each scheme, of which `scheme`
    (None: the best on most workers) is chosen. Of model parallelism the bounds of the passes, of
    hybrid parallelism what the parts of a step take, and the step.
    """
    rows = [row for row in run.rows if isinstance(row, DataRow)]
    if rows:
        return _data(run, rows, looked_at(run, scheme))
    return (_model(run),) if run.parallel == "model" else (_hybrid(run),)


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
    schemes = list(run.largest.communication)
    if len(schemes) > 1 and run.largest.workers == 1:
        return {_ALL_THE_SAME: schemes[0]}
    return {scheme: scheme for scheme in schemes}


def _data(run: Run, rows: list[DataRow], chosen: Mapping[str, str]) -> tuple[Chart, ...]:
    workers = tuple(row.workers for row in rows)
    shown = schemes_shown(run)
    schemes = list(shown.values())
    setting, notes = run_setting(run), run.notes

    def values(value: Callable[[DataRow, str], float]) -> list[list[float]]:
        return [[value(row, scheme) for row in rows] for scheme in schemes]

    def lines(columns: Sequence[tuple[float | None, ...]]) -> tuple[Series, ...]:
        return tuple(
            Series(name, workers, column, chosen=chosen.get(name, ""))
            for name, column in zip(shown, columns, strict=True)
        )

    no_speed: tuple[float | None, ...] = (None,) * len(rows)
    steps_in_s = values(lambda row, scheme: row.step(scheme))
    scale, steps = in_one_unit(steps_in_s, "s", by_largest=True)
    speedups, efficiencies = [no_speed] * len(schemes), [no_speed] * len(schemes)
    if all(row.compute for row in rows):
        speedups = [tuple(column) for column in values(DataRow.speedup)]
        efficiencies = [
            tuple(_PERCENT * value for value in column) for column in values(DataRow.efficiency)
        ]
    ideal = Series("ideal", workers, tuple(map(float, workers)), is_reference=True)
    return (
        Chart(
            "speedup", "lines", f"Speedup of {run.net}", setting, _WORKERS,
            "speedup over one worker", (*lines(speedups), ideal), True, True, notes,
        ),
        Chart(
            "step", "lines", f"Training step of {run.net}", setting, _WORKERS,
            f"time of a step ({scale.unit})", lines(steps), True, True, notes,
        ),
        Chart(
            "efficiency", "lines", f"Efficiency of {run.net}", setting, _WORKERS,
            "efficiency (%)", lines(efficiencies), True, False, notes,
        ),
    )  # fmt: skip


def _model(run: Run) -> Chart:
    rows = [row for row in run.rows if isinstance(row, ModelRow)]
    passes = tuple(row.pass_name for row in rows)
    scale, (lower, upper) = in_one_unit(
        [[row.lower for row in rows], [row.upper for row in rows]], "s"
    )
    categories = tuple(f"{name}, {bound}" for name in passes for bound in ("at least", "at most"))
    both = tuple(value for pair in zip(lower, upper, strict=True) for value in pair)
    return Chart(
        "bounds", "bars", f"Passes of {run.net}", run_setting(run), "pass",
        f"time ({scale.unit})", (Series("time", categories, both),), notes=run.notes,
    )  # fmt: skip


def _hybrid(run: Run) -> Chart:
    rows = [row for row in run.rows if isinstance(row, HybridRow)]
    parts = (*(f"{row.part}-parallel part" for row in rows), _BOTH)
    names = {"forward": "forward", "backward": "backward", "update": "update", "sync": _SYNC}
    found = [[getattr(row, key) for row in rows] for key in names]
    scale, columns = in_one_unit([[*own, sum(own)] for own in found], "s")
    setting = f"{run_setting(run)}, {counted(rows[0].workers, 'worker')}"
    return Chart(
        "parts", "bars", f"Training step of {run.net}", setting, "part", f"time ({scale.unit})",
        tuple(
            Series(name, parts, column)
            for name, column in zip(names.values(), columns, strict=True)
            if any(column)
        ),
        notes=run.notes,
    )  # fmt: skip
