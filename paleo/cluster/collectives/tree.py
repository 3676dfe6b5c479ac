"""Reduction up a binary tree, then broadcast down it."""

from __future__ import annotations

from collections.abc import Iterator

from paleo.cluster.collectives.base import COLLECTIVES, Carried, Collective, Operation, Round
from paleo.cluster.collectives.phases import Phase, Phases, across
from paleo.cluster.topology import Group
from paleo.core.quantity import Quantity, ceil_log2


class TreeAllReduce(Collective):
    """2 ceil(log2 K) transfers (Qi et al. 2017; Iandola 2016, eq. 3.4)."""

    name = "TreeAllReduce"
    summary = "reduction up a binary tree, then broadcast down it"
    is_of_2017 = True
    operations = (Operation.ALL_REDUCE, Operation.BROADCAST)

    def transfers(self, workers: Quantity) -> Quantity:
        return 2 * ceil_log2(workers)

    def phases(self, group: Group, operation: Operation = Operation.ALL_REDUCE) -> Phases:
        """Return the transfers of a tree in each member, whose roots stand in a tree again."""
        times = 2 if operation is Operation.ALL_REDUCE else 1
        phases = []
        for i, level in enumerate(group.levels):
            transfers = times * ceil_log2(level.members)
            phases.append(Phase(level.tier.name, across(group, i, transfers, transfers)))
        return tuple(phases)

    def rounds(self, workers: int) -> Iterator[Round]:
        """Yield the rounds: up to worker 0, from doubling distances, and down the same way."""
        up = []
        distance = 1
        while distance < workers:
            senders = range(distance, workers, 2 * distance)
            up.append(tuple((sender, sender - distance) for sender in senders))
            distance *= 2
        for pairs in up:
            yield Round(pairs)
        for pairs in reversed(up):
            yield Round(tuple((above, below) for below, above in pairs), Carried.RESULT)


COLLECTIVES.add(TreeAllReduce.name, TreeAllReduce())
