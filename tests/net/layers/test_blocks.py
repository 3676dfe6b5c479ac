"""Blocks of published models made of layers: parameters as published, FLOPs by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
from language_blocks import (
    absorbed_attention,
    gated_delta,
    latent_attention,
    layer,
    linear,
    mamba,
    mamba2,
    mixture,
)

import paleo
from paleo.core.operations import Attention, Pass, total_work

T = 16


def graph_of(net: Any, layers: dict[str, Any], hidden: int, **keys: Any) -> paleo.Graph:
    data = {"type": "Input", "tensor": [2, T, hidden]}
    return paleo.build(net({"x": data, **layers}), **keys)


def flops(graph: paleo.Graph) -> int:
    return int(
        total_work(
            tuple(op for node in graph.nodes for op in graph.operations(node, Pass.FORWARD))
        ).flops
    )


# Multi-head latent attention

#: DeepSeek-V2: queries down and up with a norm, keys and values down and up with a norm, output.
QUERIES = 5120 * 1536 + 1536 + 1536 * 128 * 192
LATENT = 5120 * 576 + 512 + 512 * 128 * 256
OUT = 128 * 128 * 5120


def test_latent_attention_has_the_parameters_of_deepseek_v2(net: Any) -> None:
    graph = graph_of(net, latent_attention(T), 5120)
    assert graph.num_params == QUERIES + LATENT + OUT == 149_227_520
    assert graph.nodes[-1].output == (2, T, 5120)
    products = QUERIES - 1536 + LATENT - 512 + OUT
    scores = 2 * 2 * 128 * T * T * (192 + 128)
    assert flops(graph) == 2 * 2 * T * products + scores


def test_the_absorbed_form_has_the_same_and_reads_one_latent(net: Any) -> None:
    graph = graph_of(net, absorbed_attention(T), 5120)
    assert graph.num_params == QUERIES + LATENT + OUT
    assert graph.nodes[-1].output == (2, T, 5120)
    # Each head multiplies its queries and what it has summed up by its part of the matrix.
    products = QUERIES - 1536 + LATENT - 512 + OUT
    scores = 2 * 2 * 128 * T * T * (576 + 512)
    assert flops(graph) == 2 * 2 * T * products + scores
    (work,) = (
        op for node in graph.nodes for op in graph.operations(node, Pass.FORWARD)
        if isinstance(op, Attention)
    )  # fmt: skip
    assert (work.heads, work.sharing, work.depth, work.value_depth) == (256, 128, 576, 512)
    assert work.reads[1:] == (4 * 2 * T * 576, 0)


# Mixtures of experts


def test_a_mixture_has_the_parameters_of_its_experts(net: Any) -> None:
    # Mixtral 8x7B: 8 experts of 4096 x 14336, two of them for each token, none shared by all;
    # here with a small one that is.
    graph = graph_of(net, mixture(4096, 14336, 8, 2, shared=64), 4096)
    router, expert, own = 4096 * 8, 3 * 4096 * 14336, 3 * 4096 * 64
    assert graph.num_params == router + 8 * expert + own
    assert flops(graph) == 2 * 2 * T * (router + 2 * expert + own)
    assert graph.nodes[-1].output == (2, T, 4096)


def test_with_a_capacity_places_count_not_tokens(net: Any) -> None:
    # ceil(1.25 * 16*2 / 8) = 5 places of each of 8 experts, for each of 2 samples.
    sent = {"capacity": 1.25, "num_experts": 8}
    graph = graph_of(net, mixture(64, 32, 8, 2, shared=16, **sent), 64)
    rows = 2 * 8 * 5
    assert flops(graph) == 2 * (2 * T * 64 * 8 + rows * 3 * 64 * 32 + 2 * T * 3 * 64 * 16)
    assert graph.nodes[-1].output == (2, T, 64)


# State spaces


def test_mamba_130m_has_the_parameters_that_are_published(net: Any) -> None:
    block = graph_of(net, mamba(768, 1536, 16, 48), 768).num_params
    # 24 of them with a norm each, one at the end, and a table of 50280 words, which is the head.
    assert 24 * (block + 768) + 768 + 50280 * 768 == 129_135_360


def test_mamba2_130m_has_the_parameters_that_are_published(net: Any) -> None:
    block = graph_of(net, mamba2(T, 768, 1536, 24, 128), 768).num_params
    assert 24 * (block + 768) + 768 + 50288 * 768 == 128_989_632


def test_a_gated_delta_net_has_a_decay_and_its_bias_for_each_head(net: Any) -> None:
    # Qwen3-Next: 2048 features, 16 heads of keys, 32 of values, 128 features each.
    graph = graph_of(net, gated_delta(T, 2048, 16, 32, 128), 2048)
    projected = 2048 * (2 * 2048 + 2 * 4096) + 2048 * 64
    assert graph.num_params == projected + 4 * 8192 + 2 * 32 + 128 + 4096 * 2048


# Vision and audio


def test_patches_and_a_class_token_are_a_convolution_and_a_parameter(net: Any) -> None:
    graph = paleo.build(
        net(
            {
                "image": {"type": "Input", "tensor": [2, 224, 224, 3]},
                "patches": layer(
                    "Convolution", "image", filter=[16, 16, 3, 768], strides=[1, 16, 16, 1],
                    padding="VALID",
                ),
                "words": layer("Reshape", "patches", output_shape=[-1, 196, 768]),
                "class": {"type": "Parameter", "shape": [1, 768]},
                "all": layer("Concatenate", "class", "words", dim=1),
                "places": {"type": "Parameter", "shape": [197, 768]},
                "sum": layer("Elementwise", "all", "places"),
            }
        )
    )  # fmt: skip
    assert graph.nodes[-1].output == (2, 197, 768)
    assert graph.num_params == 16 * 16 * 3 * 768 + 768 + 768 + 197 * 768


def test_two_convolutions_halve_the_frames_of_a_sound(net: Any) -> None:
    # Whisper tiny: 80 bands of 3000 frames, 384 features.
    same = {"activation_fn": "gelu", "padding": [1]}
    graph = paleo.build(
        net(
            {
                "mel": {"type": "Input", "tensor": [1, 3000, 80]},
                "one": layer("Convolution", "mel", filter=[3, 80, 384], strides=[1, 1, 1], **same),
                "two": layer("Convolution", "one", filter=[3, 384, 384], strides=[1, 2, 1], **same),
            }
        )
    )
    assert graph.nodes[-1].output == (1, 1500, 384)
    assert graph.num_params == 3 * 80 * 384 + 384 + 3 * 384 * 384 + 384


def test_windows_of_an_image_are_attention_with_one_more_dimension(net: Any) -> None:
    """Swin's first stage: 56 x 56 places in 64 windows of 49, 3 heads of 32 features, shifted."""
    layers: dict[str, Any] = {
        "image": {"type": "Input", "tensor": [2, 56, 56, 96]},
        "shifted": layer("Rearrange", "image"),
        "rows": layer("Reshape", "shifted", output_shape=[-1, 8, 7, 8, 7, 96]),
        "windows": layer("Transpose", "rows", perm=[0, 1, 3, 2, 4, 5]),
        "flat": layer("Reshape", "windows", output_shape=[-1, 64, 49, 96]),
        "biases": {"type": "Parameter", "shape": [1, 3, 49, 49], "trainable": False},
    }
    for name in ("q", "k", "v"):
        layers[f"{name}_all"] = linear("flat", 96, use_bias=True)
        layers[f"{name}_heads"] = layer("Reshape", f"{name}_all", output_shape=[-1, 64, 49, 3, 32])
        layers[name] = layer("Transpose", f"{name}_heads", perm=[0, 1, 3, 2, 4])
    layers["attention"] = layer("Attention", "q", "k", "v", "biases")
    graph = paleo.build(net(layers))
    (work,) = graph.operations(graph.nodes[-1], Pass.FORWARD)
    assert isinstance(work, Attention)
    assert (work.heads, work.queries, work.keys, work.depth) == (2 * 64 * 3, 49, 49, 32)
    assert work.mask == 4 * 3 * 49 * 49


# All of them are priced, trained and held

BLOCKS: dict[str, tuple[dict[str, Any], int]] = {
    "latent": (latent_attention(T), 5120),
    "absorbed": (absorbed_attention(T), 5120),
    "mixture": (mixture(64, 32, 8, 2, shared=16), 64),
    "mamba": (mamba(64, 128, 16, 4), 64),
    "mamba2": (mamba2(T, 64, 128, 4, 16), 64),
    "delta": (gated_delta(T, 64, 2, 4, 16), 64),
}


#: As it is, with what is pointwise in the kernels before, and as frameworks run it.
WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "fused": {"fuse": True},
    "pytorch": {"framework": "pytorch"},
    "inductor": {"framework": "pytorch", "compile": True},
    "tensorflow": {"framework": "tensorflow"},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", ["bf16", "mixed_bf16"])
def test_a_block_is_priced_however_it_runs(net: Any, name: str, way: str, dtype: str) -> None:
    layers, hidden = BLOCKS[name]
    spec = net({"x": {"type": "Input", "tensor": [2, T, hidden]}, **layers})
    found = paleo.simulate(spec, device="A100_SXM_80GB", dtype=dtype, scaling="weak", **WAYS[way])
    (run,) = found.runs
    assert not run.not_counted
    assert 0 < float(run.rows[0].total()) < math.inf


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("training", [True, False])
def test_a_block_is_held_with_what_its_backward_pass_needs(
    net: Any, name: str, training: bool
) -> None:
    layers, hidden = BLOCKS[name]
    spec = net({"x": {"type": "Input", "tensor": [2, T, hidden]}, **layers})
    found = paleo.footprint(spec, dtype="bf16", training=training)
    params = paleo.build(spec).num_params
    assert found.weights == 2 * params
    assert found.activations > 0
    assert found.peak > found.weights
