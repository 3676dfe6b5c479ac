"""A step on a mesh: when each stage does what, what it spends the step on, and its memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from paleo.cluster import Device
from paleo.step.loader import LOADER
from paleo.step.memory.stage import PARTS, StageMemory
from paleo.step.pieces import Step
from paleo.step.pipelines import PIPELINES
from paleo.step.recompute import RECOMPUTATION
from paleo.step.results import Run
from paleo.studies.mesh_stages import WAITING, Played, StageTime, StageTurn, played_of, stages_of
from paleo.views.charts.base import Chart, Series, bars, in_one_unit
from paleo.views.charts.numbers import counted
from paleo.views.charts.settings import run_setting
from paleo.views.table import in_unit

#: What the turns of stages are called, in the order of a legend.
_TURNS = {
    "forward": "forward",
    "backward": "backward",
    "weights": "gradients of parameters",
    "exchange": "exchange of gradients",
    "update": "update",
}
#: So are the parts of their time; all others are messages.
_PARTS = {
    "forward": "forward",
    RECOMPUTATION: "computed again",
    "backward": "backward",
    "messages": "messages",
    "weight_casts": "casts of weights",
    "update": "update",
    WAITING: "waiting for others",
    LOADER: "waiting for data",
}
#: What a device's own memory consists of: its host's is another.
_MEMORY = (*PARTS, "slack")


def stages_charts(run: Run, row: Step) -> tuple[Chart, ...]:
    """Return the schedule of a step on a mesh, and time and memory of its stages."""
    stages = stages_of(run, row)
    return (*schedules(run, row), stage_times(run, row, stages), stage_memory(run, row, stages))


def schedules(run: Run, row: Step) -> list[Chart]:
    """Return the schedule of a step on a mesh, none of more turns than can be seen."""
    played = played_of(run, row)
    return [schedule_chart(run, row, played)] if played else []


def _setting(run: Run, row: Step) -> str:
    samples = f"{counted(row.batch_size, 'sample')} on {counted(row.workers, 'worker')}"
    return f"{run_setting(run)}, {samples}"


def schedule_chart(run: Run, row: Step, played: Played) -> Chart:
    """Return the turns of each stage over time, in the order of stages from top to bottom."""
    names = [name for kind, name in _TURNS.items() if any(t.kind == kind for t in played.turns)]
    kinds = {kind: name for kind, name in _TURNS.items() if name in names}
    others = {turn.kind: turn.kind for turn in played.turns if turn.kind not in kinds}
    scale, _ = in_one_unit([[played.end]], "s", by_largest=True)
    series = [
        _turns_of(name, [turn for turn in played.turns if turn.kind == kind], played, scale.factor)
        for kind, name in (kinds | others).items()
    ]
    pipeline = PIPELINES[played.schedule]
    notes = [f"{played.schedule}: {pipeline.summary}"] if played.stages > 1 else []
    notes.append("messages are in the turns of the stages that wait for them; gaps are waiting")
    if loading := float(row.loading(row.best_scheme)):
        notes.append(f"then all wait for data, for {in_unit(loading, 's', 3)}")
    if played.seconds_more:
        more = in_unit(played.seconds_more, "s", 3)
        notes.append(
            f"drawn as if there were {played.drawn} micro-batches: the other "
            f"{played.batches - played.drawn:,} of {played.batches:,} pass in between, in {more} "
            "more"
        )
    return Chart(
        "schedule",
        "schedule",
        f"Schedule of {counted(played.stages, 'stage')} of {run.net}",
        _setting(run, row),
        "stage",
        f"time ({scale.unit})",
        tuple(series),
        notes=tuple(notes),
    )


def _turns_of(name: str, found: Sequence[StageTurn], played: Played, factor: float) -> Series:
    turns = sorted(found, key=lambda turn: (turn.stage, turn.start))  # rows come in this order
    batches = [turn.batch for turn in turns]
    chunks = [f", chunk {turn.chunk}" * (played.chunks > 1) for turn in turns]
    return Series(
        name,
        tuple(str(turn.stage) for turn in turns),
        tuple((turn.end - turn.start) / factor for turn in turns),
        tuple(
            "" if batch is None else f"micro-batch {batch}{chunk}"
            for batch, chunk in zip(batches, chunks, strict=True)
        ),
        starts=tuple(turn.start / factor for turn in turns),
        marks=tuple("" if batch is None else str(batch) for batch in batches),
    )


def stage_times(run: Run, row: Step, stages: Sequence[StageTime]) -> Chart:
    """Return what the stages of a step spend it on; all messages are one part."""
    columns: dict[str, list[float | None]] = {name: [] for name in _PARTS}
    for stage in stages:
        messages = sum(own for name, own in stage.parts.items() if name not in _PARTS)
        for name, own in columns.items():
            own.append(messages if name == "messages" else stage.parts.get(name, 0.0))
    found = {_PARTS[name]: own for name, own in columns.items() if any(own)}
    said: dict[str, Any] = {
        "key": "stage_times",
        "title": f"Time of a step of {run.net} by stage",
        "setting": _setting(run, row),
        "x_label": "stage",
    }
    return bars(_names(stages), found, "s", "time of a step", **said)


def stage_memory(run: Run, row: Step, stages: Sequence[StageTime]) -> Chart:
    """Return the memory of one device of each stage by part, and what one has."""
    return memory_by_stage(
        run.net, run.plan.device, [stage.memory for stage in stages], _setting(run, row)
    )


def memory_by_stage(net: str, device: Device, stages: Sequence[StageMemory], setting: str) -> Chart:
    """Return the memory of one device of each stage of a net by part, and what one has."""
    columns: dict[str, list[float | None]] = {
        part.replace("_", " "): [float(getattr(stage, part)) for stage in stages]
        for part in _MEMORY
    }
    found = {name: own for name, own in columns.items() if any(own)}
    capacity = device.memory_capacity
    references = [f"memory of {device.name}"] if capacity else []
    said: dict[str, Any] = {
        "key": "stage_memory",
        "title": f"Memory of training {net} by stage",
        "setting": setting,
        "x_label": "stage",
    }
    for name in references:
        found[name] = [float(capacity or 0)] * len(stages)
    return bars(_names(stages), found, "bytes", "memory of a device", references, **said)


def _names(stages: Iterable[StageTime] | Iterable[StageMemory]) -> list[str]:
    return [str(stage.stage) for stage in stages]
