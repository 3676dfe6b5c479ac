"""Calibration: a device file for the machine that this runs on, or for timings of one's own."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from paleo.cluster import Device, Figure, Network, find_device
from paleo.cluster.calibration_record import CalibrationRecord, TimedPoint
from paleo.core.attributes import attributes
from paleo.core.checks import is_number, listed, shown
from paleo.core.errors import ExecutorError, Mistakes, PaleoError, SettingError, near_or_known
from paleo.core.frozen import dataclass
from paleo.core.optional import extra
from paleo.core.quantity import Array, np
from paleo.core.results import Result
from paleo.core.tensor import DTYPES
from paleo.costs import find_cost_model
from paleo.costs.tiled.constants import CONSTANTS
from paleo.measure.calibrate import system
from paleo.measure.calibrate.devices import Described, base_device, prediction
from paleo.measure.calibrate.file import network_toml, to_toml
from paleo.measure.calibrate.measuring import Clock, Measuring, Run
from paleo.measure.calibrate.points import Point
from paleo.measure.calibrate.points import points as standard_points
from paleo.measure.calibrate.problem import Fitted, Problem, Solution, solved
from paleo.measure.calibrate.rows import Row, read_rows
from paleo.measure.executors import Executor, find_executor
from paleo.measure.executors.executor import INFERENCE
from paleo.measure.profile.setup import Progress, no_progress
from paleo.measure.validate.cases import Unpredicted
from paleo.measure.validate.link_constants import FITTED, LINK_CONSTANTS, calibrated
from paleo.step.passes import checked_target
from paleo.step.settings import DeviceLike

#: A machine is too busy to trust if the same point takes times that are further apart than this
#: share, or others use more than this share of the CPUs that are measured.
SPREAD, BUSY = 0.15, 0.25
#: Nobody waits longer.
_MOST_SECONDS = 1e6

#: Makes the executor of a place and an element type.
Make = Callable[[str | None, str], Executor]


@dataclass(frozen=True, eq=False)
class Calibration(Result):
    """A device with fitted constants, and what they are worth.

    `device.calibration` has the errors and the points. `unpredicted` are the rows of a file
    that could not be used. `interrupted` tells that there would have been more to measure. `links`
    are those inside a node with their fitted constants, where rows of steps on a mesh told any.
    """

    device: Device
    constants: tuple[Fitted, ...]
    unpredicted: tuple[Unpredicted, ...] = ()
    interrupted: bool = False
    links: Network | None = None

    @property
    def record(self) -> CalibrationRecord:
        """What the device file says of the calibration."""
        assert self.device.calibration is not None
        return self.device.calibration

    def to_toml(self) -> str:
        """Return the text of the device file."""
        return to_toml(self.device)

    def links_toml(self, name: str) -> str:
        """Return the text of a file of the links, by this name; raises PaleoError without any."""
        if self.links is None:
            raise PaleoError("links: no rows are of steps that tell constants of links in a node")
        return network_toml(replace(self.links, name=name))

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output; constants are in SI units."""
        return {
            "device": self.device.name,
            **self.record.to_dict(),
            "constants": {
                each.name: {
                    "value": each.value,
                    "unit": FITTED[each.name].unit,
                    "before": each.before,
                    "least_of_folds": each.least,
                    "most_of_folds": each.most,
                    "on_bound": each.bound or None,
                }
                for each in self.constants
            },
            **attributes(self, "unpredicted", "interrupted"),
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

    `executor` is a name of paleo.measure.executors.EXECUTORS, or what makes one of a place and an
    element type. A `device` gives its figures; without, a GPU that the registry knows by the name
    that the framework gives it has those, and anything else the best rates measured. Where the
    machine is too busy, `force` goes on nevertheless. A KeyboardInterrupt while it is measured ends
    that, and is raised again unless there is enough to fit to. `clock` tells the time, `busy` the
    share of the CPUs that others use.

    Raises PaleoError: SettingError for wrong settings or a missing framework, ExecutorError where
    what is needed cannot be run, and where the machine is too busy.
    """
    mistakes = Mistakes()
    types = mistakes.check(listed, "dtype", dtypes, str) or []
    for dtype in types:
        if dtype not in DTYPES:
            mistakes.add(f"unknown dtype {shown(dtype)}{near_or_known(dtype, DTYPES)}")
    if not is_number(seconds) or not 0 < seconds <= _MOST_SECONDS:
        mistakes.add(f"seconds: expected a number above 0, got {shown(seconds)}")
    base = mistakes.check(find_device, device) if device is not None else None
    mistakes.raise_as(SettingError)
    extra("scipy.optimize", "calibrating", "SciPy", "calibrate")
    make = partial(find_executor, executor) if isinstance(executor, str) else executor
    running = {dtype: make(place, dtype) for dtype in dict.fromkeys(types)}
    first = next(iter(running.values()))
    base = base or base_device(first)
    if base is not None:
        for dtype in running:
            checked_target(base, find_cost_model("tiled"), dtype)

    used = (busy or system.busy)()
    others_use = f"others use {_percent(used)} of its CPUs"
    is_crowded = first.place == "cpu" and _is_busy(used, BUSY, others_use, force)
    chosen = standard_points(first.place) if points is None else points
    run = Measuring(running, chosen, seconds, clock or perf_counter).run(progress)
    if run.interrupted and not run.covered:
        raise KeyboardInterrupt
    if not run.samples:
        raise ExecutorError(next(iter(run.failures), "there was nothing to measure"))
    apart = f"{run.unsteady} took times that are {_percent(run.spread)} apart"
    is_unsteady = _is_busy(run.spread, SPREAD, apart, force)
    notes = []
    if is_unsteady:
        notes.append(f"the machine was too busy to trust: {apart}")
    if is_crowded:
        notes.append(f"the machine was too busy to trust: others used {_percent(used)} of its CPUs")
    today = _today()
    source = f"measured by paleo calibrate, {today}"
    machine = Described(
        name, f"{first.hardware}, measured", "cpu" if first.place == "cpu" else "gpu",
        system.architecture(first), system.figures(first), source,
        f"read from the system by paleo calibrate, {today}",
    )  # fmt: skip
    samples = run.samples
    of_all = base or machine.device(samples)
    works = [(sample.operations, sample.dtype, sample.part != INFERENCE) for sample in samples]

    def learn(places: Array) -> tuple[Device, Callable[[Array], Any]]:
        device = of_all
        if base is None:
            # Where the only copy, or product, is left out, its rate is known all the same.
            with suppress(ExecutorError):
                device = machine.device([samples[place] for place in places.tolist()])
        return device, prediction(works, device)

    problem = Problem(
        np.array([sample.timing.median for sample in samples]),
        [sample.point.kind for sample in samples], [sample.point.what for sample in samples], learn,
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
        forced=is_unsteady or is_crowded,
        notes=(*notes, *_notes(run)),
        points=_points(rows, problem, solution, [each.timing.spread for each in samples]),
    )
    device = _with(machine.title, base, solution, record, source)
    return Calibration(replace(device, name=name), solution.constants, (), run.interrupted)


def _today() -> str:
    return datetime.datetime.now().astimezone().date().isoformat()


def _is_busy(share: float | None, most: float, why: str, force: bool) -> bool:
    """Tell whether a share is more than may be; without `force` that raises PaleoError."""
    is_busy = share is not None and share > most
    if is_busy and not force:
        raise PaleoError(
            f"the machine is too busy to trust: {why}, more than {_percent(most)} "
            "(--force goes on nevertheless)"
        )
    return is_busy


def _percent(share: float | None) -> str:
    return f"{100 * (share or 0):.0f} %"


def _notes(run: Run) -> Iterator[str]:
    """Yield what a reader of the constants should know of the measurement."""
    if run.interrupted:
        yield f"the measurement was interrupted: {run.left} of the points are missing"
    elif run.left:
        yield f"there was no time for {run.left} of the points"
    yield from (f"not measured: {failure}" for failure in run.failures)


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
    stem, base = Path(file).name, found.device
    notes = [*found.notes]
    if count := sum(each.count for each in found.unpredicted):
        notes.append(f"{count} row{'s' * (count != 1)} could not be predicted")
    record = CalibrationRecord(
        date=_today(),
        source=stem,
        hardware=base.title,
        notes=tuple(notes),
        points=_points(found.rows, found.problem, solution, [None] * len(found.rows)),
    )
    source = f"fitted by paleo calibrate to {stem}, {record.date}"
    device = _with(f"{base.title}, calibrated", base, solution, record, source)
    own = {each.name: each.value for each in solution.constants if each.name in LINK_CONSTANTS}
    links = calibrated(found.links, own, source) if found.links and own else None
    return Calibration(
        replace(device, name=name), solution.constants, found.unpredicted, links=links
    )


def _with(
    title: str, base: Device | None, solution: Solution, record: CalibrationRecord, source: str
) -> Device:
    """Return the device of a solution with its constants and the record of it."""
    device = solution.device
    constants = dict(device.constants)
    fitted = [each for each in solution.constants if each.name in CONSTANTS]
    for each in fitted:
        note = f"on its {each.bound} bound" if each.bound else ""
        constants[each.name] = Figure(float(f"{each.value:.6g}"), "", source, note)
    return replace(
        device,
        title=title,
        aliases=(),
        constants=constants,
        sources={**device.sources, "calibration": source},
        calibration=replace(
            record,
            notes=(*record.notes, *solution.notes),
            base=base.name if base else "",
            fitted=tuple(each.name for each in fitted),
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
