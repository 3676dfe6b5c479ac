"""Convolutions whose filter is an input of theirs: constant, or computed from parameters."""

from __future__ import annotations

import json
from typing import Any

import pytest

import paleo
from paleo.core.operations import LAYER_PASSES
from paleo.net.layers import ShapeError
from paleo.step.passes import needed_gradients


def net(filter_: dict[str, Any], **keys: Any) -> paleo.NetSpec:
    """Return 8 filters of 3x3x4 that are a parent, over a convolution of 1x1."""
    window = {"type": "Convolution", "strides": [1, 1, 1, 1], "padding": "SAME"}
    layers = {
        "data": {"type": "Input", "tensor": [2, 6, 6, 3]},
        "first": {**window, "parents": ["data"], "filter": [1, 1, 3, 4], "use_bias": False},
        "filters": {"type": "Parameter", **filter_},
        "conv": {**window, "parents": ["first", "filters"], "filter": [3, 3, 4, 8], **keys},
    }
    return paleo.loads(json.dumps({"name": "n", "layers": layers}))


#: x = 2*6*6*4, w = 3*3*4*8, y = 2*6*6*8
X, W, Y = 288, 288, 576
FLOPS = 2 * 3 * 3 * 4 * Y
SHAPE = [3, 3, 4, 8]


@pytest.mark.parametrize("trainable", [True, False])
def test_a_filter_that_is_a_parent_is_counted_where_it_is_held(trainable: bool) -> None:
    graph = paleo.build(net({"shape": SHAPE, "trainable": trainable}))
    *_, held, conv = graph.nodes
    assert (held.num_params, conv.num_params) == (W * trainable, 8)
    assert graph.num_params == 12 + W * trainable + 8
    needed = needed_gradients(graph, paleo.find_cost_model("roofline").conventions)
    assert needed[conv.index] == (True, trainable)
    done = [graph.operations(conv, each, needed[conv.index]) for each in LAYER_PASSES]
    flops = [[int(each.flops) for each in operations] for operations in done]
    # The bias is a pass forward and one back; the filter's gradient is that of an input.
    assert flops == [[FLOPS, 0], [FLOPS] * (1 + trainable), [0]]
    of_images = done[1][0]
    assert [of_images.reads, of_images.writes] == [(4 * Y, 4 * W), (4 * X,)]
    if trainable:
        of_filter = done[1][1]
        assert [of_filter.reads, of_filter.writes] == [(4 * X, 4 * Y), (4 * W,)]
    # Each gradient takes the other input, from the forward pass to the backward pass.
    kept = conv.layer.keeps(conv.inputs, 4, needed[conv.index])
    assert kept.inputs == ((0, 1) if trainable else (1,))


def test_a_transposed_one() -> None:
    # 4 channels to 8 of twice the size: the convolution back takes 12 to ceil(12 / 2) = 6.
    keys: dict[str, Any] = {
        "type": "Deconvolution",
        "filter": [3, 3, 8, 4],
        "output_shape": [-1, 12, 12, 8],
    }
    keys |= {"strides": [1, 2, 2, 1], "use_bias": False}
    graph = paleo.build(net({"shape": [3, 3, 8, 4]}, **keys))
    conv = graph.nodes[-1]
    assert (conv.num_params, graph.num_params) == (0, 12 + 288)
    (forward,) = graph.operations(conv, LAYER_PASSES[0])
    assert forward.flops == 2 * 3 * 3 * 8 * 2 * 6 * 6 * 4
    assert graph.operations(conv, LAYER_PASSES[2]) == ()
    of_filter = conv.layer.input_gradient(conv.inputs, 4, (False, True))
    assert [each.writes for each in of_filter] == [(4 * 288,)]


@pytest.mark.parametrize(
    ("keys", "inputs", "said"),
    [
        ({}, (1, 3, 3, 8, 4), "its second parent must be a filter of 3x3x4x8, got 3x3x8x4"),
        ({"groups": 2}, (1, 3, 3, 4, 8), "must be a filter of 3x3x2x8, got 3x3x4x8"),
        ({"activation_fn": "relu"}, (1, 3, 3, 4, 8), "it is a layer of its own"),
    ],
)
def test_what_does_not_fit(keys: dict[str, Any], inputs: tuple[int, ...], said: str) -> None:
    keys = {"filter": (3, 3, -1, 8), "strides": (1, 1), "padding": "SAME", **keys}
    layer = paleo.LAYERS["Convolution"](**keys)
    with pytest.raises(ShapeError, match=said):
        layer.infer_shape(((2, 6, 6, 4), inputs))
