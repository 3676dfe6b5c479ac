"""Hyper-parameters as other performance models write them: Calculon, vTrain and SimuMax.

These have sizes alone and one architecture each, that of Megatron-LM's GPT, or of LLaMA and
DeepSeek in SimuMax; modules are named as Megatron-LM has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from paleo.net.importers.transformers.config import Config
from paleo.net.importers.transformers.decoder import Decoder, Experts
from paleo.net.importers.transformers.family import Family
from paleo.net.importers.transformers.parts import LatentAttention

_GPT = Decoder(
    base="", embed="embedding/word_embeddings", positions="embedding/position_embeddings",
    layers="decoder/layers", final="decoder/final_layernorm", head="output_layer", norm="layer",
    before="input_layernorm", before_feed="pre_mlp_layernorm", attention="self_attention",
    fused="linear_qkv", out="linear_proj", kv_heads=None, rotary=0, bias=True, out_bias=True,
    gate="", up="linear_fc1", down="linear_fc2", mlp_bias=True, act="gelu",
)  # fmt: skip


def _is_mla(c: Config) -> bool:
    return bool(c.get("attention_type") == "mla")


def _latent(c: Config, index: int) -> LatentAttention | None:
    if not _is_mla(c):
        return None
    return LatentAttention(
        c.whole("hidden_size"), c.whole("num_attention_heads"), c.whole("qk_head_dim"),
        c.whole("qk_pos_emb_head_dim"), c.whole("v_head_dim"), c.optional("q_lora_rank") or 0,
        c.whole("kv_lora_rank"), keys=(("causal", True),),
    )  # fmt: skip


def _has_experts(c: Config, index: int) -> bool:
    return (c.optional("num_experts") or 1) > 1 and index >= (c.optional("dense_layers", 0) or 0)


_SIMUMAX = replace(
    _GPT, positions="", norm="rms", kv_heads="$num_key_value_heads", rotary=None, bias=False,
    out_bias=False, mixer=_latent, mlp_bias=False,
    gate=lambda c: "" if c.get("use_swiglu") is False else "linear_fc1_gate",
    act=lambda c: "gelu" if c.get("use_swiglu") is False else "silu",
    experts=Experts(
        where=_has_experts, router="router", shared_name="shared_experts",
        shared=lambda c: c.optional("moe_shared_expert_intermediate_size") or 0,
    ),
)  # fmt: skip

#: Keys that are in each file of a format and in none of another, and how such files are read.
FORMATS: Mapping[frozenset[str], Family] = {
    frozenset(("hidden", "attn_heads", "num_blocks")): Family(
        replace(_GPT, words=False, positions="", final=""),
        {},
        {
            "hidden_size": ("hidden",), "intermediate_size": ("feedforward",),
            "max_position_embeddings": ("seq_size",), "num_attention_heads": ("attn_heads",),
            "head_dim": ("attn_size",), "num_hidden_layers": ("num_blocks",),
        },
    ),
    frozenset(("head_num", "layer_num")): Family(
        _SIMUMAX,
        {"num_experts_per_tok": 1},
        {
            "num_hidden_layers": ("layer_num",), "num_attention_heads": ("head_num",),
            "num_key_value_heads": ("kv_head_num",), "head_dim": ("head_size",),
            "num_experts": ("expert_num",), "num_experts_per_tok": ("topk",),
            "moe_intermediate_size": ("moe_ffn_hidden_size",),
        },
    ),
    frozenset(("num_layers", "hidden_size", "num_attention_heads", "max_length")): Family(
        replace(_GPT, size=lambda c: 4 * c.whole("hidden_size")),
        {"vocab_size": 50257, "tie_word_embeddings": True},
        {"num_hidden_layers": ("num_layers",), "max_position_embeddings": ("max_length",)},
    ),
}  # fmt: skip


def format_of(values: Mapping[str, Any]) -> Family | None:
    """Return how hyper-parameters are read; None if these are none."""
    return next((family for keys, family in FORMATS.items() if keys <= set(values)), None)


def completed(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return hyper-parameters with the size of an expert: where it is not said, that of an MLP."""
    size = values.get("intermediate_size")
    if "expert_num" in values and "moe_ffn_hidden_size" not in values and size is not None:
        return {**values, "moe_ffn_hidden_size": size}
    return values
