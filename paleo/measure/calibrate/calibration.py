"""Calibration: a device file for the machine that this runs on, or for timings of one's own."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

from paleo.calibrate import system
from paleo.calibrate.devices import base_device, described, prediction
from paleo.calibrate.file import to_toml
from paleo.calibrate.measuring import Clock, Run, measured
from paleo.calibrate.points import INFERENCE, Point
from paleo.calibrate.points import points as standard_points
from paleo.calibrate.problem import Fitted, Problem, Solution, solved
from paleo.calibrate.rows import Row, read_rows
from paleo.costs import find_cost_model
from paleo.costs.tiled.constants import CONSTANTS
from paleo.errors import ExecutorError, Mistakes, PaleoError, SettingError, near
from paleo.estimate import DeviceLike, checked_target
from paleo.executors import Executor, find_executor
from paleo.extras import extra
from paleo.hardware import Device, Figure, find_device
from paleo.hardware.calibration import CalibrationRecord, TimedPoint
from paleo.profile.setting import Progress, no_progress
from paleo.quantity import Array
from paleo.tensor import DTYPES
from paleo.validate.cases import Unpredicted
from paleo.values import is_number, listed, shown

__all__ = ["BUSY", "SPREAD", "Calibration", "calibrate", "calibrate_from"]

#: A machine is too busy to trust if the same point takes times that are further apart than this
#: share, or others use more than this share of the CPUs that are measured.
SPREAD, BUSY = 0.15, 0.25
#: Nobody waits longer.
_MOST_SECONDS = 1e6

#: Makes the executor of a place and an element type.
Make = Callable[[str | None, str], Executor]


@dataclass(frozen=True, eq=False)
class Calibration:
    """A device with fitted constants, and what they are worth.

    `device.calibration` has the errors and the points. `unpredicted` are the rows of a file
    that could not be used. `interrupted` tells that there would have been more to measure.
    """

    device: Device
    constants: tuple[Fitted, ...]
    unpredicted: tuple[Unpredicted, ...] = ()
    interrupted: bool = False

    @property
    def record(self) -> CalibrationRecord:
        """What the device file says of the calibration."""
        assert self.device.calibration is not None
        return self.device.calibration

    def to_toml(self) -> str:
        """Return the text of the device file."""
        return to_toml(self.device)

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output; constants are in SI units."""
        return {
            "device": self.device.name,
            **self.record.to_dict(),
            "constants": {
                each.name: {
                    "value": each.value,
                    "unit": CONSTANTS[each.name].unit,
                    "before": each.before,
                    "least_of_folds": each.least,
                    "most_of_folds": each.most,
                    "on_bound": each.bound or None,
                }
                for each in self.constants
            },
            "unpredicted": [each.to_dict() for each in self.unpredicted],
            "interrupted": self.interrupted,
        }


def calibrate(
    executor: str | Make = "torch",
    *,
    place: str | None = None,
    dtypes: str | Sequence[str] = "fp32",
    seconds: float = 60.0,
    name: str = "measured",
    device: DeviceLike | None = None,
    force: bool = False,
    points: Sequence[Point] | None = None,
    progress: Progress = no_progress,
    clock: Clock | None = None,
    busy: Callable[[], float | None] | None = None,
) -> Calibration:
    """Measure this machine for about so many seconds, and fit the constants of `tiled` to it.

    `executor` is a name of paleo.executors.EXECUTORS, or what makes one of a place and an element
    type. A `device` gives its figures; without, a GPU that the registry knows by the name that
    the framework gives it has those, and anything else the best rates measured. Where the machine
    is too busy, `force` goes on nevertheless. A KeyboardInterrupt while it is measured ends that,
    and is raised again unless there is enough to fit to. `clock` tells the time, `busy` the share
    of the CPUs that others use.

    Raises PaleoError: SettingError for wrong settings or a missing framework, ExecutorError where
    what is needed cannot be run, and where the machine is too busy.
    """
    mistakes = Mistakes()
    types = mistakes.check(listed, "dtype", dtypes, str) or []
    for dtype in types:
        if dtype not in DTYPES:
            known = near(dtype, DTYPES) or f"; there are: {', '.join(DTYPES)}"
            mistakes.add(f"unknown dtype {shown(dtype)}{known}")
    if not is_number(seconds) or not 0 < seconds <= _MOST_SECONDS:
        mistakes.add(f"seconds: expected a number above 0, got {shown(seconds)}")
    base = mistakes.check(find_device, device) if device is not None else None
    mistakes.raise_as(SettingError)
    extra("scipy.optimize", "calibrating", "SciPy", "calibrate")
    make = _maker(executor) if isinstance(executor, str) else executor
    running = {dtype: make(place, dtype) for dtype in dict.fromkeys(types)}
    first = next(iter(running.values()))
    base = base or base_device(first, None)
    if base is not None:
        for dtype in running:
            checked_target(base, find_cost_model("tiled"), dtype)

    used = (busy or system.busy)()
    if first.place == "cpu" and used is not None and used > BUSY and not force:
        raise PaleoError(
            f"the machine is too busy to trust: others use {100 * used:.0f} % of its CPUs, more "
            f"than {100 * BUSY:.0f} % (--force goes on nevertheless)"
        )
    chosen = standard_points(first.place) if points is None else points
    run = measured(running, chosen, seconds, progress=progress, clock=clock or perf_counter)
    if run.interrupted and not run.covered:
        raise KeyboardInterrupt
    if not run.samples:
        raise ExecutorError(next(iter(run.failures), "there was nothing to measure"))
    if run.spread is not None and run.spread > SPREAD and not force:
        raise PaleoError(
            f"the machine is too busy to trust: {run.unsteady} took times that are "
            f"{100 * run.spread:.0f} % apart, more than {100 * SPREAD:.0f} % (--force goes on "
            "nevertheless)"
        )
    today = datetime.datetime.now().astimezone().date().isoformat()
    source = f"measured by paleo calibrate, {today}"
    machine = described(
        first, system.figures(first), system.architecture(first), name, source,
        f"read from the system by paleo calibrate, {today}",
    )  # fmt: skip
    samples = run.samples
    whole = base or machine.device(samples)
    of = [(each.operations, each.dtype, each.part != INFERENCE) for each in samples]

    def learn(places: Array) -> tuple[Device, Callable[[Array], Any]]:
        own = whole
        if base is None:
            # Where the only copy, or product, is left out, its rate is known all the same.
            with suppress(ExecutorError):
                own = machine.device([samples[place] for place in places.tolist()])
        return own, prediction(of, own)

    problem = Problem(
        _seconds(run), [each.point.kind for each in samples],
        [each.point.what for each in samples], learn,
    )  # fmt: skip
    solution = solved(problem, progress, () if base else ("memory_share",))
    rows = [Row(each.point.kind, each.point.what, each.part, each.dtype) for each in samples]
    record = CalibrationRecord(
        date=today,
        source=f"{first.name} on {first.place}",
        hardware=first.hardware,
        versions=dict(first.versions),
        seconds=run.seconds,
        spread=run.spread,
        busy=used,
        forced=_is_busy(run.spread, SPREAD) or (first.place == "cpu" and _is_busy(used, BUSY)),
        notes=(*_notes(run, first.place, used), *solution.notes),
        points=_points(rows, problem, solution, [each.timing.spread for each in samples]),
    )
    found = replace(solution.device, name=name, title=machine.title, aliases=())
    return Calibration(
        _with(found, base, solution, record, source), solution.constants, (), run.interrupted
    )


def _maker(name: str) -> Make:
    def make(place: str | None, dtype: str) -> Executor:
        return find_executor(name, place, dtype)

    return make


def _seconds(run: Run) -> Array:
    import numpy as np

    return np.array([each.timing.median for each in run.samples])


def _is_busy(share: float | None, most: float) -> bool:
    return share is not None and share > most


def _notes(run: Run, place: str, used: float | None) -> list[str]:
    """Return what a reader of the constants should know of the measurement."""
    notes = []
    if _is_busy(run.spread, SPREAD):
        notes.append(
            f"the machine was too busy to trust: {run.unsteady} took times that are "
            f"{100 * (run.spread or 0):.0f} % apart"
        )
    if place == "cpu" and _is_busy(used, BUSY):
        notes.append(
            f"the machine was too busy to trust: others used {100 * (used or 0):.0f} % of its CPUs"
        )
    if run.interrupted:
        notes.append(f"the measurement was interrupted: {run.left} of the points are missing")
    elif run.left:
        notes.append(f"there was no time for {run.left} of the points")
    notes += [f"not measured: {failure}" for failure in run.failures]
    return notes


def calibrate_from(
    file: str | os.PathLike[str],
    *,
    name: str = "calibrated",
    device: DeviceLike | None = None,
    progress: Progress = no_progress,
) -> Calibration:
    """Fit the constants of `tiled` to timings of one's own.

    The file is one of docs/validate.md, or what `paleo profile --format=csv` wrote. The figures
    are those of `device`, or of the one that the rows name. Raises PaleoError with every mistake,
    where no row can be predicted, or where they are too few.
    """
    extra("scipy.optimize", "calibrating", "SciPy", "calibrate")
    found = read_rows(file, device)
    solution = solved(found.problem, progress)
    today = datetime.datetime.now().astimezone().date().isoformat()
    stem = Path(file).name
    source = f"fitted by paleo calibrate to {stem}, {today}"
    notes = [*found.notes, *solution.notes]
    count = sum(each.count for each in found.unpredicted)
    if count:
        notes.append(f"{count} row{'s' * (count != 1)} could not be predicted")
    record = CalibrationRecord(
        date=today,
        source=stem,
        hardware=found.device.title,
        notes=tuple(notes),
        points=_points(found.rows, found.problem, solution, [None] * len(found.rows)),
    )
    base = found.device
    calibrated = replace(base, name=name, title=f"{base.title}, calibrated", aliases=())
    return Calibration(
        _with(calibrated, base, solution, record, source), solution.constants, found.unpredicted
    )


def _with(
    device: Device,
    base: Device | None,
    solution: Solution,
    record: CalibrationRecord,
    source: str,
) -> Device:
    """Return a device with the constants of a solution and the record of it."""
    constants = dict(device.constants)
    for each in solution.constants:
        note = f"on its {each.bound} bound" if each.bound else ""
        constants[each.name] = Figure(float(f"{each.value:.6g}"), "", source, note)
    return replace(
        device,
        constants=constants,
        sources={**device.sources, "calibration": source},
        calibration=replace(
            record,
            base=base.name if base else "",
            fitted=tuple(each.name for each in solution.constants),
            on_bound=tuple(each.name for each in solution.constants if each.bound),
            errors=solution.errors,
        ),
    )


def _points(
    rows: Sequence[Row], problem: Problem, solution: Solution, spreads: Sequence[float | None]
) -> tuple[TimedPoint, ...]:
    held_out: Sequence[float] = solution.held_out.tolist()
    return tuple(
        TimedPoint(
            row.kind, row.what, row.part, row.dtype, seconds, predicted, spread,
            other if other == other else None,
        )
        for row, seconds, predicted, spread, other in zip(
            rows, problem.measured.tolist(), solution.predicted.tolist(), spreads, held_out,
            strict=True,
        )
    )  # fmt: skip
