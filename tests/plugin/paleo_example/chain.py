"""A chain: gradients are summed from one worker to the next, and the sum goes back."""

from __future__ import annotations

from collections.abc import Iterator

from paleo.cluster.collectives import COLLECTIVES, Carried, Collective, Round
from paleo.core.quantity import Quantity


class Chain(Collective):
    """2 (K - 1) transfers, each over a link of its own."""

    name = "Chain"
    summary = "sums from each worker to the one before, then sends the sum back"

    def transfers(self, workers: Quantity) -> Quantity:
        return 2 * (workers - 1)

    def rounds(self, workers: int) -> Iterator[Round]:
        """Yield the rounds: worker 0 is the end of the chain."""
        for worker in range(workers - 1, 0, -1):
            yield Round(((worker, worker - 1),))
        for worker in range(1, workers):
            yield Round(((worker - 1, worker),), Carried.RESULT)


COLLECTIVES.add(Chain.name, Chain())
