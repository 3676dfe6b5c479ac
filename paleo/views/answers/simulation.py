"""What a simulation says: how quick training is on how many devices, and what limits it."""

from __future__ import annotations

from paleo.core.attributes import at_ends
from paleo.step.pieces import Step, WholeStep
from paleo.step.results import Predicted, Run, Simulation
from paleo.views.answers.base import (
    amounts,
    device_named,
    duration,
    misfits,
    percent,
    rounded,
    samples_of,
    spread,
    used,
    which,
)
from paleo.views.table import in_unit

#: The settings of a run that sentences do not say, but where there are several.
_DIFFERING = ("network", "dtype", "cost_model", "scaling", "batch_size")


def simulation_answer(simulation: Simulation) -> list[str]:
    """Return the sentences of a simulation: of several runs, of the quickest that fits."""
    runs = simulation.runs
    if len(runs) == 1:
        return run_answer(runs[0])
    trained = [run for run in runs if _whole(run)]
    if len(trained) < len(runs):
        return [sentence for run in runs for sentence in run_answer(run)]
    fitting = [run for run in runs if _fits(run) is not False]
    sentences = misfits(len(runs) - len(fitting), len(runs))
    among = fitting or runs
    best = max(among, key=lambda run: _rate(_whole(run)))
    first, *others = run_answer(best)
    if not fitting:
        return [*sentences, first, *others]
    name = which(best, among, *_DIFFERING)
    return [*sentences, f"The quickest of {len(among):,}{name}: {first}", *others]


def _fits(run: Run) -> bool | None:
    """Return whether the batch of a worker fits on most workers, None where it is not known."""
    most = run.worth.largest_batch
    return None if most is None or not run.largest else bool(run.largest.worker_batch_size <= most)


def _rate(whole: WholeStep | None) -> float:
    return whole.throughput if whole else 0.0


def _whole(run: Run) -> WholeStep | None:
    """Return the step that is spoken of: on most workers, by the best scheme."""
    return run.largest.whole_step(run.best_scheme) if run.largest else run.step


def run_answer(run: Run, row: Step | None = None, scheme: str | None = None) -> list[str]:
    """Return the sentences of a run, of its step on most workers or of another of its rows."""
    row = row or run.largest
    if row is None or not row.exchanges:
        return _of_whole(run, run.step) if run.step else _of_passes(run)
    whole = row.whole_step(scheme or row.best_scheme)
    said = [
        speed_said(run, whole, _memory(run, row)),
        *_limits(run, row, whole),
        *_scaling(run, row),
    ]
    return [*_misfit(run, row), *said]


def speed_said(run: Predicted, whole: WholeStep, *more: str) -> str:
    """Return how quick training is, with the error band."""
    band, digits = run.plan.band, run.plan.digits
    what = samples_of(run.scenario.net)
    others = run.plan.other_devices
    kinds = [(run.device, whole.workers - sum(count for _, count in others))]
    kinds += [(device.name, count) for device, count in others]
    devices = " and ".join(f"{count:,} x {device_named(name)}" for name, count in kinds) + " train"
    if whole.workers == 1:
        devices = f"One {device_named(run.device)} trains"
    about = "about " if band else ""
    slow, quick = amounts(at_ends(whole.ends, lambda end: end.throughput), digits)[::-1]
    sentence = (
        f"{devices} {run.net} at {about}{rounded(whole.throughput, digits)} {what}/s"
        f"{spread((slow, quick), band)}: "
        f"{duration(whole.seconds, digits)} a step of {whole.batch_size:,} {what}"
    )
    if whole.workers > 1:
        more = (f"{percent(whole.efficiency)} scaling efficiency", *more)
    return ", ".join([sentence, *filter(None, more)]) + "."


def _memory(run: Run, row: Step) -> str:
    """Return the memory of a worker, if there is room for it."""
    found = run.footprint(row)
    if found is None or (run.memory_capacity or found.peak) < found.peak:
        return ""
    each = "" if row.workers == 1 else " each"
    return f"{used(float(found.peak), run.memory_capacity)} used{each}"


def _misfit(run: Run, row: Step) -> list[str]:
    """Return what is said first of a step for which there is not the memory."""
    largest, found = run.worth.largest_batch, run.footprint(row)
    if largest is None or found is None or row.worker_batch_size <= largest:
        return []
    peak, there = in_unit(float(found.peak), "bytes", 3), in_unit(run.memory_capacity, "bytes")
    needed = f"training needs {peak}, one {device_named(run.device)} has {there}"
    if not largest:
        return [f"It does not fit, not even one sample does: {needed}."]
    most = largest * (row.workers if run.scaling == "strong" else 1)
    batch = f"--batch_size={most} is the largest that does"
    smaller = "a smaller type, such as --dtype=mixed_fp16, may help"
    return [f"It does not fit: {needed}; {batch}; {smaller}. If it did fit:"]


def _limits(run: Run, row: Step, whole: WholeStep) -> list[str]:
    """Return what most of a step is."""
    share, waiting = row.compute / whole.seconds, row.waiting / whole.seconds
    if row.workers > 1 and share + waiting < 0.5:
        said = f"{percent(1 - share - waiting)} of the step is communication by {run.network}"
        return [f"{said}: a quicker network or a larger batch would help."]
    kind, most = next(iter(run.time_by_type(row).items()), ("", 0.0))
    if not most:
        return []
    of_passes = f"{kind} layers are {percent(most / row.compute)} of"
    if row.workers == 1:
        return [f"{of_passes} the step."]
    return [f"{percent(share)} of the step is computation; {of_passes} that."]


def _scaling(run: Run, row: Step) -> list[str]:
    """Return from how many workers on it scales badly, if these are as many."""
    if row.workers == 1:
        return []
    balance = run.worth.balance.get(row.best_scheme)
    if balance and balance <= row.workers:
        return [f"From {balance:,} workers on communication takes at least as long as computation."]
    knee = run.worth.knee.get(row.best_scheme)
    if knee and knee < row.workers:
        return [f"More than {knee:,} worker{'s' * (knee != 1)} waste more than they gain."]
    return []


def _of_whole(run: Run, whole: WholeStep) -> list[str]:
    return [speed_said(run, whole)]


def _of_passes(run: Run) -> list[str]:
    """Return what both passes take where there is no step: of layers split over devices."""
    digits = run.plan.digits
    splits = max(run.scenario.net.splits, default=1)
    least, most = sum(row.total() for row in run.rows), sum(row.busy for row in run.rows)
    device = device_named(run.device)
    devices = f"{splits} x {device} take" if splits > 1 else f"One {device} takes"
    seconds = " to ".join(dict.fromkeys(duration(end, digits) for end in (least, most)))
    batch = f"a batch of {run.batch_size:,} {samples_of(run.scenario.net)}"
    return [f"{devices} {seconds} for {batch} through {run.net} and back, {run.division}."]
