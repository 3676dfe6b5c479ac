"""Which images lie channels last in PyTorch though those that come in do not.

A layer normalization over the channels of an image takes it as N x H x W x C and hands that on: to
PyTorch, a view as N x C x H x W whose strides are those of channels last. A convolution or pooling
of such an image gives one (aten/src/ATen/native/ConvUtils.h, cudnn_conv_suggest_memory_format), and
what takes each element by itself keeps the strides of what it reads (TensorIterator). All others,
group normalizations and reshapes among them, give images channels first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from paleo.core.operations import Pass, Pooling
from paleo.core.quantity import is_array
from paleo.core.tensor import Shape
from paleo.net.graph import Graph, Node

#: Dimensions of a batch of images.
_IMAGES = 4


def with_orders(graph: Graph) -> Graph:
    """Return a graph whose convolutions of such images say so."""
    last: list[bool] = []
    nodes: list[Node] = []
    first: dict[Any, int] = {}
    for node in graph.nodes:
        own = _is_last(node, last)
        last.append(own)
        like = first.setdefault((node.like, own), node.index)
        nodes.append(replace(node, like=like, is_last=own))
    return Graph(graph.name, tuple(nodes), graph.dtype) if any(last) else graph


def _is_last(node: Node, last: Sequence[bool]) -> bool:
    """Tell whether a node gives images channels last, by whether those before it do."""
    layer, output = node.layer, node.output
    if len(output) != _IMAGES:
        return False
    if layer.orders_channels_last:
        return True
    before = [
        last[i] for i, shape in zip(node.parents, node.inputs, strict=True) if _is_image(shape)
    ]
    if layer.joins:
        return bool(before) and all(before)
    keeps = layer.is_convolution or layer.is_pointwise or layer.takes_statistics
    if not keeps:
        operations = layer.operations(Pass.FORWARD, node.inputs, 1)
        keeps = any(isinstance(each, Pooling) for each in operations)
    # Of several, the first that is no vector for each channel decides.
    return keeps and bool(before) and before[0]


def _is_image(shape: Shape) -> bool:
    return len(shape) == _IMAGES and any(is_array(size) or size > 1 for size in shape[1:-1])
