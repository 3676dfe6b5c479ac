"""Matrices stored in few bits: bytes read, held and priced, by hand."""

from __future__ import annotations

from typing import Any

import pytest

import paleo
from paleo.core.operations import MatMul, Pass
from paleo.net.layers.dense import InnerProduct
from paleo.net.layers.mixtures import Experts

#: Of 256 features, 64 outputs.
SHAPES, NUMBERS = ((4, 256),), 256 * 64


@pytest.mark.parametrize(
    ("keys", "scales"),
    [
        # bytes of numbers by 16384, then of scales: one for each of 64 outputs, for each 128, ...
        ({"weights": "int8"}, (1, 2 * 64)),
        ({"weights": "fp8", "group": 128}, (1, 2 * 128)),
        ({"weights": "int4", "group": 128}, (0.5, 2 * 128)),
        ({"weights": "fp4"}, (0.5, 2 * 64)),
        ({"weights": "mxfp4"}, (0.5, 16384 // 32)),
        ({"weights": "nvfp4", "group": 16}, (0.5, 16384 // 16)),
        # A group larger than what an output has is one of an output.
        ({"weights": "int4", "group": 1024}, (0.5, 2 * 64)),
    ],
)
def test_numbers_come_with_their_scales(keys: Any, scales: tuple[float, int]) -> None:
    layer, expected = InnerProduct(num_outputs=64, **keys), int(scales[0] * NUMBERS) + scales[1]
    (work, _) = layer.operations(Pass.FORWARD, SHAPES, 2)
    assert work.reads == (2 * 4 * 256, expected)
    assert isinstance(work.reads[1], int)
    assert work.flops == 2 * 4 * NUMBERS
    # Besides the matrix there are 64 biases of 2 bytes.
    assert layer.stored_bytes(SHAPES, 2) == expected + 2 * 64
    assert InnerProduct(num_outputs=64).stored_bytes(SHAPES, 2) == 2 * (NUMBERS + 64)


def test_gradients_are_of_the_nets_own_type() -> None:
    plain, small = InnerProduct(num_outputs=64), InnerProduct(num_outputs=64, weights="int4")
    for direction in (Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT):
        assert small.operations(direction, SHAPES, 2) == plain.operations(direction, SHAPES, 2)


def test_experts_are_read_in_few_bits() -> None:
    layer = Experts(num_experts=8, num_outputs=64, use_bias=False, weights="int4", group=64)
    (work,) = layer.operations(Pass.FORWARD, ((2, 3, 256),), 2)
    # 6 rows are of 6 experts, and four groups of each output have a scale.
    assert work.reads == (2 * 6 * 256, 6 * (NUMBERS // 2 + 4 * 64 * 2))
    assert layer.stored_bytes(((2, 3, 256),), 2) == 8 * (NUMBERS // 2 + 512)


LAYERS: dict[str, Any] = {
    "data": {"type": "Input", "tensor": [1, 4096]},
    "small": {
        "type": "InnerProduct", "parents": ["data"], "num_outputs": 4096, "use_bias": False,
        "weights": "int4", "group": 128,
    },
    "again": {
        "type": "InnerProduct", "parents": ["small"], "num_outputs": 4096, "use_bias": False,
        "weights": "int4", "group": 128, "shares": "small",
    },
}  # fmt: skip


def test_memory_holds_them_so_in_inference_and_whole_in_training(net: Any) -> None:
    spec = net(LAYERS)
    stored = 4096 * 4096 // 2 + 4096 * 32 * 2
    found = paleo.footprint(spec, training=False, dtype="fp16")
    assert found.weights == stored
    assert [layer.weights for layer in found.layers] == [0, stored, 0]
    assert stored < found.peak < 2 * stored
    assert paleo.footprint(spec, training=True, dtype="fp16").weights == 2 * 4096 * 4096


@pytest.mark.parametrize("model", ["roofline", "tiled"])
def test_a_product_that_waits_for_its_matrix_is_quicker(net: Any, model: str) -> None:
    def seconds(**keys: Any) -> float:
        layers = {"data": LAYERS["data"], "small": {**LAYERS["small"], **keys}}
        graph = paleo.build(net(layers), dtype="fp16")
        found = paleo.estimate_forward(graph, paleo.find_device("A100_SXM_80GB"), cost_model=model)
        return float(found.layers[1].seconds)

    # Of one row: 33.6 MB of halves are 3.88 times 8.65 MB, but for what a kernel takes besides.
    times = seconds(weights=None, group=None) / seconds()
    assert 1.5 < times < 3.89


def test_a_product_of_whole_numbers_is_what_it_was() -> None:
    plain = MatMul(3, 4, 5, 2)
    assert plain.reads == (2 * 15, 2 * 20)
    assert MatMul(3, 4, 5, 2, weight_size=0.5).reads == (2 * 15, 10)
