"""Graphs as a framework computes them: casts, views, steps, sums of gradients.

Each function returns the same layers with what a framework does besides, so that cost models price
that, too. Which framework does what is in paleo.cluster.frameworks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from paleo.core.kinds import AUTOCAST, Autocast
from paleo.core.strides import Strides
from paleo.net import autocast, views
from paleo.net.composed import composed, composed_gelu
from paleo.net.graph import Graph, Node
from paleo.net.parameters import Handling


def with_autocast(graph: Graph, lists: Autocast = AUTOCAST) -> Graph:
    """Return a graph in mixed precision as autocast computes it: see paleo.net.autocast."""
    sizes: list[int] = []
    nodes: list[Node] = []
    first: dict[Any, int] = {}
    for node in graph.nodes:
        elements = autocast.elements_of(
            node.layer,
            node.inputs,
            [sizes[i] for i in node.parents],
            graph.element_size,
            lists,
        )
        sizes.append(elements.computing)
        like = first.setdefault((node.like, elements), node.index)
        nodes.append(replace(node, like=like, elements=elements))
    return Graph(graph.name, tuple(nodes), graph.dtype)


def with_handling(graph: Graph, handling: Handling) -> Graph:
    """Return a graph whose parameters and gradients are handled so.

    Those of layers that autocast computes in halves are cast, no others.
    """
    nodes: list[Node] = []
    first: dict[Any, int] = {}
    for node in graph.nodes:
        elements = node.elements
        is_half = elements is not None and elements.casts and elements.computing < autocast.FULL
        like = first.setdefault((node.like, node.num_params), node.index)
        own = handling._replace(is_cast=handling.is_cast and is_half)
        nodes.append(replace(node, like=like, handling=own))
    return Graph(graph.name, tuple(nodes), graph.dtype)


def in_steps(graph: Graph) -> Graph:
    """Return a graph of layers whose steps are kernels each, as before fused attention."""
    wide = graph.precision.is_mixed
    nodes = [replace(node, layer=node.layer.in_steps(wide)) for node in graph.nodes]
    return Graph(graph.name, tuple(nodes), graph.dtype)


def in_elementary_steps(graph: Graph) -> Graph:
    """Return a graph whose layers are composed as in TensorFlow: see paleo.net.composed."""
    nodes = [replace(node, layer=composed(node.layer)) for node in graph.nodes]
    return Graph(graph.name, tuple(nodes), graph.dtype)


def with_composed_gelu(graph: Graph) -> Graph:
    """Return a graph of a model whose code composes GELU, whichever framework runs it."""
    nodes = [replace(node, layer=composed_gelu(node.layer)) for node in graph.nodes]
    return Graph(graph.name, tuple(nodes), graph.dtype)


def with_gradients_apart(graph: Graph) -> Graph:
    """Return a graph in which each step of a layer's gradients is a kernel, as in autograd."""
    nodes = [replace(node, is_apart=True) for node in graph.nodes]
    return Graph(graph.name, tuple(nodes), graph.dtype)


def without_casts(graph: Graph) -> Graph:
    """Return a graph whose elements are all of its own size."""
    first: dict[Any, int] = {}
    nodes = []
    for node in graph.nodes:
        like = first.setdefault((node.like, node.copied), node.index)
        nodes.append(replace(node, like=like, elements=None))
    return Graph(graph.name, tuple(nodes), graph.dtype)


def with_views(graph: Graph) -> Graph:
    """Return a graph in which permutations are views, as in PyTorch: see paleo.net.views."""
    strides: list[Strides] = []
    nodes: list[Node] = []
    first: dict[Any, int] = {}
    for node in graph.nodes:
        read = [strides[i] for i in node.parents]
        made, copied = views.found(node.layer, node.inputs, node.output, read)
        strides.append(made)
        like = first.setdefault((node.like, copied), node.index)
        nodes.append(replace(node, like=like, copied=copied))
    return Graph(graph.name, tuple(nodes), graph.dtype)
