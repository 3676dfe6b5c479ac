"""Two binary trees at once, each for half of the message."""

from __future__ import annotations

from collections.abc import Iterator

from paleo.cluster.collectives.base import COLLECTIVES, Carried, Collective, Operation, Round
from paleo.cluster.collectives.phases import Move, Phase, Phases
from paleo.cluster.topology import Group, beyond_one
from paleo.core.quantity import ceil_log2


class DoubleTree(Collective):
    """2 ceil(log2 K) hops, and twice the message over every link.

    P. Sanders, J. Speck, J. Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and
    scan", Parallel Computing 35, 2009; S. Jeaugey, "Massively scale your deep learning training
    with NCCL 2.4", 2019. Workers that are inside of one tree are leaves of the other, so that each
    sends and receives twice the message, up and down the trees, in pieces. Inside of a node NCCL's
    trees are chains.
    """

    name = "tree"
    summary = "two binary trees at once, each for half of the message"
    operations = (Operation.ALL_REDUCE,)

    def phases(self, group: Group, operation: Operation = Operation.ALL_REDUCE) -> Phases:
        outermost = len(group.levels) - 1
        moves = []
        for i, level in enumerate(group.levels):
            is_chain = i == 0 and i < outermost
            hops = level.members - 1 if is_chain else ceil_log2(level.members)
            moves.append(Move(level, 2 * hops, 2 * beyond_one(level.members)))
        return (Phase("two trees", tuple(moves)),)

    def rounds(self, workers: int) -> Iterator[Round]:
        """Yield the rounds of one tree after the other, each with half of the message.

        The first has worker 0 as its root; the second is its mirror image (worker K - 1 - i
        in place of i).
        """
        up = []
        distance = 1
        while distance < workers:
            senders = range(distance, workers, 2 * distance)
            up.append(tuple((sender, sender - distance) for sender in senders))
            distance *= 2
        down = [tuple((above, below) for below, above in pairs) for pairs in reversed(up)]
        for pairs, carried in [
            *((pairs, Carried.SUM) for pairs in up),
            *((pairs, Carried.RESULT) for pairs in down),
        ]:
            mirrored = tuple((workers - 1 - a, workers - 1 - b) for a, b in pairs)
            yield Round(pairs, carried, 1 / 2)
            yield Round(mirrored, carried, 1 / 2)


COLLECTIVES.add(DoubleTree.name, DoubleTree())
