"""What connects the devices of a row: the machine it names, or links and cards that it lists."""

from __future__ import annotations

import functools
import re

from paleo.cluster import Cluster, Device, find_cluster, find_network
from paleo.cluster.topology import Tier
from paleo.core.errors import PaleoError
from paleo.core.frozen import NamedTuple
from paleo.core.quantity import ceil_div
from paleo.measure.validate.measured import Measurement
from paleo.measure.validate.spellings import link_of

#: Nodes that one fabric connects, where a row does not say: as many as anyone has.
_NODES = 4096
#: Devices of one socket's PCIe tree at the most, as far as rows tell.
_OF_SOCKET = 4
#: Words of rows (device, interconnect, source, notes), and the machine's node that they mean.
_MACHINES = (
    (r"\(DGX-2\)", "dgx2"),
    (r"\bGCE\b.*k80", "gce_k80"),
    (r"\bp2\b|\bp2\.\d*xlarge", "aws_p2_16xlarge"),
    (r"\bp3dn\b", "aws_p3dn"),
    (r"\bp3\b|\bp3\.\d*xlarge", "aws_p3_16xlarge"),
    (r"\bp4d\b", "aws_p4d"),
    # iX 4/2020, a review of the Dell DSS 8440: Xeon Gold 6148, of PCI Express 3.0, four switches.
    (r"\bDSS8440", "pcie3"),
)
#: Instances whose network a row need not say: Amazon EC2, Instance types, network performance.
_CLOUD = ((r"\bp2\.8xlarge", "ethernet"), (r"\bp2\b", "ena25"), (r"\bp3\b", "ena25"))
#: Servers of eight SXM2 boards, whose devices are a mesh: they say so, or DLPerf's READMEs of
#: OneFlow do by `nvidia-smi topo -m` (and one card between nodes); Lambda's instances of V100.
_MESH = re.compile(
    r"hybrid cube mesh|DGX-1\b|^dlperf .*V100-SXM2|LambdaCloud \dx ?V100", re.IGNORECASE
)
_MESHES = {"Pascal": "dgx1_p100", "Volta": "dgx1_v100"}
#: Cards between nodes as MLPerf's rows list them: how many, and of which InfiniBand.
_CARDS = re.compile(r"(\d+) ?x ConnectX ?- ?\d (?:IB )?(EDR|HDR ?100|HDR|NDR)", re.IGNORECASE)
_INFINIBAND = {
    "edr": "infiniband_edr", "hdr100": "infiniband_edr", "hdr": "infiniband_hdr",
    "ndr": "infiniband_ndr",
}  # fmt: skip
#: What rows say by its Gbit/s alone: of InfiniBand, else of Ethernet.
_RATE = re.compile(r"(\d+) ?(?:G(?:b(?:it)?(?:/s|ps)?|bE|igabit))\b", re.IGNORECASE)
_BY_RATE = {
    True: {
        40: "infiniband_qdr", 56: "infiniband_fdr", 100: "infiniband_edr", 200: "infiniband_hdr",
        400: "infiniband_ndr",
    },
    False: {
        10: "ethernet", 20: "ethernet20", 25: "ethernet25", 40: "ethernet40", 50: "ethernet50",
        100: "ethernet100", 200: "ethernet200", 400: "ethernet400",
    },
}  # fmt: skip


class Wiring(NamedTuple):
    """A node of `inside` devices, and its `cards` of the network `outer` between nodes.

    `node` names a cluster, whose tiers are those of its node, or a network; it is "" of one device,
    as `outer` is of one node.
    """

    node: str
    inside: int
    outer: str = ""
    cards: int = 1

    def cluster(self, device: Device) -> Cluster:
        """Return the cluster of these devices."""
        tiers = self._node_tiers() if self.node else ()
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
    node = _node(row, device, inside) if inside > 1 else ""
    if row.n_devices <= inside:
        return Wiring(node, inside)
    return Wiring(node, inside, *_cards(row, device))


def _said(row: Measurement) -> str:
    return f"{row.source_id} {row.device} {row.interconnect} {row.source} {row.notes}"


def _node(row: Measurement, device: Device, inside: int) -> str:
    """Return the name of the machine, or of the network, that connects the devices of a node."""
    said = _said(row)
    if _MESH.search(said) and device.architecture in _MESHES:
        return _MESHES[device.architecture]
    named = next((name for words, name in _MACHINES if re.search(words, said, re.IGNORECASE)), "")
    return named or link_of(row.interconnect, device, inside, inside).name


def _cards(row: Measurement, device: Device) -> tuple[str, int]:
    """Return the network between nodes, and how many cards of it a node has."""
    text = row.interconnect.partition("host:")[2] or row.interconnect
    parts = [part for part in re.split(r"[,;]", text) if "ConnectX" in part or "IB" in part]
    computing = [part for part in parts if "Compute" in part]
    others = [part for part in parts if not re.search(r"Management|Storage", part)]
    for part in (*computing, *others, *parts):
        if match := _CARDS.search(part):
            return _INFINIBAND[match[2].casefold().replace(" ", "")], int(match[1])
    for part in re.split(r"[;+]|, (?=inter|intra)", row.interconnect):
        if (match := _RATE.search(part)) and not re.search(r"\bintra\b|NVLink|PCIe", part):
            is_infiniband = re.search(r"infiniband|\bIB\b", part, re.IGNORECASE) is not None
            if name := _BY_RATE[is_infiniband].get(int(match[1])):
                return name, 1
    if name := next((name for words, name in _CLOUD if re.search(words, _said(row))), ""):
        return name, 1
    return link_of(row.interconnect, device, row.n_devices, row.devices_per_node).name, 1
