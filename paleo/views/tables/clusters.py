"""The tables of clusters: a list, and one drawn as tiers; and the same for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paleo.cluster import Cluster
from paleo.cluster.topology import Host, Tier
from paleo.core.attributes import attributes
from paleo.core.quantity import product
from paleo.views.answers.base import duration
from paleo.views.table import Column, Table, in_unit, plain
from paleo.views.tables.base import cite

#: A list: for people what one chooses a cluster by, for programs everything in one row.
_LIST = (
    Column("name", "cluster"),
    Column("title", "title"),
    Column("device", "device"),
    Column("sizes", "devices, from\nthe inside out", for_people=True),
    Column("devices", "in all"),
    *plain("tiers", "aliases", "sources", "note"),
)
_LIST_NOTES = (
    "A cluster drawn as tiers, with links and sources: paleo clusters NAME, or --format=json.",
)
#: One cluster: a line for each tier, from the inside out.
_TIERS = (
    Column("drawn", "tier"),
    Column("members", "connects", right=True),
    Column("links", "each by", right=True),
    Column("bandwidth", "each way", right=True),
    Column("latency", "latency", right=True),
    Column("devices", "devices"),
    Column("cited", "source"),
)
_TIERS_NOTES = (
    "Bandwidth is of all links of a member together, in one direction; latency of one message.",
)


def cluster_list(clusters: Sequence[Cluster]) -> Table:
    """Return a row for each cluster."""
    return Table("", _LIST, [_row(cluster) for cluster in clusters], footnotes=_LIST_NOTES)


def _row(cluster: Cluster) -> dict[str, Any]:
    return {
        **attributes(cluster, "name", "title", "note"),
        "device": cluster.device.name,
        "devices": cluster.size,
        "sizes": " x ".join(f"{tier.size:,}" for tier in cluster.tiers),
        "tiers": "; ".join(f"{tier.size} by {tier.network.name}" for tier in cluster.tiers),
        "aliases": "; ".join(cluster.aliases),
        "sources": "; ".join(cluster.sources.values()),
    }


def cluster_table(cluster: Cluster) -> Table:
    """Return a cluster drawn as tiers, each inside of the next."""
    drawn = {"drawn": cluster.device.name, "devices": 1}
    rows = [drawn, *(_tier_row(cluster, i) for i in range(len(cluster.tiers)))]
    sources = [[], *([tier.source] if tier.source else [] for tier in cluster.tiers)]
    cited, numbered = cite(rows, sources)
    said = [f"also called: {', '.join(cluster.aliases)}"] if cluster.aliases else []
    said += [f"{tier.name}: {tier.note}" for tier in cluster.tiers if tier.note]
    said += [cluster.note] if cluster.note else []
    if cluster.host:
        said.append(_host(cluster.host))
        numbered.append(f"host: {cluster.host.source}")
    title = f"{cluster.name}: {cluster.title}" if cluster.title != cluster.name else cluster.name
    return Table(title, _TIERS, cited, footnotes=[*_TIERS_NOTES, *said, "", *numbered])


def _tier_row(cluster: Cluster, i: int) -> dict[str, Any]:
    tier = cluster.tiers[i]
    member = cluster.tiers[i - 1].name if i else cluster.device.name
    links = int(tier.links_of(tier.size))
    return {
        "drawn": f"{'   ' * i}`- {tier.name}, {_shape(tier)}",
        "members": f"{tier.size:,} x {member}",
        "links": f"{links} x {tier.network.name}",
        "bandwidth": in_unit(links * tier.network.bandwidth, "bytes/s"),
        "latency": duration(float(tier.network.latency), 3)
        if tier.network.latency
        else "not known",
        "devices": product(inner.size for inner in cluster.tiers[: i + 1]),
    }


def _shape(tier: Tier) -> str:
    """Return how a tier connects its members, as in a drawing: "torus of 16 x 16"."""
    if tier.shape == "torus":
        return f"torus of {' x '.join(map(str, tier.dims))}"
    return "switches that sum" if tier.sums else tier.shape


def cluster_json(cluster: Cluster) -> dict[str, Any]:
    """Return a cluster as JSON has it: SI units, and the source of every tier."""
    return {
        **attributes(cluster, "name", "title", "aliases", "note"),
        "device": cluster.device.name,
        "devices": cluster.size,
        "tiers": [_tier_json(tier) for tier in cluster.tiers],
        "host": _host_json(cluster.host) if cluster.host else None,
    }


def _host_json(host: Host) -> dict[str, Any]:
    return {
        **attributes(host, "devices", "source", "note"),
        "memory_bandwidth_bytes_per_s": host.memory_bandwidth,
        "memory_capacity_bytes": host.memory_capacity,
    }


def _host(host: Host) -> str:
    """Return what the memory of the processors is that devices share."""
    capacity = f"{in_unit(host.memory_capacity, 'bytes')} of " if host.memory_capacity else ""
    rate = in_unit(host.memory_bandwidth, "bytes/s")
    note = f": {host.note}" if host.note else ""
    return f"host of {host.devices} devices: {capacity}memory, {rate}{note}"


def _tier_json(tier: Tier) -> dict[str, Any]:
    links = int(tier.links_of(tier.size))
    return {
        **attributes(tier, "name", "size", "shape", "wires", "dims", "sums", "source", "note"),
        "network": tier.network.name,
        "links": links,
        "link_bandwidth_bytes_per_s": tier.network.bandwidth,
        "bandwidth_bytes_per_s": links * tier.network.bandwidth,
        "latency_s": tier.network.latency,
    }
