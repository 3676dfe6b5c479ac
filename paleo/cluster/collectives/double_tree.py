"""Two binary trees at once, each for half of the message."""

from __future__ import annotations

from collections.abc import Iterator

from paleo.cluster.collectives.base import COLLECTIVES, Carried, Operation, Round
from paleo.cluster.collectives.nccl import OfNccl
from paleo.cluster.collectives.phases import Move, Phase, Phases
from paleo.cluster.collectives.rounds import of_parts
from paleo.cluster.topology import Group, beyond_one
from paleo.core.quantity import Quantity, ceil_log2, maximum, minimum


class DoubleTree(OfNccl):
    """2 ceil(log2 K) hops, and twice the message over every link.

    P. Sanders, J. Speck, J. Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and
    scan", Parallel Computing 35, 2009; S. Jeaugey, "Massively scale your deep learning training
    with NCCL 2.4", 2019. Workers that are inside of one tree are leaves of the other, so that each
    sends and receives twice the message, up and down the trees, in pieces; of two or three workers
    none has two children in one tree and a parent in both. On tiers there are trees of the members
    of each, whose roots stand in trees again.
    """

    name = "tree"
    summary = "two binary trees at once, each for half of the message"
    operations = (Operation.ALL_REDUCE,)
    pipelined = (Operation.ALL_REDUCE,)

    def transfers(self, workers: Quantity) -> Quantity:
        return minimum(workers / 2, 2) * beyond_one(workers)

    def phases(self, group: Group, operation: Operation = Operation.ALL_REDUCE) -> Phases:
        moves: list[Move] = []
        passing: Quantity = 0  # what a device sends out of its member
        for level in reversed(group.levels):
            hops = 2 * ceil_log2(level.members)
            sent = maximum(self.transfers(level.members), passing * level.inside)
            moves.insert(0, Move(level, hops, sent * level.narrowing))
            passing = sent / level.inside
        return (Phase("two trees", tuple(moves)),)

    def rounds(self, workers: int) -> Iterator[Round]:
        """Yield the rounds of both trees, at the same time where no worker is in both.

        They are those of NCCL (`ncclGetDtree`, src/graph/trees.cc): the second is the mirror image
        of the first, or for an odd number of workers has each moved on by one.
        """
        last = workers - 1
        moved = [last - i if workers % 2 == 0 else (i + 1) % workers for i in range(workers)]
        first = _up(workers)
        second = [[(moved[a], moved[b]) for a, b in pairs] for pairs in first]
        for carried in (Carried.SUM, Carried.RESULT):
            for one, other in zip(first, second, strict=True):
                yield from _together(one, other, carried)
            first, second = _down(first), _down(second)


_Pairs = list[tuple[int, int]]


def _up(workers: int) -> list[_Pairs]:
    """Return who sends to its parent, from the leaves of a tree to its root, worker 0.

    The lowest bit of a worker's number is its height. A parent hears its children one by one.
    """
    rounds: list[_Pairs] = []
    bit = 1
    while bit < workers:
        below: _Pairs = []
        above: _Pairs = []
        for worker in range(bit, workers, 2 * bit):
            parent = (worker ^ bit) | (bit << 1)
            if parent >= workers:
                parent = worker ^ bit
            (below if worker < parent else above).append((worker, parent))
        rounds += [pairs for pairs in (below, above) if pairs]
        bit *= 2
    return rounds


def _down(up: list[_Pairs]) -> list[_Pairs]:
    return [[(parent, child) for child, parent in pairs] for pairs in reversed(up)]


def _together(first: _Pairs, second: _Pairs, carried: Carried) -> Iterator[Round]:
    """Yield a round for both trees, or one for each if a worker would send or receive twice."""
    halves = [
        [(pair, range(i, i + 1)) for pair in pairs] for i, pairs in enumerate((first, second))
    ]
    is_free = all(
        len({pair[end] for pair in (*first, *second)}) == len(first) + len(second) for end in (0, 1)
    )
    for moving in [halves[0] + halves[1]] if is_free else halves:
        yield of_parts(moving, 2, carried)


COLLECTIVES.add(DoubleTree.name, DoubleTree())
