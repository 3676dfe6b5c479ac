"""Reduction inside each node, exchange between nodes, and gathering inside again."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterator

from paleo.cluster.collectives.base import COLLECTIVES, Carried, Collective, Operation, Round
from paleo.cluster.collectives.phases import Phase, Phases, across
from paleo.cluster.collectives.rounds import of_parts, ring_rounds
from paleo.cluster.topology import Group
from paleo.core.errors import SettingError
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
        return ring_rounds([range(workers)])

    def rounds_on(
        self, group: Group, operation: Operation = Operation.ALL_REDUCE
    ) -> Iterator[Round]:
        """Yield the rounds on the tiers of a group; SettingError if a member has fewer workers."""
        self.check_operation(operation)
        sizes = [int(level.members) for level in group.levels]
        if math.prod(sizes) != group.workers:
            raise SettingError("scheme: hierarchical has rounds for members of one size alone")
        wanted = {Operation.REDUCE_SCATTER: Carried.SUM, Operation.ALL_GATHER: Carried.RESULT}
        carried = wanted.get(operation)
        return (one for one in _rounds(sizes) if carried in (None, one.carried))


def _rounds(sizes: list[int]) -> Iterator[Round]:
    """Yield the rounds of rings at each tier of so many members, from the inside out and back."""
    tiers = list(itertools.accumulate(sizes, operator.mul, initial=1))
    for i, size in enumerate(sizes):
        for step in range(size - 1):
            yield _round(sizes, tiers, i, step + 1, Carried.SUM)
    for i, size in reversed(list(enumerate(sizes))):
        for step in range(size - 1):
            yield _round(sizes, tiers, i, step, Carried.RESULT)


def _round(sizes: list[int], inside: list[int], tier: int, behind: int, carried: Carried) -> Round:
    """Return a step of the rings of a tier, in which each sends what is of one so far `behind`.

    A part of the message has a digit for each tier, the inmost first: who is to sum it up there.
    """
    workers = inside[-1]
    length = workers // inside[tier + 1]  # parts that differ at the tiers outside alone
    moving = []
    for worker in range(workers):
        digits = [worker // inside[i] % size for i, size in enumerate(sizes[: tier + 1])]
        others = worker - digits[tier] * inside[tier]
        receiver = others + (digits[tier] + 1) % sizes[tier] * inside[tier]
        digits[tier] = (digits[tier] - behind) % sizes[tier]
        start = sum(digit * (workers // inside[i + 1]) for i, digit in enumerate(digits))
        moving.append(((worker, receiver), range(start, start + length)))
    return of_parts(moving, workers, carried)


COLLECTIVES.add(Hierarchical.name, Hierarchical())
