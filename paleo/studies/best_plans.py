"""The best of many plans by branch and bound.

Plans are looked at group by group: those of one mesh and as many chunks together, the most
promising first, until no group left can have a plan that would be among the best. Two bounds decide
that; both hold of every plan of a group.

Time: a stage is busy for as long as the mean of all stages at least, and as long as the most blocks
that a stage has take, each as long as the shortest; what a pipeline waits at least follows from
that (`Pipeline.least`). What is computed again, messages between stages, exchanges of gradients and
the update come on top of it.

Memory: the fullest stage has the mean of all stages' parameters at least. What lasts from step to
step, and gradients at the update, go with them; activations come on top of it.
"""

from __future__ import annotations

import functools
import heapq
import math
from collections.abc import Iterator

from paleo.core.errors import PaleoError
from paleo.core.frozen import NamedTuple
from paleo.core.quantity import Array, Quantity, maximum, np
from paleo.step.divided_net import DividedNet
from paleo.step.memory.stage import Sharing, Sizes, lasting, slack_of
from paleo.step.optimizers import find_optimizer
from paleo.step.pipelines import PIPELINES
from paleo.step.plan import Plan
from paleo.step.recompute import Recompute
from paleo.step.stages import dealt_out
from paleo.studies.plan_evaluation import Evaluation, Group

#: Sums of floats in another order differ by less than this.
_ROUNDING = 1e-9


class _Candidate(NamedTuple):
    """A group that may have one of the best plans: it has none with more samples a second."""

    rate: float
    group: Group


def best_places(evaluation: Evaluation, count: int) -> Array:
    """Return the places of the plans that fit with most samples a second, best first.

    Of equal ones the first in order come first. What follows of them is put in their places.
    """
    best: list[tuple[float, int]] = []  # a heap, the least first: samples a second, minus a place
    for rate, group in sorted(_bounded(evaluation), key=lambda each: -each.rate):
        if len(best) == count and rate < best[0][0]:
            break
        try:
            _look_at(evaluation, group, count, best)
        except PaleoError as error:
            evaluation.note(group, error)
    return np.array([-place for _, place in sorted(best, reverse=True)], np.int64)


def _bounded(evaluation: Evaluation) -> Iterator[_Candidate]:
    """Yield groups with plans that may fit, with the most samples a second that they may have."""
    capacity = evaluation.plan.device.memory_capacity
    for group in evaluation.groups():
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
    per_unit, _, _ = divided.whole
    params = sum(per_unit[unit] for unit in divided.index) // mesh.pp
    precision = divided.graph.precision
    optimizer = find_optimizer(plan.optimizer, plan.optimizer_kernels)
    learned, copied = precision.element_size, 0
    if precision.is_mixed:
        learned, copied = precision.parameter_size, precision.element_size
    state = 0 if optimizer.by_matrix else optimizer.at_update([params], learned)[0]
    sizes = Sizes(params, learned, copied, precision.element_size, 0, state, 0, 0, 0, 0, 0)

    def share(size: Quantity) -> Quantity:
        return size // mesh.replicas  # of experts fewer devices have a share

    sharing = Sharing(zero, share, mesh.replicas > 1, 1, 1)
    gradients = learned * params
    there = lasting(sizes, sharing).stays + (share(gradients) if zero >= 2 else gradients)
    return math.floor(there + slack_of(there, plan.slack))


def _look_at(
    evaluation: Evaluation, group: Group, count: int, best: list[tuple[float, int]]
) -> None:
    """Put those plans of a group among the best that are."""
    capacity = evaluation.plan.device.memory_capacity
    dealt = evaluation.dealt(group)
    meant = evaluation.meant(dealt)
    for batches, places in group.blocks:
        samples = batches.counts * batches.sizes[:, None] * group.mesh.dp
        for zero, part, found in dealt.columns([*meant], [*group.zeros], batches):
            can_be = batches.can_be[:, part]
            seconds = sum(found.values(), np.zeros(()))
            for which, (recompute, same) in enumerate(meant.items()):
                rates = samples[:, part] / seconds[which]
                promising = can_be & (rates >= best[0][0]) if len(best) == count else can_be
                if not promising.any():
                    continue
                memory = dealt.memory(recompute, zero, batches, part, capacity)
                fits = promising if capacity is None else promising & (memory <= capacity)
                rows = np.nonzero(fits)
                for r in same:
                    own = places[r, group.zeros[zero], :, part][rows]
                    values = {name: of[which][rows] for name, of in found.items()}
                    evaluation.put(own, values | {"memory_bytes": memory[rows]})
                    for rate, place in zip(rates[rows].tolist(), own.tolist(), strict=True):
                        heapq.heappush(best, (rate, -place))
                        if len(best) > count:
                            heapq.heappop(best)
