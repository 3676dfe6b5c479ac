"""What a net runs on: devices, networks, clusters, prices, and how workers exchange data.

In come names and files of hardware; out go figures in SI units, each with its source. A name is
exact (a file's stem or one of its aliases); anything with a path separator or ending in `.toml` is
a user's own file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Generic, TypeVar

from paleo.cluster.cluster_files import read_cluster
from paleo.cluster.device import ARCHITECTURES, BOARDS, Device, Rates2017, read_device
from paleo.cluster.figures import Figure
from paleo.cluster.network import Network, read_network
from paleo.cluster.prices import Price, parse_price
from paleo.cluster.topology import Cluster, Group
from paleo.core.checks import shown
from paleo.core.errors import SettingError
from paleo.core.files import names_in
from paleo.core.quantity import Quantity, largest
from paleo.core.registry import unknown

__all__ = [
    "ARCHITECTURES",
    "BOARDS",
    "Cluster",
    "Device",
    "Figure",
    "Network",
    "Price",
    "Rates2017",
    "cluster_aliases",
    "cluster_names",
    "device_aliases",
    "device_names",
    "find_cluster",
    "find_device",
    "find_network",
    "group_of",
    "network_aliases",
    "network_names",
    "parse_price",
]

_T = TypeVar("_T", bound=Device | Network | Cluster)


class _Predefined(Generic[_T]):
    """The files of a folder here, each with a device, a network or a cluster."""

    def __init__(self, kind: str, read: Callable[[Path], _T]) -> None:
        self.kind = kind
        self.read = read
        self.folder = Path(__file__).parent / f"{kind}s"
        #: What a file describes; each is read once, however often settings name it.
        self.named = cache(lambda name: self.read(self.folder / f"{name}.toml"))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The stems of the files."""
        return tuple(names_in(self.folder, ".toml"))

    @cached_property
    def aliases(self) -> Mapping[str, str]:
        """The further names, each with the one it stands for."""
        return {alias: name for name in self.names for alias in self.named(name).aliases}

    def find(self, wanted: str | os.PathLike[str]) -> _T:
        """Return one by name or by alias, or from a user's own file."""
        try:
            name = os.fspath(wanted)
        except TypeError:
            message = f"{self.kind}: expected a name or a file, got {shown(wanted)}"
            raise SettingError(message) from None
        if name.endswith(".toml") or Path(name).name != name:
            return self.read(Path(name))
        stem = name if name in self.names else self.aliases.get(name)
        if stem is not None:
            return self.named(stem)
        hint = f"; `paleo {self.kind}s` lists them, a .toml file of your own works too"
        # A name in another case is meant, whatever else resembles it.
        every = [*self.names, *self.aliases]
        meant = [known for known in every if known.casefold() == name.casefold()]
        raise unknown(self.kind, name, meant or list(self.names), hint)


_DEVICES = _Predefined("device", read_device)
_NETWORKS = _Predefined("network", read_network)
_CLUSTERS = _Predefined("cluster", lambda path: read_cluster(path, find_device, find_network))


def device_names() -> list[str]:
    """Return the names of the predefined devices."""
    return list(_DEVICES.names)


def network_names() -> list[str]:
    """Return the names of the predefined networks."""
    return list(_NETWORKS.names)


def cluster_names() -> list[str]:
    """Return the names of the predefined clusters."""
    return list(_CLUSTERS.names)


def device_aliases() -> Mapping[str, str]:
    """Return the further names of the predefined devices, each with the name it stands for."""
    return _DEVICES.aliases


def network_aliases() -> Mapping[str, str]:
    """Return the further names of the predefined networks, each with the name it stands for."""
    return _NETWORKS.aliases


def cluster_aliases() -> Mapping[str, str]:
    """Return the further names of the predefined clusters, each with the name it stands for."""
    return _CLUSTERS.aliases


def find_device(device: str | os.PathLike[str] | Device) -> Device:
    """Return a device by name, by alias, from a file, or as it is.

    Raises UnknownNameError for a name that is not known, HardwareError for a bad file.
    """
    return device if isinstance(device, Device) else _DEVICES.find(device)


def find_network(network: str | os.PathLike[str] | Network) -> Network:
    """Return a network by name, by alias, from a file, or as it is.

    Raises UnknownNameError for a name that is not known, HardwareError for a bad file.
    """
    return network if isinstance(network, Network) else _NETWORKS.find(network)


def find_cluster(cluster: str | os.PathLike[str] | Cluster) -> Cluster:
    """Return a cluster by name, by alias, from a file, or as it is.

    Raises UnknownNameError for a name that is not known, HardwareError for a bad file.
    """
    return cluster if isinstance(cluster, Cluster) else _CLUSTERS.find(cluster)


#: How many clusters are named where one is too small.
_MOST_NAMED = 5


def group_of(cluster: Cluster, workers: Quantity, stride: int = 1) -> Group:
    """Return so many workers of a cluster, as `Cluster.group`.

    Raises SettingError if it has not so many devices, which names predefined ones that have.
    """
    try:
        return cluster.group(workers, stride)
    except SettingError as error:
        needed = largest(workers) * stride
        larger = [known for known in map(find_cluster, cluster_names()) if known.size >= needed]
        larger.sort(key=lambda known: (known.device != cluster.device, known.size))
        named = [f"{known.name} ({known.size:,})" for known in larger[:_MOST_NAMED]]
        more = f", and {len(larger) - _MOST_NAMED} others" if len(larger) > _MOST_NAMED else ""
        hint = (
            f"there are more in {', '.join(named)}{more}" if named else "no known one has so many"
        )
        raise SettingError(f"{error}; {hint}") from None
