"""Data parallelism: every worker has the whole net and a share of the batch.

A step is the computation of one worker and an exchange of all gradients: one after the other (Qi
et al. 2017, section 4.3), or bucket by bucket while the backward pass goes on.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from paleo.core.errors import SettingError
from paleo.core.frozen import dataclass
from paleo.core.quantity import Quantity, has_arrays, is_array, np, some, total
from paleo.costs import Time
from paleo.net.graph import Graph, checked_batch
from paleo.net.spec import NetSpec
from paleo.step.declarations import checked_workers
from paleo.step.distributed_settings import SCALINGS
from paleo.step.parallelism.base import (
    BATCH_SIZE,
    COMPUTING,
    LOADING,
    OF_RECOMPUTATION,
    OF_TOKENS,
    PARALLELISMS,
    SCALED,
    WORKERS,
    Asked,
    Parallelism,
    Prediction,
    with_titles,
)
from paleo.step.parallelism.computations import Computation, Computations, divided
from paleo.step.parallelism.jitter import expected_slowest
from paleo.step.parallelism.overlap import Made, Overlapped, buckets, exchanged
from paleo.step.pieces import TRANSFER, WAIT, Field, Piece, Step
from paleo.step.plan import Plan, check_together
from paleo.step.recompute import RECOMPUTATION
from paleo.step.utilization import Sample

if TYPE_CHECKING:  # few ask for a timeline
    from paleo.step.timeline.drawing import Drawing, Schedule, Span

#: So many worker counts and more are evaluated at once: fewer are sooner done one by one. So are
#: more of them where NumPy is yet to be imported.
_MANY_WORKERS, _WORTH_IMPORTING = 8, 150


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
    Field("wait_s", lambda step: step.waiting, "", "s", banded="time"),
    *SCALED,
    Field("best_scheme", lambda step: step.best_scheme),
)


def _fields(plan: Plan, sample: Sample) -> tuple[Field, ...]:
    """Return the fields of steps: people see what is exposed, waits and tokens where there are."""
    exposed = {"exposed_communication_s": "exposed"} if plan.overlaps else {}
    waiting = {"wait_s": "waiting"} if some(plan.deviation > 0) else {}
    again = OF_RECOMPUTATION if plan.recompute.mode != "none" else {}
    tokens = OF_TOKENS if sample.tokens is not None else {}
    if tokens and again:
        tokens = tokens | {"hfu": "HFU"}
    found = with_titles(_FIELDS, **exposed, **waiting, **again, **tokens)
    return (*found, LOADING) if plan.loader_rate else found


class Worker:
    """One of so many workers, all alike, with `batch` samples at a time: numbers or arrays.

    What it computes, packs and exchanges follows from that; each is worked out once.
    """

    def __init__(self, computations: Computations, plan: Plan, workers: Any, batch: Any) -> None:
        self.computations = computations
        self.plan = plan
        self.workers = workers
        self.batch = batch
        #: The seconds of messages by bytes and scheme: both ends of a band ask again.
        self.sent: dict[tuple[Quantity, str], Quantity] = {}

    def under_plan(self, plan: Plan) -> Worker:
        """Return the same under a plan that differs in figures of links alone.

        What is computed is priced once for all of them.
        """
        assert self.computation
        found = copy.copy(self)
        found.plan, found.sent = plan, {}
        return found

    @functools.cached_property
    def computation(self) -> Computation:
        """What it computes besides what exchanges take."""
        return self.computations.of(self.batch)

    @functools.cached_property
    def slowest(self) -> Quantity:
        """What the slowest of the workers takes over what one takes on average."""
        jitter = self.plan.deviation
        return expected_slowest(self.workers, jitter) if some(jitter > 0) else 1

    @functools.cached_property
    def handling(self) -> tuple[Time, Time] | None:
        """What takes the time to pack all gradients, and to unpack what comes; None for nothing.

        There are kernels for each bucket. Who sends what there is at some time has one bucket.
        """
        plan, encoding = self.plan, self.plan.encoding
        if encoding.is_plain:
            return None
        by, sizes = plan.exchange, [self.computations.num_bytes]
        if by.bucket is not None and not by.cycle:
            parts = buckets(self.computation.made, by.bucket, by.first or by.bucket)
            sizes = [part.num_bytes for part in parts if part.num_bytes]
        packed, unpacked = Time(), Time()
        for num_bytes in sizes:
            elements = num_bytes // encoding.size
            packed += plan.kernel_time(encoding.packing(elements))
            unpacked += plan.kernel_time(encoding.unpacking(elements, self.workers))
        others = self.workers - 1
        return packed.where_positive(others), unpacked.where_positive(others)

    @functools.cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """What it does besides the exchange.

        What packs gradients belongs to the backward pass, what unpacks them to the update. Waiting
        for the slowest comes last.
        """
        pieces = self.computation.pieces
        if self.handling:
            added = dict(zip(("backward", "update"), self.handling, strict=True))
            pieces = tuple(
                piece.longer(added[piece.name]) if piece.name in added else piece
                for piece in pieces
            )
        if some(self.plan.deviation > 0):
            computed = total(piece.seconds for piece in pieces)
            pieces += (Piece("wait", WAIT, (self.slowest - 1) * computed),)
        return pieces

    @functools.cached_property
    def made(self) -> Sequence[Made]:
        """The gradients of its last backward pass, each with its share of the packing."""
        made = self.computation.made
        if not self.handling:
            return made
        packing, _ = self.handling
        return [one.longer(packing.total, self.computations.num_bytes) for one in made]

    def exchanges(self, factor: float = 1.0) -> dict[str, Piece]:
        """Return by scheme what the exchange of all gradients adds to a step.

        Computation takes `factor` times as long as it does.
        """
        return {scheme: self.exchange(scheme, factor) for scheme in self.plan.exchange_schemes}

    def exchange(self, scheme: str, factor: float = 1.0) -> Piece:
        """Return what the exchange of all gradients by a scheme adds to a step.

        Where it overlaps, its seconds are those by which it makes the step longer.
        """
        name = f"exchange by {scheme}"
        num_bytes = self.computations.num_bytes
        copied = self.plan.copying_time(num_bytes, self.workers)
        if not self.plan.overlaps:
            return Piece(name, TRANSFER, copied + self._sending(num_bytes, scheme))
        if not is_array(self.workers) and self.workers == 1 and not self.plan.exchange.cycle:
            # There is nobody to exchange with: what follows would find that bucket by bucket.
            return Piece(name, TRANSFER, copied + 0.0, busy=copied + 0.0)
        found = self.overlapped(scheme, factor)
        return Piece(name, TRANSFER, copied + found.exposed, busy=copied + found.busy)

    def overlapped(self, scheme: str, factor: float = 1.0) -> Overlapped:
        """Return its last backward pass with the exchanges beside it, as the slowest does it."""
        plan = self.plan
        seconds = functools.partial(self._sending, scheme=scheme)
        carried = functools.partial(plan.encoding.carried, workers=self.workers)
        how = (plan.device, self.workers, factor * self.slowest, carried)
        return exchanged(plan.exchange, self.made, seconds, *how)

    def added(self, scheme: str) -> Quantity:
        """Return the seconds that the exchange adds to a step, with what packs and unpacks."""
        seconds = self.exchange(scheme).seconds
        if self.handling:
            seconds = seconds + self.slowest * total(time.total for time in self.handling)
        return seconds

    def _sending(self, num_bytes: Quantity, scheme: str) -> Quantity:
        """Return the seconds in which gradients of so many bytes are exchanged, once packed."""
        is_known = not is_array(num_bytes)
        if is_known and (num_bytes, scheme) in self.sent:
            return self.sent[num_bytes, scheme]
        encoding, workers = self.plan.encoding, self.workers
        elements = num_bytes // encoding.size
        seconds = total(
            self.plan.communication(
                encoding.message(operation, elements, workers), workers, scheme, operation
            )
            for operation in encoding.operations
        )
        if is_known:
            self.sent[num_bytes, scheme] = seconds
        return seconds


class DataParallel:
    """A net under a plan, with data parallelism: gives the step for batches and workers.

    `computations` are those of a plan that differs in its exchanges alone, to be used again.
    """

    def __init__(self, net: NetSpec, plan: Plan, computations: Computations | None = None) -> None:
        self.plan = plan
        self.computations = computations or Computations(net, plan)
        self._last: Worker | None = None

    def worker(self, workers: Quantity, batch: Quantity) -> Worker:
        """Return one of so many workers, of which each has so many samples at a time.

        What the last of as many sent is known: messages do not depend on samples.
        """
        found = Worker(self.computations, self.plan, workers, batch)
        if is_array(workers) and self._last and np.array_equal(workers, self._last.workers):
            found.sent = self._last.sent
        self._last = found
        return found

    def computing(self, own_batch: int) -> Quantity:
        """Return the seconds in which a worker computes a step of so many samples at a time."""
        return self.computations.of(own_batch).seconds

    def step(self, batch_size: Quantity, workers: Quantity, scaling: str = "weak") -> Step:
        """Return the step; see `data_parallel`."""
        if scaling not in SCALINGS:
            raise SettingError(f"scaling: expected weak or strong, got {scaling!r}")
        workers, batch = checked_workers(workers), checked_batch(batch_size)
        turns = self.plan.accumulate
        check_together(batch * turns, workers)
        share, whole = divided(batch, workers, scaling, turns)
        worker = self.worker(workers, share)
        return Step(
            workers,
            whole,
            share,
            worker.pieces,
            _fields(self.plan, self.computations.sample),
            sample=self.computations.sample,
            exchanges=worker.exchanges(),
            band=self.plan.band,
            exchanging=worker.exchanges if self.plan.overlaps else None,
            delivered=self.plan.delivered(whole, workers, self.computations.sample.tokens),
        )

    def steps(self, batch_size: int, workers: Sequence[int], scaling: str) -> tuple[Step, ...]:
        """Return the step for each of many worker counts, beside that of one worker."""
        own, whole = divided(batch_size, 1, scaling, self.plan.accumulate)
        seconds = float(self.computing(own))
        coming = self.plan.delivered(whole, 1, self.computations.sample.tokens)
        alone: Any = {
            "one_worker": max(seconds, float(coming)),
            "one_worker_batch": whole,
            "net": self.computations.net.name,
            "sample": self.computations.sample,
        }
        if len(workers) < (_MANY_WORKERS if has_arrays() else _WORTH_IMPORTING):
            steps = (self.step(batch_size, count, scaling) for count in workers)
            return tuple(replace(step.of_floats(), **alone) for step in steps)
        counts = np.array(workers, np.int64)
        return replace(self.step(batch_size, counts, scaling), **alone).spread(counts.shape)


def data_parallel(
    net: NetSpec, plan: Plan, batch_size: Quantity, workers: Quantity, scaling: str = "weak"
) -> Step:
    """Return the step of `net` on `workers` workers.

    Weak scaling gives each worker `batch_size` samples; strong scaling gives each
    ceil(batch_size / workers), so at least one. Where a plan accumulates gradients, weak scaling
    gives so many at a time, and strong scaling divides them by the turns as well. Either count may
    be an array. Raises SettingError or NetSpecError.
    """
    return DataParallel(net, plan).step(batch_size, workers, scaling)


class DataParallelism(Parallelism):
    """A copy of the net on each worker."""

    name = "data"
    workers_setting = "workers"
    scales = True
    divides = True
    synchronizes = True
    loads = True

    def predict(self, asked: Asked) -> Prediction:
        """Return the step for each number of workers."""
        scaling, most, batch = str(asked.scaling), max(asked.workers), asked.batch_size
        data = DataParallel(asked.net, asked.plan, asked.computations)
        steps = data.steps(batch, asked.workers, scaling)
        notes = []
        turns = asked.plan.accumulate
        if scaling == "strong" and most * turns > batch:
            each = "one" if turns == 1 else f"{turns}, one at a time"
            notes.append(
                f"{batch} samples for up to {most} workers: where there are more workers than "
                f"samples{'' if turns == 1 else f' / {turns}'}, each computes {each}"
            )
        return Prediction(steps, tuple(notes))

    def schedule(
        self, net: NetSpec, plan: Plan, steps: Sequence[Step], scheme: str | None
    ) -> Schedule:
        """Return a step: every worker computes all layers, and they exchange gradients.

        All are drawn as the slowest, for whom the others wait.
        """
        (step,) = steps
        assert scheme is not None
        return _Drawn(DataParallel(net, plan), step, scheme).schedule()


@dataclass(frozen=True)
class _Drawn:
    """A step of numbers under a scheme, to be drawn."""

    data: DataParallel
    step: Step
    scheme: str

    @property
    def plan(self) -> Plan:
        return self.data.plan

    @functools.cached_property
    def worker(self) -> Worker:
        return self.data.worker(self.step.workers, self.step.worker_batch_size)

    @functools.cached_property
    def graph(self) -> Graph:
        return self.plan.graph(self.data.computations.net, self.step.worker_batch_size)

    @functools.cached_property
    def workers(self) -> tuple[str, ...]:
        return tuple(f"worker {i}" for i in range(self.step.workers))

    @functools.cached_property
    def _handling(self) -> tuple[list[Piece], list[Piece]]:
        """What packs gradients, and what unpacks them."""
        if not self.worker.handling:
            return [], []
        packing, unpacking = self.worker.handling
        return (
            [Piece("gradients packed", "backward", float(packing.total))],
            [Piece("gradients unpacked", "update", float(unpacking.total))],
        )

    def schedule(self) -> Schedule:
        """Return the passes of each turn, the last with its exchanges, and the update."""
        from paleo.step.timeline.drawing import Schedule, Span
        from paleo.step.timeline.kernels import drawn_passes, whole_update

        plan, step = self.plan, self.step
        passes = plan.passes(self.graph)
        ahead, back = drawn_passes(plan, passes)
        packing, unpacking = self._handling
        summing = plan.summing_time(self.num_bytes, self.graph.num_tensors).total
        sums = [Piece("gradients summed", "backward", float(summing))]
        update = whole_update(plan, self.graph)
        exchanged = step.exchanges[self.scheme]
        turns = plan.accumulate
        one = Piece("forward", "forward", step["forward"] / turns)
        again = Piece(RECOMPUTATION, RECOMPUTATION, step.seconds_of(RECOMPUTATION) / turns)
        packed = total(piece.seconds for piece in packing)
        passed = (step["backward"] - packed - (turns - 1) * summing) / turns
        spans = []
        for turn in range(turns):
            later = sums if turn else []
            is_last = turn == turns - 1
            added = [*later, *(packing if is_last else [])]
            second = Piece("backward", "backward", passed + total(piece.seconds for piece in added))
            if is_last and plan.overlaps:
                spans.append(self._computing([one], ahead))
                drawn = self._slower([again, second])
                spans.append(Span([*drawn, exchanged], functools.partial(self._overlap, back)))
            else:
                spans.append(self._computing([one, again, second], [*ahead, *back, *added]))
        last = self._computing([step.piece("update")], [*unpacking, update])
        if plan.overlaps:
            spans.append(last)
        else:
            after = Span([exchanged], self._communicate)
            spans += [after, last] if unpacking else [last, after]
        if step.loading(self.scheme) > 0:
            waits = [step.under(self.scheme)[-1]]
            spans.append(Span(waits, functools.partial(self._wait, waits)))
        return Schedule(self.workers, spans, {"workers": step.workers, "scheme": self.scheme})

    @property
    def num_bytes(self) -> int:
        """The bytes of all gradients."""
        return self.plan.encoding.size * self.graph.num_params

    @property
    def _copies(self) -> Piece:
        """What copies gradients into buckets and out of them."""
        copied = float(self.plan.copying_time(self.num_bytes, self.step.workers))
        arguments = {"bytes": self.num_bytes, "seconds": copied, "bound": "memory"}
        return Piece("copy gradients into buckets and out", TRANSFER, copied, arguments)

    def _slower(self, pieces: Sequence[Piece]) -> list[Piece]:
        """Return what the slowest worker does."""
        slowest = float(self.worker.slowest)
        return [piece.taking(slowest) for piece in pieces]

    def _computing(self, pieces: Sequence[Piece], fine: Sequence[Piece]) -> Span:
        """Return the span of pieces, which every worker does as finer ones."""
        from paleo.step.timeline.drawing import Span, chain

        drawn = self._slower(fine)
        return Span(
            self._slower(pieces),
            lambda drawing, start: drawing.add_to_all(
                range(self.step.workers), chain(drawn, start)
            ),
        )

    def _wait(self, pieces: Sequence[Piece], drawing: Drawing, start: float) -> None:
        """Draw that every worker waits."""
        from paleo.step.timeline.drawing import chain

        drawing.add_to_all(range(self.step.workers), chain(pieces, start))

    def _communicate(self, drawing: Drawing, start: float) -> None:
        """Draw the exchange of all gradients, after the copies."""
        from paleo.step.timeline.drawing import chain

        copies = self._copies
        drawing.add_to_all(range(self.step.workers), chain([copies], start))
        self._exchange(drawing, self.num_bytes, start + float(copies.seconds), beside=False)

    def _exchange(self, drawing: Drawing, num_bytes: int, start: float, *, beside: bool) -> None:
        """Draw the exchange of so many bytes of gradients."""
        from paleo.step.timeline.kernels import exchange

        plan, encoding, workers = self.plan, self.plan.encoding, self.step.workers
        elements = num_bytes // encoding.size
        for operation in encoding.operations:
            message = int(encoding.message(operation, elements, workers))
            how = (message, self.workers, self.scheme, start)
            exchange(drawing, plan, *how, beside=beside, operation=operation)
            start += float(plan.communication(message, workers, self.scheme, operation))

    def _overlap(self, back: Sequence[Piece], drawing: Drawing, start: float) -> None:
        """Draw a backward pass with the exchanges beside it.

        What sums gradients up or packs them is drawn as if every layer took longer by a share.
        """
        from paleo.step.timeline.drawing import chain

        step, found = self.step, self.worker.overlapped(self.scheme)
        pieces = chain(back, 0.0)
        longer = float(found.alone / pieces[-1].end) if pieces else 1.0
        beside = []
        for piece in pieces:
            begin, end = (found.when(longer * float(at)) for at in (piece.start, piece.end))
            beside.append(piece._replace(start=start + begin, seconds=end - begin))
        drawing.add_to_all(range(step.workers), beside)
        for sent in found.spans:
            at = float(start + sent.start)
            self._exchange(drawing, int(sent.num_bytes), at, beside=True)
        drawing.add_to_all(range(step.workers), chain([self._copies], start + float(found.total)))


PARALLELISMS.add(DataParallelism.name, DataParallelism())
