"""A parameter server: one worker gathers from all others, then sends to all others."""

from __future__ import annotations

from collections.abc import Iterator

from paleo.cluster.collectives.base import COLLECTIVES, Carried, Collective, Round
from paleo.core.quantity import Quantity


class OneToAll(Collective):
    """2 (K - 1) transfers over the server's link (Qi et al. 2017; Iandola 2016, eq. 3.3)."""

    name = "OneToAll"
    summary = "a parameter server: gathers from every worker, then sends to every worker"

    def transfers(self, workers: Quantity) -> Quantity:
        return 2 * (workers - 1)

    def rounds(self, workers: int) -> Iterator[Round]:
        """Yield the rounds: worker 0 is the server."""
        for worker in range(1, workers):
            yield Round(((worker, 0),))
        for worker in range(1, workers):
            yield Round(((0, worker),), Carried.RESULT)


COLLECTIVES.add(OneToAll.name, OneToAll())
