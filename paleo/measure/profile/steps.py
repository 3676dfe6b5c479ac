"""Whole passes in one piece: forward, loss, backward and update, predicted and measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, NamedTuple

from paleo.costs import DEFAULT_COST_MODEL, CostModel, Time
from paleo.costs.bands import Band
from paleo.errors import ExecutorError
from paleo.estimate import BACKWARD, FORWARD, DeviceLike, estimate_pass, net_band, update_time
from paleo.executors import Executor, NetRun, Timing, measure
from paleo.executors.base import PARTS
from paleo.importers import ImportOptions
from paleo.profile.setting import (
    Case,
    NetLike,
    Nets,
    Progress,
    Setting,
    failure,
    no_progress,
    prepare,
)
from paleo.values import listed

__all__ = ["FullPass", "FullPasses", "Part", "fullpass"]

#: The whole training step, which is measured without a stop between its parts.
STEP = "step"
#: The forward pass of inference.
INFERENCE = "inference"
#: The round of runs in which a step stops after each of its parts.
_IN_PARTS = "in parts"


@dataclass(frozen=True)
class Part:
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

    def seconds(self, executor: str) -> float | None:
        """Return the median of what an executor measured, None if it did not."""
        return self.measured[executor].median if executor in self.measured else None

    def ratio(self, executor: str) -> float | None:
        """Return measured / predicted; None where there is not both."""
        seconds, predicted = self.seconds(executor), self.predicted
        return seconds / predicted if seconds is not None and predicted else None

    def to_dict(self, executors: Sequence[str]) -> dict[str, Any]:
        """Return the values under the keys of the JSON output; None for what there is not."""
        predicted = self.predicted
        values: dict[str, Any] = {"part": self.name, "predicted_s": predicted}
        low = high = None
        if self.band and predicted is not None:
            low = self.band.low * predicted
            high = self.band.high * predicted if self.band.high < float("inf") else None
        values |= {"predicted_low_s": low, "predicted_high_s": high}
        for name in executors:
            timing = self.measured.get(name)
            none = dict.fromkeys((f"{name}_s", f"{name}_spread", f"{name}_runs"))
            values |= timing.to_dict(name) if timing else none
            values[f"{name}_ratio"] = self.ratio(name)
        return values


class Runs(NamedTuple):
    """How many runs of a net were measured, and how many were to be."""

    done: int
    asked: int


@dataclass(frozen=True)
class FullPass:
    """A net's training step, or its inference, in one piece.

    `missing` says of each executor that could not run the net why; `runs` are those of the
    others.
    """

    case: Case
    setting: Setting
    parts: tuple[Part, ...]
    missing: Mapping[str, str] = field(default_factory=dict)
    runs: Runs = Runs(0, 0)

    @property
    def net(self) -> str:
        """The net's name."""
        return self.case.spec.name

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

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know of these figures."""
        notes = list(self.setting.notes)
        if self.interrupted:
            notes.append(f"interrupted after {self.runs.done} of {self.runs.asked} runs")
        notes += [f"{name} did not run {self.net}: {why}" for name, why in self.missing.items()]
        return (*notes, *self.case.notes(self.setting))

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        return {
            **self.case.to_dict(),
            **self.setting.to_dict(),
            "parts": [part.to_dict(self.setting.executors) for part in self.parts],
            "band": self.band.to_dict() if self.band else None,
            "missing": dict(self.missing),
            "notes": list(self.notes),
            "interrupted": self.interrupted,
        }


class FullPasses(Nets[FullPass]):
    """Whole passes of nets."""


def fullpass(
    nets: NetLike | Sequence[NetLike],
    *,
    device: DeviceLike = "TITAN_X",
    executors: str | Sequence[str] = "torch",
    inference: bool = False,
    batch_size: int | None = None,
    cost_model: str | CostModel = DEFAULT_COST_MODEL,
    ppp_comp: float = 1.0,
    dtype: str = "fp32",
    place: str | None = None,
    num_warmup: int = 10,
    num_iter: int = 50,
    conv_library: str | None = None,
    workspace: int | str | None = None,
    use_only_gemm: bool = False,
    importing: ImportOptions | None = None,
    progress: Progress = no_progress,
) -> FullPasses:
    """Return the time of a training step of nets, or of inference, predicted and measured.

    A step is measured twice: whole, as it runs, and with a stop after each part (forward, loss,
    backward, update) until the processor has done it; so the parts may sum up to more. Each is
    run `num_iter` times, after `num_warmup` that do not count. All other parameters, what is
    raised, what is missing and what an interrupt does are as in `paleo.profile.profile`.
    """
    setting, cases, running = prepare(
        nets,
        batch_size,
        importing,
        device=device,
        cost_model=cost_model,
        ppp_comp=ppp_comp,
        dtype=dtype,
        executors=listed("executors", executors, str),
        place=place,
        num_warmup=num_warmup,
        num_iter=num_iter,
        conv_library=conv_library,
        workspace=workspace,
        use_only_gemm=use_only_gemm,
    )
    predicted = [_predicted(case, setting, inference) for case in cases]
    rounds = (INFERENCE,) if inference else (STEP, _IN_PARTS)
    asked = len(rounds) * num_iter
    found = [{name: _Own() for name in setting.executors} for _ in cases]
    interrupted = False
    try:
        with progress("measuring", len(cases) * len(running) * asked) as advance:
            for case, own in zip(cases, found, strict=True):
                for executor in running:
                    _run(case, executor, setting, rounds, own[executor.name], advance)
    except KeyboardInterrupt:
        interrupted = True
    runs = []
    missed = []
    for case, parts, own in zip(cases, predicted, found, strict=True):
        if interrupted and not any(each.begun for each in own.values()):
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
    return FullPasses(tuple(runs), interrupted, tuple(missed))


class _Own:
    """What one executor has measured of a net so far."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}
        self.missing = ""
        self.runs = 0

    @property
    def begun(self) -> bool:
        return bool(self.runs or self.missing)


def _with(part: Part, own: Mapping[str, _Own]) -> Part:
    """Return a part with what was measured of it."""
    times = {
        name: Timing(tuple(each.seconds[part.name]))
        for name, each in own.items()
        if each.seconds.get(part.name)
    }
    return replace(part, measured=times)


def _predicted(case: Case, setting: Setting, inference: bool) -> tuple[Part, ...]:
    graph, model, target = case.graph, setting.cost_model, setting.target
    band = net_band(model, target)
    if inference:
        time = estimate_pass(graph, FORWARD, target, model, training=False).time
        return (Part(INFERENCE, time, band),)
    times = {
        "forward": estimate_pass(graph, FORWARD, target, model).time,
        "backward": estimate_pass(graph, BACKWARD, target, model).time,
        "update": update_time(graph.num_params, target, model, setting.dtype),
    }
    bands = {"forward": band, "backward": band}
    whole = sum(times.values(), Time())
    return (
        *(Part(name, times.get(name), bands.get(name)) for name in PARTS),
        Part(STEP, whole, band),
    )


def _run(
    case: Case,
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
                warmup = 0 if own.runs else setting.num_warmup
                advance(f"{case.spec.name}: {what} {number + 1}")
                for name, seconds in _once(net, executor, what, warmup).items():
                    own.seconds.setdefault(name, []).append(seconds)
                own.runs += 1
    except (ExecutorError, MemoryError) as error:
        own.missing = failure(error, named=True)


def _once(net: NetRun, executor: Executor, what: str, warmup: int) -> dict[str, float]:
    """Return the seconds of one run: of the whole, or of each part."""
    if what != _IN_PARTS:
        run = net.infer if what == INFERENCE else net.step
        timing = measure(
            run, executor.synchronize, num_warmup=warmup, num_iter=1, clock=perf_counter
        )
        return {what: timing.seconds[0]}
    found: dict[str, float] = {}
    before = perf_counter()

    def mark(part: str) -> None:
        nonlocal before
        executor.synchronize()
        now = perf_counter()
        found[part] = now - before
        before = now

    net.step(mark)
    return found
