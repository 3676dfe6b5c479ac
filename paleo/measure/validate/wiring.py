"""What connects the devices of a measured row: the machine it names, or links and cards it lists."""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

from paleo.cluster import Cluster, Device, find_cluster, find_network
from paleo.cluster.topology import Tier
from paleo.core.errors import PaleoError
from paleo.core.quantity import ceil_div
from paleo.measure.validate.measured import Measurement
from paleo.measure.validate.spellings import link_of

#: Nodes that one fabric connects, where a row does not say: as many as anyone has.
_NODES = 4096
#: Devices of one socket's PCIe tree at the most, as far as rows tell.
_OF_SOCKET = 4
#: Words of rows (device, interconnect, source, notes), and the machine's node that they mean.
_MACHINES = (
    (r"DGX-1 P100|P100\S* \(DGX-1", "dgx1_p100"),
    (r"DGX-1 hybrid|DGX-1 \(?.*V100|LambdaCloud \dx ?V100", "dgx1_v100"),
    (r"\(DGX-2\)", "dgx2"),
    (r"\bGCE\b.*k80", "gce_k80"),
    (r"\bEC2 p2\b|\bp2\.\d*xlarge", "aws_p2_16xlarge"),
    (r"\bEC2 p3dn\b|\bp3dn\b", "aws_p3dn"),
    (r"\bEC2 p3\b|\bp3\.\d*xlarge", "aws_p3_16xlarge"),
    (r"\bEC2 p4d\b|\bp4d\b", "aws_p4d"),
    (r"^dlperf .*V100-SXM2", "dgx1_v100"),
)
#: Cards between nodes as MLPerf's rows list them: how many, and of which InfiniBand.
_CARDS = re.compile(r"(\d+) ?x ConnectX ?- ?\d (?:IB )?(EDR|HDR ?100|HDR|NDR)", re.IGNORECASE)
#: The same by rate alone.
_ETHERNET = re.compile(r"(?:(\d+) ?x )?(?:\S+ )?(?:Ethernet )?(\d+) ?Gb(?:it)?/s(?:ec)?", re.IGNORECASE)
_INFINIBAND = {
    "edr": "infiniband_edr", "hdr100": "infiniband_edr", "hdr": "infiniband_hdr",
    "ndr": "infiniband_ndr",
}  # fmt: skip


class Wiring(NamedTuple):
    """A node of `inside` devices, and its `cards` of the network `outer` between nodes.

    `node` names a cluster, whose tiers are those of its node, or a network.
    """

    node: str
    inside: int
    outer: str = ""
    cards: int = 1

    def cluster(self, device: Device) -> Cluster:
        """Return the cluster of these devices."""
        tiers = self._node_tiers()
        if self.outer:
            tiers = (*tiers, Tier("fabric", find_network(self.outer), _NODES, self.cards))
        return Cluster(self.node, self.node, device, tiers)

    def _node_tiers(self) -> tuple[Tier, ...]:
        named = _machine(self.node)
        if named is not None:
            kept, size = [], 1
            for tier in named.tiers:
                if size >= self.inside:
                    break
                kept.append(tier)
                size *= tier.size
            return tuple(kept)
        network = find_network(self.node)
        if self.node.startswith("pcie") and self.inside > _OF_SOCKET:
            socket = Tier("socket", network, ceil_div(self.inside, 2))
            return (socket, Tier("node", find_network("xgmi"), 2, 2))
        return (Tier("node", network, self.inside),)


@functools.cache
def _machine(name: str) -> Cluster | None:
    """Return the predefined cluster of a name, None if that is another thing's."""
    try:
        return find_cluster(name)
    except PaleoError:
        return None


def wiring_of(row: Measurement, device: Device) -> Wiring:
    """Return what connects the devices of a row; raises UnmappedError where it does not say."""
    inside = min(row.devices_per_node or row.n_devices, row.n_devices)
    said = f"{row.source_id} {row.device} {row.interconnect} {row.source} {row.notes}"
    node = next((name for words, name in _MACHINES if re.search(words, said)), "")
    if inside == 1:
        node = "pcie3"
    elif not node:
        node = link_of(row.interconnect, device, inside, inside).name
    if row.n_devices <= inside:
        return Wiring(node, inside)
    return Wiring(node, inside, *_cards(row, device))


def _cards(row: Measurement, device: Device) -> tuple[str, int]:
    """Return the network between nodes, and how many cards of it a node has."""
    text = row.interconnect.partition("host:")[2] or row.interconnect
    parts = [part for part in re.split(r"[,;]", text) if "ConnectX" in part or "IB" in part]
    computing = [part for part in parts if "Compute" in part]
    others = [part for part in parts if not re.search(r"Management|Storage", part)]
    for part in (*computing, *others, *parts):
        if match := _CARDS.search(part):
            return _INFINIBAND[match[2].casefold().replace(" ", "")], int(match[1])
    return link_of(row.interconnect, device, row.n_devices, row.devices_per_node).name, 1
