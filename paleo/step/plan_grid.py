"""Steps of many plans of one net on one cluster, as arrays.

Plans differ in how devices share the net. What a device computes and sends for a micro-batch is
found once for each way to divide tensors, as arrays over micro-batches; sums over the nodes of
stages are differences of running sums; and stages that do the same are one. What steps consist of
is said by paleo.step.meshed, whose formulas hold for arrays.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any, TypeAlias

from paleo.core.errors import Mistakes, SettingError
from paleo.core.frozen import NamedTuple
from paleo.core.quantity import Array, Quantity, maximum, np
from paleo.net.spec import NetSpec
from paleo.step.memory.repeated import RepeatedStage, RepeatedStages
from paleo.step.memory.stage import OF_MICRO_BATCHES, Sharing, lasting, peaks, slack_of
from paleo.step.mesh import Mesh
from paleo.step.meshed import Meshed, num_experts
from paleo.step.part import Part, Seconds
from paleo.step.plan import Plan
from paleo.step.recompute import RECOMPUTATION, Recompute
from paleo.step.replicas import Replicas
from paleo.step.stage_steps import StageSteps, in_memory
from paleo.step.stage_work import Stage
from paleo.step.stages import cut, homes, units

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
    """Plans of a net on a cluster that differ in degrees: gives their steps as arrays."""

    def __init__(self, net: NetSpec, plan: Plan) -> None:
        self.net, self.plan = net, plan
        self._parts: dict[Any, _Divided] = {}

    def dealt(self, tp: int, pp: int, interleave: int, workers: int, sizes: Iterable[int]) -> Dealt:
        """Return the net shared so, priced for these micro-batches at least.

        Raises a PaleoError for a net that cannot be divided so.
        """
        plan = replace(self.plan, tp=tp, pp=pp, interleave=interleave)
        mesh = Mesh.of(workers, tp, plan.cp, plan.ep, pp, plan.order)
        return Dealt(self._divided(plan, mesh, set(sizes)), plan, mesh)

    def _divided(self, plan: Plan, mesh: Mesh, micro_batches: set[int]) -> _Divided:
        """Return what a device has under these degrees, priced for these micro-batches at least."""
        key = plan.tp, *(mesh.stride(kind) for kind in ("tp", "cp", "ep"))
        found = self._parts.get(key)
        if found is None or not micro_batches <= set(found.micro_batches):
            known = set(found.micro_batches) if found else set()
            part = found.part if found else Part(self.net, plan, mesh)
            found = self._parts[key] = _Divided(part, sorted(known | micro_batches))
        return found


class _Divided:
    """What a device has of a net that is divided in one way, at several micro-batches."""

    def __init__(self, part: Part, micro_batches: Sequence[int]) -> None:
        self.part, self.micro_batches = part, list(micro_batches)
        self.graph, (self.seconds,) = part.under(np.array(micro_batches), (Recompute(),))
        self._homes = homes(self.graph)
        self.units = units(self.graph)
        self._until = functools.cache(self._running)
        self.whole = {
            name: np.array([0, *itertools.accumulate(self._at_home([*map(of, self.graph.nodes)]))])
            for name, of in (
                ("num_params", attrgetter("num_params")),
                ("num_tensors", attrgetter("num_tensors")),
                ("experts", num_experts),
            )
        }
        casts = [time.total for time in part.plan.weight_casts(self.graph)]
        self.casts = self._sums(casts)
        self.updates: dict[Any, Any] = {}
        self.kinds = list(self.seconds.sent)
        self.repeated = functools.cache(self._repeated)

    def _running(self, recompute: Recompute) -> dict[Any, Array]:
        """Return by quantity the running sums over nodes, from 0 on, at each micro-batch."""
        seconds = self.under(recompute)
        found: dict[Any, Array] = {place: self._sums(of) for place, of in enumerate(seconds[:4])}
        for kind, both in seconds.sent.items():
            for place, of in enumerate(both):
                found[kind, place] = self._sums(of)
        return found

    def meaning(self, recompute: Recompute) -> Recompute:
        """Return what is computed again, the same for all that leave nothing to compute."""
        return recompute if recompute.regions(self.graph) else Recompute()

    def under(self, recompute: Recompute) -> Seconds:
        """Return the seconds of each node where this is computed again."""
        again: list[Quantity] = [0.0] * len(self.graph.nodes)
        sent = {kind: (ahead, [*back]) for kind, (ahead, back) in self.seconds.sent.items()}
        for i in itertools.chain(*recompute.regions(self.graph)):
            again[i] = again[i] + self.seconds.forward[i]
            for ahead, back in sent.values():
                back[i] = back[i] + ahead[i]
        return self.seconds._replace(again=again, sent=sent)

    def _sums(self, values: Sequence[Quantity]) -> Array:
        until = np.zeros((len(self._homes) + 1, len(self.micro_batches)))
        for i, value in enumerate(self._at_home(values)):
            until[i + 1] = value
        return np.cumsum(until, axis=0)

    def _at_home(self, values: Sequence[Any]) -> list[Any]:
        """Return the values of nodes where the nodes are: see `homes`."""
        moved: list[Any] = [0] * len(self._homes)
        for home, value in zip(self._homes, values, strict=True):
            moved[home] = moved[home] + value
        return moved

    def until(self, recompute: Recompute) -> Mapping[Any, Array]:
        """Return the running sums under a recomputation."""
        return self._until(recompute)

    def _repeated(self, recompute: Recompute) -> RepeatedStages:
        plan = replace(self.part.plan, recompute=recompute)
        net, graph = self.part.net, self.graph
        return RepeatedStages(net, graph, self.units, self.micro_batches, in_memory(plan))


class _Meshed(Meshed):
    """A mesh whose groups and messages are found once."""

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

    def __init__(self, divided: _Divided, plan: Plan, mesh: Mesh) -> None:
        self.divided, self.plan, self.mesh = divided, plan, mesh
        self.meshed = _Meshed(divided.part.net, plan, mesh, divided.part)
        self.cut = cut(divided.graph, mesh.pp, plan.interleave, plan.stages, ())
        self.bounds = np.array(self.cut.bounds)
        self.passed = self.meshed.passed(divided.graph, self.cut)
        self.whole = [self._by_stage(of).tolist() for of in divided.whole.values()]
        self.casts = self._by_stage(divided.casts)
        self.sums = functools.cache(self._sums)
        rest = iter(divided.units)
        #: The units of each chunk.
        self.units = [list(itertools.islice(rest, count)) for count in self.cut.counts]
        self.receives_all = plan.software.receives_all and mesh.pp > 1
        self.alike = functools.cache(self._alike)

    def _by_stage(self, until: Array) -> Array:
        """Return the sum over the nodes of each stage."""
        chunks = until[self.bounds[1:]] - until[self.bounds[:-1]]
        of_chunks = chunks.reshape(-1, self.mesh.pp, *chunks.shape[1:])
        found: Array = functools.reduce(np.add, of_chunks, np.zeros_like(of_chunks[0]))
        return found

    def _sums(self, recompute: Recompute) -> dict[Any, Array]:
        return {name: self._by_stage(of) for name, of in self.divided.until(recompute).items()}

    def _alike(self, recompute: Recompute) -> tuple[list[int], list[int]]:
        """Return the first of each kind of stage, and for each stage which kind it is."""
        sums = self.sums(recompute)
        known: dict[Any, int] = {}
        firsts: list[int] = []
        kinds: list[int] = []
        for i in range(self.mesh.pp):
            handed = np.concatenate(self.handed[i]) if self.receives_all else np.array(0)
            key = (
                *(of[i].tobytes() for of in sums.values()),
                *(of[i] for of in self.whole),
                self.casts[i].tobytes(),
                np.asarray(self.passed[i]).tobytes(),
                self.cut.units[i],
                handed.tobytes(),
                id(self._repeated(recompute, i)),
            )
            if key not in known:
                known[key] = len(firsts)
                firsts.append(i)
            kinds.append(known[key])
        return firsts, kinds

    def _repeated(self, recompute: Recompute, stage: int) -> RepeatedStage:
        return self.divided.repeated(recompute).stage(self.units[stage :: self.mesh.pp])

    @functools.cached_property
    def handed(self) -> list[tuple[Array, Array]]:
        """The bytes that each stage receives of a micro-batch, and sends, at each micro-batch."""
        net, graph = self.divided.part.net, self.divided.graph
        steps = StageSteps(net, graph, self.cut, 0, {})
        shape = (len(self.divided.micro_batches),)
        both = (steps.passed(stage) for stage in range(self.mesh.pp))
        return [(np.broadcast_to(one, shape), np.broadcast_to(two, shape)) for one, two in both]

    def _stages(self, recomputes: Sequence[Recompute], k: Array) -> tuple[list[Stage], list[int]]:
        """Return one of each kind of stage, and which kind each is.

        Seconds are arrays by recomputation and micro-batch, with a column for all numbers of them.
        """
        alike = [self.alike(recompute)[1] for recompute in recomputes]
        kinds: dict[tuple[int, ...], int] = {}
        numbers = [kinds.setdefault(each, len(kinds)) for each in zip(*alike, strict=True)]
        firsts = [numbers.index(kind) for kind in range(len(kinds))]
        return [self._stage(recomputes, i, k) for i in firsts], numbers

    def _stage(self, recomputes: Sequence[Recompute], i: int, k: Array) -> Stage:
        """Return a stage whose seconds are arrays, `k` the places of their micro-batches."""
        each = [self.sums(recompute) for recompute in recomputes]

        def seconds(name: Any) -> Array:
            return np.stack([sums[name][i][k] for sums in each])[..., None]

        params, tensors, experts = (of[i] for of in self.whole)
        passed = self.passed[i]
        return Stage(
            i,
            times=tuple(seconds(place) for place in range(4)),
            sent={kind: (seconds((kind, 0)), seconds((kind, 1))) for kind in self.divided.kinds},
            passed=passed[k][:, None] if isinstance(passed, np.ndarray) else passed,
            num_params=params,
            num_tensors=tensors,
            experts=experts,
            blocks=self.cut.units[i],
            overlaps=self.plan.overlaps,
            cast=float(self.casts[i][0]),
        )

    def columns(
        self, recomputes: Sequence[Recompute], zeros: Sequence[int], batches: Batches
    ) -> Iterator[tuple[int, slice, Columns]]:
        """Yield by ZeRO, and columns of the batches, the seconds of the parts of each plan's step.

        Those are arrays by recomputation, of which each means another, micro-batch and column. With
        them are the bytes of its memory.
        """
        k = np.searchsorted(self.divided.micro_batches, batches.sizes)
        for gathers in (False, True):
            those = [zero for zero in zeros if (zero == 3) == gathers]
            if not those:
                continue
            plans = [replace(self.plan, zero=zero) for zero in those]
            net, part = self.divided.part.net, self.divided.part
            each = [_Meshed(net, plan, self.mesh, part) for plan in plans]
            stages, kinds = self._stages(recomputes, k)
            stages = [each[0].with_gathered(stage) for stage in stages]
            for columns, piece in batches.pieces(len(recomputes)):
                passes = self._passes(each[0], stages, kinds, piece.counts)
                turns = self._turns(piece.counts)
                for meshed in each:
                    found = passes | self._others(meshed, stages, piece.counts)
                    shape = passes["bubble"].shape
                    found = {name: np.broadcast_to(of, shape) for name, of in found.items()}
                    if meshed.waits:
                        computed = functools.reduce(np.add, (found[name] for name in _COMPUTED))
                        found["wait"] = np.asarray(meshed.waited(computed))
                    found["memory_bytes"] = np.stack(
                        [
                            self._memory(meshed, again, stages, kinds, k, turns, shape[1:])
                            for again in recomputes
                        ]
                    )
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

    def _memory(
        self,
        meshed: Meshed,
        recompute: Recompute,
        stages: Sequence[Stage],
        kinds: Sequence[int],
        k: Array,
        turns: Sequence[_Turns],
        shape: tuple[int, ...],
    ) -> Array:
        """Return the bytes of the fullest stage of each plan, by micro-batch and column."""
        found = np.zeros(shape, np.int64)
        for those in turns:
            most: Quantity = 0
            for kind, in_flight, waiting in those.fullest(kinds, self.receives_all):
                stage = stages[kind]
                received, sent = self.handed[stage.number] if self.receives_all else (None, None)
                sharing = Sharing(
                    zero=meshed.plan.zero,
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
