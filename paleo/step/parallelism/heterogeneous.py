"""Data parallelism on devices of several kinds, which share a batch by their speed.

All workers step together: a gradient is exchanged once the last of them has it. So the samples of a
step are shared so that all kinds compute for as long, as far as whole samples allow (Y. Jiang et
al., OSDI 2020; X. Jia et al., "Whale: efficient giant model training over heterogeneous GPUs",
USENIX ATC 2022, section 3.3). Each kind has the same network, or the links of the same cluster,
whose nodes they fill one kind after the other.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

from paleo.core.frozen import NamedTuple, dataclass
from paleo.core.quantity import Quantity, total
from paleo.net.spec import NetSpec
from paleo.step.parallelism.base import (
    BATCH_SIZE,
    COMPUTING,
    PARALLELISMS,
    WORKERS,
    Asked,
    Parallelism,
    Prediction,
)
from paleo.step.parallelism.computations import Computation, Computations, divided
from paleo.step.parallelism.overlap import Made, Overlapped, exchanged
from paleo.step.pieces import TRANSFER, WAIT, Field, Piece, Step, WholeStep
from paleo.step.plan import Plan
from paleo.step.timeline.drawing import Drawing, Schedule, Span, chain
from paleo.step.timeline.kernels import drawn_passes, exchange, whole_update
from paleo.step.utilization import Sample

#: So often shares are made better, at most: two or three times are enough.
_TURNS = 10


def _fields(samples: int) -> tuple[Field, ...]:
    """Return the values of a kind's part in a step of so many samples."""
    return (
        Field("part", lambda step: step.label, "on"),
        WORKERS,
        Field("worker_batch_size", lambda step: step.worker_batch_size, "batch of\na worker"),
        BATCH_SIZE,
        Field("share", lambda step: step.batch_size / samples, "share of\nsamples", "percent"),
        *COMPUTING,
        Field("sync_s", lambda step: step["sync"], "exposed", "s"),
        Field("wait_s", lambda step: step.waiting, "waiting", "s", banded="time"),
        Field("total_s", lambda step: step.total(), "step", "s", banded="time"),
    )


class Kind(NamedTuple):
    """So many workers on one kind of device, each with `batch` samples."""

    computations: Computations
    workers: int
    batch: int = 0

    @property
    def plan(self) -> Plan:
        """The plan under which they compute."""
        return self.computations.plan

    @property
    def computed(self) -> Computation:
        """What one of them computes in a step."""
        return self.computations.of(self.batch)

    def seconds(self, batch: int) -> float:
        """Return the seconds in which one computes a step of so many samples."""
        return float(self.computations.of(batch).seconds)

    def until(self, name: str) -> float:
        """Return the seconds until one of them has done this pass, from the start of a step."""
        seconds = 0.0
        for piece in self.computed.pieces:
            seconds += float(piece.seconds)
            if piece.name == name:
                break
        return seconds


def shared(kinds: Sequence[Kind], whole: int) -> list[Kind]:
    """Return kinds with batches by which all of them take about as long for so many samples.

    Each worker has one at least, and all of a kind have as many, so that they may come to a few
    more than there are.
    """
    count = sum(kind.workers for kind in kinds)
    batches = [max(1, whole // count)] * len(kinds)
    for _ in range(_TURNS):
        rates = [batch / kind.seconds(batch) for kind, batch in zip(kinds, batches, strict=True)]
        of_all = sum(kind.workers * rate for kind, rate in zip(kinds, rates, strict=True))
        better = [max(1, int(whole * rate / of_all)) for rate in rates]
        if better == batches:
            break
        batches = better
    left = whole - sum(kind.workers * batch for kind, batch in zip(kinds, batches, strict=True))
    while left > 0:
        times = [kind.seconds(batch + 1) for kind, batch in zip(kinds, batches, strict=True)]
        quickest = times.index(min(times))
        batches[quickest] += 1
        left -= kinds[quickest].workers
    return [kind._replace(batch=batch) for kind, batch in zip(kinds, batches, strict=True)]


@dataclass(frozen=True)
class Together:
    """A step of kinds that have their batches. `plan` is that of the first."""

    kinds: tuple[Kind, ...]

    @property
    def plan(self) -> Plan:
        """The plan of the first kind."""
        return self.kinds[0].plan

    @property
    def workers(self) -> int:
        """How many workers there are of all kinds."""
        return sum(kind.workers for kind in self.kinds)

    @property
    def num_bytes(self) -> int:
        """The bytes of all gradients."""
        return self.kinds[0].computations.num_bytes

    @functools.cached_property
    def forward(self) -> float:
        """When the last of them begins with the backward pass."""
        return max(kind.until("forward") for kind in self.kinds)

    @functools.cached_property
    def backward(self) -> float:
        """When the last of them has done the backward pass, were there no exchange beside it."""
        return max(kind.until("backward") for kind in self.kinds)

    @functools.cached_property
    def made(self) -> list[Made]:
        """The gradients as the last worker has each of them, from `forward` on."""
        ready: list[list[float]] = []
        for kind in self.kinds:
            begin = kind.until("forward")
            seconds = (float(one.seconds) for one in kind.computed.made)
            ready.append([begin + until for until in itertools.accumulate(seconds)])
        latest = [self.forward, *map(max, zip(*ready, strict=True))]
        sizes = [one.num_bytes for one in self.kinds[0].computed.made]
        return [
            Made(now - before, num_bytes)
            for (before, now), num_bytes in zip(itertools.pairwise(latest), sizes, strict=True)
        ]

    def sending(self, scheme: str) -> Callable[[Quantity], Quantity]:
        """Return what gives the seconds to exchange so many bytes."""
        return functools.partial(self.plan.communication, workers=self.workers, scheme=scheme)

    def overlapped(self, scheme: str) -> Overlapped:
        """Return the backward pass, from `forward` on, with its exchanges."""
        plan = self.plan
        return exchanged(plan.exchange, self.made, self.sending(scheme), plan.device, self.workers)

    def exposed(self, scheme: str) -> float:
        """Return the seconds by which exchanges make the step longer."""
        copied = self.plan.copying_time(self.num_bytes, self.workers)
        if not self.plan.overlaps:
            return float(copied + self.sending(scheme)(self.num_bytes))
        return float(copied + self.overlapped(scheme).exposed)

    @functools.cached_property
    def scheme(self) -> str:
        """The scheme that takes least."""
        return min(self.plan.exchange_schemes, key=self.exposed)

    def steps(self) -> tuple[Step, ...]:
        """Return what the workers of each kind do in the step."""
        exposed = self.exposed(self.scheme)
        updates = [float(kind.computed.pieces[-1].seconds) for kind in self.kinds]
        end = self.backward + exposed + max(updates)
        samples = sum(kind.workers * kind.batch for kind in self.kinds)
        found = []
        for kind in self.kinds:
            idle = end - exposed - float(kind.computed.seconds)
            pieces = (
                *kind.computed.pieces,
                Piece("sync", TRANSFER, exposed),
                Piece("wait", WAIT, max(idle, 0.0)),
            )
            sizes = (kind.workers, kind.workers * kind.batch, kind.batch)
            step = Step(*sizes, pieces, _fields(samples), label=kind.plan.device.name)
            found.append(step.of_floats())
        return tuple(found)

    # How it is drawn

    @functools.cached_property
    def names(self) -> list[str]:
        """The names of all workers, kind by kind."""
        devices = (kind.plan.device.name for kind in self.kinds for _ in range(kind.workers))
        return [f"worker {i}, {device}" for i, device in enumerate(devices)]

    def draw(self, drawing: Drawing, start: float) -> None:
        """Draw what each worker computes, and the exchanges beside it or after it."""
        end = start + self.backward + self.exposed(self.scheme)
        first = 0
        for kind in self.kinds:
            workers, first = range(first, first + kind.workers), first + kind.workers
            graph = kind.plan.graph(kind.computations.net, kind.batch)
            ahead, back = drawn_passes(kind.plan, kind.plan.passes(graph))
            computed = [*ahead, *back]
            drawing.add_to_all(workers, chain(computed, start))
            update = whole_update(kind.plan, graph)
            drawing.add_to_all(workers, chain([update], end))
        if not self.plan.overlaps:
            copied = float(self.plan.copying_time(self.num_bytes, self.workers))
            at = start + self.backward + copied
            exchange(drawing, self.plan, self.num_bytes, self.names, self.scheme, at, beside=True)
            return
        for sent in self.overlapped(self.scheme).spans:
            at = start + self.forward + float(sent.start)
            num_bytes = int(sent.num_bytes)
            exchange(drawing, self.plan, num_bytes, self.names, self.scheme, at, beside=True)


def _others(plan: Plan) -> list[tuple[Plan, int]]:
    """Return the plans of the other kinds of devices, and how many workers are on each."""
    return [(replace(plan, device=device), count) for device, count in plan.other_devices]


def _sample(kinds: Sequence[Kind]) -> Sample:
    """Return what a sample has and takes, with the mean peak of all workers."""
    peaks = [(kind.computations.sample.peak, kind.workers) for kind in kinds]
    count = sum(kind.workers for kind in kinds)
    known = [peak * workers for peak, workers in peaks if peak is not None]
    mean = sum(known) / count if len(known) == len(kinds) else None
    return replace(kinds[0].computations.sample, peak=mean)


class Heterogeneous(Parallelism):
    """A copy of the net on each of several kinds of devices."""

    name = "heterogeneous"
    workers_setting = "workers"
    divides = True
    has_others = True

    @property
    def title(self) -> str:
        return "data-parallel on several devices"

    def predict(self, asked: Asked) -> Prediction:
        """Return a row for each kind of device, and the step that they make together."""
        (workers,) = asked.workers
        plan, net = asked.plan, asked.net
        kinds = [Kind(asked.computations, workers)]
        kinds += [Kind(Computations(net, other), count) for other, count in _others(plan)]
        count = sum(kind.workers for kind in kinds)
        own, whole = divided(asked.batch_size, count, str(asked.scaling))
        together = Together(tuple(shared(kinds, int(whole))))
        steps = together.steps()
        rate = total(kind.workers * own / kind.seconds(own) for kind in kinds)
        step = WholeStep(
            workers=count,
            batch_size=int(whole),
            seconds=float(steps[0].total()),
            # Of the mean of the workers, so that an efficiency is that of all of them.
            one_worker=float(own * count / rate),
            one_worker_batch=own,
            net=net.name,
            sample=_sample(kinds),
        )
        notes = [
            "samples of a step: "
            + ", ".join(
                f"{kind.batch} on each of {kind.workers} {kind.plan.device.name}"
                for kind in together.kinds
            ),
            f"communication is by {together.scheme}",
        ]
        return Prediction(steps, tuple(notes), step)

    def schedule(
        self, net: NetSpec, plan: Plan, steps: Sequence[Step], scheme: str | None
    ) -> Schedule:
        """Return a step, in which every worker computes its own share."""
        plans = (plan, *(other for other, _ in _others(plan)))
        kinds = tuple(
            Kind(Computations(net, own), step.workers, step.worker_batch_size)
            for own, step in zip(plans, steps, strict=True)
        )
        together = Together(kinds)
        return Schedule(together.names, [Span(steps[0].pieces, together.draw)], {})


PARALLELISMS.add(Heterogeneous.name, Heterogeneous())
