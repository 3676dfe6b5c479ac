"""ONNX operators that compute, one at a time: the layer, what it gives, holds and costs.

Figures in comments are by hand; a multiply-add is two FLOPs. Paleo's shapes have channels last.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx_models import IMAGE, INT, NEWEST, Read, last, load, node, types

import paleo
from paleo.net.importers.onnx.untrained import find_untrained

helper = pytest.importorskip("onnx.helper")
numpy_helper = pytest.importorskip("onnx.numpy_helper")

__all__ = ["load"]

BFLOAT16 = 16
OPSETS = (7, 9, 11, 13, 17, 18, 20, 21, 23, NEWEST)


@pytest.mark.parametrize("opset", OPSETS)
def test_convolution(load: Read, opset: int) -> None:
    nodes = [node("Conv", "x w b", strides=[2, 1], pads=[1, 0, 1, 2])]
    net = load(nodes, IMAGE, {"w": (4, 3, 3, 3), "b": (4,)}, opset=opset)
    # (9 + 2 - 3) / 2 + 1 = 5 rows, 8 + 2 - 3 + 1 = 8 columns; 3*3*3*4 + 4 parameters;
    # 2 * 27 * 5*8*4 FLOPs.
    assert last(net) == ("Convolution", (1, 5, 8, 4), 112, 8640)


@pytest.mark.parametrize(
    ("inputs", "weight", "attributes", "expected"),
    [
        # 1-D, dilated by 2: a span of 5, 20 - 4 = 16 steps; 3*6*8 weights.
        ([6, 20], (8, 6, 3), {"dilations": [2]}, ((1, 16, 8), 144, 2 * 18 * 16 * 8)),
        # 3-D.
        ([2, 5, 6, 7], (4, 2, 2, 3, 3), {}, ((1, 4, 4, 5, 4), 144, 2 * 36 * 80 * 4)),
        # Depthwise: each of 8 channels has 9 weights.
        ([8, 6, 6], (8, 1, 3, 3), {"group": 8}, ((1, 4, 4, 8), 72, 2 * 9 * 16 * 8)),
        # In 2 groups, each output sees 4 of 8 channels.
        ([8, 6, 6], (6, 4, 1, 1), {"group": 2}, ((1, 6, 6, 6), 24, 2 * 4 * 36 * 6)),
        # ceil(7 / 2) = 4 rows, whichever side is padded more.
        (
            [3, 7, 7],
            (4, 3, 3, 3),
            {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
            ((1, 4, 4, 4), 108, 2 * 27 * 16 * 4),
        ),
        (
            [3, 8, 8],
            (4, 3, 3, 3),
            {"auto_pad": "SAME_LOWER", "strides": [2, 2]},
            ((1, 4, 4, 4), 108, 2 * 27 * 16 * 4),
        ),
        (
            [3, 8, 8],
            (4, 3, 3, 3),
            {"auto_pad": "VALID"},
            ((1, 6, 6, 4), 108, 2 * 27 * 36 * 4),
        ),
    ],
)
def test_convolutions_of_all_kinds(
    load: Read,
    inputs: list[int],
    weight: tuple[int, ...],
    attributes: dict[str, Any],
    expected: tuple[Any, ...],
) -> None:
    net = load([node("Conv", "x w", **attributes)], {"x": ["N", *inputs]}, {"w": weight})
    assert last(net) == ("Convolution", *expected)


@pytest.mark.parametrize(
    ("attributes", "size"),
    [
        ({}, 17),  # 2 * 7 + 3
        ({"pads": [1, 1, 1, 1]}, 15),
        ({"pads": [1, 1, 1, 1], "output_padding": [1, 1]}, 16),
        ({"output_shape": [16, 16]}, 16),
        ({"auto_pad": "SAME_UPPER"}, 16),  # 8 * 2
        ({"dilations": [2, 2]}, 19),  # a span of 5
    ],
)
def test_transposed_convolution(load: Read, attributes: dict[str, Any], size: int) -> None:
    nodes = [node("ConvTranspose", "x w b", strides=[2, 2], **attributes)]
    net = load(nodes, {"x": ["N", 5, 8, 8]}, {"w": (5, 6, 3, 3), "b": (6,)})
    # Every element of the input meets all 9*5*6 weights; 6 biases, as ONNX has them.
    assert last(net) == ("Deconvolution", (1, size, size, 6), 276, 2 * 270 * 64)


@pytest.mark.parametrize("opset", [7, 11, 13, NEWEST])
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_pooling(load: Read, op: str, opset: int) -> None:
    nodes = [node(op, "x", kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 0])]
    net = load(nodes, IMAGE, opset=opset)
    kind, output, params, _ = last(net)
    # (9 + 2 - 3) / 2 + 1 = 5, (8 - 2) / 2 + 1 = 4
    assert (kind, output, params) == (
        "Pooling" if op == "MaxPool" else "AvgPool",
        (1, 5, 4, 3),
        0,
    )


def test_pooling_rounds_up(load: Read) -> None:
    nodes = [node("MaxPool", "x", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)]
    # (8 - 3) / 2 + 1 = 3.5
    assert last(load(nodes, {"x": ["N", 3, 8, 8]}))[1] == (1, 4, 4, 3)


@pytest.mark.parametrize(
    ("nodes", "weights", "opset"),
    [
        ([node("GlobalAveragePool", "x")], {}, 17),
        ([node("ReduceMean", "x", axes=[2, 3])], {}, 17),
        ([node("ReduceMean", "x a")], {"a": [2, 3]}, 18),
        ([node("ReduceMean", "x a")], {"a": [-1, -2]}, NEWEST),
    ],
)
def test_global_pooling(load: Read, nodes: list[Any], weights: dict[str, Any], opset: int) -> None:
    net = load(nodes, IMAGE, weights, opset=opset)
    assert last(net)[:2] == ("GlobalPooling", (1, 1, 1, 3))


@pytest.mark.parametrize("turned", [0, 1])
@pytest.mark.parametrize("bias", [(5,), (1, 5)])
def test_gemm(load: Read, turned: int, bias: tuple[int, ...]) -> None:
    weight = (5, 7) if turned else (7, 5)
    nodes = [node("Gemm", "x w b", transB=turned)]
    net = load(nodes, {"x": ["N", 7]}, {"w": weight, "b": bias}, opset=13)
    # 7*5 + 5; 2 * 7*5
    assert last(net) == ("InnerProduct", (1, 5), 40, 70)


def test_flatten_and_gemm_is_one_inner_product(load: Read) -> None:
    nodes = [node("Flatten", "x", "f"), node("Gemm", "f w", transB=1)]
    net = load(nodes, IMAGE, {"w": (10, 216)})
    assert types(net)[-1] == "InnerProduct"
    assert last(net)[1:] == ((1, 10), 2160, 4320)


@pytest.mark.parametrize("order", ["m b", "b m"])
def test_matmul_takes_the_bias_after_it(load: Read, order: str) -> None:
    nodes = [node("MatMul", "x w", "m"), node("Add", order)]
    net = load(nodes, {"x": ["N", 4, 7]}, {"w": (7, 5), "b": (5,)})
    assert types(net) == ["Input", "InnerProduct"]
    # 2 * 4 rows * 7*5
    assert last(net) == ("InnerProduct", (1, 4, 5), 40, 280)


def test_matmul_leaves_a_sum_that_is_no_bias(load: Read) -> None:
    nodes = [node("MatMul", "x w", "m"), node("Add", "m b", "a"), node("Add", "a m")]
    net = load(nodes, {"x": ["N", 4, 7]}, {"w": (7, 5), "b": (5,)})
    # m is read twice
    assert types(net).count("Elementwise") == 2


def test_matmul_of_a_transposed_weight(load: Read) -> None:
    nodes = [node("Transpose", "w", "t", perm=[1, 0]), node("MatMul", "x t")]
    net = load(nodes, {"x": ["N", 4, 7]}, {"w": (5, 7)})
    assert types(net) == ["Input", "InnerProduct"]
    assert last(net)[2:] == (35, 280)


def test_matmul_of_two_activations(load: Read) -> None:
    nodes = [node("Transpose", "x", "t", perm=[0, 2, 1]), node("MatMul", "x t")]
    net = load(nodes, {"x": ["N", 4, 7]})
    assert last(net) == ("MatMul", (1, 4, 4), 0, 2 * 4 * 7 * 4)


def test_einsum(load: Read) -> None:
    nodes = [node("Einsum", "x w", equation="btd,dk->btk")]
    net = load(nodes, {"x": ["N", 4, 7]}, {"w": (7, 5)})
    assert last(net)[2:] == (35, 280)


def test_a_weight_in_a_constant_node_is_a_weight(load: Read) -> None:
    value = numpy_helper.from_array(np.zeros((7, 5), np.float32))
    nodes = [node("Constant", "", "w", value=value), node("MatMul", "x w")]
    assert last(load(nodes, {"x": ["N", 7]})) == ("InnerProduct", (1, 5), 35, 70)


def test_a_shared_weight_counts_once(load: Read) -> None:
    nodes = [node("Conv", "x w", "a"), node("Conv", "a w")]
    net = load(nodes, {"x": ["N", 3, 9, 9]}, {"w": (3, 3, 3, 3)})
    summary = paleo.summarize(net)
    assert summary.num_params == 81
    # 7x7 and 5x5 positions of 3 channels, 27 multiply-adds each
    assert summary.forward_flops == 2 * 27 * 3 * (49 + 25)


def test_words_are_looked_up_and_scored_by_one_table(load: Read) -> None:
    nodes = [
        node("Gather", "x w", "e"),
        node("Transpose", "w", "t", perm=[1, 0]),
        node("MatMul", "e t"),
    ]
    nodes[0].input[:] = ["w", "x"]
    net = load(nodes, {"x": ["N", 6]}, {"w": (50, 8)}, types={"x": INT})
    assert types(net) == ["Input", "Embedding", "InnerProduct"]
    assert paleo.summarize(net).num_params == 400
    assert last(net)[1] == (1, 6, 50)


def test_a_weight_and_its_transposed_copy_count_once(load: Read) -> None:
    table = np.arange(400, dtype=np.float32).reshape(50, 8)
    nodes = [node("Gather", "w x", "e"), node("MatMul", "e onnx::MatMul_7")]
    weights = {"w": table, "onnx::MatMul_7": np.ascontiguousarray(table.T)}
    net = load(nodes, {"x": ["N", 6]}, weights, types={"x": INT})
    assert paleo.summarize(net).num_params == 400
    weights["onnx::MatMul_7"] = weights["onnx::MatMul_7"] + 1
    net = load(nodes, {"x": ["N", 6]}, weights, types={"x": INT})
    assert paleo.summarize(net).num_params == 800


@pytest.mark.parametrize("opset", [7, 9, 14, 15, NEWEST])
def test_batch_norm_trains_scale_and_shift_only(load: Read, opset: int) -> None:
    weights = {"s": (3,), "b": (3,), "m": (3,), "v": (3,)}
    net = load([node("BatchNormalization", "x s b m v")], IMAGE, weights, opset=opset)
    assert last(net) == ("BatchNorm", (1, 9, 8, 3), 6, 0)


def test_a_normalization_by_ones_and_zeros_of_the_graph_has_no_parameters(load: Read) -> None:
    one, zero = (numpy_helper.from_array(np.full(3, x, np.float32)) for x in (1, 0))
    constants = [node("Constant", "", "s", value=one), node("Constant", "", "b", value=zero)]
    net = load([*constants, node("InstanceNormalization", "x s b")], IMAGE)
    assert last(net)[0::2] == ("InstanceNorm", 0)


def test_a_normalization_by_what_is_fed_or_computed_has_none_either(load: Read) -> None:
    nodes = [node("Add", "f one", "s"), node("BatchNormalization", "x s b m v")]
    inputs = {"x": [2, 3, 9, 8], **{name: [3] for name in "fbmv"}}
    net = load(nodes, inputs, {"one": (3,)})
    # What is added to the scale, and the scale behind the normalization.
    assert [paleo.summarize(net).num_params, types(net).count("BatchNorm")] == [3, 1]


@pytest.mark.parametrize("hidden", [-100.0, -np.inf, -1.0])
def test_a_mask_is_no_parameter(load: Read, hidden: float) -> None:
    mask = np.where(np.tri(8), 0, hidden).astype(np.float32)
    net = load([node("Add", "x m", "s"), node("Softmax", "s")], {"x": ["N", 8, 8]}, {"m": mask})
    assert paleo.summarize(net).num_params == (64 if hidden == -1 else 0)


def test_fed_filters_are_no_parameters(load: Read) -> None:
    net = load([node("Conv", "x w b")], {"x": [1, 3, 9, 8], "w": [4, 3, 3, 3], "b": [4]})
    # 7 x 6 windows of 27 products for each of 4 channels.
    assert (types(net).count("Input"), paleo.summarize(net).num_params) == (1, 0)
    assert sum(int(x.forward_flops or 0) for x in paleo.summarize(net).layers) == 2 * 27 * 42 * 4


def test_weights_that_a_recurrent_layer_is_fed_are_counted_and_said(load: Read) -> None:
    inputs = {"x": [7, 2, 5], "w": [1, 12, 5], "r": [1, 12, 3]}
    net = load([node("LSTM", "x w r", hidden_size=3)], inputs)
    assert paleo.summarize(net).num_params == 12 * 5 + 12 * 3
    assert net.notes == ("the weights of LSTM_0 are fed, and count as parameters of its own",)


@pytest.mark.parametrize("kv_heads", [4, 2])
def test_attention_that_gives_its_scores_too(load: Read, kv_heads: int) -> None:
    inputs = {"q": ["N", 4, 6, 8], "k": ["N", kv_heads, 5, 8], "v": ["N", kv_heads, 5, 7]}
    nodes = [node("Attention", "q k v", "y past_k past_v s"), node("Relu", "s", "z")]
    net = load(nodes, inputs, opset=24, outputs="y z")
    products = [x for x in paleo.summarize(net).layers if x.type_name == "MatMul"]
    # Each of 4 heads: 6 x 5 scores of 8 features, 6 x 7 means of 5 values.
    assert [x.forward_flops for x in products] == [4 * 2 * 30 * 8, 4 * 2 * 42 * 5]
    assert {tuple(x.output) for x in paleo.summarize(net).layers} >= {(1, 4, 6, 5), (1, 4, 6, 7)}


def test_a_part_of_nothing_is_no_layer(load: Read) -> None:
    nodes = [
        node("Split", "x parts", "a b", axis=1),
        node("Relu", "b", "c"),
        node("Concat", "a c", "d", axis=1),
        node("Relu", "d"),
    ]
    net = load(nodes, {"x": ["N", 8]}, {"parts": [8, 0]}, opset=13)
    assert types(net) == ["Input", "Activation"]


@pytest.mark.parametrize(
    ("op", "names", "attributes", "opset", "params", "kind"),
    [
        ("InstanceNormalization", "x s b", {}, 7, 6, "InstanceNorm"),
        ("GroupNormalization", "x s b", {"num_groups": 3}, 21, 6, "GroupNorm"),
        ("LayerNormalization", "x l", {}, 17, 8, "LayerNorm"),
        ("LayerNormalization", "x l k", {"axis": -1}, 17, 16, "LayerNorm"),
        ("RMSNormalization", "x l", {}, 23, 8, "RMSNorm"),
        ("LRN", "x", {"size": 5}, 13, 0, "LRN"),
    ],
)
def test_normalizations(
    load: Read,
    op: str,
    names: str,
    attributes: dict[str, Any],
    opset: int,
    params: int,
    kind: str,
) -> None:
    weights = {"s": (3,), "b": (3,), "l": (8,), "k": (8,)}
    net = load([node(op, names, **attributes)], IMAGE, weights, opset=opset)
    assert kind in types(net)
    assert paleo.summarize(net).num_params == params


@pytest.mark.parametrize(
    ("op", "function", "opset"),
    [
        ("Relu", "relu", 7),
        ("LeakyRelu", "leaky_relu", 7),
        ("Sigmoid", "sigmoid", 13),
        ("Tanh", "tanh", 13),
        ("Elu", "elu", 7),
        ("Selu", "selu", 7),
        ("Softplus", "softplus", 7),
        ("Gelu", "gelu", 20),
        ("Mish", "mish", 18),
        ("HardSwish", "hard_swish", 14),
        ("Swish", "silu", 24),
        ("Erf", "erf", 13),
        ("Sqrt", "sqrt", 13),
        ("Celu", "celu", 12),
    ],
)
def test_activations(load: Read, op: str, function: str, opset: int) -> None:
    net = load([node(op, "x")], IMAGE, opset=opset)
    assert vars(net.layers[-1].layer)["function"] == function
    assert last(net)[1] == (1, 9, 8, 3)


@pytest.mark.parametrize(
    ("nodes", "weights", "opset"),
    [
        ([node("Clip", "x", min=0.0, max=6.0)], {}, 7),
        ([node("Clip", "x low high")], {"low": np.float32(0), "high": np.float32(6)}, 13),
    ],
)
def test_clip_between_0_and_6(
    load: Read, nodes: list[Any], weights: dict[str, Any], opset: int
) -> None:
    net = load(nodes, IMAGE, weights, opset=opset)
    assert vars(net.layers[-1].layer)["function"] == "relu6"


@pytest.mark.parametrize("slope", [(3, 1, 1), (1,)])
def test_prelu(load: Read, slope: tuple[int, ...]) -> None:
    net = load([node("PRelu", "x s")], IMAGE, {"s": slope})
    assert last(net)[:3] == ("PReLU", (1, 9, 8, 3), slope[0])


@pytest.mark.parametrize(
    ("nodes", "weights", "opset", "keeps"),
    [
        ([node("Dropout", "x", ratio=0.2)], {}, 7, 0.8),
        ([node("Dropout", "x r t")], {"r": np.float32(0.25), "t": np.True_}, 13, 0.75),
        ([node("Dropout", "x")], {}, 13, 0.5),
    ],
)
def test_dropout(
    load: Read, nodes: list[Any], weights: dict[str, Any], opset: int, keeps: float
) -> None:
    net = load(nodes, IMAGE, weights, opset=opset)
    layer = net.layers[-1].layer
    assert vars(layer)["dropout_keep_prob"] == pytest.approx(keeps)


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Mean", "Pow"])
def test_two_activations_are_joined(load: Read, op: str) -> None:
    net = load([node("Relu", "x", "a"), node(op, "a x")], IMAGE)
    assert last(net)[:2] == ("Elementwise", (1, 9, 8, 3))


def test_a_number_makes_an_activation(load: Read) -> None:
    net = load([node("Mul", "x k")], IMAGE, {"k": np.float32(2)})
    assert types(net) == ["Input", "Activation"]


def test_a_parameter_is_added(load: Read) -> None:
    net = load([node("Add", "x k")], {"x": ["N", 16, 8]}, {"k": (1, 16, 8)})
    assert types(net) == ["Input", "Parameter", "Elementwise"]
    assert paleo.summarize(net).num_params == 128


@pytest.mark.parametrize(("opset", "axis"), [(11, 1), (13, 1), (13, -1)])
def test_softmax(load: Read, opset: int, axis: int) -> None:
    net = load([node("Softmax", "x", axis=axis)], {"x": ["N", 10]}, opset=opset)
    assert last(net)[:2] == ("Softmax", (1, 10))


# Recurrence and attention


@pytest.mark.parametrize(("op", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
@pytest.mark.parametrize("directions", [1, 2])
def test_recurrence(load: Read, op: str, gates: int, directions: int) -> None:
    rows = gates * 6
    weights = {
        "w": (directions, rows, 5),
        "r": (directions, rows, 6),
        "b": (directions, 2 * rows),
    }
    attributes = {"hidden_size": 6, "direction": "bidirectional" if directions == 2 else "forward"}
    nodes = [node(op, "x w r b", "y", **attributes), node("Relu", "y", "z")]
    net = load(nodes, {"x": [7, "batch", 5]}, weights, opset=14)
    layer = next(each for each in paleo.summarize(net).layers if each.type_name == op)
    assert layer.output == (1, 7, directions * 6)
    # Weights of input and state, and two biases
    assert layer.num_params == directions * rows * (5 + 6 + 2)
    assert layer.forward_flops == 2 * 7 * directions * rows * (5 + 6)


def test_the_last_state_of_a_recurrence(load: Read) -> None:
    nodes = [
        node("LSTM", "x w r", "- h c", hidden_size=6, layout=1),
        node("Squeeze", "h a", "q"),
        node("Gemm", "q v", "z"),
    ]
    nodes[0].output[0] = ""
    weights = {"w": (1, 24, 5), "r": (1, 24, 6), "a": [1], "v": (6, 3)}
    net = load(nodes, {"x": ["N", 7, 5]}, weights, opset=14, outputs="z")
    assert last(net) == ("InnerProduct", (1, 3), 18, 36)
    assert paleo.summarize(net).num_params == 24 * (5 + 6) + 18


@pytest.mark.parametrize("packed", [False, True])
def test_attention_in_one_node(load: Read, packed: bool) -> None:
    q, kv = ([10, 32], [12, 16]) if packed else ([4, 10, 8], [2, 12, 8])
    heads: dict[str, Any] = {"q_num_heads": 4, "kv_num_heads": 2} if packed else {}
    inputs = {"q": ["N", *q], "k": ["N", *kv], "v": ["N", *kv]}
    net = load([node("Attention", "q k v", **heads)], inputs, opset=23)
    attention = next(each for each in paleo.summarize(net).layers if each.type_name == "Attention")
    # Scores and sums: each 4 heads of 10x8 times 12
    assert attention.forward_flops == 2 * 2 * 4 * 10 * 8 * 12


def test_linear_attention(load: Read) -> None:
    inputs = {name: ["N", 10, 32] for name in "qkv"}
    attributes = {"q_num_heads": 4, "kv_num_heads": 4, "update_rule": "linear"}
    net = load([node("LinearAttention", "q k v", "y s", **attributes)], inputs, opset=27)
    # Into the state and out of it: 10 steps of 4 heads of 8x8
    assert paleo.summarize(net).forward_flops == 2 * 2 * 10 * 4 * 64


# Quantized


def test_quantized_weights_are_parameters(load: Read) -> None:
    weights = {"w": np.zeros((7, 5), np.int8), "s": np.float32(0.1), "z": np.int8(0)}
    nodes = [node("DequantizeLinear", "w s z", "d"), node("MatMul", "x d")]
    assert last(load(nodes, {"x": ["N", 7]}, weights)) == ("InnerProduct", (1, 5), 35, 70)


def test_quantized_convolution(load: Read) -> None:
    scale, zero = np.float32(0.1), np.uint8(0)
    weights = {
        "s": scale,
        "z": zero,
        "w": np.zeros((4, 3, 3, 3), np.uint8),
        "b": np.zeros(4, np.int32),
    }
    nodes = [node("QuantizeLinear", "x s z", "q"), node("QLinearConv", "q s z w s z s z b")]
    net = load(nodes, {"x": ["N", 3, 8, 8]}, weights)
    assert last(net) == ("Convolution", (1, 6, 6, 4), 112, 2 * 27 * 36 * 4)


@pytest.mark.parametrize(
    ("name", "numbers", "params"),
    [
        ("zeros_3", np.zeros(5), 0),
        ("new_full", np.full(5, 3.0), 0),
        ("ones_like_1", np.ones(5), 0),
        # Not of one number, not the name of what fills, no name at all.
        ("ones", np.arange(5.0), 5),
        ("bias", np.zeros(5), 5),
        ("val_3", np.zeros(5), 5),
    ],
)
def test_tensors_that_an_exporter_filled(load: Read, name: str, numbers: Any, params: int) -> None:
    net = load([node("Mul", f"x {name}")], {"x": ["N", 5]}, {name: numbers.astype(np.float32)})
    assert paleo.summarize(net).num_params == params


ANGLES = np.outer(np.arange(6), 10.0 ** -np.arange(4))
COS, SIN = np.cos(ANGLES)[None], np.sin(ANGLES)[None]
ROOM = np.random.default_rng(0).standard_normal((1, 6, 4))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
@pytest.mark.parametrize(
    ("names", "tables", "params"),
    [
        (("unsqueeze_14", "unsqueeze_15"), (COS, SIN), 0),
        # As scaled for contexts longer than those of training.
        (("cos", "sin"), (1.35 * COS, 1.35 * SIN), 0),
        # A module's own; the cosines alone; any numbers; scales and shifts of one number each.
        (("a.cos", "a.sin"), (COS, SIN), 48),
        (("mul_1", "mul_2"), (COS, COS), 48),
        (("mul_1", "mul_2"), (ROOM, SIN), 48),
        (("mul_1", "mul_2"), (np.ones((1, 6, 4)), np.zeros((1, 6, 4))), 48),
    ],
)
def test_tables_that_an_exporter_computed(
    load: Read, names: tuple[str, str], tables: tuple[Any, Any], params: int, dtype: Any
) -> None:
    a, b = names
    weights = {a: tables[0].astype(dtype), b: tables[1].astype(dtype)}
    nodes = [
        node("Mul", f"x {a}", "turned"),
        node("Mul", f"x {b}", "other"),
        node("Add", "turned other", "sum"),
        node("Mul", f"sum {a}"),
    ]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    net = load(nodes, {"x": ["N", 6, 4]}, weights, types={"x": kind})
    assert paleo.summarize(net).num_params == params
    # What reads the same table reads one tensor.
    assert types(net).count("Parameter") == 2


def test_tables_of_bfloat16() -> None:
    bits = [(x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16) for x in (COS, SIN)]
    tensors = [
        helper.make_tensor(name, BFLOAT16, x.shape, x.tobytes(), raw=True)
        for name, x in zip(("cos_1", "sin_1"), bits, strict=True)
    ]
    assert find_untrained(helper.make_graph([], "net", [], [], tensors)) == {"cos_1", "sin_1"}
