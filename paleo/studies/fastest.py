"""The best of many plans by branch and bound.

The most promising come first, until as many plans are found as are asked for: first groups of one
mesh and as many chunks, by the samples a second that they may have at most, then those of their
plans that may fit, by what they have; only then is it looked how much memory these take. What may
be follows from bounds that hold of every plan.

Time: a stage is busy for as long as the mean of all stages at least, and as long as the most blocks
that a stage has take, each as long as the shortest; what a pipeline waits at least follows from
that (`Pipeline.least`). What is computed again, messages between stages, exchanges of gradients and
the update come on top of it.

Memory: the fullest stage has the mean of all stages' parameters at least. What lasts from step to
step, and gradients at the update, go with them. And the first stage keeps what each block keeps by
itself, of all micro-batches in flight (`Dealt.least_memory`).
"""

from __future__ import annotations

import functools
import heapq
import itertools
import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from paleo.core.errors import PaleoError
from paleo.core.frozen import NamedTuple
from paleo.core.quantity import Array, Quantity, maximum, np
from paleo.step.divided_net import DividedNet
from paleo.step.memory.stage import Sharing, slack_of
from paleo.step.pipelines import PIPELINES
from paleo.step.plan import Plan
from paleo.step.plan_grid import Batches, Columns, Dealt
from paleo.step.recompute import Recompute
from paleo.step.stages import dealt_out
from paleo.studies.plan_evaluation import Evaluation, Group

#: Sums of floats in another order differ by less than this.
_ROUNDING = 1e-9


class _Candidate(NamedTuple):
    """Plans of which none has more samples a second, or, if there is a `place`, the one there.

    Those are a group's whose steps are still to be found, or `priced` ones without their memory.
    """

    rate: float
    group: Group | None = None
    priced: _Priced | None = None
    place: int = -1
    values: Mapping[str, Array] = MappingProxyType({})

    @property
    def order(self) -> tuple[float, int]:
        """What sorts candidates: the most promising first, of equal plans the first in order."""
        return -self.rate, self.place


class _Priced(NamedTuple):
    """Plans of one recomputation and ZeRO whose steps are known; some `may_fit`.

    `places` are by recomputation that means the same, micro-batch and column.
    """

    dealt: Dealt
    recompute: Recompute
    zero: int
    batches: Batches
    part: slice
    places: Array
    may_fit: Array
    rates: Array
    columns: Columns


def fastest(evaluation: Evaluation, count: int) -> Array:
    """Return the places of the plans that fit with most samples a second, best first.

    Of equal ones the first in order come first. What follows of them is put in their places.
    """
    numbers = itertools.count()
    queue = [(*each.order, next(numbers), each) for each in _bounded(evaluation)]
    heapq.heapify(queue)
    best: list[int] = []
    while queue and len(best) < count:
        *_, candidate = heapq.heappop(queue)
        if candidate.place >= 0:
            best.append(candidate.place)
            evaluation.put(np.array([candidate.place]), candidate.values)
            continue
        try:
            found = [*_followed_up(evaluation, candidate, count)]
        except PaleoError as error:
            assert candidate.group
            evaluation.note(candidate.group, error)
        else:
            for each in found:
                heapq.heappush(queue, (*each.order, next(numbers), each))
    return np.array(best, np.int64)


def _followed_up(evaluation: Evaluation, candidate: _Candidate, count: int) -> Iterator[_Candidate]:
    """Yield what comes of a group, or of priced plans: as many plans as are asked for, at most."""
    if candidate.group:
        yield from _priced(evaluation, candidate.group)
    if candidate.priced:
        yield from _that_fit(evaluation, candidate.priced, count)


def _bounded(evaluation: Evaluation) -> Iterator[_Candidate]:
    """Yield groups with plans that may fit, with the most samples a second that they may have."""
    capacity = evaluation.plan.device.memory_capacity
    for group in evaluation.groups:
        try:
            divided = evaluation.divided(group)
            dealt_out(
                divided.graph.name,
                len(divided.index),
                group.mesh.pp,
                group.interleave,
                evaluation.plan.stages,
            )
        except PaleoError as error:
            evaluation.note(group, error)
            continue
        zeros = {
            zero: place
            for zero, place in group.zeros.items()
            if capacity is None or least_memory(divided, evaluation.plan, group, zero) <= capacity
        }
        rate = max(_most_samples(evaluation, divided, group))
        if zeros:
            yield _Candidate(rate, group._replace(zeros=zeros))


def _most_samples(evaluation: Evaluation, divided: DividedNet, group: Group) -> Iterator[float]:
    for batches, _ in group.blocks:
        samples = batches.counts * batches.sizes[:, None] * group.mesh.dp
        least = least_seconds(divided, evaluation.plan, group, batches.sizes, batches.counts)
        rates = np.where(batches.can_be, samples / least, 0.0)
        yield float(rates.max()) * (1 + _ROUNDING)


def least_seconds(
    divided: DividedNet, plan: Plan, group: Group, sizes: Array, counts: Array
) -> Array:
    """Return the least seconds of steps of so many micro-batches of these sizes, a row for each."""
    stages, chunks = group.mesh.pp, group.interleave
    dealt = dealt_out(divided.graph.name, len(divided.index), stages, chunks, plan.stages)
    most = max(sum(dealt[stage::stages]) for stage in range(stages))
    k = np.searchsorted(divided.micro_batches, sizes)
    seconds = divided.under(Recompute())
    ahead, back = (
        functools.reduce(
            np.add,
            [seconds[place], *(seconds[kind, place] for kind in divided.kinds)],
        )[:, k]
        for place in (0, 1)
    )
    index = list(divided.index)
    forward, backward = (of[index].sum(axis=0)[:, None] for of in (ahead, back))
    shortest = (ahead + back).min(axis=0)[:, None]
    longest = maximum((forward + backward) / stages, most * shortest)
    pipeline = PIPELINES[plan.schedule]
    return np.asarray(pipeline.least(forward, backward, longest, stages, counts, chunks))


def least_memory(divided: DividedNet, plan: Plan, group: Group, zero: int) -> int:
    """Return the least bytes that the fullest stage may take under a ZeRO."""
    mesh = group.mesh
    per_unit, *_ = divided.whole
    params = sum(per_unit[unit] for unit in divided.index) // mesh.pp

    def share(size: Quantity) -> Quantity:
        return size // mesh.replicas  # of experts fewer devices have a share

    there = divided.lasting(params, Sharing(zero, share, mesh.replicas > 1, 1, 1))
    least = there.stays + there.parts["gradients"]
    return math.floor(least + slack_of(least, plan.slack))


def _priced(evaluation: Evaluation, group: Group) -> Iterator[_Candidate]:
    """Yield the plans of a group that may fit, by recomputation and ZeRO, with their steps."""
    capacity = evaluation.plan.device.memory_capacity
    dealt = evaluation.dealt(group)
    meant = evaluation.meant(dealt)
    for batches, places in group.blocks:
        samples = batches.counts * batches.sizes[:, None] * group.mesh.dp
        may_fit = {
            (recompute, zero): batches.can_be
            & (capacity is None or dealt.least_memory(recompute, zero, batches) <= capacity)
            for recompute in meant
            for zero in group.zeros
        }
        zeros = [zero for zero in group.zeros if any(may_fit[r, zero].any() for r in meant)]
        for zero, part, found in dealt.columns([*meant], zeros, batches):
            seconds = sum(found.values(), np.zeros(()))
            for which, (recompute, same) in enumerate(meant.items()):
                those = may_fit[recompute, zero][:, part]
                rates = np.where(those, samples[:, part] / seconds[which], 0.0)
                if those.any():
                    priced = _Priced(
                        *(dealt, recompute, zero, batches, part),
                        *(places[same, group.zeros[zero], :, part], those, rates),
                        {name: of[which] for name, of in found.items()},
                    )
                    yield _Candidate(float(rates.max()), priced=priced)


def _that_fit(evaluation: Evaluation, priced: _Priced, count: int) -> Iterator[_Candidate]:
    """Yield the best of priced plans that fit."""
    capacity = evaluation.plan.device.memory_capacity
    dealt, recompute, zero, batches, part, places, fits, rates, columns = priced
    memory = dealt.memory(recompute, zero, batches, part, capacity)
    fits = fits if capacity is None else fits & (memory <= capacity)
    rows, columns_ = np.nonzero(fits)
    for i in np.lexsort((places[0, rows, columns_], -rates[rows, columns_]))[:count].tolist():
        at = rows[i], columns_[i]
        values = {name: of[at] for name, of in columns.items()} | {"memory_bytes": memory[at]}
        for place in places[(slice(None), *at)].tolist():
            yield _Candidate(float(rates[at]), place=place, values=values)
