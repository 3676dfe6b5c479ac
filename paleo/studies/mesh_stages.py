"""What the stages of a net on a mesh spend a step on, and in which order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paleo.core.frozen import NamedTuple, dataclass
from paleo.step.loader import LOADER
from paleo.step.memory.stage import StageMemory
from paleo.step.mesh import Mesh
from paleo.step.meshed import Meshed, MeshStep
from paleo.step.pieces import Step
from paleo.step.pipelines import PIPELINES
from paleo.step.results import Run

#: A stage has about so many turns in a picture; of more, only some micro-batches are drawn.
_TURNS = 100
#: So many of a stage at least where some are left out, for each stage that there is.
_FEWEST = 2
#: More turns of all stages are no picture any more.
_MOST = 8_000
#: What a stage does when nothing of it is left but to wait.
WAITING = "waiting"


@dataclass(frozen=True)
class StageTime:
    """A stage of a step: `parts` in seconds by name, which add up to the step, and its memory.

    `blocks` are how many of the net it has.
    """

    stage: int
    blocks: int
    parts: Mapping[str, float]
    memory: StageMemory

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        return {
            **self.memory.to_dict(),
            "blocks": self.blocks,
            "parts": dict(self.parts),
            "step_s": sum(self.parts.values()),
        }


class StageTurn(NamedTuple):
    """What a stage does from `start` to `end`, in seconds.

    `kind` is "forward", "backward", "weights" (the gradients of parameters, where they are apart),
    "exchange" (of gradients, where nothing hides it) or "update". The latter two are of no
    micro-`batch`: None.
    """

    stage: int
    kind: str
    batch: int | None
    chunk: int
    start: float
    end: float


@dataclass(frozen=True)
class Played:
    """When the stages of a pipeline do what.

    Of `batches` micro-batches `drawn` are played, the least that show how a step begins and ends;
    the others take `seconds_more`. A stage has `chunks` of the net.
    """

    schedule: str
    stages: int
    chunks: int
    batches: int
    drawn: int
    turns: tuple[StageTurn, ...]
    seconds_more: float = 0.0

    @property
    def end(self) -> float:
        """When the last stage is done."""
        return max(turn.end for turn in self.turns)


def stages_of(run: Run, row: Step) -> tuple[StageTime, ...]:
    """Return what each stage of a step on a mesh spends it on, and what it takes of memory."""
    meshed = meshed_of(run, row)
    micro, batches = row.worker_batch_size, meshed.batches(row.batch_size)
    whole = float(row.total(row.best_scheme))
    found = []
    loading = float(row.loading(row.best_scheme))
    for device, memory in zip(meshed.devices(micro), meshed.memory(micro, batches), strict=True):
        parts = {name: float(own) for name, own in meshed.spent(device, batches).items() if own}
        waiting = max(whole - loading - sum(parts.values()), 0.0)
        parts |= {name: own for name, own in ((WAITING, waiting), (LOADER, loading)) if own}
        found.append(StageTime(device.number, device.blocks, parts, memory))
    return tuple(found)


def played_of(run: Run, row: Step) -> Played | None:
    """Return when each stage of a step on a mesh does what; None of so many that nobody sees it.

    Where stages differ the formula of a step is a few percent off what they do: turns are longer
    or shorter by that, as in a timeline.
    """
    meshed = meshed_of(run, row)
    plan, pp = meshed.plan, meshed.mesh.pp
    batches = meshed.batches(row.batch_size)
    pipeline = PIPELINES[plan.schedule]
    _, stages = meshed.stages(row.worker_batch_size)
    works = [stage.work for stage in stages]
    passes = 2 + pipeline.weights_apart
    chunks = max(plan.interleave, len(pipeline.held(0, meshed.count)))
    drawn = _drawn(batches, pp, passes * plan.interleave * pipeline.cuts)
    if drawn * pp * passes * plan.interleave * pipeline.cuts > _MOST:
        return None
    share = float(pipeline.seconds(works, drawn, plan.interleave))
    share /= float(pipeline.seconds(works, batches, plan.interleave))
    update = float(sum(piece.seconds for piece in row.pieces if piece.category == "update"))
    running = float(sum(piece.seconds for piece in row.pieces)) - update
    played = pipeline.play(works, drawn, plan.interleave)
    longer = share * running / max(turn.end for turn in played)
    turns = [
        StageTurn(each.stage, *each.turn.known, longer * each.start, longer * each.end)
        for each in played
    ]
    start = share * running
    exchange = float(row.exchanges[row.best_scheme].seconds)
    for kind, spent in (("exchange", exchange), ("update", update)):
        if spent > 0:
            turns += [StageTurn(i, kind, None, 0, start, start + spent) for i in range(pp)]
        start += spent
    more = (1 - share) * running if drawn < batches else 0.0
    return Played(plan.schedule, pp, chunks, batches, drawn, tuple(turns), more)


def _drawn(batches: int, stages: int, turns: int) -> int:
    """Return how many micro-batches are drawn, where each is so many turns of a stage."""
    if batches * turns <= _TURNS:
        return batches
    return min(batches, max(_FEWEST * stages, _TURNS // 2 // (turns * stages) * stages))


def meshed_of(run: Run, row: Step) -> Meshed:
    """Return what a step on a mesh was made of."""
    if isinstance(row, MeshStep) and row.meshed:
        return row.meshed
    plan = run.plan
    mesh = Mesh.of(row.workers, plan.tp, plan.cp, plan.ep, plan.pp, plan.order)
    return Meshed(run.scenario.net, plan, mesh)
