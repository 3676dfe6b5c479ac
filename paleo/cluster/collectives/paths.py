"""What the messages of a group pass, as NCCL sees it: links inside of nodes, and between nodes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from paleo.cluster.network import NcclLink
from paleo.cluster.topology import Group, Level
from paleo.core.errors import SettingError
from paleo.core.quantity import Quantity, all_of, maximum, minimum, product, where

Protocols = tuple[Quantity, Quantity, Quantity]

PROTOCOLS = ("LL", "LL128", "Simple")
#: Seconds of a hop by kind of link, algorithm and protocol, as NCCL's tuner counts them
#: (src/graph/tuning.cc, hwLatencies).
HOPS: Mapping[str, Mapping[str, tuple[float, float, float]]] = {
    "nvlink": {"ring": (0.6e-6, 1.9e-6, 3.4e-6), "tree": (0.6e-6, 1.25e-6, 4e-6)},
    "pci": {"ring": (1e-6, 2.5e-6, 5.7e-6), "tree": (1e-6, 1.9e-6, 4e-6)},
    "network": {"ring": (2.7e-6, 4e-6, 14e-6), "tree": (5e-6, 8.5e-6, 14e-6)},
}
_NEVER = float("inf")


class Path:
    """The links of a group that NCCL uses: `inside` and `between` are bytes/s of the slowest.

    `nodes` is how many nodes the group is on, `on_node` how many of its workers each has. Raises
    SettingError where no constants are known of the links inside of a node.
    """

    def __init__(self, group: Group) -> None:
        if not is_modelled(group):
            tiers = ", ".join(level.tier.name for level in group.levels)
            raise SettingError(f"nccl: no constants are known of the links of {tiers}")
        between = [level for level in group.levels if _is_network(level)]
        count = group.levels.index(between[0]) if between else len(group.levels)
        self.inner, self.outer = group.levels[:count], group.levels[count:]
        nccl = group.levels[0].tier.network.nccl
        assert nccl
        self.links: NcclLink = nccl
        self.levels = group.levels
        self.workers = group.workers
        self.nodes: Quantity = product(level.members for level in self.outer)
        self.on_node: Quantity = self.outer[0].inside if self.outer else group.workers
        self.inside = slowest(self.inner)
        self.between = slowest(self.outer)
        self.bandwidth = minimum(self.inside, self.between)
        self.sums = any(level.tier.sums for level in self.inner)
        self.net_latency = self.outer[0].latency if self.outer else 0.0

    @functools.cached_property
    def ring_hops(self) -> Protocols:
        """The seconds of a ring's hop inside of a node, by protocol.

        Measured is that of LL in a ring; the others are as many times longer as NCCL counts them.
        All workers of a ring hop at once, so that the slowest tier that is used counts.
        """
        return self._slowest_hop("ring", lambda level, count: self._hop(level) / count)

    @functools.cached_property
    def tree_hops(self) -> Protocols:
        """The same of a tree, which is a chain inside of a node."""
        return self._slowest_hop("tree", lambda level, count: self._hop(level) / count)

    def counted_hops(self, algorithm: str) -> Protocols:
        """Return the seconds of a hop inside of a node as NCCL's tuner counts them."""
        return self._counted_ring if algorithm == "ring" else self._counted_tree

    @functools.cached_property
    def _counted_ring(self) -> Protocols:
        return self._slowest_hop("ring", lambda level, count: 1.0)

    @functools.cached_property
    def _counted_tree(self) -> Protocols:
        return self._slowest_hop("tree", lambda level, count: 1.0)

    def _hop(self, level: Level) -> Quantity:
        """Return the seconds of a hop in LL that were measured, or that NCCL counts.

        It is devices that write and poll flags, over their own links: what is measured of these
        holds in tiers of the same kind, too.
        """
        kind = _kind(level)
        nccl = self.links if kind == self.links.kind else level.tier.network.nccl
        counted = HOPS[kind]["ring"][0]
        return nccl.value("hop", counted) if nccl else counted

    def _slowest_hop(self, algorithm: str, scale: Callable[[Level, float], Quantity]) -> Protocols:
        hops: list[Quantity] = [0.0, 0.0, 0.0]
        for level in self.inner:
            counted = HOPS[_kind(level)]
            factor = scale(level, counted["ring"][0])
            for number, seconds in enumerate(counted[algorithm]):
                hops[number] = maximum(hops[number], where(level.members > 1, seconds * factor, 0))
        return hops[0], hops[1], hops[2]

    @functools.cached_property
    def counted(self) -> Quantity:
        """Bytes/s of the slowest links inside of a node, whatever NCCL's rings reach of them."""
        return _least(self.inner, lambda level: level.links * _counted(level))

    @functools.cached_property
    def has_ll128(self) -> Any:
        """Whether all tiers inside of nodes that are used have LL128."""
        return all_of(
            (level.members == 1) | bool(level.tier.network.nccl and level.tier.network.nccl.ll128)
            for level in self.inner
        )

    @functools.cached_property
    def net_ring_hops(self) -> Protocols:
        """The seconds of a ring's hop between nodes, by protocol: `net_tree_hops` as NCCL counts.

        With one worker a node they are as long as a tree's: there are none inside beside them.
        """
        tree, counted = self.net_tree_hops, HOPS["network"]
        shares = [ring / of_tree for ring, of_tree in zip(*counted.values(), strict=True)]
        ring = [hop * share for hop, share in zip(tree, shares, strict=True)]
        first, second, third = map(functools.partial(where, self.on_node == 1), tree, ring)
        return first, second, third

    @functools.cached_property
    def net_tree_hops(self) -> Protocols:
        """The seconds of a tree's hop between nodes, by protocol.

        That of LL was measured; else it is what NCCL counts and the network's own latency.
        """
        first, second, third = HOPS["network"]["tree"]
        nccl = self.outer[0].tier.network.nccl if self.outer else None
        hop = first + self.net_latency
        scale = (nccl.value("hop", hop) if nccl else hop) / first
        return first * scale, second * scale, third * scale

    def bottleneck(self) -> Quantity | str:
        """Return the name of the slowest tier that is used; for arrays an array of names."""
        name: Quantity | str = self.levels[0].tier.name
        bandwidth: Quantity = _NEVER
        for level in self.levels:
            used = _used(level, level.nccl_bandwidth)
            name = where(used < bandwidth, level.tier.name, name)
            bandwidth = minimum(bandwidth, used)
        return name


def is_modelled(group: Group) -> bool:
    """Tell whether NCCL's constants are known of the links inside of a group's nodes."""
    nccl = group.levels[0].tier.network.nccl
    return nccl is not None and nccl.is_measured


def slowest(levels: Iterable[Level]) -> Quantity:
    """Return the bytes/s of the slowest of the levels that are used, infinite if none is."""
    return _least(levels, lambda level: level.nccl_bandwidth)


def _least(levels: Iterable[Level], bytes_a_second: Callable[[Level], Quantity]) -> Quantity:
    bandwidth: Quantity = _NEVER
    for level in levels:
        bandwidth = minimum(bandwidth, _used(level, bytes_a_second(level)))
    return bandwidth


def _used(level: Level, bytes_a_second: Quantity) -> Quantity:
    """Return the bytes/s of the last member, which may have fewer links than the others."""
    bandwidth: Quantity = where(level.members > 1, bytes_a_second / level.narrowing, _NEVER)
    return bandwidth


def _counted(level: Level) -> Quantity:
    network = level.tier.network
    return network.nccl.bandwidth if network.nccl else network.bandwidth


def _is_network(level: Level) -> bool:
    return _kind(level) == "network"


def _kind(level: Level) -> str:
    nccl = level.tier.network.nccl
    return nccl.kind if nccl else "network"
