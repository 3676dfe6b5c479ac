"""What one device has of a net that is divided in one way, at several micro-batches: unit by unit.

Stages are units of the net one behind the other, which a row of equal ones makes as many as they
are: see paleo.step.shortened.
"""

from __future__ import annotations

import copy
import functools
import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from paleo.core.quantity import Array, Quantity, np, total
from paleo.core.tensor import num_elements
from paleo.step.memory.repeated import RepeatedStages
from paleo.step.memory.stage import Following, Lasting, Sharing, Sizes, lasting
from paleo.step.meshed import num_experts
from paleo.step.optimizers import find_optimizer
from paleo.step.part import Part
from paleo.step.plan import Plan
from paleo.step.recompute import Recompute
from paleo.step.shortened import kinds_of
from paleo.step.stage_steps import in_memory
from paleo.step.stages import Cut, starts_of, units

#: What units have, by name.
_HAVE: Mapping[str, Callable[[Any], int]] = {
    "num_params": attrgetter("num_params"),
    "num_tensors": attrgetter("num_tensors"),
    "experts": num_experts,
}


class DividedNet:
    """What a device has of a net, priced at several micro-batches.

    `index` says of each unit of the whole net which of the part's it is like: None: it has all.
    """

    def __init__(
        self, part: Part, index: tuple[int, ...] | None, micro_batches: Sequence[int]
    ) -> None:
        self.part, self.micro_batches = part, list(micro_batches)
        self.graph, (self.seconds,) = part.under(np.array(micro_batches), (Recompute(),))
        self.units = units(self.graph)
        self.index = index or tuple(range(len(self.units)))
        #: The kinds of groups that exchange something.
        self.kinds = list(self.seconds.sent)
        #: What each unit has, of each of these.
        self.whole = [
            [sum(count(self.graph.nodes[i]) for i in unit) for unit in self.units]
            for count in _HAVE.values()
        ]
        self.casts = self._by_unit(self.seconds.casts)
        self.updates: dict[Any, Any] = {}
        self.under = functools.cache(self._under)
        self.least = functools.cache(self._least)
        self.lasting = functools.cache(self._lasting)
        self.meaning = functools.cache(self._meaning)
        self.repeated = functools.cache(self._repeated)

    @functools.cached_property
    def until(self) -> Array:
        """What all units have before each of the whole net, and behind the last, as `whole`."""
        found = np.zeros((len(self.whole), len(self.index) + 1), np.int64)
        np.cumsum(np.array(self.whole)[:, self.index], axis=1, out=found[:, 1:])
        return found

    def under_plan(self, plan: Plan) -> DividedNet:
        """Return the same under a plan that differs in figures of links alone.

        What is computed is not priced again.
        """
        found = copy.copy(self)
        found.part = self.part.under_plan(plan)
        sent = found.part.sent(self.graph, self.seconds.forward, self.seconds.backward)
        found.seconds = self.seconds._replace(sent=sent)
        found.under = functools.cache(found._under)
        return found

    @functools.cached_property
    def is_right(self) -> bool:
        """Whether a unit that stands for others is as those beside it, in all that they take."""
        (middle, count), *_ = Counter(self.index).most_common(1)
        if count == 1:
            return True
        if max(self.index) + 1 != len(self.units):
            return False
        beside = slice(middle - 1, middle + 2)
        kinds = kinds_of(self.graph, self.units)[beside]
        takes = (*self.under(Recompute()).values(), self.casts)
        return len(set(kinds)) == 1 and all(
            np.allclose(of[beside], of[middle], rtol=1e-13, atol=0) for of in takes
        )

    def _meaning(self, recompute: Recompute) -> Recompute:
        """Return what is computed again, the same for all that leave nothing to compute."""
        return recompute if recompute.regions(self.graph) else Recompute()

    def _under(self, recompute: Recompute) -> dict[Any, Array]:
        """Return by quantity the seconds of units at each micro-batch, where this is done again."""
        seconds = self.seconds
        again: list[Quantity] = [0.0] * len(self.graph.nodes)
        sent = {kind: (ahead, [*back]) for kind, (ahead, back) in seconds.sent.items()}
        for i in itertools.chain(*recompute.regions(self.graph)):
            again[i] = again[i] + seconds.forward[i]
            for ahead, back in sent.values():
                back[i] = back[i] + ahead[i]
        found: dict[Any, Array] = {
            place: self._by_unit(of) for place, of in enumerate((*seconds[:3], again))
        }
        for kind, both in sent.items():
            for place, of in enumerate(both):
                found[kind, place] = self._by_unit(of)
        return found

    def _least(self, recompute: Recompute) -> tuple[Array, Array, Array, Array, Array]:
        """Return at each micro-batch the seconds of the whole net forward and backward.

        Those of computation, then of messages that nothing hides; and the least of a unit's, in
        both passes with its messages.
        """
        found = self.under(recompute)
        each = [found[0], found[1] + found[3]]
        each += [sum((found[kind, way] for kind in self.kinds), np.zeros(())) for way in (0, 1)]
        least = functools.reduce(np.add, each).min(axis=0)
        counts = np.bincount(self.index, minlength=len(self.units))
        sums = [counts @ np.broadcast_to(of, found[0].shape) for of in each]
        return sums[0], sums[1], sums[2], sums[3], least

    def _by_unit(self, values: Sequence[Quantity]) -> Array:
        """Return the sums of nodes' values, by unit and micro-batch."""
        found = np.zeros((len(self.units), len(self.micro_batches)))
        for row, unit in zip(found, self.units, strict=True):
            for i in unit:
                row += values[i]
        return found

    @functools.cached_property
    def passing(self) -> list[Quantity]:
        """The bytes that pass before each unit; none before the first."""
        starts = starts_of(self.graph)
        one_by_one = Cut((*starts, len(self.graph.nodes)), 1, (1,) * len(starts), ())
        return [
            self.graph.element_size
            * total(num_elements(self.graph.nodes[i].output) for i in passed)
            for passed in one_by_one.passed(self.graph)
        ]

    @functools.cached_property
    def coming_in(self) -> list[Quantity]:
        """The elements that come into the net, by the unit that they come into."""
        nodes = self.graph.nodes
        return [
            total(num_elements(nodes[i].output) for i in unit if nodes[i].layer.is_input)
            for unit in self.units
        ]

    def _lasting(self, params: int, zero: int, copies: int) -> tuple[Lasting, Following]:
        """Return what of so many parameters is there all the time, at least, and what decides it.

        So many devices have them, that a single micro-batch passes.
        """
        plan, precision = self.part.plan, self.graph.precision
        optimizer = find_optimizer(plan.optimizer, plan.optimizer_kernels)
        learned, copied = precision.element_size, 0
        if precision.is_mixed:
            learned, copied = precision.parameter_size, precision.element_size
        # What goes by matrices may be less.
        state = 0 if optimizer.by_matrix else optimizer.at_update([params], learned)[0]
        sizes = Sizes(params, learned, copied, precision.element_size, 0, state, 0, 0, 0, 0, 0)

        def share(size: Any) -> Any:
            return size // copies  # of experts fewer devices have a share

        apart = plan.software.exchange.copies > 0
        sharing = Sharing(zero, share, copies > 1, batches=1, in_flight=1, buckets_apart=apart)
        return lasting(sizes, sharing), sharing.how

    def _repeated(self, recompute: Recompute) -> RepeatedStages:
        plan = replace(self.part.plan, recompute=recompute)
        net, graph = self.part.net, self.graph
        return RepeatedStages(
            net, graph, self.units, self.index, self.micro_batches, in_memory(plan)
        )
