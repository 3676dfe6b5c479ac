"""Shapes, parameters and work of layers, derived by hand."""

from __future__ import annotations

from typing import Any

import pytest

from paleo.core.operations import Pass, Work
from paleo.core.quantity import ceil_log2, product
from paleo.core.window import Axis

FORWARD, TO_INPUT, TO_WEIGHTS = Pass.FORWARD, Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT


@pytest.mark.parametrize(
    ("axis", "output", "before", "total"),
    [
        (Axis(224, 11, 4, "VALID"), 54, 0, 0),  # ceil((224 - 11 + 1) / 4)
        (Axis(27, 5, 1, "SAME"), 27, 2, 4),  # 26 + 5 - 27 = 4
        (Axis(56, 3, 2, "SAME"), 28, 0, 1),  # 27 * 2 + 3 - 56 = 1
        (Axis(56, 1, 2, "SAME"), 28, -1, -1),  # 54 + 1 - 56 = -1: the last is not looked at
        (Axis(224, 11, 4, (2, 2)), 55, 2, 4),  # floor((224 + 4 - 11) / 4) + 1
        (Axis(7, 7, 1, "VALID"), 1, 0, 0),
        (Axis(6, 7, 1, "VALID"), 0, 0, 0),
        (Axis(7, 3, 2, (1, 0)), 3, 1, 1),  # floor((7 + 1 - 3) / 2) + 1
        (Axis(7, 3, 1, (2, 2), dilation=2), 7, 2, 4),  # it spans 5: 7 + 4 - 5 + 1
        (Axis(7, 3, 2, "SAME", dilation=2), 4, 2, 4),  # 3 * 2 + 5 - 7 = 4
        (Axis(6, 3, 2, (0, 0)), 2, 0, 0),  # floor(3 / 2) + 1
        (Axis(6, 3, 2, (0, 0), ceil=True), 3, 0, 0),  # ceil(3 / 2) + 1: the last hangs over
        (Axis(112, 3, 2, (0, 0), ceil=True), 56, 0, 0),  # ResNet's pool1 in Caffe
        (Axis(4, 1, 3, (0, 1), ceil=True), 2, 0, 1),  # ceil(4 / 3) + 1 = 3 would begin at 6
        (Axis(2, 3, 1, (0, 0), ceil=True), 0, 0, 0),
        (Axis(2, 3, 2, (0, 0), ceil=True), 1, 0, 0),  # ceil(-1 / 2) + 1: by less than a step
        (Axis(1, 4, 2, (0, 0), ceil=True), 0, 0, 0),  # ceil(-3 / 2) + 1
    ],
)
def test_windows(axis: Axis, output: int, before: int, total: int) -> None:
    assert (axis.output, axis.padding_before, axis.total_padding) == (output, before, total)


def test_work_is_an_algebra() -> None:
    one, other = Work(1, 2, 3), Work(10, 20, 30)
    assert one + other == Work(11, 22, 33)
    assert one + Work() == one
    assert 3 * one == one * 3 == Work(3, 6, 9)
    assert one.num_bytes == 5
    assert product([]) == 1


def test_tree_heights() -> None:
    assert [ceil_log2(k) for k in (1, 2, 3, 4, 5, 100, 2**40, 2**40 + 1)] == [
        0, 1, 2, 2, 3, 7, 40, 41,
    ]  # fmt: skip


def work(graph: Any, direction: Pass) -> Work:
    found: Work = graph.work(graph.nodes[-1], direction)
    return found


CONVOLUTION = {
    "type": "Convolution",
    "filter": [3, 3, 8, 16],
    "strides": [1, 2, 2, 1],
    "padding": "VALID",
}


def test_a_convolution(one_layer: Any) -> None:
    graph = one_layer([4, 9, 7, 8], CONVOLUTION)
    x, w, y = 4 * 9 * 7 * 8, 3 * 3 * 8 * 16, 4 * 4 * 3 * 16  # P, Q = ceil(7/2), ceil(5/2)
    assert graph.nodes[-1].output == (4, 4, 3, 16)
    assert graph.nodes[-1].num_params == w + 16
    flops = 2 * 3 * 3 * 8 * y
    # Beside the product itself: a bias is a pass over the output; its gradient sums it up.
    assert work(graph, FORWARD) == Work(flops, 4 * (x + w + y), 4 * (y + y))
    assert work(graph, TO_INPUT) == Work(flops, 4 * (y + w), 4 * x)
    assert work(graph, TO_WEIGHTS) == Work(flops, 4 * (x + y + y), 4 * (w + 16))


@pytest.mark.parametrize("groups", [1, 2, 8])
def test_groups_divide_products_and_weights(one_layer: Any, groups: int) -> None:
    c = 8 // groups  # the channels that each filter sees; 8 groups are a depthwise convolution
    layer = {**CONVOLUTION, "filter": [3, 3, c, 16], "groups": groups}
    graph = one_layer([4, 9, 7, 8], layer)
    x, w, y = 4 * 9 * 7 * 8, 3 * 3 * c * 16, 4 * 4 * 3 * 16
    assert graph.nodes[-1].output == (4, 4, 3, 16)
    assert graph.nodes[-1].num_params == w + 16
    flops = 2 * 3 * 3 * c * y
    assert work(graph, FORWARD) == Work(flops, 4 * (x + w + y), 4 * (y + y))
    assert work(graph, TO_INPUT) == Work(flops, 4 * (y + w), 4 * x)
    assert work(graph, TO_WEIGHTS) == Work(flops, 4 * (x + y + y), 4 * (w + 16))
    derived = one_layer([4, 9, 7, 8], {**layer, "filter": [3, 3, -1, 16]})
    assert derived.nodes[-1].num_params == w + 16


def test_a_dilated_window_spans_more_and_computes_the_same(one_layer: Any) -> None:
    layer = {**CONVOLUTION, "strides": [1, 1, 1, 1], "dilations": [1, 2, 3, 1]}
    graph = one_layer([4, 9, 7, 8], layer)
    y = 4 * 5 * 1 * 16  # 9 - 5 + 1 and 7 - 7 + 1
    assert graph.nodes[-1].output == (4, 5, 1, 16)
    assert graph.nodes[-1].num_params == 3 * 3 * 8 * 16 + 16
    assert work(graph, FORWARD).flops == 2 * 3 * 3 * 8 * y


def test_pooling_may_round_up(one_layer: Any) -> None:
    layer = {"type": "Pooling", "ksize": [1, 3, 3, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}
    sizes = [
        one_layer([1, 112, 112, 8], {**layer, "rounding": rounding}).nodes[-1].output[1]
        for rounding in ("floor", "ceil")
    ]
    assert sizes == [55, 56]


def test_an_activation_and_a_normalization_of_a_convolution_are_memory_traffic(
    one_layer: Any,
) -> None:
    plain = one_layer([4, 9, 7, 8], CONVOLUTION)
    dressed = one_layer(
        [4, 9, 7, 8], {**CONVOLUTION, "activation_fn": "relu", "normalizer_fn": "batch_norm"}
    )
    y = 4 * 4 * 4 * 3 * 16  # bytes of the output
    for direction, reads, writes in ((FORWARD, 1 + 2, 2), (TO_WEIGHTS, 2 + 4, 2)):
        more = Work(0, reads * y, writes * y)
        assert work(dressed, direction) == work(plain, direction) + more
    assert work(dressed, TO_INPUT) == work(plain, TO_INPUT)
    identity = one_layer([4, 9, 7, 8], {**CONVOLUTION, "activation_fn": "linear"})
    assert work(identity, FORWARD) == work(plain, FORWARD)


def test_a_deconvolution_is_a_convolution_turned_round(one_layer: Any) -> None:
    graph = one_layer(
        [4, 4, 3, 16],
        {
            "type": "Deconvolution",
            "filter": [3, 3, 8, 16],
            "strides": [1, 2, 2, 1],
            "padding": "VALID",
            "output_shape": [1, 9, 7, 8],
        },
    )
    large, w, small = 4 * 9 * 7 * 8, 3 * 3 * 8 * 16, 4 * 4 * 3 * 16
    assert graph.nodes[-1].output == (4, 9, 7, 8)
    assert graph.nodes[-1].num_params == w + 16  # as the reference counts it: filter[3]
    flops = 2 * 3 * 3 * 8 * small
    assert work(graph, FORWARD) == Work(flops, 4 * (small + w + large), 4 * 2 * large)
    assert work(graph, TO_INPUT).flops == work(graph, TO_WEIGHTS).flops == flops


def test_an_inner_product_flattens_its_input(one_layer: Any) -> None:
    graph = one_layer([4, 3, 2, 5], {"type": "InnerProduct", "num_outputs": 7})
    d, k, n = 30, 7, 4
    assert graph.nodes[-1].output == (n, k)
    assert graph.nodes[-1].num_params == d * k + k
    assert work(graph, FORWARD) == Work(2 * n * d * k, 4 * (n * d + d * k + n * k), 8 * n * k)
    assert work(graph, TO_INPUT) == Work(2 * n * d * k, 4 * (n * k + d * k), 4 * n * d)
    assert work(graph, TO_WEIGHTS) == Work(
        2 * n * d * k, 4 * (n * d + n * k + n * k), 4 * (d * k + k)
    )


@pytest.mark.parametrize(("kind", "extra"), [("Pooling", 1), ("AvgPool", 0)])
def test_pooling_counts_one_flop_a_window_element(one_layer: Any, kind: str, extra: int) -> None:
    layer = {"type": kind, "ksize": [1, 3, 2, 1], "strides": [1, 2, 2, 1], "padding": "SAME"}
    graph = one_layer([4, 9, 7, 8], layer)
    x, y = 4 * 9 * 7 * 8, 4 * 5 * 4 * 8
    assert graph.nodes[-1].output == (4, 5, 4, 8)
    assert work(graph, FORWARD) == Work(3 * 2 * y, 4 * x, 4 * y)
    # The gradient of a maximum has to see where it was.
    assert work(graph, TO_INPUT) == Work(3 * 2 * y, 4 * (y + extra * x), 4 * x)
    assert work(graph, TO_WEIGHTS) == Work()


# Reads and writes of tensors of the input's size: forward, and for the input's gradient.
PASSES_OVER_MEMORY: dict[str, tuple[dict[str, Any], tuple[int, int], tuple[int, int]]] = {
    "Dropout": ({"dropout_keep_prob": 0.5}, (1, 1), (1, 1)),
    "Activation": ({"function": "relu"}, (1, 1), (2, 1)),
    "BatchNorm": ({}, (2, 1), (4, 1)),
    "Scale": ({}, (1, 1), (1, 1)),
    "LRN": ({}, (1, 1), (3, 1)),
    "Softmax": ({}, (1, 1), (2, 1)),
    "Sigmoid": ({}, (1, 1), (2, 1)),
    "Reshape": ({"output_shape": [-1, -1]}, (0, 0), (0, 0)),
    "Flatten": ({}, (0, 0), (0, 0)),
    "Concatenate": ({}, (1, 1), (1, 1)),
    "Elementwise": ({}, (1, 1), (0, 0)),
}


@pytest.mark.parametrize("kind", PASSES_OVER_MEMORY)
def test_passes_over_memory(one_layer: Any, kind: str) -> None:
    keys, forward, backward = PASSES_OVER_MEMORY[kind]
    graph = one_layer([4, 9, 7, 8], {"type": kind, **keys})
    size = 4 * 4 * 9 * 7 * 8
    flops = size // 4 if kind == "Dropout" else 0
    active = flops if forward[0] else 0
    assert work(graph, FORWARD) == Work(active, size * forward[0], size * forward[1])
    assert work(graph, TO_INPUT) == Work(active, size * backward[0], size * backward[1])


@pytest.mark.parametrize(
    ("layer", "params"),
    [
        ({"type": "BatchNorm"}, 16),
        ({"type": "BatchNorm", "affine": False}, 0),
        ({"type": "Scale"}, 16),
        ({"type": "Scale", "bias_term": False}, 8),
        ({"type": "LRN"}, 0),
    ],
)
def test_parameters_for_each_channel(one_layer: Any, layer: Any, params: int) -> None:
    graph = one_layer([4, 9, 7, 8], layer)
    size = 4 * 4 * 9 * 7 * 8
    assert graph.nodes[-1].num_params == params
    # The sums over the input and the output's gradient.
    assert work(graph, TO_WEIGHTS) == (Work(0, 2 * size, 4 * params) if params else Work())


@pytest.mark.parametrize(
    ("layer", "output"),
    [
        ({"type": "UpSampling2D", "ksize": [1, 2, 3, 1]}, (4, 18, 21, 8)),
        ({"type": "Flatten"}, (4, 504)),
        ({"type": "Reshape", "output_shape": [-1, 3, 3, -1]}, (4, 3, 3, 56)),
        ({"type": "Reshape", "output_shape": [99, 504]}, (4, 504)),
        ({"type": "Softmax", "num_classes": 10}, (4, 10)),
        ({"type": "Softmax"}, (4, 8)),
        ({"type": "Sigmoid"}, (4, 1)),
        ({"type": "Activation", "function": "tanh"}, (4, 9, 7, 8)),
    ],
)
def test_output_shapes(one_layer: Any, layer: Any, output: tuple[int, ...]) -> None:
    assert one_layer([4, 9, 7, 8], layer).nodes[-1].output == output


def test_layers_are_frozen_values(one_layer: Any) -> None:
    one, other = (one_layer([4, 9, 7, 8], CONVOLUTION).nodes[-1].layer for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)
    assert one != one.replace(padding="SAME")
    assert "padding='VALID'" in repr(one)
    with pytest.raises(AttributeError, match="frozen"):
        one.padding = "SAME"
    with pytest.raises(AttributeError, match="frozen"):
        del one.padding
    with pytest.raises(TypeError, match="no stride"):
        one.replace(stride=1)
    with pytest.raises(TypeError, match="needs filter"):
        type(one)(strides=(1, 1), padding="SAME")
