"""Heads of keys and values that are repeated, where more devices share a layer than there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from paleo.net.graph import Node, build
from paleo.net.layers.base import Layer
from paleo.net.spec import NetSpec


def with_repeated_heads(net: NetSpec, ways: int) -> NetSpec:
    """Return a net whose attention has at least `ways` heads of keys and values, if it can.

    What makes keys and values makes them as often as devices need a head each, as serving programs
    do (vllm-project/vllm, QKVParallelLinear: num_kv_head_replicas). A net whose heads divide so
    already, or do not divide `ways`, or are made together with queries, stays as it is.
    """
    nodes = build(net).nodes
    made: dict[str, int] = {}
    for node in nodes:
        if not node.layer.is_attention or len(node.parents) < 3:
            continue
        queries, keys = int(node.inputs[0][1]), int(node.inputs[1][1])
        if keys >= ways or ways % keys or queries % ways:
            continue
        for parent in node.parents[1:3]:
            path = _path(nodes, nodes[parent], keys)
            if path is None:
                return net
            made |= dict.fromkeys(path, ways // keys)
    if not made:
        return net
    layers = tuple(
        replace(each, layer=_repeated(each.layer, made[each.name])) if each.name in made else each
        for each in net.layers
    )
    return replace(net, layers=layers, described=None)


def _path(nodes: Sequence[Node], node: Node, heads: int) -> list[str] | None:
    """Return the layers whose sizes follow from the heads that a tensor has, None if unclear."""
    found = []
    while node.layer.serves_as != "product":
        if len(node.parents) != 1 or node.layer.takes_part:
            return None
        shape = getattr(node.layer, "output_shape", ())
        if shape and shape[-2] == heads:
            found.append(node.name)
        node = nodes[node.parents[0]]
    return [*found, node.name]


def _repeated(layer: Layer, times: int) -> Layer:
    """Return a product with so many times the columns, or a view with so many times the heads."""
    sizes: Any = layer
    if layer.serves_as == "product":
        return layer.replace(num_outputs=sizes.num_outputs * times)
    *first, heads, size = sizes.output_shape
    return layer.replace(output_shape=(*first, heads * times, size))
