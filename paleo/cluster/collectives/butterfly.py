"""Butterfly exchanges: pairs of workers swap, at doubling distances."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from paleo.cluster.collectives.base import COLLECTIVES, Carried, Collective, Operation, Round
from paleo.cluster.collectives.phases import Phase, Phases, across
from paleo.cluster.topology import Group
from paleo.core.quantity import Quantity, ceil_log2


class ButterflyAllReduce(Collective):
    """ceil(log2 K) exchanges, both ways at once (Qi et al. 2017)."""

    name = "ButterflyAllReduce"
    summary = "pairwise exchanges at doubling distances until all have the sum"
    is_of_2017 = True

    def transfers(self, workers: Quantity) -> Quantity:
        return ceil_log2(workers)

    def phases(self, group: Group, operation: Operation = Operation.ALL_REDUCE) -> Phases:
        """Return the exchanges at distances within each level: all devices swap at once."""
        phases = []
        for i, level in enumerate(group.levels):
            swaps = ceil_log2(level.members)
            phases.append(Phase(level.tier.name, across(group, i, swaps, swaps, by_all=True)))
        return tuple(phases)

    def rounds(self, workers: int) -> Iterator[Round]:
        return _exchanges(workers)


class ButterflyMixing(Collective):
    """One exchange a step: the sum spreads over log2 K steps (Zhao, Canny, SDM 2013)."""

    name = "ButterflyMixing"
    summary = "one of the butterfly's exchanges in each step: workers agree only over time"
    is_of_2017 = True
    exact = False

    def transfers(self, workers: Quantity) -> Quantity:
        return workers * 0 + 1

    def phases(self, group: Group, operation: Operation = Operation.ALL_REDUCE) -> Phases:
        """Return a swap with a neighbour, which one worker alone is charged, too."""
        return (Phase("swap", across(group, 0, 1, group.workers * 0 + 1)),)

    def rounds(self, workers: int) -> Iterator[Round]:
        """Yield the first exchange, to stand for any; for a worker alone, one without pairs."""
        return itertools.islice(_exchanges(workers), 1) if workers > 1 else iter((Round(()),))


def _exchanges(workers: int) -> Iterator[Round]:
    """Yield ceil(log2 K) rounds after which each of K workers has the sum of all.

    For a power of two, pairs at doubling distances swap. Else there are not enough partners, and
    each sends to one behind it and receives from one before it (J. Bruck, C.-T. Ho, "Efficient
    global combine operations in multi-port message-passing systems", Parallel Processing Letters 3,
    1993): whoever has the sum of w workers up to itself gets that of w more, or of w - 1 if the
    sender leaves out its own. So K is reached by doubling, each time one less where need be.
    """
    if workers & (workers - 1) == 0:
        distance = 1
        while distance < workers:
            yield Round(tuple((worker, worker ^ distance) for worker in range(workers)))
            distance *= 2
        return
    sums = [workers]  # of how many workers each has the sum, from the last round to the first
    while sums[-1] > 1:
        sums.append((sums[-1] + 1) // 2)
    for summed, after in itertools.pairwise(reversed(sums)):
        is_even = after == 2 * summed
        distance = summed if is_even else summed - 1
        pairs = tuple((worker, (worker + distance) % workers) for worker in range(workers))
        yield Round(pairs, Carried.SUM if is_even else Carried.OTHERS)


COLLECTIVES.add(ButterflyAllReduce.name, ButterflyAllReduce())
COLLECTIVES.add(ButterflyMixing.name, ButterflyMixing())
