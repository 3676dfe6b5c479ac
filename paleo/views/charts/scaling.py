"""How a training step scales: speedup, time and efficiency against the number of workers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from paleo.core.attributes import at_ends
from paleo.core.frozen import NamedTuple
from paleo.core.quantity import total
from paleo.core.units import Scale
from paleo.step.parallelism import PARALLELISMS
from paleo.step.pieces import Step
from paleo.step.results import Predicted, Run
from paleo.views.charts.base import MOST_BARS, Chart, Series, bars, in_one_unit, is_wide
from paleo.views.charts.numbers import counted
from paleo.views.charts.settings import best_said, run_setting

#: What a share is multiplied by to be in percent.
_PERCENT = 100
#: The line of all schemes on one worker.
_ALL_THE_SAME = "any scheme: one worker exchanges nothing"
#: The parts of a hybrid step are no bars that run side by side.
_BOTH = "step: one after the other"
#: So many numbers of workers there are at least on a logarithmic axis, so many times the first.
_LEAST_LOG = 3
#: What nothing hides, what hides the rest, and what all parts are.
EXPOSED = "exposed communication"
_HIDING = "computation that hides communication"
WHOLE = "step"
#: What a timeline calls it, too.
_SAID = {"sync": "exchange"}


def scaling_charts(run: Run, scheme: str | None = None) -> tuple[Chart, ...]:
    """Return the charts of a run.

    Of data parallelism: speedup, step and efficiency, a line for each scheme, of which `scheme`
    (None: the best on most workers) is chosen. Of model parallelism the bounds of the passes, of
    hybrid parallelism what the parts of a step take, and the step.
    """
    if run.plan.other_devices:
        return kinds_charts([run])
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


class Line(NamedTuple):
    """The values of a line, and the ends of their error bands, if they have any."""

    values: Sequence[float | None]
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()


def in_its_unit(lines: Sequence[Line], scale: Scale) -> list[Line]:
    """Return lines of SI units in the unit of a scale."""

    def scaled(part: Sequence[float | None]) -> tuple[float | None, ...]:
        return tuple(None if value is None else value / scale.factor for value in part)

    return [Line(*map(scaled, line)) for line in lines]


def line_of(ends: Iterable[tuple[float | None, float | None, float | None]]) -> Line:
    """Return the line of values, each with both ends of its band."""
    return Line(*map(tuple, zip(*ends, strict=True)))


def over_workers(
    key: str,
    title: str,
    y_label: str,
    lines: Iterable[Line],
    references: Iterable[Series] = (),
    *,
    workers: Mapping[str, Sequence[int]],
    chosen: Mapping[str, str],
    **chart: Any,
) -> Chart:
    """Return a chart of lines over numbers of workers, which are given by the name of each.

    `chosen` are lines to look at, with why, `chart` is what else a Chart has.
    """
    series = [
        Series(
            name,
            tuple(counts),
            tuple(line.values),
            chosen=chosen.get(name, ""),
            low=tuple(line.low),
            high=tuple(line.high),
        )
        for (name, counts), line in zip(workers.items(), lines, strict=True)
    ]
    log_x = _spread_out({count for counts in workers.values() for count in counts})
    log_y = is_wide(one.y for one in series)
    known: dict[str, Any] = {"x_label": "workers", "log_x": log_x, "log_y": log_y} | chart
    return Chart(key, "lines", title, y_label=y_label, series=(*series, *references), **known)


def _spread_out(counts: Collection[int]) -> bool:
    """Tell whether numbers of workers double rather than go up one by one."""
    return len(counts) >= _LEAST_LOG and max(counts) >= _LEAST_LOG * min(counts)


def _by_scheme(run: Run, chosen: Mapping[str, str]) -> tuple[Chart, ...]:
    workers = tuple(row.workers for row in run.rows)
    schemes = schemes_shown(run)
    wholes = {
        name: [row.whole_step(scheme) for row in run.rows] for name, scheme in schemes.items()
    }
    draw = functools.partial(
        over_workers,
        workers=dict.fromkeys(wholes, workers),
        chosen=chosen,
        setting=run_setting(run),
    )
    seconds = [
        line_of((step.seconds, step.low, step.high) for step in steps) for steps in wholes.values()
    ]
    scale, _ = in_one_unit([line.values for line in seconds], "s", by_largest=True)
    times = in_its_unit(seconds, scale)
    speedups = efficiencies = [Line([None] * len(workers))] * len(wholes)
    if all(row.compute for row in run.rows):
        speedups = [Line([step.speedup for step in steps]) for steps in wholes.values()]
        efficiencies = [
            Line([_PERCENT * step.efficiency for step in steps]) for steps in wholes.values()
        ]
    ideal = Series("ideal", workers, tuple(map(float, workers)), is_reference=True)
    is_log = _spread_out(set(workers))
    notes = (*run.notes, *band_notes(run))
    speedup, title = "speedup over one worker", f"Training step of {run.net}"
    return (
        draw("speedup", f"Speedup of {run.net}", speedup, speedups, [ideal], log_y=is_log),
        draw("step", title, f"time of a step ({scale.unit})", times, notes=notes),
        draw("efficiency", f"Efficiency of {run.net}", "efficiency (%)", efficiencies, log_y=False),
        _parts_by_workers(run, next(schemes[name] for name in (*chosen, *schemes))),
    )


def _parts_by_workers(run: Run, scheme: str) -> Chart:
    """Return what a step under this scheme consists of, for each number of workers."""
    parts: dict[str, list[float | None]]
    waits = "waiting for others" if PARALLELISMS[run.parallel].shares_net else "waiting"
    parts = {name: [] for name in ("computation", _HIDING, EXPOSED, "update", waits)}
    for row in run.rows:
        update = total(piece.seconds for piece in row.pieces if piece.category == "update")
        exposed = float(row.exposed_communication(scheme))
        hidden = max(0.0, float(row.communication[scheme]) - exposed)
        parts["computation"].append(float(row.compute - update) - hidden)
        parts[_HIDING].append(hidden)
        parts[EXPOSED].append(exposed)
        parts["update"].append(float(update))
        parts[waits].append(float(row.waiting))
    steps = [row.whole_step(scheme) for row in run.rows]
    is_choice = len(schemes_shown(run)) > 1
    return columns(
        [row.workers for row in run.rows],
        parts,
        line_of((step.seconds, step.low, step.high) for step in steps),
        key="parts",
        title=f"Parts of a training step {f'by {scheme}' if is_choice else f'of {run.net}'}",
        setting=run_setting(run),
        notes=band_notes(run),
    )


def columns(
    workers: Sequence[int], parts: Mapping[str, Sequence[float | None]], step: Line, **chart: Any
) -> Chart:
    """Return the parts of steps in seconds, stacked, by number of workers.

    The whole step, with its error band, is a reference. Of very many numbers of workers, as many as
    there is room for are shown, the first and the last among them. `chart` is what else it has.
    """
    last = len(workers) - 1
    most = min(len(workers), MOST_BARS) - 1
    places = sorted({round(i * last / most) for i in range(most + 1)}) if most else [0]
    scale, _ = in_one_unit([step.values], "s", by_largest=True)
    names = [name for name, own in parts.items() if any(own)]
    (*own, whole) = in_its_unit([*(Line(parts[name]) for name in names), step], scale)
    counts = tuple(workers[i] for i in places)
    series = [
        Series(name, counts, tuple(line.values[i] for i in places))
        for name, line in zip(names, own, strict=True)
    ]
    ends = [tuple(part[i] for i in places) for part in whole if part]
    series.append(Series(WHOLE, counts, ends[0], (), True, "", *ends[1:]))
    y_label = f"time of a step ({scale.unit})"
    known: dict[str, Any] = {"x_label": "workers", "y_label": y_label, "series": tuple(series)}
    return Chart(kind="columns", **known | chart)


def band_notes(*several: Predicted) -> tuple[str, ...]:
    """Return what the bands of times are, if there are any."""
    bands = [predicted.plan.band for predicted in several]
    return tuple(
        dict.fromkeys(f"bands of times, of computation: {band.said}" for band in bands if band)
    )


def _bounds(run: Run) -> Chart:
    """Return what passes take with all branches at the same time, and one after the other."""
    bounds: dict[str, Callable[[Step], float]] = {
        "at least": lambda row: float(row.total()),
        "at most": lambda row: float(row.busy),
    }
    categories = tuple(f"{row.label}, {bound}" for row in run.rows for bound in bounds)
    line = line_of(
        (value(row), *at_ends(row.ends, value)) for row in run.rows for value in bounds.values()
    )
    scale, _ = in_one_unit([line.values], "s")
    (shown,) = in_its_unit([line], scale)
    times = Series(
        "time", categories, tuple(shown.values), low=tuple(shown.low), high=tuple(shown.high)
    )
    return Chart(
        "bounds", "bars", f"Passes of {run.net}", run_setting(run), "pass",
        f"time ({scale.unit})", (times,), notes=(*run.notes, *band_notes(run)),
    )  # fmt: skip


def kinds_charts(runs: Sequence[Run]) -> tuple[Chart, ...]:
    """Return what a step consists of on each kind of device; of runs on more and more workers."""
    rows = [(run, row) for run in runs for row in run.rows]
    names = [row.label for _, row in rows]
    if len(runs) > 1:
        names = [f"{row.label}, {run.step.workers} workers" for run, row in rows if run.step]
    pieces = dict.fromkeys(piece.name for _, row in rows for piece in row.pieces)
    parts = {_SAID.get(name, name): [row[name] for _, row in rows] for name in pieces}
    chart = bars(
        names, {name: own for name, own in parts.items() if any(own)}, "s", "time of a step",
        key="parts", title=f"Training step of {runs[0].net}", setting=run_setting(runs[0]),
        x_label="device", notes=list(dict.fromkeys(note for run in runs for note in run.notes)),
    )  # fmt: skip
    return (chart,)


def _parts(run: Run) -> Chart:
    """Return what the parts of a step take, and the step."""
    rows = run.rows
    parts = (*(f"{row.label}-parallel part" for row in rows), _BOTH)
    names = [piece.name for piece in rows[0].pieces]
    seconds = [[row[name] for row in rows] for name in names]
    scale, shown = in_one_unit([[*each, sum(each)] for each in seconds], "s")
    setting = f"{run_setting(run)}, {counted(rows[0].workers, 'worker')}"
    return Chart(
        "parts", "bars", f"Training step of {run.net}", setting, "part", f"time ({scale.unit})",
        tuple(
            Series(_SAID.get(name, name), parts, column)
            for name, column in zip(names, shown, strict=True)
            if any(column)
        ),
        notes=run.notes,
    )  # fmt: skip
