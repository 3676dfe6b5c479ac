"""Fetching activations from the devices that hold the other slices of a split net.

Slice i is on device i, and all unsplit layers are on device 0. Devices stand in groups of
four; a transfer between groups has half the bandwidth (the implementation of 2017).
"""

from __future__ import annotations

from collections.abc import Iterator

from paleo.core.errors import SettingError
from paleo.core.quantity import Quantity
from paleo.core.tensor import num_elements
from paleo.net.graph import Graph, Node
from paleo.step.passes import Fetch
from paleo.step.plan import Plan

_GROUP = 4
#: More halvings than this within one layer would leave no bandwidth that a float can hold.
_MAX_HALVINGS = 900


def fetches_of(
    graph: Graph, plan: Plan, bandwidth: Quantity, from_unsplit: bool = True
) -> dict[int, tuple[Fetch, ...]]:
    """Return, by node index, what each node gets that is not local.

    Without `from_unsplit`, what slices get from unsplit layers is left out.
    """
    found = {
        node.index: tuple(_fetches(graph, node, plan, bandwidth, from_unsplit))
        for node in graph.nodes
    }
    return {index: fetches for index, fetches in found.items() if fetches}


def _fetches(
    graph: Graph, node: Node, plan: Plan, bandwidth: Quantity, from_unsplit: bool
) -> Iterator[Fetch]:
    conventions = plan.cost_model.conventions
    halvings = 0
    for position in node.parents:
        parent = graph.nodes[position]
        if _local(node, parent, conventions.slice_zero_is_remote):
            continue
        if parent.shard is None and not from_unsplit:
            continue
        at = bandwidth
        # A single parent is fetched at full bandwidth even in another group.
        if len(node.parents) > 1 and _group(node) != _group(parent):
            at = bandwidth / 2
            if conventions.halving_stays:
                bandwidth = at
                halvings += 1
                if halvings > _MAX_HALVINGS:
                    raise SettingError(
                        f'layer "{node.name}" fetches from so many groups of devices that '
                        f"{plan.cost_model.name} has no bandwidth left for it"
                    )
        num_bytes = graph.element_size * num_elements(parent.output)
        time = plan.cost_model.fetch(num_bytes, at, plan.target, plan.ppp_comm)
        yield Fetch(position, num_bytes, at, time)


def _local(node: Node, parent: Node, slice_zero_is_remote: bool) -> bool:
    if slice_zero_is_remote:
        return node.shard == parent.shard
    return (node.shard or 0) == (parent.shard or 0)


def _group(node: Node) -> int:
    return (node.shard or 0) // _GROUP


def num_slices(graph: Graph) -> int:
    """Return how many slices the layers of a graph are split into at most, 0 if none is."""
    return 1 + max((node.shard for node in graph.nodes if node.shard is not None), default=-1)
