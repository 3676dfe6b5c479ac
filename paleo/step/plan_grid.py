"""Steps of many plans of one net on one cluster, as arrays.

Plans differ in how devices share the net. What a device computes and sends for a micro-batch is
found once for each way to divide tensors, as arrays over micro-batches (paleo.step.divided_net);
stages that do the same are one. What steps consist of is said by paleo.step.meshed, whose formulas
hold for arrays: here by recomputation, micro-batch, and number of micro-batches.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Any, TypeAlias

from paleo.core.errors import Mistakes, SettingError
from paleo.core.frozen import NamedTuple
from paleo.core.quantity import Array, Quantity, maximum, minimum, np, smallest, total
from paleo.net.spec import NetSpec
from paleo.step.divided_net import DividedNet
from paleo.step.memory.repeated import RepeatedStage
from paleo.step.memory.stage import OF_MICRO_BATCHES, Sharing, lasting, peaks, slack_of
from paleo.step.mesh import Mesh
from paleo.step.meshed import Meshed
from paleo.step.optimizers import find_optimizer
from paleo.step.part import Part, waits_for_host
from paleo.step.plan import Plan
from paleo.step.recompute import RECOMPUTATION, Recompute
from paleo.step.replicas import Replicas
from paleo.step.shortened import Shortened, shortened
from paleo.step.stage_work import Stage
from paleo.step.stages import dealt_out

#: What plans may differ in, in this order.
AXES = ("tp", "pp", "micro_batch", "recompute", "zero", "interleave", "global_batch", "workers")
#: Schedules whose formulas these arrays are held to by tests.
SCHEDULES = ("1f1b", "gpipe", "zero_bubble")

#: So many plans are looked at together.
_PIECE = 1 << 14

#: The parts of a step in which devices compute.
_COMPUTED = ("forward", RECOMPUTATION, "backward", "weight_casts", "update")
#: What a step consists of, seconds by name, in the order in which a step adds them up.
Columns: TypeAlias = dict[str, Array]


class Batches(NamedTuple):
    """What plans that differ in batches alone compute at a time: `sizes` of micro-batches, rising.

    A row of `counts` says how often each is in a step, of as many plans as it has columns; those
    that `can_be` are meant.
    """

    sizes: Array
    counts: Array
    can_be: Array

    def pieces(self, others: int) -> Iterator[tuple[slice, Batches]]:
        """Yield the places of columns that are looked at together, of so `many others`, and those.

        Arrays of a piece stay in a processor's caches.
        """
        width = max(1, _PIECE // max(1, others * len(self.sizes)))
        for start in range(0, self.counts.shape[1], width):
            part = slice(start, start + width)
            if self.can_be[:, part].any():
                yield part, Batches(self.sizes, self.counts[:, part], self.can_be[:, part])


def check_known(plan: Plan, known: Sequence[str]) -> None:
    """Raise SettingError for settings that plans as arrays do not know, all at once.

    `known` are those whose formulas are those of one plan.
    """
    mistakes = Mistakes()
    usual = {field.name: field.default for field in fields(Plan)}
    for name in usual:
        value = getattr(plan, name)
        if name not in known and value != usual[name]:
            mistakes.add(f"{name}: plans as arrays do not know it: ask for one plan at a time")
    if plan.schedule not in SCHEDULES:
        mistakes.add(f"schedule: plans as arrays know {', '.join(SCHEDULES)}, not {plan.schedule}")
    if plan.stages == "balanced":
        mistakes.add("stages: plans as arrays are dealt out evenly, not balanced")
    mistakes.raise_as(SettingError)


class PlanGrid:
    """Plans of a net on a cluster that differ in degrees: gives their steps as arrays.

    `named` if blocks are that are computed again.
    """

    def __init__(self, net: NetSpec, plan: Plan, named: bool = False) -> None:
        self.net, self.plan = net, plan
        optimizer = find_optimizer(plan.optimizer, plan.optimizer_kernels)
        # Blocks that are named are looked for; what a matrix is depends on what is behind it; and
        # how far a host is ahead of a block, on how many are before it.
        is_plain = not named and not optimizer.by_matrix and not waits_for_host(plan)
        self._short = shortened(net) if is_plain else Shortened(net)
        self._parts: dict[Any, DividedNet] = {}

    def dealt(self, mesh: Mesh, interleave: int, sizes: Iterable[int], zero: int) -> Dealt:
        """Return the net shared so, priced for these micro-batches at least.

        `zero` is that of some plans that share it so, others have their own. Raises a PaleoError
        for a net that cannot be divided so.
        """
        plan = replace(self.plan, tp=mesh.tp, pp=mesh.pp, interleave=interleave, zero=zero)
        return Dealt(self.divided(mesh, sizes), plan, mesh)

    def divided(self, mesh: Mesh, sizes: Iterable[int]) -> DividedNet:
        """Return what a device has under these degrees, priced for these micro-batches at least.

        Raises a PaleoError for a net that cannot be divided so.
        """
        key = mesh.tp, *(mesh.stride(kind) for kind in ("tp", "cp", "ep"))
        micro_batches = set(sizes)
        found = self._parts.get(key)
        if found is None or not micro_batches <= set(found.micro_batches):
            plan = replace(self.plan, tp=mesh.tp)
            known = {*found.micro_batches} if found else set()
            each = sorted(known | micro_batches)
            short = self._short
            found = DividedNet(Part(short.net, plan, mesh), short.like, each)
            if not found.is_right:  # blocks are not as equal as they look
                self._short = Shortened(self.net)
                found = DividedNet(Part(self.net, plan, mesh), None, each)
            self._parts[key] = found
        return found


class Besides(NamedTuple):
    """What stages spend besides computing, in seconds.

    All together in gathering parameters once, in dealing out the sums of gradients in groups that
    divide them, and of a micro-batch, one way, in messages to each other; and each, at least, in
    its messages, and in adding a micro-batch's gradients to those before.
    """

    gather: Quantity = 0.0
    within: Quantity = 0.0
    passed: Quantity = 0.0
    least_passed: Quantity = 0.0
    added: Quantity = 0.0


class _Meshed(Meshed):
    """A mesh whose groups are found once, and messages between stages once for all meshes."""

    def _message(self, num_bytes: Quantity, first: int) -> Quantity:
        # Sizes are those of a divided net, which holds them.
        key = id(num_bytes), self.mesh.distance(self.plan.reached, "pp", first)
        known = self.part.handed_on
        if key not in known:
            known[key] = super()._message(num_bytes, first)
        return known[key]

    @functools.cached_property
    def _groups(self) -> dict[bool, Replicas]:
        return {}

    def _replicas(self, stage: Stage, *, experts: bool) -> Replicas:
        if experts not in self._groups:  # all stages have as many
            self._groups[experts] = super()._replicas(stage, experts=experts)
        return self._groups[experts]


class _Turns(NamedTuple):
    """Numbers of micro-batches that are all 1, or of which none is, and how many are in flight.

    `places` are those of plans, by row and column, of which each has the number in the `same` place
    of `batches`. By stage there are the most `in_flight`, and `waiting`, of each.
    """

    places: tuple[Array, ...]
    same: Array
    batches: Array
    in_flight: Array
    waiting: Array

    def fullest(
        self, kinds: Sequence[int], of_all: bool
    ) -> Iterator[tuple[int, Quantity, Quantity]]:
        """Yield kinds of stages with how many micro-batches are in flight, and wait, at most.

        Of stages that have the same, that with most in flight is the fullest, unless what others
        do counts, too: then those `of_all` stages.
        """
        flights: dict[int, Quantity] = {}
        for kind, own, waiting in zip(kinds, self.in_flight, self.waiting, strict=True):
            if of_all or waiting.any():
                yield kind, own, waiting
            else:
                flights[kind] = maximum(flights[kind], own) if kind in flights else own
        for kind, most in flights.items():
            yield kind, most, 0


class Dealt:
    """A divided net dealt out to the stages of a mesh."""

    def __init__(self, divided: DividedNet, plan: Plan, mesh: Mesh) -> None:
        self.divided, self.plan, self.mesh = divided, plan, mesh
        # Whether anything is divided is asked of each ZeRO.
        shared = replace(plan, zero=3) if plan.shard_degree else plan
        self.meshed = _Meshed(divided.part.net, shared, mesh, divided.part)
        count, chunks = len(divided.index), plan.interleave
        counts = dealt_out(divided.graph.name, count, mesh.pp, chunks, plan.stages)
        #: The first unit of each chunk, and one behind the last.
        self._firsts = [0, *itertools.accumulate(counts)]
        self._chunks = [*map(range, self._firsts[:-1], self._firsts[1:])]
        self.receives_all = plan.software.receives_all and mesh.pp > 1
        #: The bytes that pass each boundary between chunks.
        self._sizes = [divided.passing[divided.index[first]] for first in self._firsts[1:-1]]
        self.sums = functools.cache(self._sums)
        self._meshes: dict[int, _Meshed] = {}
        #: What those exchange whose devices divide something.
        self._divided: Besides | None = None
        self._known_turns: dict[Any, list[_Turns]] = {}

    @functools.cached_property
    def passed(self) -> list[Quantity]:
        """The seconds in which each stage hands on what its chunks make, one way."""
        return self.meshed.handed_on(self._sizes)

    @functools.cached_property
    def _have(self) -> Counter[tuple[int, ...]]:
        """How many stages have so much of what units have."""
        until = self.divided.until[:, self._firsts]
        of_stages = np.diff(until).reshape(len(until), -1, self.mesh.pp).sum(axis=1)
        return Counter(zip(*of_stages.tolist(), strict=True))

    def _units(self, stage: int) -> list[range]:
        """Return the units of each chunk of a stage."""
        return self._chunks[stage :: self.mesh.pp]

    @functools.cached_property
    def alike(self) -> tuple[list[int], list[int]]:
        """The first of each kind of stage, and for each stage which kind it is."""
        known: dict[Any, int] = {}
        firsts: list[int] = []
        kinds: list[int] = []
        for i in range(self.mesh.pp):
            units = self._units(i)
            handed = np.concatenate(self.handed[i]) if self.receives_all else np.array(0)
            key = (
                *(self.divided.index[chunk.start : chunk.stop] for chunk in units),
                *(two.start == one.stop for one, two in itertools.pairwise(units)),
                np.asarray(self.passed[i]).tobytes(),
                handed.tobytes(),
            )
            if key not in known:
                known[key] = len(firsts)
                firsts.append(i)
            kinds.append(known[key])
        return firsts, kinds

    @functools.cached_property
    def _counts(self) -> Array:
        """How many units of each kind the first stage of each kind has."""
        firsts, _ = self.alike
        found = np.zeros((len(firsts), len(self.divided.units)), np.int64)
        for row, stage in zip(found, firsts, strict=True):
            for chunk in self._units(stage):
                np.add.at(row, list(self.divided.index[chunk.start : chunk.stop]), 1)
        return found

    def _sums(self, recompute: Recompute) -> dict[Any, Array]:
        """Return by quantity the seconds of stages, by kind and micro-batch."""
        return {name: self._counts @ of for name, of in self.divided.under(recompute).items()}

    def _repeated(self, recompute: Recompute, stage: int) -> RepeatedStage:
        return self.divided.repeated(recompute).stage(self._units(stage))

    @functools.cached_property
    def handed(self) -> list[tuple[Array, Array]]:
        """The bytes that each stage receives of a micro-batch, and sends, at each micro-batch.

        What comes into the net is received, too.
        """
        divided, pp = self.divided, self.mesh.pp
        shape = (len(divided.micro_batches),)
        sizes = [0, *self._sizes, 0]
        found = []
        for stage in range(pp):
            of_net = total(
                divided.coming_in[divided.index[unit]]
                for unit in itertools.chain(*self._units(stage))
            )
            received = total(sizes[:-1][stage::pp]) + divided.graph.element_size * of_net
            sent = total(sizes[1:][stage::pp])
            found.append((np.broadcast_to(received, shape), np.broadcast_to(sent, shape)))
        return found

    @functools.cached_property
    def stages(self) -> list[Stage]:
        """One stage of each kind, without its seconds."""
        firsts, _ = self.alike
        whole = [
            [sum(map(operator.mul, counts, of)) for counts in self._counts.tolist()]
            for of in self.divided.whole
        ]
        casts = self._counts @ self.divided.casts
        return [
            self._stage(*have, number=i, blocks=sum(map(len, self._units(i))), cast=float(cast))
            for i, *have, cast in zip(firsts, *whole, casts[:, 0], strict=True)
        ]

    def _stage(
        self,
        params: int,
        tensors: int,
        experts: int,
        *,
        number: int = 0,
        blocks: int = 0,
        cast: float = 0.0,
    ) -> Stage:
        """Return a stage of which no seconds are known."""
        overlaps = self.plan.overlaps
        return Stage(number, (), {}, 0.0, params, tensors, experts, blocks, overlaps, cast)

    def _timed(self, recomputes: Sequence[Recompute], k: Array) -> list[Stage]:
        """Return one stage of each kind.

        Seconds are arrays by recomputation and micro-batch, with a column for all numbers of them,
        `k` the places of their micro-batches.
        """
        each = [self.sums(recompute) for recompute in recomputes]
        found = []
        for kind, stage in enumerate(self.stages):
            passed = self.passed[stage.number]
            times = {
                name: np.stack([sums[name][kind][k] for sums in each])[..., None]
                for name in each[0]
            }
            found.append(
                replace(
                    stage,
                    times=tuple(times[place] for place in range(4)),
                    sent={own: (times[own, 0], times[own, 1]) for own in self.divided.kinds},
                    passed=passed[k][:, None] if isinstance(passed, np.ndarray) else passed,
                )
            )
        return found

    def _at(self, zero: int) -> _Meshed:
        """Return the mesh of a ZeRO."""
        if zero == self.meshed.plan.zero:
            return self.meshed
        if zero not in self._meshes:
            plan = replace(self.plan, zero=zero)
            self._meshes[zero] = _Meshed(self.meshed.net, plan, self.mesh, self.meshed.part)
        return self._meshes[zero]

    def columns(
        self, recomputes: Sequence[Recompute], zeros: Sequence[int], batches: Batches
    ) -> Iterator[tuple[int, slice, Columns]]:
        """Yield by ZeRO, and columns of the batches, the seconds of the parts of each plan's step.

        Those are arrays by recomputation, of which each means another, micro-batch and column.
        """
        k = np.searchsorted(self.divided.micro_batches, batches.sizes)
        for gathers in (False, True):
            each = [self._at(zero) for zero in zeros if (zero == 3) == gathers]
            if not each:
                continue
            stages = [each[0].with_gathered(stage) for stage in self._timed(recomputes, k)]
            _, kinds = self.alike
            for columns, piece in batches.pieces(len(recomputes)):
                passes = self._passes(each[0], stages, kinds, piece.counts)
                for meshed in each:
                    found = passes | self._others(meshed, stages, piece.counts)
                    shape = passes["bubble"].shape
                    found = {name: np.broadcast_to(of, shape) for name, of in found.items()}
                    if meshed.waits:
                        computed = functools.reduce(np.add, (found[name] for name in _COMPUTED))
                        found["wait"] = np.asarray(meshed.waited(computed))
                    yield meshed.plan.zero, columns, found

    def _passes(
        self, meshed: Meshed, stages: Sequence[Stage], kinds: Sequence[int], counts: Array
    ) -> Columns:
        """Return the seconds of micro-batches, of the stage that is busy longest, and its waits."""
        works = [stage.work for stage in stages]
        running = meshed.pipeline.seconds([works[i] for i in kinds], counts, self.plan.interleave)
        busy = np.stack([counts * work.seconds for work in works])
        place = np.argmax(busy, axis=0)[None]

        def slowest(values: Sequence[Quantity]) -> Array:
            """Return of each plan the value of its slowest stage."""
            whole: Array = np.stack([np.broadcast_to(each, busy.shape[1:]) for each in values])
            chosen: Array = np.take_along_axis(whole, place, axis=0)[0]
            return chosen

        passes = [meshed.passes(stage, counts) for stage in stages]
        return {
            **{name: slowest([each[name] for each in passes]) for name in passes[0]},
            "bubble": running - slowest(list(busy)),
        }

    def _others(self, meshed: Meshed, stages: Sequence[Stage], counts: Array) -> dict[str, Any]:
        """Return the seconds of what is once a step."""
        update = max((self._update(meshed, stage) for stage in stages), key=_seconds_of)
        return {
            "weight_casts": functools.reduce(
                maximum, [meshed.casts(stage, counts) for stage in stages]
            ),
            "update": float(meshed.plan.seconds(update)),
            "data_parallel": functools.reduce(
                maximum, [meshed.exchanged(stage, counts) for stage in stages]
            ),
        }

    def dividing(self, zero: int) -> Besides:
        """Return what stages spend in sharing parameters, under a ZeRO."""
        if not zero:
            return Besides()
        if self._divided is None:
            meshed = self.meshed if self.meshed.plan.zero else self._at(zero)
            gather: Quantity = 0.0
            within: Quantity = 0.0
            for have, count in self._have.items():
                each = meshed.dividing(self._stage(*have))
                gather, within = gather + count * each[0], within + count * each[1]
            self._divided = Besides(gather, within)
        return self._divided

    def besides(self, zero: int) -> Besides:
        """Return what stages spend besides computing, under a ZeRO."""
        added = min(self.meshed.added(self._stage(*have)) for have in self._have)
        least = functools.reduce(minimum, self.passed)
        passed = total(self.passed)
        return self.dividing(zero)._replace(passed=passed, least_passed=least, added=added)

    def _update(self, meshed: Meshed, stage: Stage) -> Any:
        key = stage.num_params, stage.num_tensors, stage.experts, meshed.plan.zero, self.mesh
        if key not in self.divided.updates:
            self.divided.updates[key] = meshed.updated(stage)[0]
        return self.divided.updates[key]

    def _turns(self, counts: Array) -> list[_Turns]:
        """Return what of numbers of micro-batches decides memory: of those with one, and others.

        Many have as many in flight, and so the same memory: each of those is looked at once.
        """
        pipeline, pp = self.meshed.pipeline, self.mesh.pp
        found = []
        for is_single in (False, True):
            places = np.nonzero((counts == 1) == is_single)
            if not places[0].size:
                continue
            batches, same = np.unique(counts[places], return_inverse=True)
            flights = [
                pipeline.in_flight(stage, pp, batches, self.plan.interleave) for stage in range(pp)
            ]
            waits = [pipeline.waiting(stage, pp, batches) for stage in range(pp)]
            most = np.array([np.broadcast_to(each, batches.shape) for each in (*flights, *waits)])
            if not self.receives_all:
                # They go with numbers of micro-batches only as far as these are in flight.
                bounded = np.minimum(batches, np.ceil(most.max(axis=0)) + 1)
                _, firsts, again = np.unique(
                    [*most, bounded], axis=1, return_index=True, return_inverse=True
                )
                batches, most, same = batches[firsts], most[:, firsts], again.ravel()[same]
            found.append(_Turns(places, same, batches, most[:pp], most[pp:]))
        return found

    def memory(
        self,
        recompute: Recompute,
        zero: int,
        batches: Batches,
        part: slice,
        capacity: float = math.inf,
    ) -> Array:
        """Return the bytes of the fullest stage of each plan, by micro-batch and column.

        `part` are the columns, as `columns` yields them. Once stages are found that take more than
        the capacity of each plan, no more are looked at.
        """
        k = np.searchsorted(self.divided.micro_batches, batches.sizes)
        counts, meshed = batches.counts[:, part], self._at(zero)
        _, kinds = self.alike
        key = id(batches.counts), part.start
        if key not in self._known_turns:
            self._known_turns[key] = self._turns(counts)
        found = np.zeros(counts.shape, np.int64)
        for those in self._known_turns[key]:
            most: Quantity = 0
            for kind, in_flight, waiting in those.fullest(kinds, self.receives_all):
                stage = self.stages[kind]
                received, sent = self.handed[stage.number] if self.receives_all else (None, None)
                sharing = Sharing(
                    zero=zero,
                    own=functools.partial(meshed.own, stage),
                    is_shared=self.mesh.replicas > 1,
                    batches=those.batches,
                    in_flight=in_flight,
                    received=0 if received is None else received[k][:, None],
                    sent=0 if sent is None else sent[k][:, None],
                    receives_all=self.receives_all,
                    buckets_apart=meshed.plan.software.exchange.copies > 0,
                    waiting=waiting,
                )
                own = self._allocated(self._repeated(recompute, stage.number), k, sharing)
                most = maximum(most, own + slack_of(own, meshed.plan.slack))
                if smallest(most) > capacity:
                    break
            rows = those.places[0]
            found[those.places] = np.broadcast_to(most, (len(k), len(those.batches)))[
                rows, those.same
            ]
        return found

    def _allocated(self, repeated: RepeatedStage, k: Array, sharing: Sharing) -> Quantity:
        """Return what `stage_memory` finds allocated, of plans by places of their micro-batches."""
        sizes, how = repeated.sizes, sharing.how

        def own(size: Quantity) -> Quantity:
            return sharing.own(size) if how.zero >= 2 else size

        first, later, last = repeated.taken(how, lambda counts: own(sizes.learned * counts))
        each = sizes._replace(
            **{name: getattr(sizes, name)[k][:, None] for name in OF_MICRO_BATCHES}
        )
        peak = maximum(*peaks(each, sharing, first[k][:, None], later[k][:, None]))
        updating = last[k][:, None] + own(sizes.update)
        return lasting(each, sharing).stays + maximum(peak, updating)


def _seconds_of(time: Any) -> float:
    return float(time.total)
