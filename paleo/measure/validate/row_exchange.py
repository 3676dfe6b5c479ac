"""What exchanges add to a measured step of several devices, by the software that ran it."""

from __future__ import annotations

import functools

from paleo.cluster import Device, find_network
from paleo.cluster.collectives import COLLECTIVES
from paleo.cluster.gradient_exchange import Exchange
from paleo.core.frozen import dataclass
from paleo.core.quantity import Quantity, maximum, minimum
from paleo.costs import CostModel
from paleo.measure.validate.wiring import Wiring
from paleo.step.parallelism.computations import made_by
from paleo.step.parallelism.overlap import exchanged
from paleo.step.passes import PassTime
from paleo.step.plan import Plan

#: How gradients come to the host, and how many devices share that way (DGX-1: two behind a switch;
#: K80: two dies behind one slot).
_TO_HOST, _SHARING = "pcie3", 2


@dataclass(frozen=True)
class RowExchange:
    """So many devices of a kind that exchange gradients over some wiring, as software does it."""

    device: Device
    workers: int
    wiring: Wiring
    exchange: Exchange
    model: CostModel

    @functools.cached_property
    def plan(self) -> Plan:
        """The cluster that the wiring makes of them, as the cost model knows it."""
        cluster = self.wiring.cluster(self.device)
        return Plan(self.device, cluster.tiers[-1].network, self.model, cluster=cluster)

    def seconds(self, num_bytes: Quantity) -> Quantity:
        """Return the seconds of gradients of so many bytes by themselves, by the best scheme."""
        if self.exchange.on_host and not self.model.conventions.exchanges_after_all:
            return self._to_hosts(num_bytes)
        found = (
            self.plan.communication(num_bytes, self.workers, name)
            for name in self.plan.exchange_schemes
            if COLLECTIVES[name].exact
        )
        return functools.reduce(minimum, found)

    def _to_hosts(self, num_bytes: Quantity) -> Quantity:
        """Return the seconds in which each device sends gradients to hosts, which share them out.

        Of several hosts each has a part of the variables. Ways to hosts and ways back are used at
        the same time, by gradients of one layer and parameters of another.
        """
        inside, outer = self.wiring.inside, self.wiring.outer
        sharing = min(inside, _SHARING)
        seconds = sharing * num_bytes / find_network(_TO_HOST).bandwidth
        if not outer:
            return seconds
        away = 1 - inside / self.workers
        bandwidth = self.wiring.cards * find_network(outer).bandwidth
        return maximum(seconds, away * inside * num_bytes / bandwidth)

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
        return self.exchange.copying(num_bytes, self.device) + found.exposed
