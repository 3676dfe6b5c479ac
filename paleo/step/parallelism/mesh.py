"""A mesh of devices: tensors, stages, positions, experts and data are shared at once.

Each device has a part of the net (paleo.step.part), of which each stage has the nodes of its
blocks. A step is the slowest stage's micro-batches, what it waits for in the pipeline, the exchange
of gradients, and the update.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from paleo.core.quantity import total
from paleo.net.spec import NetSpec
from paleo.step.mesh import KINDS, Mesh
from paleo.step.meshed import Meshed
from paleo.step.parallelism.base import (
    BATCH_SIZE,
    LOADING,
    PARALLELISMS,
    WORKERS,
    Asked,
    Parallelism,
    Prediction,
)
from paleo.step.parallelism.computations import sample_of
from paleo.step.pieces import TRANSFER, Field, Piece, Step
from paleo.step.pipelines import PIPELINES
from paleo.step.plan import Plan
from paleo.step.shortened import shortened
from paleo.step.timeline.drawing import Drawing, Schedule, Span, chain


def _best(key: str, title: str, dimension: str = "", banded: str = "rate") -> Field:
    """Return a field with a value of the whole step."""
    return Field(
        key,
        lambda step: getattr(step.whole_step(step.best_scheme), key),
        title,
        dimension,
        place=1,
        banded=banded,
    )


def _parts(step: Step) -> dict[str, float]:
    """Return the seconds of each part, which add up to the step."""
    return {piece.name: float(piece.seconds) for piece in step.under(step.best_scheme)}


def _communication(step: Step) -> float:
    """Return the seconds of messages during which nothing is computed."""
    pieces = step.under(step.best_scheme)
    return float(total(piece.seconds for piece in pieces if piece.category == TRANSFER))


#: How long a step waits for the data loader.
_LOADING = LOADING._replace(value=lambda step: float(step.loading(step.best_scheme)))


def _degree(mesh: Mesh, kind: str) -> Field:
    """Return the field of how many devices share a net in a way; people see it if there are any."""
    count = getattr(mesh, kind)
    return Field(kind, lambda _: count)


@functools.cache
def _fields(mesh: Mesh, has_tokens: bool) -> tuple[Field, ...]:
    """Return the fields of steps on a mesh."""
    return (
        WORKERS,
        BATCH_SIZE,
        Field("dp", lambda _: mesh.dp, "dp"),
        *(_degree(mesh, kind) for kind in KINDS if kind != "dp"),
        Field("micro_batch", lambda step: step.worker_batch_size, "micro\nbatch"),
        Field("compute_s", lambda step: step.compute, "compute", "s", banded="time"),
        Field("bubble_s", lambda step: step.seconds_of("bubble"), "bubble", "s", banded="time"),
        Field("exposed_communication_s", _communication, "exposed", "s"),
        Field("parts", _parts, is_nested=True),
        Field(
            "step_s",
            lambda step: step.total(step.best_scheme),
            "step",
            "s",
            place=1,
            banded="time",
        ),
        _best("throughput", "" if has_tokens else "samples\n/s")._replace(key="throughput_per_s"),
        _best("tokens_per_s", "tokens\n/s" if has_tokens else ""),
        _best("mfu", "MFU", "percent"),
        _best("hfu", "", "percent"),
    )


def _draw(meshed: Meshed, step: Step, drawing: Drawing, start: float) -> None:
    """Draw the micro-batches of all stages.

    Where stages differ the formula of a step is a few percent off what they do: turns are drawn
    longer or shorter by that.
    """
    plan = meshed.plan
    _, stages = meshed.stages(step.worker_batch_size)
    batches = meshed.batches(step.batch_size)
    played = PIPELINES[plan.schedule].play(
        [stage.work for stage in stages], batches, plan.interleave
    )
    seconds = sum(float(piece.seconds) for piece in step.pieces if piece.name != "update")
    longer = seconds / max(turn.end for turn in played)
    for turn in played:
        kind, batch, chunk = turn.turn.known
        said = {"micro_batch": batch} | ({"chunk": chunk} if plan.interleave > 1 else {})
        category = "forward" if kind == "forward" else "backward"
        long = longer * (turn.end - turn.start)
        piece = Piece(f"{kind} {batch}", category, long, said, start + longer * turn.start)
        drawing.add(turn.stage, [piece] if long > 0 else [])


class MeshParallelism(Parallelism):
    """Tensors, stages and data shared at once."""

    name = "mesh"
    workers_setting = "workers"
    shares_net = True
    loads = True

    @property
    def title(self) -> str:
        return "on a mesh"

    def predict(self, asked: Asked) -> Prediction:
        """Return the step for each number of devices."""
        net, plan = asked.net, asked.plan
        sample = sample_of(net, plan, shortened(net))
        one: Any = {"net": net.name, "sample": sample, "one_worker": 0.0}
        has_tokens = bool(sample.tokens)
        steps = []
        for workers in asked.workers:
            mesh = Mesh.of(workers, plan.tp, plan.cp, plan.ep, plan.pp, plan.order)
            batch = plan.global_batch or asked.batch_size * mesh.dp
            step = Meshed(net, plan, mesh).step(batch)
            fields = (*_fields(mesh, has_tokens), *((_LOADING,) if plan.loader_rate else ()))
            delivered = plan.delivered(batch, workers, sample.tokens)
            steps.append(replace(step, fields=(*fields, *step.fields), delivered=delivered, **one))
        return Prediction(tuple(steps), ())

    def schedule(
        self, net: NetSpec, plan: Plan, steps: Sequence[Step], scheme: str | None
    ) -> Schedule:
        """Return a step: one device of each stage, with its micro-batches."""
        (step,) = steps
        mesh = Mesh.of(step.workers, plan.tp, plan.cp, plan.ep, plan.pp, plan.order)
        meshed = Meshed(net, plan, mesh)
        names = tuple(f"stage {i}" for i in range(mesh.pp))
        exchanged = step.exchanges[step.best_scheme]
        update = step.piece("update")
        running = [piece for piece in step.pieces if piece is not update]

        def all_stages(piece: Piece) -> Span:
            return Span(
                [piece],
                lambda drawing, start: drawing.add_to_all(range(mesh.pp), chain([piece], start)),
            )

        spans = [
            Span(running, functools.partial(_draw, meshed, step)),
            all_stages(exchanged),
            all_stages(update),
        ]
        if step.loading(step.best_scheme) > 0:
            spans.append(all_stages(step.under(step.best_scheme)[-1]))
        degrees = {kind: getattr(mesh, kind) for kind in KINDS}
        return Schedule(names, spans, {"workers": step.workers, **degrees})


PARALLELISMS.add(MeshParallelism.name, MeshParallelism())
