"""Configurations of models as nets: counts by hand, names, lengths, mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import models_as_nets
import pytest
from model_configurations import PUBLISHED, SMALL

import paleo
from paleo.core.errors import NetSpecError
from paleo.core.operations import Pass
from paleo.net.importers.base import ImportOptions
from paleo.net.layers.attention import Attention
from paleo.net.writer import dumps

LLAMA3_8B: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
}


def written(folder: Path, config: dict[str, Any], name: str = "config.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(config))
    return path


def loaded(folder: Path, config: dict[str, Any], **dims: int) -> paleo.NetSpec:
    return paleo.load(written(folder, config), dims=dims)


def mistakes(folder: Path, config: dict[str, Any]) -> list[str]:
    path = written(folder, config)
    with pytest.raises(NetSpecError) as caught:
        paleo.load(path)
    lines = str(caught.value).splitlines()
    assert all(line.startswith(f"{path}: ") for line in lines)
    return [line.removeprefix(f"{path}: ") for line in lines]


def flops(net: paleo.NetSpec) -> int:
    graph = paleo.build(net)
    return sum(int(op.flops) for node in graph.nodes for op in graph.operations(node, Pass.FORWARD))


def test_llama_3_8b_by_hand(tmp_path: Path) -> None:
    net = loaded(tmp_path, LLAMA3_8B, seq=1024)
    hidden, ffn, words, keys = 4096, 14336, 128256, 8 * 128
    attention = 2 * hidden * hidden + 2 * hidden * keys
    matrices = 32 * (attention + 3 * hidden * ffn)
    parameters = 2 * words * hidden + matrices + (2 * 32 + 1) * hidden
    assert parameters == 8_030_261_248
    assert paleo.build(net).num_params == parameters
    # Each matrix once for each token, and scores and their sums of 32 heads of 128 features.
    scores = 32 * 2 * 2 * 32 * 1024 * 1024 * 128
    assert flops(net) == 2 * 1024 * (matrices + words * hidden) + scores


def test_a_tied_head_is_counted_once(tmp_path: Path) -> None:
    apart = paleo.build(loaded(tmp_path, LLAMA3_8B)).num_params
    tied = paleo.build(loaded(tmp_path, LLAMA3_8B | {"tie_word_embeddings": True})).num_params
    assert apart - tied == 128256 * 4096


def test_mixtral_by_hand(tmp_path: Path) -> None:
    config = {
        "model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
        "vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2,
    }  # fmt: skip
    net = loaded(tmp_path, config, seq=512)
    attention = 2 * 4096 * 4096 + 2 * 4096 * 1024
    expert, router = 3 * 4096 * 14336, 8 * 4096
    parameters = 2 * 32000 * 4096 + 32 * (attention + 8 * expert + router) + 65 * 4096
    assert paleo.build(net).num_params == parameters == 46_702_792_704
    # A token goes through two of the eight experts.
    products = 32 * (attention + 2 * expert + router) + 32000 * 4096
    assert flops(net) == 2 * 512 * products + 32 * 4 * 32 * 512 * 512 * 128


@pytest.mark.parametrize("name", [name for name in PUBLISHED if "parameters" in PUBLISHED[name]])
def test_published_models_have_the_parameters_of_their_weights(name: str, tmp_path: Path) -> None:
    model = PUBLISHED[name]
    assert paleo.build(loaded(tmp_path, model["config"])).num_params == model["parameters"]


@pytest.mark.parametrize("name", PUBLISHED)
def test_predefined_nets_are_what_their_configurations_give(name: str) -> None:
    path = models_as_nets.ROOT / "nets" / f"{name}.json"
    assert path.read_text("utf-8") == models_as_nets.made(name)


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        # Narayanan et al., arXiv:2104.04473, table 1.
        ("megatron_1_7b", 1.7), ("megatron_3_6b", 3.6), ("megatron_7_5b", 7.5),
        ("megatron_18_4b", 18.4), ("megatron_39_1b", 39.1), ("megatron_76_1b", 76.1),
        ("megatron_145_6b", 145.6), ("megatron_310_1b", 310.1), ("megatron_529_6b", 529.6),
        ("megatron_1t", 1008.0),
        # Chowdhery et al., arXiv:2204.02311, table 1.
        ("palm_8b", 8.63), ("palm_62b", 62.50), ("palm_540b", 540.35),
        ("turing_nlg", 17.2), ("gpt3_175b", 174.6),
    ],
)  # fmt: skip
def test_published_sizes(name: str, billions: float) -> None:
    places = len(str(billions).partition(".")[2])
    assert paleo.build(paleo.load(name)).num_params / 1e9 == pytest.approx(
        billions, abs=10**-places
    )


def test_layers_are_called_as_modules_and_repeat(tmp_path: Path) -> None:
    net = loaded(tmp_path, LLAMA3_8B)
    names = [spec.name for spec in net.layers]
    assert "model/layers/0/self_attn/q_proj" in names
    assert "model/layers/31/mlp/down_proj" in names
    assert net.repeats == {"model/layers/*/": 32}
    assert net.dims == {"seq": 4096}
    (note,) = net.notes
    assert note == (
        "without --seq_len a sequence has 4,096 tokens; the model has positions for 8,192"
    )


def test_a_length_that_is_given_is_no_choice(tmp_path: Path) -> None:
    net = loaded(tmp_path, LLAMA3_8B)
    shorter = net.with_dims(seq=2048)
    assert shorter.notes == ()
    beyond = shorter.with_dims(seq=16384)
    assert beyond.notes == ("a sequence has 16,384 tokens; the model has positions for 8,192",)
    assert paleo.loads(dumps(beyond)).notes == beyond.with_batch(3).notes == beyond.notes
    assert beyond.with_dims(seq=512).notes == ()
    assert paleo.load("mixtral_8x7b", dims={"seq": 512}).notes == ()


def test_windows_follow_the_index(tmp_path: Path) -> None:
    config = SMALL["gemma3_text"] | {"sliding_window": 8, "num_hidden_layers": 8}
    net = loaded(tmp_path, config)
    windows = [spec.layer.window for spec in net.layers if isinstance(spec.layer, Attention)]
    # Each sixth layer sees everything.
    assert windows == [8] * 5 + [None] + [8] * 2


def test_dense_layers_before_sparse_ones_are_a_block_of_their_own(tmp_path: Path) -> None:
    net = loaded(tmp_path, SMALL["deepseek_v3"] | {"first_k_dense_replace": 2})
    assert net.repeats == {"model/layers_0_1/*/": 2, "model/layers_2_4/*/": 3}


def test_layers_that_recur_are_a_block_of_several(tmp_path: Path) -> None:
    net = loaded(tmp_path, SMALL["jamba"])
    assert net.repeats == {"model/layers/*/": 2}
    names = {spec.name for spec in net.layers}
    # Of eight layers the fifth is attention, and every other has experts.
    assert "model/layers/1/4/self_attn/q_proj" in names
    assert "model/layers/1/3/feed_forward/experts/gate_up_proj" in names


def test_gated_delta_and_gated_attention_by_hand(tmp_path: Path) -> None:
    """Qwen3.5 397B-A17B: three layers of linear attention, one of attention, each with experts."""
    config = PUBLISHED["qwen3_5_397b"]["config"]
    net = loaded(tmp_path, config, seq=1)
    hidden, keys, values, heads = 4096, 16 * 128, 64 * 128, 64
    mixed = 2 * keys + values
    # Queries, keys and values; a gate; how much decays and is replaced; the output.
    linear = hidden * (mixed + values + 2 * heads) + values * hidden
    # Four taps for each feature, a decay and a bias a head, a norm of a head's features.
    linear += 4 * mixed + 2 * heads + 128
    # Queries with a gate, keys, values, the output; norms of a head's queries and keys.
    attention = hidden * (2 * 32 * 256 + 2 * 2 * 256) + 32 * 256 * hidden + 2 * 256
    experts = 3 * hidden * 1024 * (512 + 1) + 512 * hidden + hidden
    layers = 45 * linear + 15 * attention + 60 * (experts + 2 * hidden)
    assert paleo.build(net).num_params == layers + 2 * 248320 * hidden + hidden
    deltas = [spec for spec in net.layers if type(spec.layer).__name__ == "GatedDelta"]
    assert len(deltas) == 45


def test_what_sees_images_may_be_left_out(tmp_path: Path) -> None:
    text = PUBLISHED["kimi_k2"]["config"]
    config = {
        "model_type": "kimi_k25",
        "architectures": ["KimiK25ForConditionalGeneration"],
        "text_config": text,
        "vision_config": {"vt_hidden_size": 1152},
    }
    net = loaded(tmp_path, config, seq=1)
    assert net.notes == ("what sees images (vision_config) is left out",)
    alone = loaded(tmp_path, text, seq=1)
    assert paleo.build(net).num_params == paleo.build(alone).num_params
    assert "language_model/lm_head" in {spec.name for spec in net.layers}


def test_a_folder_is_read_and_its_name_taken(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    written(folder, LLAMA3_8B)
    assert paleo.load(folder).name == "mine"
    assert paleo.load(folder, dims={"seq": 77}).dims == {"seq": 77}


def test_weights_beside_it_change_nothing(tmp_path: Path) -> None:
    path = written(tmp_path, LLAMA3_8B)
    (tmp_path / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    assert paleo.build(paleo.load(path)).num_params == 8_030_261_248


def test_any_json_file_with_a_model_type_is_one(tmp_path: Path) -> None:
    path = written(tmp_path, LLAMA3_8B, "llama3_8b.json")
    assert paleo.load(path).name == "llama3_8b"


CALCULON = {
    "hidden": 12288, "feedforward": 49152, "seq_size": 2048, "attn_heads": 96, "attn_size": 128,
    "num_blocks": 96,
}  # fmt: skip


def test_hyper_parameters_of_calculon_are_blocks_alone(tmp_path: Path) -> None:
    net = paleo.load(written(tmp_path, CALCULON, "gpt3-175B.json"))
    h = 12288
    # Four square matrices, two of four times that, their biases, and two norms.
    block = 4 * h * h + 4 * h + 8 * h * h + 5 * h + 4 * h
    assert paleo.build(net).num_params == 96 * block
    assert (net.name, dict(net.dims)) == ("gpt3-175B", {"seq": 2048})


def test_hyper_parameters_of_vtrain_are_a_gpt(tmp_path: Path) -> None:
    config = {"num_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "max_length": 32}
    net = paleo.load(written(tmp_path, config, "small.json"))
    block = 12 * 64 * 64 + 13 * 64
    assert paleo.build(net).num_params == (50257 + 32) * 64 + 2 * block + 2 * 64


def test_hyper_parameters_of_simumax_may_have_experts(tmp_path: Path) -> None:
    config = {
        "hidden_size": 64, "head_num": 4, "kv_head_num": 2, "head_size": 16, "layer_num": 3,
        "intermediate_size": 96, "moe_ffn_hidden_size": 32, "vocab_size": 100, "expert_num": 4,
        "topk": 2, "dense_layers": 1, "use_swiglu": True,
    }  # fmt: skip
    net = paleo.load(written(tmp_path, config, "small.json"))
    attention = 2 * 64 * 64 + 2 * 64 * 32
    dense, sparse = 3 * 64 * 96, 4 * 3 * 64 * 32 + 4 * 64
    assert paleo.build(net).num_params == (
        2 * 100 * 64 + 3 * (attention + 2 * 64) + dense + 2 * sparse + 64
    )


def changed(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in {**LLAMA3_8B, **values}.items() if value != "gone"}


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (changed(model_type="lama"),
         ["key \"model_type\": unknown architecture \"lama\" (did you mean 'llama'?)"]),
        (changed(model_type="gone"),
         ['key "model_type": missing; it is the model\'s architecture, such as llama']),
        (changed(hidden_size="gone", vocab_size="gone"),
         ['key "hidden_size": missing; 4096 is what transformers takes',
          'key "vocab_size": missing; 32000 is what transformers takes']),
        (changed(num_attention_heads=30, num_key_value_heads=10),
         ['key "hidden_size": 4096 cannot be divided among 30 of key "num_attention_heads"']),
        (changed(num_key_value_heads=5),
         ['key "num_key_value_heads": 32 heads of queries cannot be divided among 5 of keys']),
        (changed(hidden_act="silly"),
         ["key \"hidden_act\": unknown function \"silly\" (did you mean 'silu'?)"]),
        (changed(num_hidden_layers=0, hidden_size="wide"),
         ['key "hidden_size": expected a whole number, got "wide"',
          'key "num_hidden_layers": expected 1 or more, got 0']),
        (changed(attention_bias="yes"),
         ['key "attention_bias": expected true or false, got "yes"']),
        (changed(architectures=["LlamaForSpeech"]),
         [('key "architectures": the head of "LlamaForSpeech" is not known; those that are: '
           "ForCausalLM, LMHeadModel, Model, ForSequenceClassification")]),
        (changed(layer_types=["full_attention"]),
         ['key "layer_types": expected one entry for each of 32 layers, got 1']),
        (changed(layer_types=["slide_attention"] * 32),
         [('key "layer_types": unknown kind of layer "slide_attention"'
           " (did you mean 'sliding_attention'?)")]),
        (SMALL["gpt2"] | {"hidden_size": 90},
         ['key "hidden_size": 90 contradicts 64 of key "n_embd"']),
        (SMALL["mixtral"] | {"num_experts_per_tok": 5},
         ['key "num_experts_per_tok": 5 experts are chosen, of 4']),
        (SMALL["mamba2"] | {"num_heads": 7},
         ['key "num_heads": 7 heads of 16 are not the 128 inner features',
          'key "num_heads": 7 cannot be divided among 2 groups']),
        (SMALL["clip"] | {"text_config": {"num_attention_heads": 7}},
         [('key "text_config.hidden_size": 512 cannot be divided among 7 of key '
           '"text_config.num_attention_heads"')]),
        ({"hidden": 64, "attn_heads": 4, "num_blocks": 2, "attn_size": 16},
         ['key "feedforward": missing']),
    ],
)  # fmt: skip
def test_mistakes_name_the_file_and_the_key(
    config: dict[str, Any], said: list[str], tmp_path: Path
) -> None:
    assert mistakes(tmp_path, config)[: len(said)] == said


@pytest.mark.parametrize(("text", "said"), [("[1]", "expected a JSON object"), ("{", "not JSON")])
def test_what_is_no_configuration(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(NetSpecError, match=said):
        paleo.load(path)


def test_a_sequence_beyond_learned_positions_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(NetSpecError, match="wpe"):
        loaded(tmp_path, SMALL["gpt2"], seq=129)


def test_an_unknown_architecture_may_cost_nothing(tmp_path: Path) -> None:
    path = written(tmp_path, LLAMA3_8B | {"model_type": "lama"})
    net = paleo.load(path, ImportOptions(unknown="zero"))
    kinds = [spec.layer.type_name for spec in net.layers]
    assert kinds == ["Input", "Embedding", *["Unknown"] * 32, "InnerProduct"]
    assert paleo.build(net).num_params == 2 * 128256 * 4096


def test_an_unknown_function_may_be_any_other(tmp_path: Path) -> None:
    path = written(tmp_path, LLAMA3_8B | {"hidden_act": "silly"})
    net = paleo.load(path, ImportOptions(unknown="zero"))
    assert paleo.build(net).num_params == 8_030_261_248


@pytest.mark.parametrize("name", SMALL)
def test_every_family_is_written_as_it_is_read(name: str, tmp_path: Path) -> None:
    net = loaded(tmp_path, SMALL[name])
    again = paleo.loads(dumps(net))
    assert [(s.name, s.layer, s.parents, s.shares) for s in again.layers] == [
        (s.name, s.layer, s.parents, s.shares) for s in net.layers
    ]


def test_an_upload_may_be_one() -> None:
    from paleo.web.parsing import Job, read

    data = json.dumps(LLAMA3_8B).encode()
    found = read(data, Job("config.json"))
    assert paleo.build(paleo.loads(found["text"])).num_params == 8_030_261_248
