"""What is said of lists: how many there are, and what is largest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paleo.cluster import Cluster, Device, Network
from paleo.views.answers.base import device_named
from paleo.views.charts.numbers import counted
from paleo.views.table import in_unit


def nets_answer(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return how many nets there are, from the smallest to the largest."""
    small, large = (pick(rows, key=lambda row: int(row["params"])) for pick in (min, max))
    ends = [f"{row['name']} ({row['params']:,} parameters)" for row in (small, large)]
    return [f"{len(rows):,} nets can be used by name, from {ends[0]} to {ends[1]}."]


def devices_answer(devices: Sequence[Device]) -> list[str]:
    """Return how many devices there are, or what one is."""
    if len(devices) == 1:
        (device,) = devices
        bandwidth = device.figures.get("memory_bandwidth")
        parts = [f"{device_named(device.name)} is {device.title or 'a device of your own'}"]
        if "fp32" in device.peaks:
            parts.append(f"{in_unit(device.peak('fp32'), 'FLOP/s')} in fp32")
        if bandwidth:
            parts.append(f"{in_unit(bandwidth.value, 'bytes/s')} of memory bandwidth")
        if device.memory_capacity:
            parts.append(f"{in_unit(device.memory_capacity, 'bytes')} of memory")
        return [f"{', '.join(parts)}."]
    kinds = {kind: sum(device.kind == kind for device in devices) for kind in ("gpu", "cpu")}
    cpus = f", {kinds['cpu']} of them CPUs" if kinds["cpu"] else ""
    return [f"{len(devices):,} devices can be used by name{cpus}; a TOML file makes another."]


def networks_answer(networks: Sequence[Network]) -> list[str]:
    """Return how many networks there are, from the slowest to the quickest, or what one is."""
    slow, quick = (
        pick(networks, key=lambda network: float(network.bandwidth)) for pick in (min, max)
    )
    if slow is quick:
        return [f"{slow.name} moves {in_unit(slow.bandwidth, 'network')} each way."]
    ends = [f"{each.name} ({in_unit(each.bandwidth, 'network')})" for each in (slow, quick)]
    return [f"{len(networks):,} networks, from {ends[0]} to {ends[1]}."]


def clusters_answer(clusters: Sequence[Cluster]) -> list[str]:
    """Return how many clusters there are, from the smallest to the largest, or what one is."""
    if len(clusters) == 1:
        (cluster,) = clusters
        devices = f"{cluster.size:,} {device_named(cluster.device.name)}"
        tiers = counted(len(cluster.tiers), "tier")
        return [f"{cluster.name} is {cluster.title}: {devices} in {tiers} of links."]
    small, large = (pick(clusters, key=lambda cluster: cluster.size) for pick in (min, max))
    ends = [f"{each.name} ({each.size:,} devices)" for each in (small, large)]
    made = "a TOML file makes another"
    return [f"{len(clusters):,} clusters, from {ends[0]} to {ends[1]}; {made}."]
