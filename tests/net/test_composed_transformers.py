"""Layers that transformers composes: what each step reads, writes and keeps, by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

import paleo
from paleo.core.kinds import Pass
from paleo.net.composed_transformers import as_composed
from paleo.net.layers.losses import Loss

#: 2 samples of 3 positions of 8 elements in bf16, also in fp32; a number of fp32 for each row, and
#: one of bf16 for each column.
SHAPE = [2, 3, 8]
X, F, S, C = 2 * 48, 4 * 48, 4 * 6, 2 * 8
NORM = {"type": "RMSNorm", "parents": ["data"]}
ROTARY = {"type": "RotaryEmbedding", "parents": ["data"]}
GELU = {"type": "Activation", "parents": ["data"], "function": "gelu", "custom": True}
GATED = {"type": "Gated", "parents": ["data"]}


def net_of(layer: dict[str, Any]) -> paleo.NetSpec:
    layers = {"data": {"type": "Input", "parents": [], "tensor": SHAPE}, "layer": layer}
    return as_composed(paleo.loads(json.dumps({"name": "one", "layers": layers})))


def done(layer: dict[str, Any], direction: Pass, dtype: str = "bf16") -> list[Any]:
    graph = paleo.build(net_of(layer), None, dtype)
    return list(graph.operations(graph.nodes[1], direction))


def bytes_of(operations: list[Any]) -> list[tuple[int, int]]:
    """Return what each operation reads, and what it writes."""
    return [(sum(each.reads), sum(each.writes)) for each in operations]


def test_a_norm_is_computed_in_fp32_and_scaled_in_its_own_type() -> None:
    assert bytes_of(done(NORM, Pass.FORWARD)) == [
        (X, F), (F, F), (F, S), (S, S), (S, S), (F + S, F), (F, X), (X + C, X),
    ]  # fmt: skip
    # Back through the scale, the cast, the product with 1 / root: of x and, over a row, of the
    # root; its power; the mean; the square; both gradients of x.
    assert bytes_of(done(NORM, Pass.INPUT_GRADIENT)) == [
        (X + C, X), (X, F), (2 * F, F), (F, S), (F + S, F), (2 * S, S), (S, F), (F, F), (2 * F, F),
        (2 * F, F), (F, X),
    ]  # fmt: skip
    assert bytes_of(done(NORM, Pass.WEIGHT_GRADIENT)) == [(2 * X, X), (X, C)]


def test_nothing_is_cast_in_fp32_and_scaled_only_with_a_scale() -> None:
    plain = {**NORM, "affine": False}
    assert [each.label for each in done(plain, Pass.FORWARD, "fp32")] == [
        "squared", "mean", "epsilon added", "1 / root", "times that",
    ]  # fmt: skip
    assert done(plain, Pass.WEIGHT_GRADIENT) == []


def test_a_rotary_embedding_turns_halves() -> None:
    half = X // 2
    assert bytes_of(done(ROTARY, Pass.FORWARD)) == [
        (X, X), (half, half), (X, X), (X, X), (2 * X, X),
    ]  # fmt: skip
    back = bytes_of(done(ROTARY, Pass.INPUT_GRADIENT))
    assert (sum(read for read, _ in back), sum(write for _, write in back)) == (
        X + half + 0 + half + 0 + half + 2 * X + X + 2 * X,
        X + half + X + half + X + half + X + X + X,
    )
    # A quarter of each position's elements is turned; all are joined behind.
    *turned, joined = bytes_of(done({**ROTARY, "rotated": 2}, Pass.FORWARD))
    assert (turned[0], joined) == ((X // 4, X // 4), (X, X))


def test_a_gate_is_a_function_and_a_product() -> None:
    whole = X // 2  # of one parent, the last dimension holds gate and factor
    assert bytes_of(done(GATED, Pass.FORWARD)) == [(whole, whole), (2 * whole, whole)]
    assert bytes_of(done(GATED, Pass.INPUT_GRADIENT)) == [(2 * whole, whole)] * 3


def test_only_a_gelu_of_the_models_own_is_composed() -> None:
    assert len(done(GELU, Pass.FORWARD)) == 8
    assert len(done({**GELU, "custom": False}, Pass.FORWARD)) == 1


def test_steps_after_the_first_take_the_host_a_quarter_as_long() -> None:
    assert [each.handed for each in done(GELU, Pass.FORWARD)] == [1] + 7 * [0.25]


@pytest.mark.parametrize(
    ("layer", "own"),
    [(GELU, 3 * X), (NORM, F + X), ({**NORM, "affine": False}, F), (GATED, X // 2), (ROTARY, 0)],
)
def test_what_steps_keep(layer: dict[str, Any], own: int) -> None:
    (node,) = paleo.build(net_of(layer), None, "bf16").nodes[1:]
    assert node.layer.keeps(node.inputs, 2, (True,)).own == own


def judged(causal: bool) -> paleo.NetSpec:
    """Return attention of 2 heads over 4 positions, and a loss of 10 words."""
    layers = {
        "q": {"type": "Input", "parents": [], "tensor": [1, 2, 4, 4]},
        "attention": {"type": "Attention", "parents": ["q", "q", "q"], "causal": causal},
        "head": {"type": "InnerProduct", "parents": ["attention"], "num_outputs": 10},
        "labels": {"type": "Input", "parents": [], "tensor": [1, 1]},
        "loss": {"type": "Loss", "parents": ["head", "labels"]},
    }
    return paleo.loads(json.dumps({"name": "judged", "layers": layers}))


def test_scores_of_causal_models_are_cast_to_fp32_before_the_loss() -> None:
    def loss(net: paleo.NetSpec) -> list[Any]:
        graph = paleo.build(as_composed(net), None, "bf16")
        return list(graph.operations(graph.nodes[-1], Pass.FORWARD))

    scores = 10
    cast, softmax, _ = loss(judged(causal=True))
    assert (cast.reads, cast.writes) == ((2 * scores,), (4 * scores,))
    assert softmax.reads == (4 * scores,)
    own, _ = loss(judged(causal=False))
    assert own.reads == (2 * scores,)


def test_layers_that_are_one_object_stay_one() -> None:
    net = as_composed(paleo.load("llama3_2_1b"))
    norms = {id(each.layer) for each in net.layers if each.layer.type_name == "RMSNorm"}
    assert len(norms) == 1
    assert not any(isinstance(each.layer, Loss) for each in net.layers)


def test_time_and_memory_of_a_framework_that_runs_its_models() -> None:
    def ran(framework: str, **settings: Any) -> Any:
        settings |= {"batch_size": 1, "device": "H100_SXM", "dtype": "bf16", "workers": 1}
        return paleo.simulate("llama3_2_1b", framework=framework, **settings).runs[0]

    plain, composed = ran("pytorch"), ran("transformers")
    assert composed.rows[0].compute > plain.rows[0].compute
    kept = paleo.footprint("llama3_2_1b", 1, dtype="bf16", loss="cross_entropy")
    more = paleo.footprint(
        "llama3_2_1b", 1, dtype="bf16", loss="cross_entropy", framework="transformers"
    )
    assert composed.footprint(composed.rows[0]).peak == more.peak > kept.peak
    # A compiler fuses the steps.
    fused = [ran(each, compile=True).rows[0].compute for each in ("pytorch", "transformers")]
    assert fused[0] == fused[1]
