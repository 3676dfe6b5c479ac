"""Reduction inside each node, exchange between nodes, and gathering inside again."""

from __future__ import annotations

from collections.abc import Iterator

from paleo.cluster.collectives.base import COLLECTIVES, Carried, Collective, Operation, Round
from paleo.cluster.collectives.phases import Phase, Phases, across
from paleo.cluster.topology import Group
from paleo.core.quantity import Quantity


class Hierarchical(Collective):
    """A reduce-scatter at each tier on the way out, an all-gather at each on the way in.

    X. Jia et al., "Highly scalable deep learning training system with mixed-precision: training
    ImageNet in four minutes", 2018; M. Cho et al., "BlueConnect", MLSys 2019. Each device goes on
    with the share that it has summed, so that all cards of a node are busy, and between nodes
    messages are as many times smaller as a node has devices. At each tier rings do the work.
    """

    name = "hierarchical"
    summary = "reduce-scatter inside, all-reduce across, all-gather inside, tier by tier"
    operations = (Operation.ALL_REDUCE, Operation.REDUCE_SCATTER, Operation.ALL_GATHER)

    def transfers(self, workers: Quantity) -> Quantity:
        return 2 * (workers - 1) / workers

    def phases(self, group: Group, operation: Operation = Operation.ALL_REDUCE) -> Phases:
        out, back = [], []
        for i, level in enumerate(group.levels):
            others = level.members - 1
            moves = across(group, i, others, others / level.members / level.inside, by_all=True)
            out.append(Phase(f"reduce-scatter, {level.tier.name}", moves))
            back.append(Phase(f"all-gather, {level.tier.name}", moves))
        if operation is Operation.REDUCE_SCATTER:
            return tuple(out)
        if operation is Operation.ALL_GATHER:
            return tuple(reversed(back))
        return (*out, *reversed(back))

    def rounds(self, workers: int) -> Iterator[Round]:
        """Yield the rounds of one tier, where it is a ring."""
        pairs = tuple((worker, (worker + 1) % workers) for worker in range(workers))
        for step in range(2 * (workers - 1)):
            yield Round(pairs, Carried.SUM if step < workers - 1 else Carried.RESULT, 1 / workers)


COLLECTIVES.add(Hierarchical.name, Hierarchical())
