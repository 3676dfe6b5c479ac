"""What a graph with products in fp8 has besides its layers: weights that are cast, and messages.

See paleo.net.fp8, which says what is cast. Of a graph without, there is nothing.
"""

from __future__ import annotations

from paleo.core.operations import Pass, Stream
from paleo.net import fp8
from paleo.net.graph import Graph, Node
from paleo.net.layers.base import Message


def weight_casts(graph: Graph, node: Node) -> tuple[Stream, ...]:
    """Return what casts a node's weights to fp8, once a step."""
    return graph.of_equal(_weight_casts, node)


def _weight_casts(graph: Graph, node: Node) -> tuple[Stream, ...]:
    if node.scaled is None:
        return ()
    precision = graph.precision
    size = precision.parameter_size if node.handling.is_cast else precision.element_size
    return fp8.weight_casts(node.layer, node.inputs, node.scaled, size)


def weight_copies(graph: Graph) -> list[int]:
    """Return the bytes of the copies in fp8 of each node's weights; shared ones have their own."""
    return [
        fp8.weight_bytes(node.layer, node.inputs, node.scaled) if node.scaled else 0
        for node in graph.nodes
    ]


def messages(graph: Graph, node: Node, direction: Pass) -> tuple[Message, ...]:
    """Return what devices that share the net exchange at a node in a pass."""
    found = node.layer.messages(direction, node.inputs, graph.element_size)
    return fp8.messages(found, node.scaled) if node.scaled else found
