"""A file of one's own prices: `[[price]]` entries as in a device's file, each with its `device`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from paleo.cluster import Price, device_aliases, device_names
from paleo.cluster.figures import Table
from paleo.cluster.prices import read_prices_of
from paleo.core.errors import near


def read_price_file(path: str | os.PathLike[str]) -> Mapping[str, tuple[Price, ...]]:
    """Return the prices in a file of one's own, by the names of devices.

    Raises HardwareError with every mistake in it: a file, an entry and a key each.
    """
    return read_prices_of(Path(path), _device)


def _device(entry: Table) -> str:
    """Return the name of the predefined device that an entry is of, which may be an alias of it."""
    name, names = entry.text("device"), device_names()
    known = name if name in names else device_aliases().get(name, "")
    if name and not known:
        hint = near(name, [*device_aliases(), *names])
        entry.note("device", f"unknown device {name!r}{hint}; `paleo devices` lists them")
    return known
