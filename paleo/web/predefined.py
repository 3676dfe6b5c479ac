"""The predefined nets, devices and networks by name, each read once and then kept.

They are part of the package, so that none changes while a server runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache

from paleo import hardware
from paleo.load import load
from paleo.load import net_names as _net_names

__all__ = [
    "device",
    "device_aliases",
    "device_names",
    "net",
    "net_names",
    "network",
    "network_aliases",
    "network_names",
]

net = lru_cache(256)(load)
device = lru_cache(256)(hardware.find_device)
network = lru_cache(64)(hardware.find_network)
net_names = cache(_net_names)
device_names = cache(hardware.device_names)
network_names = cache(hardware.network_names)


@cache
def device_aliases() -> Mapping[str, str]:
    """Return the further names of devices, each with the name it stands for."""
    return {alias: name for name in device_names() for alias in device(name).aliases}


@cache
def network_aliases() -> Mapping[str, str]:
    """Return the further names of networks, each with the name it stands for."""
    return {alias: name for name in network_names() for alias in network(name).aliases}
