"""A ring through all workers: each hands on a share of the message to the next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from paleo.cluster.collectives.base import COLLECTIVES, Carried, Operation, Round
from paleo.cluster.collectives.nccl import OfNccl
from paleo.cluster.collectives.phases import Move, Phase, Phases, chain
from paleo.cluster.collectives.rounds import ring_rounds
from paleo.cluster.topology import Group, beyond_one
from paleo.core.quantity import Quantity


class Ring(OfNccl):
    """2 (K - 1) hops of 1 / K of the message; K - 1 where one half of it is asked for.

    P. Patarasuk, X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
    JPDC 69, 2009. On tiers the ring visits all workers of a member before it leaves it, and there
    are as many rings side by side as all links of a member can carry; of members that are not full,
    fewer.
    """

    name = "ring"
    summary = "a ring through all workers, each handing on a share of the message"
    operations = (
        Operation.ALL_REDUCE,
        Operation.REDUCE_SCATTER,
        Operation.ALL_GATHER,
        Operation.BROADCAST,
    )
    pipelined = (Operation.BROADCAST,)

    def transfers(self, workers: Quantity) -> Quantity:
        return 2 * (workers - 1) / workers

    def phases(self, group: Group, operation: Operation = Operation.ALL_REDUCE) -> Phases:
        times = 2 if operation is Operation.ALL_REDUCE else 1
        share = (group.workers - 1) / group.workers
        if operation is Operation.BROADCAST:
            share = beyond_one(group.workers)
        moves: list[Move] = []
        further: Quantity = 0  # hops at this level and at those around it
        for level, hops in reversed(list(chain(group))):
            further = further + hops
            # What leaves a member passes the links of those inside, too.
            used = beyond_one(further + 1)
            sent = times * share * used * level.narrowing
            moves.insert(0, Move(level, times * hops, sent))
        return (Phase("ring", tuple(moves)),)

    def rounds(self, workers: int) -> Iterator[Round]:
        """Yield the rounds of an all-reduce: every worker sends a share to the next."""
        return ring_rounds([range(workers)])

    def rounds_on(
        self, group: Group, operation: Operation = Operation.ALL_REDUCE
    ) -> Iterator[Round]:
        """Yield the rounds; each ring leaves a member at another of its devices."""
        workers = int(group.workers)
        if operation is Operation.BROADCAST:
            return (Round(((w, w + 1),), Carried.RESULT) for w in range(workers - 1))
        insides = [int(level.inside) for level in reversed(group.levels)]
        orders = [_order(range(workers), insides, turn) for turn in range(insides[0])]
        rounds = ring_rounds(orders)
        if operation is Operation.ALL_REDUCE:
            return rounds
        self.check_operation(operation)
        wanted = Carried.SUM if operation is Operation.REDUCE_SCATTER else Carried.RESULT
        return (one for one in rounds if one.carried is wanted)


def _order(workers: Sequence[int], insides: Sequence[int], turn: int) -> list[int]:
    """Return workers in the order of a ring, one member of each level after another.

    `insides` are how many workers a member has, from the outside in; each `turn` begins at another
    worker of the members.
    """
    inside, *further = insides
    members = [workers[i : i + inside] for i in range(0, len(workers), inside)]
    first = (turn // inside) % len(members)
    turned = [*members[first:], *members[:first]]
    if not further:
        return [worker for member in turned for worker in member]
    return [worker for member in turned for worker in _order(member, further, turn)]


COLLECTIVES.add(Ring.name, Ring())
