"""The predefined nets, devices, networks and clusters by name, each read once and then kept.

They are part of the package, so that none changes while a server runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache, lru_cache
from typing import Any

from paleo import cluster as hardware
from paleo.net.load import load
from paleo.net.load import net_names as _net_names
from paleo.studies import datasets

net = lru_cache(256)(load)
device = lru_cache(256)(hardware.find_device)
network = lru_cache(64)(hardware.find_network)
cluster = lru_cache(64)(hardware.find_cluster)
net_names = cache(_net_names)
#: Whether images go into the net of a name.
takes_images = cache(lambda name: datasets.takes_images(net(name)))
device_names = cache(hardware.device_names)
network_names = cache(hardware.network_names)
cluster_names = cache(hardware.cluster_names)


def _aliases(names: Iterable[str], find: Callable[[str], Any]) -> Mapping[str, str]:
    """Return the further names of things, each with the name it stands for."""
    return {alias: name for name in names for alias in find(name).aliases}


device_aliases = cache(lambda: _aliases(device_names(), device))
network_aliases = cache(lambda: _aliases(network_names(), network))
cluster_aliases = cache(lambda: _aliases(cluster_names(), cluster))
