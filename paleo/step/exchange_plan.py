"""The part of a plan that is of exchanges: between whom, of what, by which scheme."""

from __future__ import annotations

import functools
import operator

from paleo.cluster import Cluster, Device, Network
from paleo.cluster.collectives import AUTO, COLLECTIVES, SERVERS, Collective
from paleo.cluster.collectives import Operation as Collecting
from paleo.cluster.topology import Group
from paleo.core.errors import SettingError
from paleo.core.quantity import Quantity
from paleo.core.tensor import find_precision
from paleo.costs import CostModel
from paleo.step.exchange_settings import ALL_SCHEMES
from paleo.step.gradients import Cast, Compression, Encoding
from paleo.step.passes import exchange_time


class ExchangePlan:
    """What of a `Plan` connects workers, and decides how they sum up their gradients."""

    device: Device
    network: Network
    cluster: Cluster | None
    cost_model: CostModel
    dtype: str
    ppp_comm: Quantity
    schemes: tuple[str, ...] | None
    overlap: bool | None
    gradient_dtype: str | None
    compress: Compression | None
    num_servers: int | None

    def check_sent(self) -> None:
        """Raise SettingError for what of gradients cannot be sent so."""
        if self.num_servers and SERVERS not in (self.schemes or self.exchange_schemes):
            raise SettingError(f"num_servers: is for the scheme {SERVERS} alone")
        if self.compress is None:
            return
        if self.cost_model.conventions.exchanges_after_all:
            raise SettingError(
                f"compress: {self.cost_model.name} knows no gathering of what is compressed; "
                "use another cost model"
            )
        if self.gradient_dtype and self.compress.share is None:
            raise SettingError("gradient_dtype: onebit sends one bit of each; leave out one")
        for name in self.exchange_schemes:
            for operation in self.encoding.operations:
                if operation not in COLLECTIVES[name].operations:
                    raise SettingError(
                        f"compress: {self.compress.name} takes an {operation.value}, which the "
                        f"scheme {name} does not do"
                    )

    @property
    def exchange_schemes(self) -> tuple[str, ...]:
        """The schemes that are asked for, or what this cost model takes by itself."""
        is_of_2017 = self.cost_model.conventions.exchanges_after_all
        if self.schemes is None and self.num_servers:
            return (SERVERS,)
        if self.schemes is None and not is_of_2017:
            return (AUTO,)
        if self.schemes is None or self.schemes == ALL_SCHEMES:
            every = map(COLLECTIVES.__getitem__, COLLECTIVES.built_in)
            needed = set(self.encoding.operations)
            return tuple(
                scheme.name
                for scheme in every
                if (scheme.is_of_2017 if is_of_2017 else scheme.can_exchange(self.topology.tiers))
                and needed.issubset(scheme.operations)
            )
        return self.schemes

    @property
    def overlaps(self) -> bool:
        """Whether gradients are exchanged while the backward pass goes on."""
        if self.overlap is None:
            return not self.cost_model.conventions.exchanges_after_all
        return self.overlap

    @functools.cached_property
    def topology(self) -> Cluster:
        """The devices and the tiers between them."""
        return self.cluster or Cluster.flat(self.device, self.network)

    @functools.cached_property
    def _known(self) -> Cluster:
        """The cluster with the figures that the cost model reckons with."""
        if self.cost_model.uses_2017_figures:
            return self.topology.with_networks(operator.attrgetter("of_2017"))
        return self.topology

    @functools.cached_property
    def _reached(self) -> Cluster:
        """The same with as much of the links as `ppp_comm` says is reached."""
        return self._known.with_networks(operator.methodcaller("reaching", self.ppp_comm))

    def link_bandwidth(self, workers: Quantity) -> Quantity:
        """Return the bytes/s by which one of so many workers reaches any other, at its peak."""
        return self._known.group(workers).link_bandwidth

    def group(self, workers: Quantity) -> Group:
        """Return so many workers and the links between them, as far as they are reached.

        Raises SettingError if the cluster has not so many devices.
        """
        return self._reached.group(workers)

    def collective(self, scheme: str) -> Collective:
        """Return the scheme of this name, with as many servers as there are."""
        return COLLECTIVES[scheme].with_servers(self.num_servers or 1)

    def communication(
        self,
        num_bytes: Quantity,
        workers: Quantity,
        scheme: str,
        operation: Collecting = Collecting.ALL_REDUCE,
    ) -> Quantity:
        """Return the seconds in which workers sum up gradients of so many bytes, or move them."""
        # Without the checks of estimate_communication: a curve asks hundreds of times.
        group, collective = self.group(workers), self.collective(scheme)
        return exchange_time(num_bytes, group, collective, self.cost_model, operation)

    @functools.cached_property
    def encoding(self) -> Encoding:
        """How workers send their gradients."""
        made = find_precision(self.dtype).learning
        sent = self.gradient_dtype or made
        return self.compress.encoding(made, sent) if self.compress else Cast(made, sent)
