"""The part of a plan that is of exchanges: between whom, of what, by which scheme."""

from __future__ import annotations

import functools
import operator
from dataclasses import replace

from paleo.cluster import Cluster, Device, Network, group_of
from paleo.cluster.collectives import AUTO, COLLECTIVES, OF_2017, SERVERS, Choice, Collective
from paleo.cluster.collectives import Operation as Collecting
from paleo.cluster.frameworks import Framework, running
from paleo.cluster.gradient_exchange import Exchange
from paleo.cluster.topology import Group
from paleo.core.errors import SettingError
from paleo.core.quantity import Quantity, is_array, largest, some, where_positive
from paleo.core.tensor import find_precision
from paleo.costs import CostModel
from paleo.step.distributed_settings import ALL_SCHEMES
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
    framework: Framework | None
    compile: bool
    overlap: bool | None
    bucket: int | None
    gradient_dtype: str | None
    compress: Compression | None
    num_servers: int | None
    jitter: Quantity | None
    nccl: str | None

    @property
    def software(self) -> Framework:
        """What runs the net: of no framework's habits if none was named."""
        return running(self.framework, self.compile)

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
            known = OF_2017 if is_of_2017 else COLLECTIVES.built_in
            needed = set(self.encoding.operations)
            return tuple(
                scheme.name
                for scheme in map(COLLECTIVES.__getitem__, known)
                if (is_of_2017 or scheme.can_exchange(self.topology.tiers))
                and needed.issubset(scheme.operations)
            )
        return self.schemes

    @property
    def overlaps(self) -> bool:
        """Whether gradients are exchanged while the backward pass goes on."""
        if self.overlap is None:
            of_2017 = self.cost_model.conventions.exchanges_after_all
            return not of_2017 and self.software.exchange.overlaps
        return self.overlap

    @property
    def exchange(self) -> Exchange:
        """How what runs the net exchanges gradients, with buckets as they are asked for."""
        by = self.software.exchange
        if not self.overlaps:
            return replace(by, bucket=None)
        if self.bucket is None:
            return by
        return replace(by, bucket=self.bucket, first=min(by.first, self.bucket))

    @property
    def deviation(self) -> Quantity:
        """The standard deviation of a worker's computation over its mean."""
        if self.jitter is not None:
            return self.jitter
        return 0.0 if self.cost_model.conventions.exchanges_after_all else self.software.jitter

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
    def reached(self) -> Cluster:
        """The same with as much of the links as `ppp_comm` says is reached."""
        if not is_array(self.ppp_comm) and self.ppp_comm == 1:
            return self._known
        return self._known.with_networks(operator.methodcaller("reaching", self.ppp_comm))

    def link_bandwidth(self, workers: Quantity) -> Quantity:
        """Return the bytes/s by which one of so many workers reaches any other, at its peak."""
        return group_of(self._known, workers).link_bandwidth

    def group(self, workers: Quantity) -> Group:
        """Return so many workers and the links between them, as far as they are reached.

        Raises SettingError if the cluster has not so many devices.
        """
        return group_of(self.reached, workers)

    def copying_time(self, num_bytes: Quantity, workers: Quantity) -> Quantity:
        """Return the seconds in which gradients are copied into buckets and out of them.

        A worker alone has none, and the model of 2017 knows no software.
        """
        if self.cost_model.conventions.exchanges_after_all:
            return 0.0
        return where_positive(workers - 1, self.exchange.copying(num_bytes, self.device))

    def collective(self, scheme: str) -> Collective:
        """Return the scheme of this name, with as many servers and the NCCL that there are."""
        found = COLLECTIVES[scheme].with_servers(self.num_servers or 1)
        return found.with_nccl(self.nccl) if self.nccl else found

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

    def choice(
        self,
        num_bytes: Quantity,
        workers: Quantity,
        scheme: str,
        operation: Collecting = Collecting.ALL_REDUCE,
    ) -> Choice:
        """Return by which algorithm a scheme exchanges so many bytes, and what bounds that.

        Where the cost model knows one link alone, it is the slowest that is used.
        """
        group = self.group(workers)
        if not self.cost_model.conventions.exchanges_after_all:
            return self.collective(scheme).choice(group, num_bytes, operation)
        used = [level for level in group.levels if some(level.members > 1)] or group.levels[:1]
        slowest = min(used, key=lambda level: largest(level.link_bandwidth))
        seconds = self.communication(num_bytes, workers, scheme)
        return Choice(scheme, "", slowest.tier.name, seconds, scheme)

    @functools.cached_property
    def encoding(self) -> Encoding:
        """How workers send their gradients."""
        precision = find_precision(self.dtype)
        made = precision.computing if self.software.exchange.in_halves else precision.learning
        sent = self.gradient_dtype or made
        return self.compress.encoding(made, sent) if self.compress else Cast(made, sent)
