"""Switches that sum up what passes through them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from paleo.cluster.collectives.base import COLLECTIVES, Carried, Operation, Round
from paleo.cluster.collectives.nccl import OfNccl
from paleo.cluster.collectives.phases import Phase, Phases, across
from paleo.cluster.collectives.rounds import SWITCH, of_parts
from paleo.cluster.topology import Group, Tier, beyond_one
from paleo.core.errors import SettingError
from paleo.core.quantity import Quantity, some


class InNetwork(OfNccl):
    """Two hops at each tier whose switches sum: up with all parts, down with the sum.

    R. Graham et al., "Scalable Hierarchical Aggregation Protocol (SHArP)", COM-HPC 2016; B. Klenk
    et al., "An in-network architecture for accelerating shared-memory multiprocessor collectives",
    ISCA 2020 (NVLink SHARP). A device sends its message once and gets its share of the sum; in an
    all-gather it sends its share once, and the switch makes the copies. Tiers whose switches do
    not sum do as under the hierarchical scheme.
    """

    name = "in_network"
    summary = "switches that sum up what passes through them (NVLink SHARP, InfiniBand SHARP)"
    operations = (Operation.ALL_REDUCE, Operation.REDUCE_SCATTER, Operation.ALL_GATHER)
    pipelined = operations

    def transfers(self, workers: Quantity) -> Quantity:
        return beyond_one(workers) * (1 + 1 / workers)

    def check(self, tiers: Sequence[Tier]) -> None:
        super().check(tiers)
        _check(tiers)

    def of_nccl(self, group: Group, operation: Operation) -> bool:
        """Tell whether it is NCCL's: an all-reduce, where switches inside of nodes alone sum."""
        summing = [level.tier.sums for level in group.levels]
        is_inside = summing[0] and not any(summing[1:])
        return is_inside and operation is Operation.ALL_REDUCE and super().of_nccl(group, operation)

    def phases(self, group: Group, operation: Operation = Operation.ALL_REDUCE) -> Phases:
        """Return the phases; raises SettingError where no switch of the group sums."""
        _check([level.tier for level in group.levels if some(level.members > 1)])
        is_whole = operation is Operation.ALL_REDUCE
        out: list[Phase] = []
        back: list[Phase] = []
        for i, level in enumerate(group.levels):
            used = beyond_one(level.members)
            if level.tier.sums:
                # While the sum comes down, what goes up of the next piece is all but a share.
                hops, summed, copied = used, used, used / level.members if is_whole else used
            else:
                hops = level.members - 1
                summed = copied = hops / level.members
            for phases, name, sent in (
                (out, "reduce-scatter", summed),
                (back, "all-gather", copied),
            ):
                moves = across(group, i, hops, sent / level.inside, by_all=True)
                phases.append(Phase(f"{name}, {level.tier.name}", moves))
        if operation is Operation.REDUCE_SCATTER:
            return tuple(out)
        if operation is Operation.ALL_GATHER:
            return tuple(reversed(back))
        return (*out, *reversed(back))

    def rounds(self, workers: int) -> Iterator[Round]:
        """Yield two hops that leave each with the sum of a part, and two that hand out the sums."""
        if workers == 1:
            return
        whole = range(workers)
        out = [((worker, SWITCH), whole) for worker in whole]
        own = [(worker, range(worker, worker + 1)) for worker in whole]
        yield of_parts(out, workers)
        yield of_parts((((SWITCH, worker), part) for worker, part in own), workers, Carried.RESULT)
        yield of_parts((((worker, SWITCH), part) for worker, part in own), workers, Carried.RESULT)
        back = (((receiver, sender), part) for (sender, receiver), part in out)
        yield of_parts(back, workers, Carried.RESULT)

    def rounds_on(
        self, group: Group, operation: Operation = Operation.ALL_REDUCE
    ) -> Iterator[Round]:
        """Yield the rounds on one tier; SettingError on several, each with switches of its own."""
        self.check_operation(operation)
        if len(group.levels) > 1:
            raise SettingError("scheme: in_network has rounds for one tier alone")
        halves = {Operation.REDUCE_SCATTER: (0, 2), Operation.ALL_GATHER: (2, 4)}
        return itertools.islice(self.rounds(int(group.workers)), *halves.get(operation, (None,)))


def _check(tiers: Sequence[Tier]) -> None:
    if tiers and not any(tier.sums for tier in tiers):
        names = ", ".join(tier.name for tier in tiers)
        raise SettingError(f"scheme: in_network needs switches that sum: of {names} none does")


COLLECTIVES.add(InNetwork.name, InNetwork())
