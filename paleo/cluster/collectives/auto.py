"""The scheme that a library chooses by itself."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from paleo.cluster.collectives.base import COLLECTIVES, Operation, Round
from paleo.cluster.collectives.nccl import OfNccl
from paleo.cluster.collectives.phases import Phases
from paleo.cluster.topology import Group
from paleo.core.errors import SettingError
from paleo.core.quantity import Quantity, minimum

#: What it chooses among where NCCL's constants are not known of the links.
_CHOICES = ("ring", "tree", "in_network", "pairwise")


class Auto(OfNccl):
    """What NCCL takes: a ring, two trees, or switches that sum, in one of three protocols.

    Where its constants are not known of the links it is the quickest of these in the textbook.
    """

    name = "auto"
    chooses = True
    summary = "what NCCL chooses of a ring, two trees and switches that sum"
    operations = tuple(Operation)

    def seconds_on(
        self, group: Group, num_bytes: Quantity, operation: Operation = Operation.ALL_REDUCE
    ) -> Quantity:
        if self.of_nccl(group, operation):
            return super().seconds_on(group, num_bytes, operation)
        times = []
        for name in _CHOICES:
            if operation in COLLECTIVES[name].operations:
                try:
                    times.append(COLLECTIVES[name].seconds_on(group, num_bytes, operation))
                except SettingError:  # the cluster has no switches that sum
                    continue
        return functools.reduce(minimum, times)

    def phases(self, group: Group, operation: Operation = Operation.ALL_REDUCE) -> Phases:
        return COLLECTIVES["ring"].phases(group, operation)

    def transfers(self, workers: Quantity) -> Quantity:
        return COLLECTIVES["ring"].transfers(workers)

    def rounds(self, workers: int) -> Iterator[Round]:
        """Yield the rounds of the ring, which long messages take."""
        return COLLECTIVES["ring"].rounds(workers)


COLLECTIVES.add(Auto.name, Auto())
