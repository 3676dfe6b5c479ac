"""What is asked of a graph: which operations nobody understood, and its longest path."""

from __future__ import annotations

import functools

from paleo.core.operations import Pass, Unpriced
from paleo.core.quantity import Quantity, maximum
from paleo.net.graph import Graph


def unpriced(graph: Graph) -> tuple[Unpriced, ...]:
    """Return the operations that stand for what an importer did not understand."""
    return tuple(
        operation
        for node in graph.nodes
        if not node.layer.is_known
        for operation in graph.operations(node, Pass.FORWARD)
        if isinstance(operation, Unpriced)
    )


def longest_path(graph: Graph, seconds: list[Quantity]) -> Quantity:
    """Return the largest sum of `seconds` (one for each node) along any path."""
    until: list[Quantity] = []
    for node, own in zip(graph.nodes, seconds, strict=True):
        before = functools.reduce(maximum, [0.0, *(until[parent] for parent in node.parents)])
        until.append(before + own)
    return functools.reduce(maximum, [0.0, *until])
