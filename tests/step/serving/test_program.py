"""What serving programs compute of nets: products, attention, experts and messages, by hand."""

from __future__ import annotations

from typing import Any

import pytest

import paleo
from paleo.core.errors import SettingError
from paleo.net.division import divided
from paleo.step.serving.program import Experts, Latent, Product, Program, read_program
from paleo.step.shortened import shortened


def program(name: str, tp: int = 1) -> Program:
    return read_program(divided(paleo.load(name, dims={"seq": 1}), tp))


def products(found: Program) -> dict[Any, int]:
    """Return products, whether or not attention is beside them, each with how often."""
    return {each._replace(is_of_attention=False): count for each, count in found.products}


def test_products_that_read_the_same_are_one() -> None:
    # Llama 3 8B: 32 heads and twice 8 of 128, hidden 4096, 14336 gate and up, 128256 words.
    assert products(program("llama3_8b")) == {
        Product(4096, (32 + 8 + 8) * 128, "q_proj"): 32,
        Product(4096, 4096, "o_proj"): 32,
        Product(4096, 2 * 14336, "gate_proj"): 32,
        Product(14336, 4096, "down_proj"): 32,
        Product(4096, 128256, "scores", True): 1,
    }


def test_devices_share_columns_then_rows_and_exchange_sums() -> None:
    found = program("llama3_8b", 4)
    assert products(found) == {
        Product(4096, (8 + 2 + 2) * 128, "q_proj"): 32,
        Product(1024, 4096, "o_proj"): 32,
        Product(4096, 2 * 3584, "gate_proj"): 32,
        Product(3584, 4096, "down_proj"): 32,
        Product(4096, 128256 // 4, "scores", True): 1,
    }
    # Two sums a block and that of embeddings, of 4096 halves a token.
    ((message, count),) = found.messages
    assert (message.num_bytes, message.operation, count) == (2 * 4096, "all_reduce", 65)


def test_a_cache_has_keys_and_values() -> None:
    ((mixer, count),) = program("llama3_8b").mixers
    assert (mixer.cached, mixer.window, count) == (2 * 8 * 128, 0, 32)
    windowed, whole = program("gpt_oss_20b").mixers
    assert (windowed[0].window, whole[0].window) == (128, 0)


def test_sums_are_computed_by_the_norm_behind() -> None:
    rows: list[tuple[Any, int]] = [(row.of, n) for row, n in program("llama3_8b").rows]
    (alone, once), (both, often) = [(of, n) for of, n in rows if getattr(of, "label", "") == "norm"]
    # The first reads embeddings alone; two of a block and the last add what came before.
    assert (alone.reads, alone.writes, once) == ((2 * 4096,), (2 * 4096,), 1)
    assert (both.reads, both.writes, often) == ((2 * 4096,) * 2, (2 * 4096,) * 2, 64)


def test_experts_are_one_operator_behind_their_router() -> None:
    found = program("mixtral_8x7b", 2)
    # Eight experts of 14336, two for a token, columns shared by two devices; the router is whole.
    assert found.experts == [(Experts(8, 2, 4096, 14336 // 2, True), 32)]
    assert products(found)[Product(4096, 8, "router", True)] == 32
    of_experts = [(m, n) for m, n in found.messages if m.is_of_experts]
    assert [(m.num_bytes, n) for m, n in of_experts] == [(2 * 4096, 32)]


def test_keys_and_values_of_a_latent_are_attentions_own() -> None:
    found = program("deepseek_v3", 8)
    ((mixer, count),) = found.mixers
    # DeepSeek-V3: a latent of 512 and 64 rotated features; 128 heads of 128 + 128, of 8 devices.
    assert mixer.latent == Latent(512, 64, 128, 128, 16 * 256)
    assert (mixer.cached, count) == (512 + 64, 61)
    assert not any(product.name == "kv_b_proj" for product in products(found))
    assert products(found)[Product(7168, 1536 + 576, "q_a_proj")] == 61


def test_scans_keep_states() -> None:
    states = [
        mixer.node.layer.state(mixer.node.inputs)
        for mixer, _ in program("jamba").mixers
        if not mixer.is_attention
    ]
    # Jamba: 8192 channels, 16 numbers of state each, in 4 bytes; convolutions keep none here.
    assert sorted(states) == [0, 4 * 8192 * 16]


def test_weights_without_products_are_embeddings_and_norms() -> None:
    # 128256 x 4096 of words, and 65 norms of 4096, in 2 bytes.
    assert program("llama3_8b").other_weights == 2 * (128256 * 4096 + 65 * 4096)


def test_a_net_without_products_has_no_scores() -> None:
    text = '{"name": "n", "layers": {"x": {"type": "Input", "tensor": [1, 4]}}}'
    with pytest.raises(SettingError, match="no product with weights"):
        read_program(paleo.loads(text))


@pytest.mark.parametrize("name", ["llama3_8b", "deepseek_v2_lite", "mamba_130m"])
def test_a_shortened_net_has_the_program_of_the_whole_one(name: str) -> None:
    whole = paleo.load(name, dims={"seq": 1})
    short = shortened(whole)
    assert short.like is not None
    assert len(short.net.layers) < len(whole.layers)
    found, expected = read_program(short.net, short.like), read_program(whole)
    for part in ("rows", "scores", "messages"):
        assert dict(getattr(found, part)) == dict(getattr(expected, part))
    assert [(mixer.cached, n) for mixer, n in found.mixers] == [
        (mixer.cached, n) for mixer, n in expected.mixers
    ]
    for what in ("other_weights", "num_params", "hidden", "words", "kernels"):
        assert getattr(found, what) == getattr(expected, what)


def test_an_encoder_is_computed_once_for_a_request() -> None:
    found = read_program(paleo.load("whisper_small", dims={"seq": 1}))
    # 12 layers that see their own tokens, and 12 that see 1500 frames.
    own, cross = (mixer for mixer, _ in found.mixers)
    assert [count for _, count in found.mixers] == [12, 12]
    assert (own.span, cross.span, found.encoded) == (0, 1500, 0)
    # The frames' keys and values are the encoder's.
    names = {product.name for product, _ in found.products}
    assert names == {"q_proj", "out_proj", "fc1", "fc2", "scores"}
    assert sum(count for own, count in found.fixed if own.layer.is_attention) == 12


def test_an_encoder_may_read_the_prompt() -> None:
    found = read_program(paleo.load("t5_base", dims={"seq": 384, "decoder_seq": 1}))
    assert found.encoded == 384
    assert {mixer.span for mixer, _ in found.mixers} == {0, 384}


def test_images_stand_before_a_prompt() -> None:
    found = read_program(paleo.load("gemma3_4b", dims={"seq": 1}))
    # 256 positions of an image (16 x 16 of 64 x 64 patches), and no product knows of them.
    assert found.prefix == 256
    assert products(found)[Product(2560, (8 + 2 * 4) * 256, "q_proj")] == 34
    # A norm reads 2560 halves of a token.
    streams: list[Any] = [row.of for row, _ in found.rows if hasattr(row.of, "reads")]
    sizes = {each.reads[0] for each in streams}
    assert 2 * 2560 in sizes
    assert max(sizes) == 2 * 2560


def test_attention_in_steps_is_one_kernel() -> None:
    ((mixer, count),) = read_program(paleo.load("gpt2", dims={"seq": 1})).mixers
    # GPT-2: 12 layers of 12 heads of 64, keys and values of as many.
    assert (mixer.is_attention, mixer.cached, count) == (True, 2 * 12 * 64, 12)
    assert [shape[1:] for shape in mixer.node.inputs] == [(12, 1, 64)] * 3


def test_chosen_keys_have_an_indexer_and_latents() -> None:
    found = read_program(paleo.load("glm_5", dims={"seq": 1}))
    by_kind = {mixer.is_attention: (mixer, count) for mixer, count in found.mixers}
    (attention, layers), (indexer, as_many) = by_kind[True], by_kind[False]
    # GLM-5: 78 layers, 2048 keys chosen; an index key of 128 numbers, latents of 512 and 64.
    assert (attention.chosen, indexer.chosen, layers, as_many) == (2048, 2048, 78, 78)
    assert (attention.cached, indexer.cached) == (576, 128)
    assert not attention.window
