"""What plans of a group take at least, found before their steps are: seconds and bytes.

Time: a stage is busy for as long as the mean of all stages at least, and as long as the most blocks
that a stage has take, each as long as the shortest; what a pipeline waits at least follows from
that (`Pipeline.least`). Where each micro-batch's parameters are gathered, or gradients summed, its
passes take as long as that at least; what is exchanged once a step, what no backward pass hides.
Messages between stages, and adding gradients up, come on top of it, as the update does.

Memory: the fullest stage has the mean of all stages' parameters at least. What lasts from step to
step, and gradients at the update, go with them. And the first stage keeps what each block keeps by
itself, of all micro-batches in flight, at the end of the last one's forward pass; then parameters
that are gathered once, or cast anew, are there, too, and gradients if it is not the first to end.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

from paleo.core.quantity import Array, Quantity, is_array, maximum, minimum, np
from paleo.step.divided_net import DividedNet
from paleo.step.memory.stage import Lasting, Sharing, slack_of, whole_bytes
from paleo.step.pipelines import PIPELINES
from paleo.step.plan import Plan
from paleo.step.plan_grid import Batches, Besides
from paleo.step.recompute import Recompute
from paleo.step.stages import dealt_out
from paleo.studies.plan_evaluation import Group

#: Where nothing is known but what stages compute.
_NOTHING = Besides()


class Bounds:
    """The bounds of a group's plans; raises SettingError if there are too few units for it."""

    def __init__(self, divided: DividedNet, plan: Plan, group: Group) -> None:
        self.divided, self._plan, self._mesh = divided, plan, group.mesh
        self._chunks = group.interleave
        self._pipeline = PIPELINES[plan.schedule]
        stages = self._mesh.pp
        index = divided.index
        dealt = dealt_out(divided.graph.name, len(index), stages, self._chunks, plan.stages)
        ends = [*itertools.accumulate(dealt)]
        #: The units of each chunk of the first stage, and the most that a stage has.
        self._first = [range(ends[i] - dealt[i], ends[i]) for i in range(0, len(ends), stages)]
        self._most = max(sum(dealt[stage::stages]) for stage in range(stages))
        per_unit, *_ = divided.whole
        #: The parameters of the first stage, and of the mean of all.
        self._params = sum(per_unit[index[unit]] for units in self._first for unit in units)
        self._mean = sum(per_unit[unit] for unit in index) // stages
        self._there = functools.cache(self._lasting)
        self._in_flight = functools.cache(self._kept)

    def seconds(
        self, recompute: Recompute, batches: Batches, zero: int = 0, besides: Besides = _NOTHING
    ) -> Array:
        """Return the least seconds of steps, by micro-batch and column, of plans of a ZeRO.

        `besides` is what is known of what their stages do besides computing.
        """
        stages, counts = self._mesh.pp, batches.counts
        k = np.searchsorted(self.divided.micro_batches, batches.sizes)
        least = (each[k][:, None] for each in self.divided.least(recompute))
        ahead, back, sent_ahead, sent_back, shortest = least
        gather, within, passed, added = besides
        passed = passed[k][:, None] if is_array(passed) else passed
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
        """Return the least bytes that the first stage may take, by micro-batch and column."""
        how, precision = self._sharing(zero).how, self.divided.graph.precision
        there = self._there(zero)
        stays, gradients = there.stays, there.parts["gradients"]
        if how.zero == 2:
            stays += there.whole  # gathered for all of a micro-batch
        elif not how.zero and precision.is_mixed:
            stays += precision.element_size * self._params  # a copy that layers read
        k = np.searchsorted(self.divided.micro_batches, batches.sizes)
        counts = batches.counts
        kept = self._in_flight(recompute)[k][:, None]
        in_flight = self._pipeline.in_flight(0, self._mesh.pp, counts, self._chunks)
        # Of later micro-batches gradients are there, and one less may be in flight.
        later = np.where(counts > 1, minimum(in_flight, counts - 1) * kept + gradients, 0)
        most = maximum(in_flight * kept + gradients * how.in_buckets, later)
        found = stays + whole_bytes(most)
        return np.asarray(found + slack_of(found, self._plan.slack))

    def _kept(self, recompute: Recompute) -> Array:
        """Return the least bytes that the first stage keeps of each micro-batch."""
        return self.divided.repeated(recompute).least_kept(self._first)

    def _lasting(self, zero: int) -> Lasting:
        return self.divided.lasting(self._params, self._sharing(zero))

    def _sharing(self, zero: int) -> Sharing:
        """Return how devices share parameters, a single micro-batch passing them."""
        copies = self._mesh.replicas

        def share(size: Any) -> Any:
            return size // copies  # of experts fewer devices have a share

        apart = self._plan.software.exchange.copies > 0
        return Sharing(zero, share, copies > 1, batches=1, in_flight=1, buckets_apart=apart)
