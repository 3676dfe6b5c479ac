"""What exchanges add to a measured step of several devices, by the software that ran it."""

from __future__ import annotations

import functools

from paleo.cluster import Device, find_network
from paleo.cluster.collectives import AUTO, COLLECTIVES
from paleo.cluster.exchange import Exchange
from paleo.cluster.topology import Group
from paleo.core.frozen import dataclass
from paleo.core.quantity import Quantity
from paleo.costs import CostModel
from paleo.measure.validate.wiring import Wiring
from paleo.step.parallelism.computations import made_by
from paleo.step.parallelism.exchanges import copying, exchanged
from paleo.step.passes import PassTime, exchange_time

#: How gradients come to the host, and how many devices share that way (DGX-1: two behind a switch;
#: K80: two dies behind one slot).
_TO_HOST, _SHARING = "pcie3", 2


@dataclass(frozen=True)
class Exchanging:
    """So many devices of a kind that exchange gradients over some wiring, as software does it."""

    device: Device
    workers: int
    wiring: Wiring
    exchange: Exchange
    model: CostModel

    @functools.cached_property
    def group(self) -> Group:
        """The workers, and the links between them."""
        return self.wiring.cluster(self.device).group(self.workers)

    def seconds(self, num_bytes: Quantity) -> Quantity:
        """Return the seconds of gradients of so many bytes by themselves."""
        if self.exchange.on_host:
            sharing = min(self.workers, _SHARING)
            return sharing * num_bytes / find_network(_TO_HOST).bandwidth
        return exchange_time(num_bytes, self.group, COLLECTIVES[AUTO], self.model)

    def added(self, backward: PassTime, factor: float = 1.0) -> Quantity:
        """Return the seconds by which exchanges make a step longer.

        Its backward pass takes `factor` times as long as said.
        """
        precision = backward.graph.precision
        in_halves = self.exchange.in_halves and precision.is_mixed
        size = precision.element_size if in_halves else precision.parameter_size
        made = made_by(backward, size)
        num_bytes = sum(one.num_bytes for one in made)
        if self.model.conventions.exchanges_after_all:
            return self.seconds(num_bytes)
        found = exchanged(self.exchange, made, self.seconds, self.device, self.workers, factor)
        return copying(self.exchange, num_bytes, self.device) + found.exposed
