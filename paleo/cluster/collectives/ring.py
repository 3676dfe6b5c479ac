"""A ring through all workers: each hands on a share of the message to the next."""

from __future__ import annotations

from collections.abc import Iterator

from paleo.cluster.collectives.base import COLLECTIVES, Carried, Collective, Operation, Round
from paleo.cluster.collectives.phases import Move, Phase, Phases, chain
from paleo.cluster.topology import Group, beyond_one
from paleo.core.quantity import Quantity


class Ring(Collective):
    """2 (K - 1) hops of 1 / K of the message; K - 1 where one half of it is asked for.

    P. Patarasuk, X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
    JPDC 69, 2009. On tiers the ring visits all workers of a member before it leaves it, and there
    are as many rings side by side as all links of a member can carry.
    """

    name = "ring"
    summary = "a ring through all workers, each handing on a share of the message"
    operations = (
        Operation.ALL_REDUCE,
        Operation.REDUCE_SCATTER,
        Operation.ALL_GATHER,
        Operation.BROADCAST,
    )

    def transfers(self, workers: Quantity) -> Quantity:
        return 2 * (workers - 1) / workers

    def phases(self, group: Group, operation: Operation = Operation.ALL_REDUCE) -> Phases:
        times = 2 if operation is Operation.ALL_REDUCE else 1
        share = (group.workers - 1) / group.workers
        if operation is Operation.BROADCAST:
            share = beyond_one(group.workers)
        moves = tuple(
            Move(level, times * hops, times * share * beyond_one(level.members))
            for level, hops in chain(group)
        )
        return (Phase("ring", moves),)

    def rounds(self, workers: int) -> Iterator[Round]:
        """Yield the rounds of an all-reduce: every worker sends a share to the next."""
        pairs = tuple((worker, (worker + 1) % workers) for worker in range(workers))
        for step in range(2 * (workers - 1)):
            carried = Carried.SUM if step < workers - 1 else Carried.RESULT
            yield Round(pairs, carried, 1 / workers)


COLLECTIVES.add(Ring.name, Ring())
