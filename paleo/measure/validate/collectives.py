"""Collectives that others measured: which cluster a row is of, and what is predicted for it."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Self

from paleo.cluster import Cluster, find_cluster, find_device, find_network
from paleo.cluster.collectives import custom, nccl
from paleo.cluster.collectives.base import Operation
from paleo.cluster.topology import Tier
from paleo.core.frozen import NamedTuple, dataclass
from paleo.core.quantity import Array, Quantity
from paleo.measure.validate.groups import CaseGroup
from paleo.measure.validate.measured import Measurement
from paleo.measure.validate.nets import Remembering
from paleo.measure.validate.protocols import protocol_of
from paleo.measure.validate.spellings import UnmappedError

OPERATIONS = {
    "all_reduce": Operation.ALL_REDUCE,
    "allreduce": Operation.ALL_REDUCE,
    "all_gather": Operation.ALL_GATHER,
    "reduce_scatter": Operation.REDUCE_SCATTER,
    "alltoall": Operation.ALL_TO_ALL,
    "all_to_all": Operation.ALL_TO_ALL,
    "broadcast": Operation.BROADCAST,
    "send_recv": Operation.POINT_TO_POINT,
}


class Exchange(NamedTuple):
    """What rows priced together have in common: who does what, by which software.

    `kernels` is "" for NCCL.
    """

    cluster: Cluster
    operation: Operation
    library: str
    kernels: str = ""


@dataclass(frozen=True, eq=False)
class CollectiveGroup(CaseGroup):
    """Rows of one collective on one cluster: arrays of workers and of bytes."""

    exchange: Exchange
    workers: Array
    num_bytes: Array

    def seconds(self, pricing: Remembering, constants: Mapping[str, Quantity]) -> Quantity:
        if pricing.model.conventions.exchanges_after_all:
            raise UnmappedError(f"{pricing.model.name} knows links by their bandwidth alone")
        cluster, operation, library, kernels = self.exchange
        group = cluster.group(self.workers)
        if kernels:
            kind = custom.PUSHED if kernels == custom.PUSHED.name else custom.BARRIERS
            return custom.seconds(group, self.num_bytes, kind)
        software = nccl.Nccl(library) if library else nccl.CURRENT
        return nccl.seconds(group, self.num_bytes, operation, software)

    def at(self, keep: Array, index: Array) -> Self:
        return replace(
            self, index=index, workers=self.workers[keep], num_bytes=self.num_bytes[keep]
        )

    def describe(self, place: int) -> str:
        return f"{self.workers[place]} devices, {self.num_bytes[place]} bytes"


# Rows of published files


def exchange_of(row: Measurement) -> tuple[Exchange, float]:
    """Return what a row's collective is, and the seconds that it says.

    Raises UnmappedError where the links are not known that it went over, or not NCCL did it.
    """
    if row.operator not in OPERATIONS:
        raise UnmappedError(f"collective {row.operator!r} is not modelled")
    operation, num_bytes = OPERATIONS[row.operator], row.shape["bytes"]
    if row.n_devices < 2:
        raise UnmappedError("a collective of one device")
    algorithm = re.search(r"algo=([^;]*)", row.notes)
    if algorithm and "NCCL" not in algorithm[1]:
        raise UnmappedError(f"collectives of {algorithm[1].strip()} are not modelled")
    seconds = row.value * row.quantity.scale
    if row.quantity.kind == "bus bandwidth":
        seconds = float(num_bytes * operation.bus_share(row.n_devices) / seconds)
    spread = row.devices_per_node or row.n_devices
    for words, build in _MACHINES:
        if all(word in f"{row.source_id} {row.device} {row.interconnect}" for word in words):
            cluster = build()
            outer = cluster.tiers[-1].network.nccl
            if row.n_devices > spread and outer and outer.kind != "network":
                raise UnmappedError("a collective over a network between nodes that is not named")
            return Exchange(_narrowed(cluster, spread), operation, _version(row)), seconds
    raise UnmappedError(f"no cluster is known of the links {row.interconnect!r}")


def _version(row: Measurement) -> str:
    """Return the version of NCCL that a row says, or its source, "" for none."""
    found = re.search(r"NCCL (\d+\.\d+)", row.notes)
    return found[1] if found else protocol_of(row.source_id).nccl


def _narrowed(cluster: Cluster, spread: int) -> Cluster:
    """Return the cluster of which so many devices of each node are used, with their own cards."""
    if len(cluster.tiers) > 2 or spread >= cluster.tiers[0].size:
        return cluster
    node, *between = cluster.tiers
    used = [replace(tier, links=max(1, tier.links * spread // node.size)) for tier in between]
    return replace(cluster, tiers=(replace(node, size=spread), *used))


def _on_one_node(name: str) -> Callable[[], Cluster]:
    """Return what makes a predefined cluster without what is between its nodes."""

    def build() -> Cluster:
        cluster = find_cluster(name)
        return replace(cluster, tiers=cluster.tiers[:1])

    return build


@functools.cache
def _four_cards() -> Cluster:
    """Eight A100 a node and four cards of HDR, which is what 92 GB/s of bus bandwidth need."""
    cluster = find_cluster("dgx_a100")
    node, fabric = cluster.tiers
    return replace(cluster, tiers=(node, replace(fabric, links=4)))


@functools.cache
def _bridged_pairs() -> Cluster:
    """Pairs of A100 PCIe over three bridges of NVLink, and PCIe between the pairs."""
    pair = Tier("pair", find_network("nvlink3"), 2)
    node = Tier("node", find_network("pcie4"), 4)
    return Cluster("bridged pairs", "", find_device("A100_PCIE_80GB"), (pair, node))


def _of_deepbench(
    name: str, device: str, sizes: Sequence[int], reached: Sequence[float]
) -> Callable[[], Cluster]:
    """Return what makes a machine of DeepBench's: PCIe 3 in tiers, FDR InfiniBand between nodes."""

    @functools.cache
    def build() -> Cluster:
        networks = [find_network("pcie3")] * (len(sizes) - 1) + [find_network("infiniband_fdr")]
        tiers = tuple(
            Tier(f"tier {i}", network, size, reached=share / network.bandwidth)
            for i, (network, size, share) in enumerate(zip(networks, sizes, reached, strict=True))
        )
        return Cluster(name, "", find_device(device), tiers)

    return build


#: Words of a row's source and interconnect, and the cluster that they stand for.
_MACHINES: tuple[tuple[tuple[str, ...], Callable[[], Cluster]], ...] = (
    (("A100", "pairwise NVLink bridge"), _bridged_pairs),
    (("stas", "busbw ~92 GB/s"), _four_cards),
    (("DGX A100 NVSwitch",), _on_one_node("dgx_a100")),
    (("NVLink3 fully-connected",), _on_one_node("dgx_a100")),
    (
        ("2-root topology with PLX bridge",),
        _of_deepbench("DeepBench, Pascal", "GTX_1080_TI", (4, 2, 4), (12e9, 8.8e9, 5.4e9)),
    ),
    (
        ("PLX switches + QPI",),
        _of_deepbench("DeepBench, PLX and QPI", "P100_PCIE", (8, 4), (5.9e9, 4.1e9)),
    ),
)
