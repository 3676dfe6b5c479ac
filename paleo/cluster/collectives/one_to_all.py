"""A parameter server: one worker gathers from all others, then sends to all others."""

from __future__ import annotations

from collections.abc import Iterator

from paleo.cluster.collectives.base import COLLECTIVES, Carried, Collective, Operation, Round
from paleo.cluster.collectives.phases import Phase, Phases, across
from paleo.cluster.topology import Group
from paleo.core.quantity import Quantity


class OneToAll(Collective):
    """2 (K - 1) transfers over the server's link (Qi et al. 2017; Iandola 2016, eq. 3.3)."""

    name = "OneToAll"
    summary = "a parameter server: gathers from every worker, then sends to every worker"
    is_of_2017 = True

    def transfers(self, workers: Quantity) -> Quantity:
        return 2 * (workers - 1)

    def phases(self, group: Group, operation: Operation = Operation.ALL_REDUCE) -> Phases:
        """Return the transfers between the server and the workers of each level, in turn."""
        inside = [*(level.inside for level in group.levels[1:]), group.workers]
        phases = []
        for i, (level, devices) in enumerate(zip(group.levels, inside, strict=True)):
            transfers = 2 * (devices - level.inside)
            phases.append(Phase(level.tier.name, across(group, i, transfers, transfers)))
        return tuple(phases)

    def rounds(self, workers: int) -> Iterator[Round]:
        """Yield the rounds: worker 0 is the server."""
        for worker in range(1, workers):
            yield Round(((worker, 0),))
        for worker in range(1, workers):
            yield Round(((0, worker),), Carried.RESULT)


COLLECTIVES.add(OneToAll.name, OneToAll())
