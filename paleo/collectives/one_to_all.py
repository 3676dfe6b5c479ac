"""A parameter server: one worker gathers from all others, then sends to all others."""

from __future__ import annotations

from paleo.collectives.base import COLLECTIVES, Collective
from paleo.quantity import Quantity

__all__ = ["OneToAll"]


class OneToAll(Collective):
    """2 (K - 1) transfers over the server's link (Qi et al. 2017; Iandola 2016, eq. 3.3)."""

    name = "OneToAll"
    summary = "a parameter server: gathers from every worker, then sends to every worker"

    def transfers(self, workers: Quantity) -> Quantity:
        return 2 * (workers - 1)


COLLECTIVES.add(OneToAll.name, OneToAll())
