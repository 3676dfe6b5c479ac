"""The hardware registry: devices and networks, one file each, found by name or path.

A name is exact (a file's stem or one of its aliases); anything with a path separator or
ending in `.toml` is a user's own file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TypeVar

from paleo.errors import SettingError
from paleo.hardware.device import ARCHITECTURES, Device, Rates2017, read_device
from paleo.hardware.figures import Figure
from paleo.hardware.network import Network, read_network
from paleo.hardware.prices import Price, parse_price
from paleo.registry import unknown
from paleo.values import shown

__all__ = [
    "ARCHITECTURES",
    "Device",
    "Figure",
    "Network",
    "Price",
    "Rates2017",
    "device_aliases",
    "device_names",
    "find_device",
    "find_network",
    "network_aliases",
    "network_names",
    "parse_price",
]

_HERE = Path(__file__).parent
_T = TypeVar("_T", Device, Network)


@cache
def _names(folder: str) -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in (_HERE / folder).glob("*.toml")))


def device_names() -> list[str]:
    """Return the names of the predefined devices."""
    return list(_names("devices"))


def network_names() -> list[str]:
    """Return the names of the predefined networks."""
    return list(_names("networks"))


@cache
def _aliases(folder: str) -> Mapping[str, str]:
    """Return the names that the predefined ones of a folder go by, each with its file's stem."""
    read = read_device if folder == "devices" else read_network
    paths = (_HERE / folder).glob("*.toml")
    return {alias: path.stem for path in sorted(paths) for alias in read(path).aliases}


def device_aliases() -> Mapping[str, str]:
    """Return the further names of the predefined devices, each with the name it stands for."""
    return _aliases("devices")


def network_aliases() -> Mapping[str, str]:
    """Return the further names of the predefined networks, each with the name it stands for."""
    return _aliases("networks")


def _find(kind: str, named: str | os.PathLike[str], read: Callable[[Path], _T]) -> _T:
    try:
        name = os.fspath(named)
    except TypeError:
        raise SettingError(f"{kind}: expected a name or a file, got {shown(named)}") from None
    folder: str = f"{kind}s"
    if name.endswith(".toml") or Path(name).name != name:
        return read(Path(name))
    names: list[str] = list(_names(folder))
    stem = name if name in names else _aliases(folder).get(name)
    if stem is not None:
        return read(_HERE / folder / f"{stem}.toml")
    hint = f"; `paleo {folder}` lists them, a .toml file of your own works too"
    # A name in another case is meant, whatever else resembles it.
    every: list[str] = [*names, *_aliases(folder)]
    meant = [each for each in every if each.casefold() == name.casefold()]
    raise unknown(kind, name, meant or names, hint)


def find_device(device: str | os.PathLike[str] | Device) -> Device:
    """Return a device by name, by alias, from a file, or as it is.

    Raises UnknownNameError for a name that is not known, HardwareError for a bad file.
    """
    if isinstance(device, Device):
        return device
    return _find("device", device, read_device)


def find_network(network: str | os.PathLike[str] | Network) -> Network:
    """Return a network by name, by alias, from a file, or as it is.

    Raises UnknownNameError for a name that is not known, HardwareError for a bad file.
    """
    if isinstance(network, Network):
        return network
    return _find("network", network, read_network)
