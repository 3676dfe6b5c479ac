"""Rabenseifner's all-reduce: recursive halving, then recursive doubling."""

from __future__ import annotations

from collections.abc import Iterator

from paleo.cluster.collectives.base import COLLECTIVES, Carried, Collective, Operation, Round
from paleo.cluster.collectives.phases import Phase, Phases, across
from paleo.cluster.topology import Group
from paleo.core.quantity import ceil_log2, minimum


class HalvingDoubling(Collective):
    """2 log2 K exchanges of a half, a quarter, ... of the message and back.

    R. Rabenseifner, "Optimization of collective reduction operations", ICCS 2004; R. Thakur,
    R. Rabenseifner, W. Gropp, IJHPCA 19, 2005. Of K that is no power of two, the workers beyond the
    next lower one hand over all that they have first, and get the sum at the end. Neighbours swap
    the halves, so that what leaves a node is least.
    """

    name = "halving_doubling"
    summary = "swaps of a half, a quarter, ... of the message, and back"
    operations = (Operation.ALL_REDUCE, Operation.REDUCE_SCATTER, Operation.ALL_GATHER)

    def phases(self, group: Group, operation: Operation = Operation.ALL_REDUCE) -> Phases:
        times = 2 if operation is Operation.ALL_REDUCE else 1
        phases = []
        for i, level in enumerate(group.levels):
            bits = ceil_log2(level.members + 1) - 1  # the floor of the logarithm
            paired = 2**bits
            beyond = minimum(level.members - paired, 1)
            share = (paired - 1) / paired + beyond
            moves = across(group, i, times * (bits + beyond), times * share / level.inside, True)
            phases.append(Phase(level.tier.name, moves))
        return tuple(phases)

    def rounds(self, workers: int) -> Iterator[Round]:
        """Yield the swaps; what a worker hands on is a part of the sum that it has."""
        paired = 1 << (workers.bit_length() - 1)
        beyond = range(paired, workers)
        if beyond:
            yield Round(tuple((worker, worker - paired) for worker in beyond))
        distances = [1 << bit for bit in range(paired.bit_length() - 1)]
        swaps = [
            (tuple((worker, worker ^ distance) for worker in range(paired)), 1 / (2 * distance))
            for distance in distances
        ]
        for pairs, share in swaps:
            yield Round(pairs, Carried.SUM, share)
        for pairs, share in reversed(swaps):
            yield Round(pairs, Carried.RESULT, share)
        if beyond:
            yield Round(tuple((worker - paired, worker) for worker in beyond), Carried.RESULT)


COLLECTIVES.add(HalvingDoubling.name, HalvingDoubling())
