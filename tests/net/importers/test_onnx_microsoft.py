"""ONNX operators that ONNX Runtime fuses, and quantized nets: counts by hand.

A multiply-add is two FLOPs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx_models import INT, Read, last, load, node, types
from products import counts

import paleo

__all__ = ["load"]

SCALE, ZERO = np.float32(0.1), np.uint8(0)


def own(op: str, inputs: str, outputs: str = "y", **attributes: Any) -> Any:
    return node(op, inputs, outputs, domain="com.microsoft", **attributes)


def counted(net: paleo.NetSpec) -> tuple[int, int]:
    """Return the parameters, and the forward FLOPs of products."""
    return counts(net)[:2]


# Fused operators


def test_attention_with_its_projection(load: Read) -> None:
    nodes = [own("Attention", "x w b", num_heads=2)]
    net = load(nodes, {"x": ["N", 6, 8]}, {"w": (8, 24), "b": (24,)})
    # 6 rows by 8 x 24; 2 heads of 6 x 6 scores over 4 features, and as much for the values.
    assert counted(net) == (8 * 24 + 24, 2 * 6 * 8 * 24 + 2 * 2 * 2 * 36 * 4)
    assert paleo.summarize(net).layers[-1].output == (1, 6, 8)


@pytest.mark.parametrize("bias", [False, True])
def test_attention_of_many_heads(load: Read, bias: bool) -> None:
    nodes = [own("MultiHeadAttention", "q k v b" if bias else "q k v", num_heads=2)]
    inputs = {"q": ["N", 6, 8], "k": ["N", 5, 8], "v": ["N", 5, 4]}
    net = load(nodes, inputs, {"b": (20,)})
    # 6 x 5 scores of 4 features in each of 2 heads, and means of 2 values.
    assert counted(net) == (20 * bias, 2 * 2 * 30 * (4 + 2))


@pytest.mark.parametrize("packed", [False, True])
def test_attention_of_grouped_queries_with_a_past(load: Read, packed: bool) -> None:
    # 4 heads of 8 features, 2 of keys and values; 3 steps after 7.
    inputs = {"q": ["N", 3, 64 if packed else 32], "pk": ["N", 2, 7, 8], "pv": ["N", 2, 7, 8]}
    names = "q - - pk pv" if packed else "q k v pk pv"
    if not packed:
        inputs |= {"k": ["N", 3, 16], "v": ["N", 3, 16]}
    attributes = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1}
    nodes = [own("GroupQueryAttention", names, "y nk nv", **attributes), node("Relu", "nk", "z")]
    net = load(nodes, inputs, outputs="y z")
    assert counted(net) == (0, 2 * 4 * 3 * 10 * (8 + 8))
    outputs = {tuple(layer.output) for layer in paleo.summarize(net).layers}
    assert {(1, 3, 32), (1, 2, 10, 8)} <= outputs
    assert types(net).count("Rearrange") == 2


def test_embeddings_are_added_and_normalized(load: Read) -> None:
    weights = {"words": (50, 8), "at": (16, 8), "kinds": (2, 8), "g": (8,), "b": (8,)}
    nodes = [own("EmbedLayerNormalization", "i s words at kinds g b")]
    ids = {"i": ["N", 6], "s": ["N", 6]}
    net = load(nodes, ids, weights, types={"i": INT, "s": INT})
    assert counted(net)[0] == 8 * (50 + 16 + 2) + 16
    assert last(net)[:2] == ("LayerNorm", (1, 6, 8))


@pytest.mark.parametrize(
    ("nodes", "weights", "expected"),
    [
        ([own("FusedMatMul", "x w", transB=1)], {"w": (5, 8)}, (40, 2 * 6 * 40)),
        ([own("BiasGelu", "x b")], {"b": (8,)}, (8, 0)),
        # 5 rows of 8 numbers of 4 bits, two in a byte.
        ([own("MatMulNBits", "x w s", N=5, K=8, bits=4)],
         {"w": np.zeros((5, 1, 4), np.uint8), "s": np.ones(5, np.float32)}, (40, 2 * 6 * 40)),
        ([own("DynamicQuantizeMatMul", "x w s")],
         {"w": np.zeros((8, 5), np.uint8), "s": SCALE}, (40, 2 * 6 * 40)),
    ],
)  # fmt: skip
def test_products_on_rows(
    load: Read, nodes: list[Any], weights: dict[str, Any], expected: tuple[int, int]
) -> None:
    assert counted(load(nodes, {"x": ["N", 6, 8]}, weights)) == expected


def test_a_convolution_with_its_activation(load: Read) -> None:
    nodes = [own("FusedConv", "x w b", activation="Relu")]
    net = load(nodes, {"x": ["N", 3, 8, 8]}, {"w": (4, 3, 3, 3), "b": (4,)})
    assert types(net) == ["Input", "Convolution", "Activation"]
    assert counted(net) == (112, 2 * 27 * 36 * 4)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([own("FusedConv", "x w", activation="Wild")], 'FusedConv with an activation of "Wild"'),
        ([own("QLinearGlobalAveragePool", "x s z s z", channels_last=1)], "channels last"),
        ([own("MultiHeadAttention", "x", num_heads=2)], "in one tensor is not read"),
        ([own("MatMulNBits", "x w s", N=5, K=7)], "2x3x8x8 times a weight of 5x7"),
        (
            [own("Attention", "x w", num_heads=2)],
            "2x3x8x8 where a tensor of 3 dimensions should be",
        ),
        ([own("GroupQueryAttention", "s", num_heads=2)], "a number where a tensor of 3 dimensions"),
        ([own("QLinearConcat", "x")], "QLinearConcat has no input 2"),
        ([node("Split", "x", "y z", num_outputs=3)], "Split in 3, not in 2"),
        ([node("NonMaxSuppression", "x x")], "2x3x8x8 where a tensor of 3 dimensions should be"),
    ],
)
def test_what_is_not_read_of_them(load: Read, nodes: list[Any], message: str) -> None:
    weights = {"w": (4, 3, 3, 3), "s": SCALE, "z": ZERO}
    with pytest.raises(paleo.NetSpecError, match=message):
        load(nodes, {"x": [2, 3, 8, 8]}, weights, opset=18)


# Quantized nets


QUANTIZED = {
    "s": SCALE, "z": ZERO, "w": np.zeros((4, 3, 3, 3), np.int8), "zw": np.int8(0),
    "v": np.zeros((4, 5), np.int8), "f": (5, 7),
}  # fmt: skip
STORED = [
    node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q s z", "d"),
    node("DequantizeLinear", "w s zw", "dw"), node("Conv", "d dw", "c"),
    node("GlobalAveragePool", "c", "p"), node("Flatten", "p", "r"),
    node("QuantizeLinear", "r s z", "qr"), node("DequantizeLinear", "qr s z", "dr"),
    node("DequantizeLinear", "v s zw", "dv"), node("MatMul", "dr dv", "m"),
    node("MatMul", "m f"),
]  # fmt: skip


def test_products_of_stored_integers_are_said(load: Read) -> None:
    net = load(STORED, {"x": ["N", 3, 8, 8]}, QUANTIZED)
    assert net.notes == (("it is quantized: 2 of its 3 products are of int8 numbers, forward"),)
    # They are computed so, and what makes integers at once.
    computing = [spec for spec in net.layers if not spec.layer.is_view]
    assert [(spec.layer.type_name, spec.dtype) for spec in computing] == [
        ("Input", ""), ("Convolution", "int8"), ("GlobalPooling", ""), ("InnerProduct", "int8"),
        ("InnerProduct", ""),
    ]  # fmt: skip
    # Their weights are stored as integers, and stand for parameters.
    assert counted(net) == (108 + 20 + 35, 2 * (27 * 36 * 4 + 20 + 35))


def test_weights_alone_that_are_stored_as_integers_are_multiplied_as_others(load: Read) -> None:
    nodes = [node("DequantizeLinear", "w s zw", "dw"), node("Conv", "x dw")]
    assert load(nodes, {"x": ["N", 3, 8, 8]}, QUANTIZED).notes == ()


def test_operators_of_integers_are_quantized(load: Read) -> None:
    nodes = [
        node("QuantizeLinear", "x s z", "q"),
        node("QLinearConv", "q s z w s zw s z", "c"),
        own("QLinearSigmoid", "c s z s z", "g"),
        own("QLinearMul", "c s z g s z s z", "m"),
        own("QLinearAdd", "m s z c s z s z", "a"),
        own("QLinearConcat", "s z a s z c s z", "j", axis=1),
        own("QLinearGlobalAveragePool", "j s z s z", "p"),
    ]
    net = load(nodes, {"x": ["N", 3, 8, 8]}, QUANTIZED)
    assert "1 of its 1 products are of int8 numbers" in net.notes[0]
    assert all(spec.dtype == "int8" for spec in net.layers[1:])
    assert last(net)[1] == (1, 1, 1, 8)
    assert counted(net) == (108, 2 * 27 * 36 * 4)
