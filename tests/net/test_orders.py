"""Which images lie channels last though those that come in do not: layer by layer."""

from __future__ import annotations

from typing import Any

import paleo
from paleo.cluster.frameworks import FRAMEWORKS
from paleo.core.operations import Convolution, Pass
from paleo.net.orders import with_orders
from paleo.step.passes import computed_by

ONE = {"strides": [1, 1, 1, 1], "padding": "SAME"}


def conv(parent: str) -> dict[str, Any]:
    return {"type": "Convolution", "parents": [parent], "filter": [3, 3, 8, 8], **ONE}


LAYERS: dict[str, Any] = {
    "x": {"type": "Input", "tensor": [2, 16, 16, 8]},
    "stem": conv("x"),
    "norm": {"type": "LayerNorm", "parents": ["stem"]},
    "after": conv("norm"),
    "relu": {"type": "Activation", "parents": ["after"], "function": "relu"},
    "scale": {"type": "Parameter", "shape": [8]},
    "scaled": {"type": "Elementwise", "parents": ["scale", "relu"], "function": "product"},
    "pooled": {"type": "Pooling", "parents": ["scaled"], "ksize": [1, 2, 2, 1], **ONE},
    "mixed": {"type": "Elementwise", "parents": ["stem", "after"]},
    "groups": {"type": "GroupNorm", "parents": ["after"], "num_groups": 2},
    "behind": conv("groups"),
}


def test_what_follows_a_normalization_of_channels_lies_channels_last(net: Any) -> None:
    graph = with_orders(paleo.build(net(LAYERS)))
    last = {node.name for node in graph.nodes if node.is_last}
    # A sum is as its first image; a group normalization gives channels first.
    assert last == {"norm", "after", "relu", "scaled", "pooled"}
    for node in graph.nodes:
        for each in graph.operations(node, Pass.FORWARD):
            if isinstance(each, Convolution):
                assert each.is_last == (node.name == "after")


def test_a_net_without_them_is_as_it_was(net: Any) -> None:
    names = ("x", "stem", "scale", "behind")
    layers = {**{name: LAYERS[name] for name in names}, "behind": conv("stem")}
    graph = paleo.build(net(layers))
    assert with_orders(graph) is graph


def test_frameworks_that_order_images_themselves_leave_it_at_that(net: Any) -> None:
    graph = paleo.build(net(LAYERS))
    eager = FRAMEWORKS["pytorch"]
    assert eager.compiled
    for software, expected in ((eager, True), (eager.compiled, False)):
        assert any(node.is_last for node in computed_by(software, graph).nodes) == expected
