"""Switches that sum up what passes through them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from paleo.cluster.collectives.base import COLLECTIVES, Collective, Operation, Round
from paleo.cluster.collectives.phases import Phase, Phases, across
from paleo.cluster.topology import Group, Tier, beyond_one
from paleo.core.errors import SettingError
from paleo.core.quantity import some


class InNetwork(Collective):
    """Two hops at each tier whose switches sum: up with all parts, down with the sum.

    R. Graham et al., "Scalable Hierarchical Aggregation Protocol (SHArP)", COM-HPC 2016; B. Klenk
    et al., "An in-network architecture for accelerating shared-memory multiprocessor collectives",
    ISCA 2020 (NVLink SHARP). A device sends its message once and gets its share of the sum; in an
    all-gather it sends its share once, and the switch makes the copies. Tiers whose switches do
    not sum do as under the hierarchical scheme.
    """

    name = "in_network"
    summary = "switches that sum up what passes through them (NVLink SHARP, InfiniBand SHARP)"
    operations = (Operation.ALL_REDUCE, Operation.REDUCE_SCATTER, Operation.ALL_GATHER)

    def check(self, tiers: Sequence[Tier]) -> None:
        super().check(tiers)
        _check(tiers)

    def phases(self, group: Group, operation: Operation = Operation.ALL_REDUCE) -> Phases:
        """Return the phases; raises SettingError where no switch of the group sums."""
        _check([level.tier for level in group.levels if some(level.members > 1)])
        is_whole = operation is Operation.ALL_REDUCE
        out: list[Phase] = []
        back: list[Phase] = []
        for i, level in enumerate(group.levels):
            used = beyond_one(level.members)
            if level.tier.sums:
                # While the sum comes down, what goes up of the next piece is all but a share.
                hops, summed, copied = used, used, used / level.members if is_whole else used
            else:
                hops = level.members - 1
                summed = copied = hops / level.members
            for phases, name, sent in (
                (out, "reduce-scatter", summed),
                (back, "all-gather", copied),
            ):
                moves = across(group, i, hops, sent / level.inside, by_all=True)
                phases.append(Phase(f"{name}, {level.tier.name}", moves))
        if operation is Operation.REDUCE_SCATTER:
            return tuple(out)
        if operation is Operation.ALL_GATHER:
            return tuple(reversed(back))
        return (*out, *reversed(back))

    def rounds(self, workers: int) -> Iterator[Round]:
        """Yield nothing: workers send to switches, not to each other."""
        yield from ()


def _check(tiers: Sequence[Tier]) -> None:
    if tiers and not any(tier.sums for tier in tiers):
        names = ", ".join(tier.name for tier in tiers)
        raise SettingError(f"scheme: in_network needs switches that sum: of {names} none does")


COLLECTIVES.add(InNetwork.name, InNetwork())
