"""What plans of a group take at least, found before their steps are: seconds and bytes.

Time: a stage is busy for as long as the mean of all stages at least, and as long as the most blocks
that a stage has take, each as long as the shortest; what a pipeline waits at least follows from
that (`Pipeline.least`). Where each micro-batch's parameters are gathered, or gradients summed, its
passes take as long as that at least; what is exchanged once a step, what no backward pass hides.
Messages between stages, and adding gradients up, come on top of it, as the update does.

Memory: the fullest stage has the mean of all stages' parameters at least. What lasts from step to
step, and gradients at the update, go with them. And a stage keeps what each block keeps by itself,
of all micro-batches in flight, at the end of the last one's forward pass; then parameters that are
gathered, or cast anew, are there, too, and gradients unless it is the first that comes back. Looked
at are the first stage, which has most in flight, and the first that has most blocks.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

from paleo.core.frozen import NamedTuple
from paleo.core.quantity import Array, Quantity, maximum, minimum, np
from paleo.step.divided_net import DividedNet
from paleo.step.memory.stage import Sharing, slack_of, whole_bytes
from paleo.step.pipelines import PIPELINES
from paleo.step.plan import Plan
from paleo.step.plan_grid import Batches, Besides
from paleo.step.recompute import Recompute
from paleo.step.stages import dealt_out
from paleo.studies.plan_evaluation import Group

#: Where nothing is known but what stages compute.
_NOTHING = Besides()


class _Stage(NamedTuple):
    """A stage that is looked at: the units of each of its chunks, and its parameters."""

    number: int
    chunks: list[range]
    params: int


class Bounds:
    """The bounds of a group's plans; raises SettingError if there are too few units for it."""

    def __init__(self, divided: DividedNet, plan: Plan, group: Group) -> None:
        self.divided, self._plan, self._mesh = divided, plan, group.mesh
        self._chunks = group.interleave
        self._pipeline = PIPELINES[plan.schedule]
        stages = self._mesh.pp
        index = divided.index
        dealt = dealt_out(divided.graph.name, len(index), stages, self._chunks, plan.stages)
        per_stage = [sum(dealt[stage::stages]) for stage in range(stages)]
        self._most = max(per_stage)
        per_unit, *_ = divided.whole
        ends = [*itertools.accumulate(dealt)]
        self._stages = []
        for number in sorted({0, per_stage.index(self._most)}):
            own = [range(ends[i] - dealt[i], ends[i]) for i in range(number, len(ends), stages)]
            params = sum(per_unit[index[unit]] for units in own for unit in units)
            self._stages.append(_Stage(number, own, params))
        self._mean = sum(per_unit[unit] for unit in index) // stages
        self._smallest = min(per_unit)
        self._kept = functools.cache(self._least_kept)
        self._there = functools.cache(self._found_there)
        #: By stage and batches how many are in flight, at the first that comes back and later.
        self._flights: dict[tuple[int, int], tuple[Quantity, Quantity]] = {}

    def seconds(
        self, recompute: Recompute, batches: Batches, zero: int = 0, besides: Besides = _NOTHING
    ) -> Array:
        """Return the least seconds of steps, by micro-batch and column, of plans of a ZeRO.

        `besides` is what is known of what their stages do besides computing.
        """
        stages, counts = self._mesh.pp, batches.counts
        k = np.searchsorted(self.divided.micro_batches, batches.sizes)
        least: Any = (each[k][:, None] for each in self.divided.least(recompute))
        ahead, back, sent_ahead, sent_back, shortest = least
        gather, within, passed, added = besides
        passed = np.broadcast_to(passed, len(self.divided.micro_batches))[k][:, None]
        more = (counts - 1) * added
        if zero == 3:
            ahead, back = maximum(ahead, gather), maximum(back, gather + within)
        else:
            turns = counts if zero == 2 else 1
            shown = turns * maximum(within - back, 0.0) + maximum(gather - ahead, 0.0)
            more = more + shown / stages
        forward, backward = ahead + sent_ahead + passed, back + sent_back + passed
        longest = maximum((forward + backward) / stages, self._most * shortest)
        running = self._pipeline.least(forward, backward, longest, stages, counts, self._chunks)
        return np.asarray(running + more)

    def lasting(self, zero: int) -> Quantity:
        """Return the least bytes that the fullest stage may take under a ZeRO, at the update."""
        there = self.divided.lasting(self._mean, self._sharing(zero))
        least = there.stays + there.parts["gradients"]
        return least + slack_of(least, self._plan.slack)

    def memory(self, recompute: Recompute, zero: int, batches: Batches) -> Array:
        """Return the least bytes that the stages looked at may take, by micro-batch and column."""
        k = np.searchsorted(self.divided.micro_batches, batches.sizes)
        kept = self._kept(recompute)
        each = [
            self._taken(place, zero, batches.counts, own[k][:, None])
            for place, own in enumerate(kept)
        ]
        found = functools.reduce(maximum, each)
        return np.asarray(found + slack_of(found, self._plan.slack))

    def _taken(self, place: int, zero: int, counts: Array, kept: Array) -> Quantity:
        """Return the least bytes that a stage takes which keeps so many of a micro-batch."""
        stays, gradients, in_buckets = self._there(place, zero)
        key = place, id(counts)
        if key not in self._flights:  # groups hold the counts
            number = self._stages[place].number
            flight = self._pipeline.in_flight(number, self._mesh.pp, counts, self._chunks)
            self._flights[key] = flight, minimum(flight, counts - 1)
        in_flight, left = self._flights[key]
        # Of later micro-batches gradients are there, and one less may be in flight.
        later = np.where(counts > 1, left * kept + gradients, 0)
        return stays + whole_bytes(maximum(in_flight * kept + gradients * in_buckets, later))

    def _found_there(self, place: int, zero: int) -> tuple[Quantity, Quantity, bool]:
        """Return what is there of a stage at a micro-batch under a ZeRO, beside what it keeps.

        Those are bytes all the time, those of gradients, and whether these are there at the first.
        """
        stage, precision = self._stages[place], self.divided.graph.precision
        sharing = self._sharing(zero)
        how, there = sharing.how, self.divided.lasting(stage.params, sharing)
        stays, gradients = there.stays, there.parts["gradients"]
        if how.zero == 2:
            stays += there.whole  # gathered for all of a micro-batch
        elif how.zero == 3 and stage.number + 1 < self._mesh.pp:
            # The last unit's, and their buffer.
            stays += precision.element_size * min(2 * self._smallest, stage.params)
        elif not how.zero and precision.is_mixed:
            stays += precision.element_size * stage.params  # a copy that layers read
        return stays, gradients, how.in_buckets

    def _least_kept(self, recompute: Recompute) -> list[Array]:
        """Return the least bytes that the stages looked at keep of each micro-batch."""
        repeated = self.divided.repeated(recompute)
        return [repeated.least_kept(stage.chunks) for stage in self._stages]

    def _sharing(self, zero: int) -> Sharing:
        """Return how devices share parameters, a single micro-batch passing them."""
        copies = self._mesh.replicas

        def share(size: Any) -> Any:
            return size // copies  # of experts fewer devices have a share

        apart = self._plan.software.exchange.copies > 0
        return Sharing(zero, share, copies > 1, batches=1, in_flight=1, buckets_apart=apart)
