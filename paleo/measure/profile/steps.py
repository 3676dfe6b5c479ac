"""Whole passes in one piece: forward, loss, backward and update, predicted and measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from time import perf_counter
from typing import Any, Unpack

from paleo.core.attributes import attributes
from paleo.core.checks import listed
from paleo.core.errors import ExecutorError
from paleo.core.frozen import NamedTuple, dataclass
from paleo.costs import Time
from paleo.costs.error_bands import Band
from paleo.measure.executors import Executor, NetRun, Timing
from paleo.measure.executors.executor import INFERENCE, PARTS, STEP
from paleo.measure.profile.setup import (
    Compared,
    MeasuredNet,
    MeasuringSettings,
    NetGraphs,
    Nets,
    Progress,
    Setting,
    failure,
    no_progress,
    prepare,
)
from paleo.net.load import NetLike
from paleo.step.passes import FORWARD

#: The round of runs in which a step stops after each of its parts.
_IN_PARTS = "in parts"


@dataclass(frozen=True)
class StepPart(Compared):
    """A part of a training step, the whole of it, or inference.

    `time` is what the cost model says, None of what it does not price (the loss); `band` says
    how far the truth may be from that, where it is known; `measured` has what each executor took.
    """

    name: str
    time: Time | None
    band: Band | None = None
    measured: Mapping[str, Timing] = field(default_factory=dict)

    @property
    def predicted(self) -> float | None:
        """Seconds by the cost model."""
        return None if self.time is None else float(self.time.total)

    def timing(self, executor: str) -> Timing | None:
        return self.measured.get(executor)

    def compared(self, executor: str) -> float | None:
        return self.predicted

    def to_dict(self, executors: Sequence[str]) -> dict[str, Any]:
        """Return the values under the keys of the JSON output; None for what there is not."""
        predicted = self.predicted
        values: dict[str, Any] = {"part": self.name, "predicted_s": predicted}
        low = high = None
        if self.band and predicted is not None:
            low, high = self.band.around(predicted)
        values |= {"predicted_low_s": low, "predicted_high_s": high}
        for name in executors:
            values |= self.measured_to_dict(name)
        return values


class Runs(NamedTuple):
    """How many runs of a net were measured, and how many were to be."""

    done: int
    asked: int


@dataclass(frozen=True)
class FullPass(MeasuredNet):
    """A net's training step, or its inference, in one piece.

    `missing` says of each executor that could not run the net why; `runs` are those of the
    others.
    """

    parts: tuple[StepPart, ...]
    missing: Mapping[str, str] = field(default_factory=dict)
    runs: Runs = Runs(0, 0)

    @property
    def band(self) -> Band | None:
        """How far the truth may be from the predictions; None where that is not known."""
        return next((part.band for part in self.parts if part.band), None)

    @property
    def interrupted(self) -> bool:
        """Whether runs that were asked for are missing."""
        return self.runs.done < self.runs.asked

    @property
    def measured_anything(self) -> bool:
        """Whether an executor measured at least one part."""
        return any(part.measured for part in self.parts)

    def _own_notes(self) -> Iterator[str]:
        if self.interrupted:
            yield f"interrupted after {self.runs.done} of {self.runs.asked} runs"
        for name, why in self.missing.items():
            yield f"{name} did not run {self.net}: {why}"

    def _own_values(self) -> dict[str, Any]:
        parts = [part.to_dict(self.setting.executors) for part in self.parts]
        return {"parts": parts, **attributes(self, "band", "missing")}


class FullPasses(Nets[FullPass]):
    """Whole passes of nets."""


def fullpass(
    nets: NetLike | Sequence[NetLike],
    *,
    executors: str | Sequence[str] = "torch",
    inference: bool = False,
    progress: Progress = no_progress,
    **settings: Unpack[MeasuringSettings],
) -> FullPasses:
    """Return the time of a training step of nets, or of inference, predicted and measured.

    A step is measured twice: whole, as it runs, and with a stop after each part (forward, loss,
    backward, update) until the processor has done it; so the parts may sum up to more. Each is
    run `num_iter` times, after `num_warmup` that do not count. All other parameters, what is
    raised, what is missing and what an interrupt does are as in `paleo.measure.profile.profile`.
    """
    setting, cases, running = prepare(nets, listed("executors", executors, str), settings)
    predicted = [_predicted(case, setting, inference) for case in cases]
    rounds = (INFERENCE,) if inference else (STEP, _IN_PARTS)
    asked = len(rounds) * setting.num_iter
    found = [{name: _Own() for name in setting.executors} for _ in cases]
    total = len(cases) * len(running) * asked
    with suppress(KeyboardInterrupt), progress("measuring", total) as advance:
        for case, own in zip(cases, found, strict=True):
            for executor in running:
                _run(case, executor, setting, rounds, own[executor.name], advance)
    runs = []
    missed = []
    for case, parts, own in zip(cases, predicted, found, strict=True):
        if not any(each.begun for each in own.values()):
            missed.append(case.spec.name)
            continue
        missing = {name: each.missing for name, each in own.items() if each.missing}
        done = {name: each.runs for name, each in own.items() if name not in missing}
        runs.append(
            FullPass(
                case,
                setting,
                tuple(_with(part, own) for part in parts),
                missing,
                Runs(sum(done.values()), asked * len(done)),
            )
        )
    return FullPasses(tuple(runs), tuple(missed))


class _Own:
    """What one executor has measured of a net so far."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}
        self.missing = ""
        self.runs = 0

    @property
    def begun(self) -> bool:
        return bool(self.runs or self.missing)


def _with(part: StepPart, own: Mapping[str, _Own]) -> StepPart:
    """Return a part with what was measured of it."""
    times = {
        name: Timing(tuple(each.seconds[part.name]))
        for name, each in own.items()
        if each.seconds.get(part.name)
    }
    return replace(part, measured=times)


def _predicted(case: NetGraphs, setting: Setting, inference: bool) -> tuple[StepPart, ...]:
    graph, plan = case.graph, setting.plan
    band = plan.band
    if inference:
        time = plan.estimate(graph, FORWARD, training=False).time
        return (StepPart(INFERENCE, time, plan.inference_band),)
    forward, backward = plan.passes(graph)
    update = plan.update_of(graph)
    times = {"forward": forward.time, "backward": backward.time, "update": update}
    bands = {"forward": band, "backward": band}
    whole = sum(times.values(), Time())
    return (
        *(StepPart(name, times.get(name), bands.get(name)) for name in PARTS),
        StepPart(STEP, whole, band),
    )


def _run(
    case: NetGraphs,
    executor: Executor,
    setting: Setting,
    rounds: Sequence[str],
    own: _Own,
    advance: Callable[[str], object],
) -> None:
    """Measure a net round by round, run by run, so that an interrupt leaves what there is."""
    try:
        net = executor.net(case.real)
        for what in rounds:
            if what == _IN_PARTS:
                net.step(lambda part: None)  # frameworks may get ready for parts only now
            for number in range(setting.num_iter):
                advance(f"{case.spec.name}: {what} {number + 1}")
                for _ in range(0 if own.runs else setting.num_warmup):
                    _once(net, executor, what)
                for name, seconds in _once(net, executor, what).items():
                    own.seconds.setdefault(name, []).append(seconds)
                own.runs += 1
    except (ExecutorError, MemoryError) as error:
        own.missing = failure(error, named=True)


def _once(net: NetRun, executor: Executor, what: str) -> dict[str, float]:
    """Return the seconds of one run: of the whole, or of each part."""
    found: dict[str, float] = {}
    before = perf_counter()

    def mark(part: str) -> None:
        nonlocal before
        executor.synchronize()
        now = perf_counter()
        found[part] = now - before
        before = now

    if what == _IN_PARTS:
        net.step(mark)
        return found
    if what == INFERENCE:
        net.infer()
    else:
        net.step()
    mark(what)
    return found
