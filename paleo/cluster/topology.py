"""Clusters: devices, and the tiers of links that connect them.

A tier connects members: devices in the first tier, whole groups of the tier before in the others.
Of a cluster of nodes with eight devices, the first tier is the switch of a node, whose members are
devices; the second is the network between nodes, whose members are nodes and whose links are their
cards. A PCIe tree is such tiers, too: switches, sockets, nodes.

Bandwidth is bytes/s in one direction, latency the seconds of one message.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Any, TypeVar

from paleo.cluster.device import Device
from paleo.cluster.network import Network
from paleo.core.checks import MAX_SIZE
from paleo.core.errors import SettingError
from paleo.core.frozen import dataclass
from paleo.core.quantity import Quantity, ceil_div, is_array, largest, maximum, minimum, np, product

#: So many groups of a cluster are kept at most.
_KEPT = 1024

_Found = TypeVar("_Found")

#: How a tier connects its members: a switch lets any of them send to any other at full rate, in a
#: mesh there are direct links, in a torus each has neighbours along its dimensions.
SHAPES = ("switch", "mesh", "torus")


@dataclass(frozen=True)
class Tier:
    """What connects up to `size` members, each by so many `links` of one network.

    Of a mesh `wires` are its direct links, as two members and how many there are between them; of
    a torus `dims` are how many members stand in each dimension.
    """

    name: str
    network: Network
    size: int
    links: Quantity = 1
    shape: str = "switch"
    wires: tuple[tuple[int, int, int], ...] = ()
    dims: tuple[int, ...] = ()
    #: Whether the switches sum up what passes through them (NVLink SHARP, InfiniBand SHARP).
    sums: bool = False
    source: str = ""
    note: str = ""
    #: The share of its links' bandwidth that collectives reach, where somebody measured it.
    reached: Quantity | None = None
    reached_source: str = ""

    def links_of(self, members: Quantity) -> Quantity:
        """Return how many links each of so many members, the first ones, has to the others."""
        if self.shape == "switch":
            return self.links
        table = self._used_links
        if is_array(members):
            links: Quantity = np.asarray(table)[np.asarray(members)]
            return links
        return table[int(members)]

    @functools.cached_property
    def _used_links(self) -> tuple[int, ...]:
        """The links that the least connected of the first n members has to the others, by n."""
        return tuple(self._least(members) if members > 1 else 1 for members in range(self.size + 1))

    def _least(self, members: int) -> int:
        if self.shape == "torus":
            return sum(2 if extent > 2 else 1 for extent in self.extents(members) if extent > 1)
        degrees = [0] * members
        for first, second, count in self.wires:
            if first < members and second < members:
                degrees[first] += count
                degrees[second] += count
        return min(degrees)

    def extents(self, members: int) -> tuple[int, ...]:
        """Return in how many places of each dimension of a torus so many members stand.

        The dimensions are filled evenly, as slices of pods are cut: by doubling the shortest.
        """
        extents = [1] * len(self.dims)
        while product(extents) < members:
            room = [i for i, extent in enumerate(extents) if extent < self.dims[i]]
            shortest = min(room, key=lambda i: extents[i])
            extents[shortest] = min(2 * extents[shortest], self.dims[shortest])
        return tuple(extents)


@dataclass(frozen=True)
class Level:
    """A tier as a group uses it: so many `members` of it, each with `inside` devices of the group.

    The devices of one member have `links` for this group, of which one alone uses `nearest`.
    `last_links` are those of the last member where it may have fewer devices than the others.
    """

    tier: Tier
    members: Quantity
    inside: Quantity
    links: Quantity
    nearest: Quantity
    last_links: Quantity | None = None

    @property
    def narrowing(self) -> Quantity:
        """By how much less the links of the last member are than those of the others."""
        return 1 if self.last_links is None else self.links / self.last_links

    @property
    def bandwidth(self) -> Quantity:
        """Bytes/s in one direction of all links of one member together."""
        return self.links * self.tier.network.bandwidth

    @property
    def nccl_bandwidth(self) -> Quantity:
        """Bytes/s of all links of one member that NCCL's collectives reach."""
        network = self.tier.network
        if self.tier.reached is not None:
            return self.tier.reached * self.bandwidth
        return self.links * (network.nccl.bandwidth if network.nccl else network.bandwidth)

    @property
    def link_bandwidth(self) -> Quantity:
        """Bytes/s that one device reaches alone."""
        return minimum(self.links, self.nearest) * self.tier.network.bandwidth

    @property
    def latency(self) -> Quantity:
        """Seconds of a message over one link."""
        return self.tier.network.latency


@dataclass(frozen=True)
class Group:
    """Workers that exchange data: the tiers between them, from the inside out."""

    workers: Quantity
    levels: tuple[Level, ...]

    @functools.cached_property
    def key(self) -> tuple[Any, ...]:
        """What tells groups of one cluster apart."""
        names = ("members", "inside", "links", "nearest", "last_links")
        levels = (
            (level.tier.name, *(getattr(level, name) for name in names)) for level in self.levels
        )
        return self.workers, *levels

    def once(self, what: Callable[[Group], _Found]) -> _Found:
        """Return `what(group)`, found once; it must not hold the group."""
        known = self._known
        if what not in known:
            known[what] = what(self)
        found: _Found = known[what]
        return found

    @functools.cached_property
    def _known(self) -> dict[Any, Any]:
        """What was found by `once`."""
        return {}

    @property
    def link_bandwidth(self) -> Quantity:
        """Bytes/s that one device reaches alone, to whichever other of the group is behind most."""
        slowest = self.levels[0].link_bandwidth
        for level in self.levels[1:]:
            is_used = beyond_one(level.members)
            both = minimum(slowest, level.link_bandwidth)
            slowest = is_used * both + (1 - is_used) * slowest
        return slowest


@dataclass(frozen=True)
class Host:
    """The memory of the processors that so many devices share: bytes/s, and bytes if known."""

    memory_bandwidth: Quantity
    devices: int = 1
    memory_capacity: int | None = None
    source: str = ""
    note: str = ""


@dataclass(frozen=True)
class Cluster:
    """Devices of one kind, and the tiers between them from the inside out."""

    name: str
    title: str
    device: Device
    tiers: tuple[Tier, ...]
    aliases: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    host: Host | None = None

    @classmethod
    def flat(cls, device: Device, network: Network) -> Cluster:
        """Return any number of devices behind one network, each with a link of its own."""
        name = f"{device.name}, {network.name}"
        return cls(name, "one network", device, (_flat_tier(network),))

    def with_networks(self, change: Callable[[Network], Network]) -> Cluster:
        """Return the cluster whose tiers have networks that are changed so."""
        return replace(
            self, tiers=tuple(replace(tier, network=change(tier.network)) for tier in self.tiers)
        )

    @property
    def size(self) -> int:
        """How many devices it has at most."""
        return min(product(tier.size for tier in self.tiers), MAX_SIZE)

    def group(self, workers: Quantity, stride: int = 1) -> Group:
        """Return a group of workers, the first of each `stride` devices in their order.

        Devices stand node by node. With a stride there are as many such groups as one stride has
        devices, which use the links at the same time and share them. Raises SettingError if the
        cluster has not so many devices.
        """
        if is_array(workers):
            return self._group(workers, stride)
        known, key = self._groups, (workers, stride)
        if key not in known:
            if len(known) >= _KEPT:
                known.clear()
            known[key] = self._group(workers, stride)
        return known[key]

    @functools.cached_property
    def _groups(self) -> dict[tuple[Quantity, int], Group]:
        """Groups that were asked for, which are asked for again."""
        return {}

    def _group(self, workers: Quantity, stride: int) -> Group:
        if largest(workers) * stride > self.size:
            raise SettingError(
                f"num_workers: {largest(workers) * stride} devices, but cluster {self.name} has "
                f"{self.size} at most"
            )
        levels, inner = [], 1  # devices in one member of the tier
        for tier in self.tiers:
            inside = max(1, inner // stride)
            outer = inner * tier.size
            most = max(1, outer // max(inner, stride))
            members = minimum(ceil_div(workers, inside), most)
            sharing = inner // inside
            devices = minimum(workers, inside)
            fewest = workers - (members - 1) * inside  # devices of the last member
            links = tier.links_of(members)
            # A device of a node with several cards uses the one that is nearest to it.
            nearest = maximum(links / inner, 1) if inner > 1 else links
            links = links / sharing
            own, last = (minimum(links, count * nearest) for count in (devices, fewest))
            levels.append(Level(tier, members, devices, own, nearest, last))
            inner = outer
        return Group(workers, tuple(levels))


def flat_group(workers: Quantity, network: Network) -> Group:
    """Return workers behind one network, each with a link of its own."""
    return Group(workers, (Level(_flat_tier(network), workers, 1, 1, 1),))


def _flat_tier(network: Network) -> Tier:
    return Tier(network.name, network, MAX_SIZE)


def beyond_one(count: Quantity) -> Quantity:
    """Return 1 where a tier is used, by more than one member, else 0."""
    return minimum(maximum(count - 1, 0), 1)
