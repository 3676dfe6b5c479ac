"""Layers that TensorFlow composes of elementary kernels: what each reads and writes, by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

import paleo
from paleo.cluster.frameworks import FRAMEWORKS, Framework
from paleo.core.kinds import Pass
from paleo.step.passes import computed_by

#: Rows of 8 numbers, 4 of them; a number of fp32 for each element, row and column, and a mask.
N, D = 4, 8
X, R, C, M = 4 * N * D, 4 * N, 4 * D, N * D
TENSORFLOW = FRAMEWORKS["tensorflow"]
GELU = {"type": "Activation", "parents": ["data"], "function": "gelu"}
DROPOUT = {"type": "Dropout", "parents": ["data"], "dropout_keep_prob": 0.9}
NORM = {"type": "LayerNorm", "parents": ["data"]}


def done(
    layer: dict[str, Any], direction: Pass, software: Framework = TENSORFLOW, dtype: str = "fp32"
) -> list[Any]:
    layers = {"data": {"type": "Input", "parents": [], "tensor": [N, D]}, "layer": layer}
    graph = paleo.build(paleo.loads(json.dumps({"name": "one", "layers": layers})), None, dtype)
    graph = computed_by(software, graph)
    return list(graph.operations(graph.nodes[1], direction))


def moved(operations: list[Any]) -> tuple[int, int]:
    """Return the bytes that operations read, and those that they write."""
    return sum(sum(each.reads) for each in operations), sum(sum(each.writes) for each in operations)


def test_gelu_is_eight_kernels_and_ten_back() -> None:
    forward, back = done(GELU, Pass.FORWARD), done(GELU, Pass.INPUT_GRADIENT)
    # x^3, b x^3, x + that, a that, tanh, 1 + that, half of it, x that: two read two tensors.
    assert (len(forward), moved(forward)) == (8, (10 * X, 8 * X))
    # Of x h: g x, g h. Of h = (1 + t) / 2: half. Of t: (1 - t^2) g, two tensors. Times a; of
    # b x^3: times b, times 3, x^2, their product; three gradients of x are added.
    assert (len(back), moved(back)) == (10, ((2 + 2 + 1 + 2 + 1 + 1 + 1 + 1 + 2 + 3) * X, 10 * X))


def test_dropout_draws_numbers_and_makes_a_mask_of_them() -> None:
    drawn, compared, scaled, mask, kept = done(DROPOUT, Pass.FORWARD)
    assert (drawn.reads, drawn.writes, drawn.drawn) == ((), (X,), N * D)
    assert (compared.reads, compared.writes) == ((X,), (M,))
    assert (scaled.reads, scaled.writes) == ((X,), (X,))
    assert (mask.reads, mask.writes) == ((M,), (X,))
    assert (kept.reads, kept.writes) == ((X, X), (X,))
    assert sum(each.drawn for each in (compared, scaled, mask, kept)) == 0
    assert moved(done(DROPOUT, Pass.INPUT_GRADIENT)) == (3 * X, 2 * X)


def test_a_layer_normalization_is_moments_and_what_they_are_applied_by() -> None:
    # mean: x to r; (x - mean)^2: x, r to x; variance: x to r; s = scale / root: r, c to x; x s;
    # mean s: x, r to x; shift - that: x, c to x; the sum.
    forward = done(NORM, Pass.FORWARD)
    assert len(forward) == 8
    reads = (1 + 1 + 1 + 0 + 2 + 1 + 1 + 2) * X + 3 * R + 2 * C
    assert moved(forward) == (reads, 6 * X + 2 * R)
    # Of shift - m s: -g, that times s, its sum for the mean, that times the mean; of x s: g s,
    # g x; both of s; of s: times the scale, its sum for the root; of the variance: repeated,
    # divided, times 2 (x - mean) in three; of the mean: repeated, divided; three of x.
    back = done(NORM, Pass.INPUT_GRADIENT)
    assert len(back) == 4 + 2 + 1 + 2 + 2 + 3 + 2 + 1
    read = (1 + 2 + 1 + 1) + (2 + 2) + 2 + (1 + 1) + (0 + 1) + (1 + 1 + 2) + (0 + 1) + 3
    assert moved(back) == (read * X + 4 * R + C, (17 - 2) * X + 2 * R)
    # The shift's: g summed; the scale's: that of s by 1 / root, summed.
    weights = done(NORM, Pass.WEIGHT_GRADIENT)
    assert moved(weights) == (3 * X + R, X + 2 * C)


@pytest.mark.parametrize("layer", [GELU, DROPOUT, NORM])
def test_elsewhere_they_are_one_kernel(layer: dict[str, Any]) -> None:
    for software in (FRAMEWORKS["pytorch"], FRAMEWORKS["mxnet"], TENSORFLOW.compiled):
        assert software
        assert len(done(layer, Pass.FORWARD, software)) == 1


def test_other_functions_stay_one_kernel() -> None:
    assert len(done({**GELU, "function": "relu"}, Pass.FORWARD)) == 1
    assert len(done({**NORM, "affine": False}, Pass.FORWARD)) == 1


def test_tensorflow_1_computes_gelu_in_fp32() -> None:
    product = {"type": "InnerProduct", "parents": ["data"], "num_outputs": D}
    layers = {
        "data": {"type": "Input", "parents": [], "tensor": [N, D]},
        "product": product,
        "layer": {**GELU, "parents": ["product"]},
    }
    net = paleo.loads(json.dumps({"name": "two", "layers": layers}))
    for name, size, casts in (("tensorflow", 2, 0), ("tensorflow1", 4, 1)):
        for software in (FRAMEWORKS[name], FRAMEWORKS[name].compiled):
            assert software
            graph = computed_by(software, paleo.build(net, None, "mixed_fp16"))
            found = list(graph.operations(graph.nodes[2], Pass.FORWARD))
            assert [each.name for each in found].count("cast") == casts
            assert found[-1].writes == (size * N * D,)
