"""Data parallelism: every worker has the whole net and a share of the batch.

A step is the computation of one worker and an exchange of all gradients: one after the other (Qi
et al. 2017, section 4.3), or bucket by bucket while the backward pass goes on.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

from paleo.core.errors import SettingError
from paleo.core.quantity import Quantity, is_array, np
from paleo.net.graph import checked_batch
from paleo.net.spec import NetSpec
from paleo.step.declarations import checked_workers
from paleo.step.exchange_settings import SCALINGS
from paleo.step.parallelism.base import (
    BATCH_SIZE,
    COMPUTING,
    PARALLELISMS,
    SCALED,
    WORKERS,
    Asked,
    Parallelism,
    Prediction,
)
from paleo.step.parallelism.computations import Computations, divided
from paleo.step.parallelism.exchanges import exchanged
from paleo.step.parallelism.overlap import Overlapped
from paleo.step.pieces import TRANSFER, Field, Piece, Step
from paleo.step.plan import Plan, check_together
from paleo.step.timeline.drawing import Drawing, Schedule, Span, chain
from paleo.step.timeline.kernels import exchange, pass_pieces, update_piece

#: So many worker counts and more are evaluated at once: fewer are sooner done one by one.
_MANY_WORKERS = 500


def _time(name: str, part: str) -> Field:
    return Field(f"{name}_{part}_s", lambda step: getattr(step.piece(name).time, part), place=2)


_FIELDS = (
    WORKERS,
    BATCH_SIZE,
    Field("iterations", lambda step: 1),  # in which `batch_size` samples are processed
    *COMPUTING,
    *(
        _time(name, part)
        for name in ("forward", "backward", "update")
        for part in ("compute", "memory", "overhead")
    ),
    Field("compute_s", lambda step: step.compute, "compute", "s", banded="time"),
    Field("communication_s", lambda step: step.communication, "", "s", is_wide=True),
    Field("exposed_communication_s", lambda step: step.exposed_exchanges, "", "s"),
    *SCALED,
    Field("best_scheme", lambda step: step.best_scheme),
)
#: The same where exchanges overlap: people see what is exposed of them.
_OVERLAPPED = tuple(
    entry._replace(title="exposed") if entry.key == "exposed_communication_s" else entry
    for entry in _FIELDS
)


class DataParallel:
    """A net under a plan, with data parallelism: gives the step for batches and workers.

    `computations` are those of a plan that differs in its exchanges alone, to be used again.
    """

    def __init__(self, net: NetSpec, plan: Plan, computations: Computations | None = None) -> None:
        self.plan = plan
        self.computations = computations or Computations(net, plan)

    def step(self, batch_size: Quantity, workers: Quantity, scaling: str = "weak") -> Step:
        """Return the step; see `data_parallel`."""
        if scaling not in SCALINGS:
            raise SettingError(f"scaling: expected weak or strong, got {scaling!r}")
        workers, batch = checked_workers(workers), checked_batch(batch_size)
        check_together(batch, workers)
        share, whole = divided(batch, workers, scaling)
        return Step(
            workers,
            whole,
            share,
            self.computations.of(share).pieces,
            _OVERLAPPED if self.plan.overlaps else _FIELDS,
            exchanges=self.exchanges(workers, share),
            band=self.plan.band,
            exchanging=self.exchanges if self.plan.overlaps else None,
        )

    def steps(self, batch_size: int, workers: Sequence[int], scaling: str) -> list[Step]:
        """Return the step for each of many worker counts, beside that of one worker."""
        alone: Any = {
            "one_worker": float(self.computing(batch_size)),
            "one_worker_batch": batch_size,
            "net": self.computations.net.name,
        }
        if len(workers) < _MANY_WORKERS:
            steps = (self.step(batch_size, count, scaling) for count in workers)
            return [replace(step.of_floats(), **alone) for step in steps]
        counts = np.array(workers, np.int64)
        return replace(self.step(batch_size, counts, scaling), **alone).spread(counts.shape)

    def computing(self, own_batch: int) -> Quantity:
        """Return the seconds in which a worker computes a step of so many samples."""
        return self.computations.of(own_batch).seconds

    def exchanges(
        self, workers: Quantity, own_batch: Quantity, factor: float = 1.0
    ) -> dict[str, Piece]:
        """Return by scheme what the exchange of all gradients adds to a step.

        Workers have `own_batch` samples each, of which computation takes `factor` times as long.
        """
        return {
            scheme: self.exchange(workers, own_batch, scheme, factor)
            for scheme in self.plan.exchange_schemes
        }

    def exchange(
        self, workers: Quantity, own_batch: Quantity, scheme: str, factor: float = 1.0
    ) -> Piece:
        """Return what the exchange of all gradients by a scheme adds to a step.

        Where it overlaps, its seconds are those by which it makes the step longer.
        """
        name = f"exchange by {scheme}"
        plan, num_bytes = self.plan, self.computations.num_bytes
        copied = plan.copying_time(num_bytes, workers)
        if not plan.overlaps:
            seconds = plan.communication(num_bytes, workers, scheme)
            return Piece(name, TRANSFER, copied + seconds)
        found = self.overlapped(workers, own_batch, scheme, factor)
        return Piece(name, TRANSFER, copied + found.exposed, busy=copied + found.busy)

    def overlapped(
        self, workers: Quantity, own_batch: Quantity, scheme: str, factor: float = 1.0
    ) -> Overlapped:
        """Return the backward pass of so many samples with the exchanges beside it."""
        plan = self.plan

        seconds: Callable[[Quantity], Quantity] = functools.partial(
            plan.communication, workers=workers, scheme=scheme
        )
        if not is_array(workers) and not is_array(own_batch):
            seconds = cast(Callable[[Quantity], Quantity], functools.cache(seconds))
        made = self.computations.of(own_batch).made
        return exchanged(plan.exchange, made, seconds, plan.device, workers, factor)


def data_parallel(
    net: NetSpec, plan: Plan, batch_size: Quantity, workers: Quantity, scaling: str = "weak"
) -> Step:
    """Return the step of `net` on `workers` workers.

    Weak scaling gives each worker `batch_size` samples; strong scaling gives each
    ceil(batch_size / workers), so at least one. Either count may be an array. Raises
    SettingError or NetSpecError.
    """
    return DataParallel(net, plan).step(batch_size, workers, scaling)


class DataParallelism(Parallelism):
    """A copy of the net on each worker."""

    name = "data"
    workers_setting = "workers"
    scales = True

    def predict(self, asked: Asked) -> Prediction:
        """Return the step for each number of workers."""
        scaling, most, batch = str(asked.scaling), max(asked.workers), asked.batch_size
        data = DataParallel(asked.net, asked.plan, asked.computations)
        steps = data.steps(batch, asked.workers, scaling)
        notes = []
        if scaling == "strong" and most > batch:
            notes.append(
                f"{batch} samples for up to {most} workers: where there are more workers than "
                "samples, each computes one"
            )
        return Prediction(tuple(steps), tuple(notes))

    def schedule(
        self, net: NetSpec, plan: Plan, steps: Sequence[Step], scheme: str | None
    ) -> Schedule:
        """Return a step: every worker computes all layers, and they exchange gradients."""
        (step,) = steps
        assert scheme is not None
        workers = tuple(f"worker {i}" for i in range(step.workers))
        graph = plan.graph(net, step.worker_batch_size)
        forward, backward = map(pass_pieces, plan.passes(graph), ("forward", "backward"))
        ahead, back = (
            [piece for layer in layers for piece in layer.pieces]
            for layers in (forward, reversed(backward))
        )
        update = update_piece(plan, graph.num_params, tensors=graph.num_tensors)
        first, second, last = step.pieces
        whole = step.exchanges[scheme]
        num_bytes = plan.gradient_size(graph.precision) * graph.num_params
        copied = float(plan.copying_time(num_bytes, step.workers))
        arguments = {"bytes": num_bytes, "seconds": copied, "bound": "memory"}
        copies = Piece("copy gradients into buckets and out", TRANSFER, copied, arguments)

        def computing(pieces: Sequence[Piece]) -> Callable[[Drawing, float], None]:
            return lambda drawing, start: drawing.add_to_all(
                range(step.workers), chain(pieces, start)
            )

        def communicate(drawing: Drawing, start: float) -> None:
            drawing.add_to_all(range(step.workers), chain([copies], start))
            exchange(drawing, plan, num_bytes, workers, scheme, start + copied)

        def overlap(drawing: Drawing, start: float) -> None:
            data = DataParallel(net, plan)
            found = data.overlapped(step.workers, step.worker_batch_size, scheme)
            beside = [
                piece._replace(start=start + begin, seconds=found.when(float(piece.end)) - begin)
                for piece in chain(back, 0.0)
                for begin in [found.when(float(piece.start))]
            ]
            drawing.add_to_all(range(step.workers), beside)
            for sent in found.spans:
                at = float(start + sent.start)
                exchange(drawing, plan, int(sent.num_bytes), workers, scheme, at, beside=True)
            drawing.add_to_all(range(step.workers), chain([copies], start + float(found.total)))

        if plan.overlaps:
            spans = [
                Span([first], computing(ahead)),
                Span([second, whole], overlap),
                Span([last], computing([update])),
            ]
        else:
            spans = [
                Span(step.pieces, computing([*ahead, *back, update])),
                Span([whole], communicate),
            ]
        return Schedule(workers, spans, {"workers": step.workers, "scheme": scheme})


PARALLELISMS.add(DataParallelism.name, DataParallelism())
