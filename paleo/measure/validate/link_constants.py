"""Constants of the links inside a node that a fit may change, beside those of the cost model.

They are the figures by which collectives inside a node are predicted (docs/collectives.md), four a
kind of link, with bounds around all links that were fitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from paleo.cluster import Cluster, Figure, Network
from paleo.core.quantity import Quantity
from paleo.costs.tiled.constants import CONSTANTS, Constant

#: Of the links of the innermost tier: `NcclLink` has the figures.
LINK_CONSTANTS: Mapping[str, Constant] = {
    "link_share": Constant(
        "share of the bandwidth of links inside a node that collectives reach, of that known",
        "1", 0.3, 1.2, 1.0,
    ),
    "link_launch": Constant(
        "seconds of a collective inside a node without its hops", "s", 1e-6, 20e-6, 8e-6
    ),
    "link_hop": Constant(
        "seconds of the shortest message to the next device of a node", "s", 0.2e-6, 4e-6, 1e-6
    ),
    "link_ramp": Constant(
        "seconds that long messages inside a node lose until the pipeline is full",
        "s", 0.1e-6, 400e-6, 100e-6,
    ),
}  # fmt: skip
#: All constants that can be fitted to rows of measurements.
FITTED: Mapping[str, Constant] = {**CONSTANTS, **LINK_CONSTANTS}
_PREFIX, _SHARE = "link_", "link_share"


def link_of(cluster: Cluster) -> Network | None:
    """Return the network of the links inside a cluster's nodes, if collectives were measured."""
    network = cluster.tiers[0].network if cluster.tiers else None
    return network if network and network.nccl and network.nccl.is_measured else None


def known_links(cluster: Cluster) -> dict[str, float]:
    """Return the values of the constants as they are; none where nothing was measured."""
    network = link_of(cluster)
    if network is None or network.nccl is None:
        return {}
    figures = network.nccl.figures
    names = (name for name in LINK_CONSTANTS if name != _SHARE)
    return {_SHARE: 1.0} | {name: float(figures[name[len(_PREFIX) :]].value) for name in names}


def with_links(network: Network, constants: Mapping[str, Quantity]) -> Network:
    """Return a network of links whose collectives were measured, with these constants."""
    if _SHARE in constants:
        network = network.reaching(constants[_SHARE])
    assert network.nccl
    figures = dict(network.nccl.figures)
    for name, value in constants.items():
        if name in LINK_CONSTANTS and name != _SHARE:
            key = name[len(_PREFIX) :]
            figures[key] = replace(figures[key], value=value)
    return replace(network, nccl=replace(network.nccl, figures=figures))


def calibrated(network: Network, constants: Mapping[str, float], source: str) -> Network:
    """Return a network of links with these constants, which `source` says where they are from."""
    found = with_links(network, {name: float(f"{constants[name]:.6g}") for name in constants})
    assert found.nccl

    def said(figures: Mapping[str, Figure], names: Iterable[str]) -> dict[str, Figure]:
        own = {name: replace(figures[name], source=source, note="") for name in names}
        return {**figures, **own}

    names = {name[len(_PREFIX) :] for name in constants if name != _SHARE}
    rates = {"bandwidth"} if _SHARE in constants else set()
    return replace(
        found,
        title=f"{network.title}, calibrated",
        aliases=(),
        figures=said(found.figures, rates),
        nccl=replace(found.nccl, figures=said(found.nccl.figures, names | rates)),
        sources={**network.sources, "calibration": source},
        own_bandwidth_2017=None,
        note_2017="",
    )


def linked(cluster: Cluster, constants: Mapping[str, Quantity]) -> Cluster:
    """Return the cluster with those of these constants that are of links inside its nodes."""
    network = link_of(cluster)
    if network is None or not constants.keys() & LINK_CONSTANTS.keys():
        return cluster
    inner, *outer = cluster.tiers
    return replace(cluster, tiers=(replace(inner, network=with_links(network, constants)), *outer))
