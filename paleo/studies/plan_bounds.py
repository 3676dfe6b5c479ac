"""What plans of a group take at least, found before their steps are: seconds and bytes.

Time: a stage is busy for as long as the mean of all stages at least, and as long as the most blocks
that a stage has take, each as long as the shortest, with the fewest messages to other stages; what
a pipeline waits at least follows from that (`Pipeline.least`). Where each micro-batch's parameters
are gathered, or gradients summed, its passes take as long as that at least; what is exchanged once
a step, what no backward pass hides. Messages between stages, and adding gradients up, come on top
of it, as the update does.

Memory: the fullest stage has the mean of all stages' parameters at least. What lasts from step to
step, and gradients at the update, go with them. And a stage keeps what each block keeps by itself,
of all micro-batches in flight, at the end of the last one's forward pass; then parameters that are
gathered, or cast anew, are there, too, and gradients unless it is the first that comes back. While
the stage's last unit is on its way, forward or back, there is what it takes by itself, less what
comes into it, beside what the others keep. Looked at are the first stage, which has most in flight,
and the first that has most blocks.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, TypeAlias

from paleo.core.frozen import NamedTuple
from paleo.core.quantity import Array, Quantity, maximum, minimum, np
from paleo.step.divided_net import DividedNet
from paleo.step.memory.stage import Following, slack_of, whole_bytes
from paleo.step.pipelines import PIPELINES
from paleo.step.plan import Plan
from paleo.step.plan_grid import Batches, Besides
from paleo.step.recompute import NOTHING, Recompute
from paleo.step.stages import dealt_out
from paleo.studies.plan_evaluation import Group

#: Bytes by micro-batch of one that is the first to come back, and of others.
Moments: TypeAlias = tuple[Array, Array]
#: Where nothing is known but what stages compute.
_NOTHING = Besides()


class _Stage(NamedTuple):
    """A stage that is looked at: the units of each of its chunks, and its parameters."""

    number: int
    chunks: list[range]
    params: int


class _There(NamedTuple):
    """What is there of a stage: bytes all the time, and those of gradients.

    `how` says whether they are there at the first micro-batch. Of each parameter so many bytes stay
    of what layers `read`, from its forward pass on.
    """

    how: Following
    stays: Quantity
    gradients: Quantity
    read: int


class Bounds:
    """The bounds of a group's plans; raises SettingError if there are too few units for it."""

    def __init__(self, divided: DividedNet, plan: Plan, group: Group) -> None:
        self.divided, self._plan, self._mesh = divided, plan, group.mesh
        self._chunks = group.interleave
        self._pipeline = PIPELINES[plan.schedule]
        stages = self._mesh.pp
        count = len(divided.index)
        dealt = dealt_out(divided.graph.name, count, stages, self._chunks, plan.stages)
        per_stage = [sum(dealt[stage::stages]) for stage in range(stages)]
        self._most = max(per_stage)
        until = divided.until[0].tolist()
        ends = [*itertools.accumulate(dealt)]
        self._stages = []
        for number in sorted({0, per_stage.index(self._most)}):
            own = [range(ends[i] - dealt[i], ends[i]) for i in range(number, len(ends), stages)]
            params = sum(until[units.stop] - until[units.start] for units in own)
            self._stages.append(_Stage(number, own, params))
        self._mean = until[-1] // stages
        self._smallest = min(divided.whole[0])
        #: By recomputation the bytes that the stages looked at keep of each micro-batch at least.
        self._known_kept: dict[Recompute, list[Array]] = {}
        #: By stage and batches how many are in flight, at the first that comes back and later.
        self._flights: dict[tuple[int, int], tuple[Quantity, Quantity]] = {}
        #: By batches the places of their micro-batches.
        self._places: dict[int, Array] = {}
        #: By recomputation and batches what is computed of each micro-batch.
        self._computed: dict[tuple[Recompute, int], list[Any]] = {}

    def seconds(
        self, recompute: Recompute, batches: Batches, zero: int = 0, besides: Besides = _NOTHING
    ) -> Array:
        """Return the least seconds of steps, by micro-batch and column, of plans of a ZeRO.

        `besides` is what is known of what their stages do besides computing.
        """
        stages, counts = self._mesh.pp, batches.counts
        key = recompute, id(counts)  # groups hold the counts
        if key not in self._computed:
            self._computed[key] = [
                each[self._k(batches)][:, None] for each in self.divided.least(recompute)
            ]
        ahead, back, sent_ahead, sent_back, shortest = self._computed[key]
        gather, within, *handed_on, added = besides
        passed, least_passed = (
            each[self._k(batches)][:, None] if isinstance(each, np.ndarray) else each
            for each in handed_on
        )
        more = (counts - 1) * added
        if zero == 3:
            ahead, back = maximum(ahead, gather), maximum(back, gather + within)
        else:
            turns = counts if zero == 2 else 1
            shown = turns * maximum(within - back, 0.0) + maximum(gather - ahead, 0.0)
            more = more + shown / stages
        forward, backward = ahead + sent_ahead + passed, back + sent_back + passed
        most = self._most * shortest + 2 * least_passed
        longest = maximum((forward + backward) / stages, most)
        running = self._pipeline.least(forward, backward, longest, stages, counts, self._chunks)
        return np.asarray(running + more)

    def _k(self, batches: Batches) -> Array:
        """Return the places of micro-batches among those that are priced."""
        key = id(batches.counts)  # groups hold the counts
        if key not in self._places:
            self._places[key] = np.searchsorted(self.divided.micro_batches, batches.sizes)
        return self._places[key]

    def lasting(self, zero: int) -> Quantity:
        """Return the least bytes that the fullest stage may take under a ZeRO, at the update."""
        there, _ = self.divided.lasting(self._mean, zero, self._mesh.replicas)
        least = there.stays + there.parts["gradients"]
        return least + slack_of(least, self._plan.slack)

    def memory(self, recompute: Recompute, zero: int, batches: Batches) -> Array:
        """Return the least bytes that the stages looked at may take, by micro-batch and column.

        So much is there at the end of a forward pass.
        """
        return self._most_taken(self._at_end, recompute, zero, batches)

    def memory_on_the_way(self, recompute: Recompute, zero: int, batches: Batches) -> Array:
        """Return the same while a stage's last unit is on its way: tighter mostly, but slower."""
        return self._most_taken(self._on_the_way, recompute, zero, batches)

    def _most_taken(
        self,
        moments: Callable[[int, Recompute, int], Moments],
        recompute: Recompute,
        zero: int,
        batches: Batches,
    ) -> Array:
        k, each = self._k(batches), []
        for place, kept in enumerate(self._kept(recompute)):
            own = (of[k][:, None] for of in (kept, *moments(place, recompute, zero)))
            each.append(self._taken(place, zero, batches.counts, *own))
        found = functools.reduce(maximum, each)
        return np.asarray(found + slack_of(found, self._plan.slack))

    def _taken(
        self, place: int, zero: int, counts: Array, kept: Array, first: Array, later: Array
    ) -> Quantity:
        """Return the least bytes that a stage takes which keeps so many of a micro-batch.

        One that comes back takes so many, as the first, or later.
        """
        how, stays, gradients, _ = self._there(place, zero)
        key = place, id(counts)
        if key not in self._flights:  # groups hold the counts
            number = self._stages[place].number
            flight = self._pipeline.in_flight(number, self._mesh.pp, counts, self._chunks)
            self._flights[key] = flight - 1, minimum(flight, counts - 1) - 1
        others, left = self._flights[key]
        # Of later micro-batches gradients are there, and one less may be in flight.
        at_first = others * kept + first + gradients * how.in_buckets
        at_later = np.where(counts > 1, left * kept + later + gradients, 0)
        return stays + whole_bytes(maximum(at_first, at_later))

    def _there(self, place: int, zero: int) -> _There:
        """Return what is there of a stage under a ZeRO, beside what it keeps."""
        stage, precision = self._stages[place], self.divided.graph.precision
        there, how = self.divided.lasting(stage.params, zero, self._mesh.replicas)
        # Gathered for all of a micro-batch, or copied.
        is_read = how.zero == 2 or (how.zero == 0 and precision.is_mixed)
        return _There(how, there.stays, there.parts["gradients"], precision.element_size * is_read)

    def _at_end(self, place: int, recompute: Recompute, zero: int) -> Moments:
        """Return the least bytes of a micro-batch at the end of its forward pass."""
        stage, there = self._stages[place], self._there(place, zero)
        found = self._kept(recompute)[place] + there.read * stage.params
        if there.how.zero == 3 and stage.number + 1 < self._mesh.pp:
            # The last unit's, and their buffer.
            own = min(2 * self._smallest, stage.params)
            found = found + self.divided.graph.element_size * own
        return found, found

    def _on_the_way(self, place: int, recompute: Recompute, zero: int) -> Moments:
        """Return the same while the last unit is on its way, 0 if nothing may be said.

        Frameworks that receive all at once gather otherwise.
        """
        stage, there = self._stages[place], self._there(place, zero)
        last = self.divided.repeated(recompute).last_unit(stage.chunks)
        if last is None or (there.how.zero >= 2 and self._plan.software.receives_all):
            nothing = np.zeros(len(self.divided.micro_batches), np.int64)
            return nothing, nothing
        beside = last.beside
        if there.how.zero or recompute == NOTHING:  # what is computed again is copied again
            beside = beside + there.read * (stage.params - last.params)
        first, later, _ = last.alone.passing(there.how)
        return beside + first, beside + later

    def _kept(self, recompute: Recompute) -> list[Array]:
        """Return the least bytes that the stages looked at keep of each micro-batch."""
        if recompute not in self._known_kept:
            repeated = self.divided.repeated(recompute)
            self._known_kept[recompute] = [
                repeated.least_kept(stage.chunks) for stage in self._stages
            ]
        return self._known_kept[recompute]
