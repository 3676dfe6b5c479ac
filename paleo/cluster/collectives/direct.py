"""Every worker sends to every other at once: shards of a parameter server, all-to-all."""

from __future__ import annotations

from collections.abc import Iterator

from paleo.cluster.collectives.base import COLLECTIVES, Carried, Collective, Operation, Round
from paleo.cluster.collectives.nccl import OfNccl
from paleo.cluster.collectives.phases import Move, Phase, Phases
from paleo.cluster.collectives.rounds import of_parts
from paleo.cluster.topology import Group, beyond_one
from paleo.core.quantity import Quantity


def _to_all(group: Group, times: Quantity) -> Phase:
    """Return the phase in which each worker sends a K-th of the message to each other."""
    moves = []
    for level in group.levels:
        leaving = level.inside * (group.workers - level.inside) / group.workers
        moves.append(Move(level, times * beyond_one(level.members), times * leaving))
    return Phase("to all", tuple(moves))


class ShardedServer(Collective):
    """A parameter server of K shards, one with each worker: 2 hops, 2 (K - 1) / K of the message.

    M. Li et al., "Scaling distributed machine learning with the parameter server", OSDI 2014; Y.
    Jiang et al., "A unified architecture for accelerating distributed DNN training in
    heterogeneous GPU/CPU clusters", OSDI 2020.
    """

    name = "sharded_server"
    summary = "a parameter server in as many shards as there are workers, one with each of them"
    operations = (Operation.ALL_REDUCE, Operation.REDUCE_SCATTER, Operation.ALL_GATHER)

    def transfers(self, workers: Quantity) -> Quantity:
        return 2 * (workers - 1) / workers

    def phases(self, group: Group, operation: Operation = Operation.ALL_REDUCE) -> Phases:
        return (_to_all(group, 2 if operation is Operation.ALL_REDUCE else 1),)

    def rounds(self, workers: int) -> Iterator[Round]:
        """Yield the rounds, in which each sends to another one each time, for what is one hop.

        A worker sends each other the part that it sums up, and then all its own part's sum.
        """
        for carried in (Carried.SUM, Carried.RESULT):
            for distance in range(1, workers):
                yield _distant(workers, distance, carried)


class Pairwise(OfNccl):
    """All pairs of workers at once, each with a K-th of the message (all-to-all).

    R. Thakur, R. Rabenseifner, W. Gropp, IJHPCA 19, 2005, section 4.3, for long messages; libraries
    of GPUs have all messages on their way at once, so that only one latency counts.
    """

    name = "pairwise"
    summary = "every worker sends a part of the message of its own to every other"
    operations = (Operation.ALL_TO_ALL, Operation.POINT_TO_POINT)
    exact = False

    def transfers(self, workers: Quantity) -> Quantity:
        return (workers - 1) / workers

    def phases(self, group: Group, operation: Operation = Operation.ALL_TO_ALL) -> Phases:
        if operation is Operation.ALL_TO_ALL:
            return (_to_all(group, 1),)
        used = [(level, beyond_one(level.members)) for level in group.levels]
        return (Phase("one message", tuple(Move(level, step, step) for level, step in used)),)

    def rounds(self, workers: int) -> Iterator[Round]:
        """Yield the rounds of an all-to-all, in each of which all workers send at one distance."""
        for distance in range(1, workers):
            yield _distant(workers, distance, Carried.OWN)

    def rounds_on(
        self, group: Group, operation: Operation = Operation.ALL_TO_ALL
    ) -> Iterator[Round]:
        self.check_operation(operation)
        workers = int(group.workers)
        if operation is Operation.POINT_TO_POINT:
            pairs = ((0, workers - 1),) if workers > 1 else ()
            return iter((Round(pairs, Carried.RESULT),))
        return self.rounds(workers)


def _distant(workers: int, distance: int, carried: Carried) -> Round:
    """Return messages between all workers at a distance, each with one part of K."""
    moving = []
    for worker in range(workers):
        receiver = (worker + distance) % workers
        part = worker if carried is Carried.RESULT else receiver
        moving.append(((worker, receiver), range(part, part + 1)))
    return of_parts(moving, workers, carried)


COLLECTIVES.add(ShardedServer.name, ShardedServer())
COLLECTIVES.add(Pairwise.name, Pairwise())
