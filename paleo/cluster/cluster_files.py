"""The reader of cluster files: a device, and tiers of links from the inside out.

    device = "A100_SXM_80GB"

    [[tiers]]
    name = "node"
    network = "nvlink3"
    size = 8
    source = "dgx"

    [[tiers]]
    name = "fabric"
    network = "infiniband_hdr"
    size = 140
    links = 8

A `size` beside `device`, the devices in all, has to be what the sizes of the tiers multiply up to.
A tier's `shape` is "switch" if the file does not say; "mesh" needs `wires`, a list of two members
and how many links there are between them, "torus" needs `dims`, how many members each of its
dimensions has. `reached` is the bandwidth that collectives were measured to reach over a
member's links, a text or a table with `value`, `source` and `note`.

A table `host` says what devices share of their processors' memory: its `memory_bandwidth`, its
`memory_capacity`, and how many `devices` do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from paleo.cluster.device import Device
from paleo.cluster.figures import FileReader, Table
from paleo.cluster.network import Network
from paleo.cluster.topology import SHAPES, Cluster, Host, Tier
from paleo.core.checks import MAX_SIZE, is_whole, shown
from paleo.core.errors import PaleoError
from paleo.core.quantity import product

_KEYS = ("name", "title", "device", "size", "aliases", "note", "sources", "tiers", "host")
_TIER_KEYS = (
    *("name", "network", "size", "links", "shape", "wires", "dims", "sums"),
    *("source", "note", "reached"),
)


def read_cluster(
    path: Path, find_device: Callable[[str], Device], find_network: Callable[[str], Network]
) -> Cluster:
    """Read a cluster file; raises HardwareError with every mistake in it.

    Files of devices and networks beside it are named by their paths from its folder.
    """
    root = FileReader(path, _KEYS)
    name = root.text("name", path.stem)
    device = _found(root, "device", path, find_device)
    tables = root.tables("tiers", "a list of tables, [[tiers]], from the inside out")
    if not tables and "tiers" not in root.values:
        root.note("tiers", "missing: a cluster needs at least one tier")
    tiers = [_tier(table, path, find_network) for table in tables]
    names = [tier.name for tier in tiers if tier]
    for twice in sorted({name for name in names if names.count(name) > 1}):
        root.note("tiers", f"two tiers have the name {twice!r}")
    if "size" in root.values:
        _check_size(root, tiers)
    title, aliases, note = root.text("title", name), root.names("aliases"), root.text("note")
    host = _host(root.table("host")) if "host" in root.values else None
    root.finish()
    assert device
    found = tuple(tier for tier in tiers if tier)
    return Cluster(name, title, device, found, aliases, root.sources, note, host)


def _host(table: Table) -> Host:
    table.only(("memory_bandwidth", "memory_capacity", "devices", "source", "note"))
    capacity = None
    if "memory_capacity" in table.values:
        capacity = int(table.quantity("memory_capacity", "bytes"))
    bandwidth, devices = table.quantity("memory_bandwidth", "bytes/s"), _count(table, "devices")
    return Host(bandwidth, devices, capacity, table.source, table.text("note"))


def _check_size(root: FileReader, tiers: list[Tier | None]) -> None:
    """Note it if the tiers, each of them known, do not multiply up to the devices in all."""
    size = _count(root, "size")
    sizes = [tier.size for tier in tiers if tier]
    if not root.mistakes and product(sizes) != size:
        said = " x ".join(map(str, sizes))
        root.note("size", f"{size} devices, but the tiers have {said} = {product(sizes)}")


def _found(table: Table, key: str, path: Path, find: Callable[[str], Any]) -> Any:
    """Return what a name of the file stands for, None if there is no such thing, which is noted."""
    name = table.text(key)
    if not name:
        if key not in table.values:
            table.note(key, "missing")
        return None
    if name.endswith(".toml"):
        name = str(path.parent / name)
    try:
        return find(name)
    except PaleoError as error:
        for line in str(error).splitlines():
            table.note(key, line)
        return None


def _tier(table: Table, path: Path, find_network: Callable[[str], Network]) -> Tier | None:
    table.only(_TIER_KEYS)
    network = _found(table, "network", path, find_network)
    size = _count(table, "size")
    links = _count(table, "links") if "links" in table.values else 1
    shape = table.text("shape", "switch")
    if shape not in SHAPES:
        table.note("shape", f"expected one of {', '.join(SHAPES)}, got {shape!r}")
    for key, of_shape in (("wires", "mesh"), ("dims", "torus")):
        if (key in table.values) is not (shape == of_shape):
            table.note(key, f"a {of_shape} needs it, and nothing else has it")
    wires = _wires(table, size) if shape == "mesh" and "wires" in table.values else ()
    dims = _dims(table, size) if shape == "torus" and "dims" in table.values else ()
    name, sums, source = table.text("name"), table.flag("sums"), table.source
    if not name:
        table.note("name", "missing")
    if network is None:
        return None
    tier = Tier(name, network, size, links, shape, wires, dims, sums, source, table.text("note"))
    if "reached" not in table.values:
        return tier
    reached = table.figure("reached", "bytes/s")
    share = reached.value / (links * network.bandwidth)
    return replace(tier, reached=share, reached_source=reached.source)


def _count(table: Table, key: str) -> int:
    value = table.values.get(key)
    if is_whole(value) and 1 <= value <= MAX_SIZE:
        return int(value)
    message = f"expected a whole number of 1 or more, got {shown(value)}"
    table.note(key, "missing" if value is None else message)
    return 1


def _wires(table: Table, size: int) -> tuple[tuple[int, int, int], ...]:
    """Return the wires, by which every member reaches one before it: groups are the first ones."""
    value = table.values["wires"]
    given = value if isinstance(value, list) else [value]
    wires = []
    for wire in given:
        is_wire = isinstance(wire, list) and len(wire) == 3 and all(map(is_whole, wire))
        if is_wire and 0 <= min(wire[:2]) < max(wire[:2]) < size and wire[2] >= 1:
            wires.append((int(wire[0]), int(wire[1]), int(wire[2])))
            continue
        table.note(
            "wires", f"expected two members, 0 to {size - 1}, and a count, got {shown(wire)}"
        )
    reached = {max(wire[:2]) for wire in wires}
    alone = next((member for member in range(1, size) if member not in reached), None)
    if alone and len(wires) == len(given):
        table.note("wires", f"member {alone} has no link to one before it")
    return tuple(wires)


def _dims(table: Table, size: int) -> tuple[int, ...]:
    value = table.values["dims"]
    if isinstance(value, list) and value and all(is_whole(one) and one >= 1 for one in value):
        if product(value) == size:
            return tuple(map(int, value))
        table.note("dims", f"{' x '.join(map(str, value))} members are not the size, {size}")
    else:
        table.note("dims", f"expected a list of whole numbers, got {shown(value)}")
    return ()
