"""Rabenseifner's all-reduce, recursive halving and then doubling; and recursive doubling alone."""

from __future__ import annotations

from collections.abc import Iterator

from paleo.cluster.collectives.base import COLLECTIVES, Carried, Collective, Operation, Round
from paleo.cluster.collectives.phases import Phase, Phases, across
from paleo.cluster.collectives.rounds import of_parts
from paleo.cluster.topology import Group
from paleo.core.quantity import Quantity, ceil_log2, minimum


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

    def transfers(self, workers: Quantity) -> Quantity:
        bits, beyond = _bits(workers)
        return 2 * (1 - 0.5**bits + beyond)

    def phases(self, group: Group, operation: Operation = Operation.ALL_REDUCE) -> Phases:
        times = 2 if operation is Operation.ALL_REDUCE else 1
        phases = []
        for i, level in enumerate(group.levels):
            bits, beyond = _bits(level.members)
            share = 1 - 0.5**bits + beyond
            moves = across(group, i, times * (bits + beyond), times * share / level.inside, True)
            phases.append(Phase(level.tier.name, moves))
        return tuple(phases)

    def rounds(self, workers: int) -> Iterator[Round]:
        """Yield the swaps: a worker sends the half that its partner goes on with, and back."""
        paired, fold, unfold = _fold(workers)
        yield from fold
        bits = range(paired.bit_length() - 1)
        for bit in bits:
            yield _swap(paired, bit, Carried.SUM)
        for bit in reversed(bits):
            yield _swap(paired, bit, Carried.RESULT)
        yield from unfold


class RecursiveDoubling(Collective):
    """log2 K exchanges of the whole message, at doubling distances.

    R. Thakur, R. Rabenseifner, W. Gropp, IJHPCA 19, 2005, section 4.5, for short messages: no
    scheme among workers has fewer steps. Of K that is no power of two, those beyond it do as under
    `halving_doubling`.
    """

    name = "recursive_doubling"
    summary = "swaps of the whole message at doubling distances"

    def transfers(self, workers: Quantity) -> Quantity:
        bits, beyond = _bits(workers)
        return bits + 2 * beyond

    def phases(self, group: Group, operation: Operation = Operation.ALL_REDUCE) -> Phases:
        phases = []
        for i, level in enumerate(group.levels):
            swaps = self.transfers(level.members)
            phases.append(Phase(level.tier.name, across(group, i, swaps, swaps, by_all=True)))
        return tuple(phases)

    def rounds(self, workers: int) -> Iterator[Round]:
        paired, fold, unfold = _fold(workers)
        yield from fold
        for bit in range(paired.bit_length() - 1):
            yield Round(tuple((worker, worker ^ 1 << bit) for worker in range(paired)))
        yield from unfold


def _bits(members: Quantity) -> tuple[Quantity, Quantity]:
    """Return the floor of the logarithm, and 1 if there are members beyond that power of two."""
    bits = ceil_log2(members + 1) - 1
    return bits, minimum(members - 2**bits, 1)


def _fold(workers: int) -> tuple[int, list[Round], list[Round]]:
    """Return the next lower power of two, and the rounds of workers beyond: to others, and back."""
    paired = 1 << (workers.bit_length() - 1)
    beyond = tuple((worker, worker - paired) for worker in range(paired, workers))
    if not beyond:
        return paired, [], []
    back = tuple((sender, receiver) for receiver, sender in beyond)
    return paired, [Round(beyond)], [Round(back, Carried.RESULT)]


def _swap(paired: int, bit: int, carried: Carried) -> Round:
    """Return the swap at a distance of 2^bit, in which the half that a worker holds is halved."""
    size = paired >> (bit + 1)
    moving = []
    for worker in range(paired):
        partner = worker ^ 1 << bit
        # On the way out what the partner keeps, on the way back what the worker has kept.
        keeper = partner if carried is Carried.SUM else worker
        start = sum((keeper >> i & 1) * (paired >> (i + 1)) for i in range(bit + 1))
        moving.append(((worker, partner), range(start, start + size)))
    return of_parts(moving, paired, carried)


COLLECTIVES.add(HalvingDoubling.name, HalvingDoubling())
COLLECTIVES.add(RecursiveDoubling.name, RecursiveDoubling())
