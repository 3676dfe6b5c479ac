"""The decoders with experts, and those that scan, by `model_type`.

Defaults are those of transformers 5 for what a file may leave out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from paleo.net.importers.transformers.config import Config
from paleo.net.importers.transformers.decoder import Decoder, Experts
from paleo.net.importers.transformers.families import D_MODEL, LLAMA, QWEN3, QWEN_WINDOW
from paleo.net.importers.transformers.family import Family, alternating, sizes, sliding
from paleo.net.importers.transformers.parts import Indexer, LatentAttention
from paleo.net.importers.transformers.scans import gated_delta, jamba, mamba, mamba2


def _qwen2_moe_kinds(c: Config) -> Any:
    if not c.flag("use_sliding_window"):
        return "full_attention"
    most, count = c.whole("max_window_layers", 0), c.whole("num_hidden_layers")
    return [
        "sliding_attention" if (i + 1) % 2 and i < most else "full_attention" for i in range(count)
    ]


def _qwen3_moe_kinds(c: Config) -> str:
    return sliding(c) if c.flag("use_sliding_window") else "full_attention"


def _sparse(c: Config, index: int) -> bool:
    """Tell whether a layer of Qwen's has experts."""
    dense = c.get("mlp_only_layers") or ()
    return index not in dense and (index + 1) % c.whole("decoder_sparse_step") == 0


def _latent(c: Config, index: int) -> LatentAttention:
    return LatentAttention(
        c.whole("hidden_size"), c.whole("num_attention_heads"), c.whole("qk_nope_head_dim"),
        c.whole("qk_rope_head_dim"), c.whole("v_head_dim"), c.optional("q_lora_rank") or 0,
        c.whole("kv_lora_rank"), c.flag("attention_bias"), (("causal", True),),
    )  # fmt: skip


def _indexed(c: Config, index: int) -> LatentAttention:
    """Return latent attention to the keys that an indexer of each layer chooses."""
    for name, same in (("index_topk_freq", 1), ("index_topk_pattern", None)):
        if c.get(name, same) != same:
            c.wrong(name, "layers that take the choice of a layer before are not read")
    indexer = Indexer(*(c.whole(f"index_{key}") for key in ("n_heads", "head_dim", "topk")))
    return replace(_latent(c, index), indexer=indexer)


def _moe_layers(c: Config, index: int) -> bool:
    """Tell whether a layer of Llama 4 has experts."""
    step, named = c.whole("interleave_moe_layer_step"), c.get("moe_layers")
    return index in named if isinstance(named, list) else (index + 1) % step == 0


def _rope_layers(c: Config) -> list[bool]:
    """Tell of each layer of Llama 4 whether it has rotary positions."""
    count, every = c.whole("num_hidden_layers"), c.whole("no_rope_layer_interval")
    named = c.listed("no_rope_layers", count) if c.get("no_rope_layers") else None
    return [bool(one) for one in named or [(i + 1) % every for i in range(count)]]


def _llama4_kinds(c: Config) -> list[str]:
    return ["chunked_attention" if turned else "full_attention" for turned in _rope_layers(c)]


def _after_dense(c: Config, index: int) -> bool:
    return index >= c.whole("first_k_dense_replace", 0)


def _shared_experts(c: Config) -> int:
    return c.whole("moe_intermediate_size") * (c.optional("n_shared_experts", 0) or 0)


# Those with experts.

_MIXTRAL = Decoder(
    kinds=sliding, experts=Experts(size="intermediate_size", count="num_local_experts")
)
_QWEN2_MOE = Decoder(
    bias="$qkv_bias", kinds=_qwen2_moe_kinds,
    experts=Experts(
        where=_sparse, shared=lambda c: c.whole("shared_expert_intermediate_size"),
        shared_gate="shared_expert_gate",
    ),
)  # fmt: skip
_QWEN3_MOE = replace(QWEN3, kinds=_qwen3_moe_kinds, experts=Experts(where=_sparse))
_LLAMA4 = replace(
    LLAMA, mlp="feed_forward", mlp_bias=False, size="$intermediate_size_mlp", norm_last=True,
    qk_norm=lambda c: "rms_plain" if c.flag("use_qk_norm") else "", kinds=_llama4_kinds,
    rotates=lambda c, index: _rope_layers(c)[index],
    experts=Experts(
        name="feed_forward", size="intermediate_size", count="num_local_experts", router="router",
        where=_moe_layers, shared=lambda c: c.whole("intermediate_size"),
    ),
)  # fmt: skip
_DEEPSEEK = Decoder(
    mixer=_latent, mlp_bias="$mlp_bias",
    experts=Experts(
        count="n_routed_experts", where=_after_dense, shared=_shared_experts,
        shared_name="shared_experts",
    ),
)  # fmt: skip
_GPT_OSS = replace(
    LLAMA, mlp_bias=False, kinds=alternating(2), keys=lambda c: {"sinks": True},
    experts=Experts(
        size="intermediate_size", count="num_local_experts", router="router", router_bias=True,
        bias=True,
    ),
)  # fmt: skip
_MINIMAX_M2 = Decoder(
    qk_norm=lambda c: "rms" if c.flag("use_qk_norm") else "", norm_over="all",
    rotary="$rotary_dim",
    experts=Experts(
        name="block_sparse_moe", size="intermediate_size", count="num_local_experts",
        shared=lambda c: c.optional("shared_intermediate_size", 0) or 0,
    ),
)  # fmt: skip
_QWEN3_5 = replace(QWEN3, mixer=gated_delta, gated="$attn_output_gate", kinds="full_attention")
_DBRX = Decoder(
    base="transformer", embed="wte", layers="blocks", final="norm_f", norm="layer_no_bias",
    before="norm_attn_norm/norm_1", before_feed="norm_attn_norm/norm_2",
    attention="norm_attn_norm/attn", fused="Wqkv", out="out_proj",
    experts=Experts(name="ffn", router="router/layer"),
)  # fmt: skip

# Those that scan.

_MAMBA = Decoder(
    base="backbone", embed="embeddings", final="norm_f", before="norm", before_feed="",
    no_feed=True,
)  # fmt: skip
_JAMBA = Decoder(
    mixer=jamba, final="final_layernorm", before_feed="pre_ff_layernorm", rotary=0,
    mlp="feed_forward", experts=Experts(
        name="feed_forward", size="intermediate_size", router="router",
        where=lambda c, index: (
            c.whole("num_experts") > 1
            and index % c.whole("expert_layer_period") == c.whole("expert_layer_offset", 0)
        ),
    ),
)  # fmt: skip

_QWEN3_5_SIZES: dict[str, Any] = {
    "head_dim": 256, "attn_output_gate": True, "full_attention_interval": 4,
    "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
    "linear_num_key_heads": 16, "linear_num_value_heads": 32, "partial_rotary_factor": 0.25,
}  # fmt: skip
#: How each `model_type` is read.
SPARSE: Mapping[str, Family] = {
    "mixtral": Family(
        _MIXTRAL,
        sizes(
            32000, 4096, 14336, 32, 32, 131072, num_key_value_heads=8, num_local_experts=8,
            num_experts_per_tok=2,
        ),
        {"num_local_experts": ("num_experts",)},
    ),
    "qwen2_moe": Family(
        _QWEN2_MOE,
        sizes(
            151936, 2048, 5632, 24, 16, 32768, num_key_value_heads=16, decoder_sparse_step=1,
            moe_intermediate_size=1408, shared_expert_intermediate_size=5632, num_experts=60,
            num_experts_per_tok=4, qkv_bias=True, **QWEN_WINDOW,
        ),
    ),
    "qwen3_moe": Family(
        _QWEN3_MOE,
        sizes(
            151936, 2048, 6144, 24, 32, 32768, num_key_value_heads=4, decoder_sparse_step=1,
            moe_intermediate_size=768, num_experts=128, num_experts_per_tok=8, sliding_window=4096,
        ),
        {"num_experts": ("num_local_experts",)},
    ),
    "llama4_text": Family(
        _LLAMA4,
        sizes(
            202048, 5120, 8192, 48, 40, 131072, intermediate_size_mlp=16384,
            num_key_value_heads=8, head_dim=128, num_experts_per_tok=1, num_local_experts=16,
            interleave_moe_layer_step=1, use_qk_norm=True, no_rope_layer_interval=4,
            attention_chunk_size=8192,
        ),
    ),
    "deepseek_v2": Family(
        _DEEPSEEK,
        sizes(
            102400, 4096, 11008, 32, 32, 2048, first_k_dense_replace=0, kv_lora_rank=512,
            q_lora_rank=1536, n_routed_experts=64, n_shared_experts=2, qk_nope_head_dim=128,
            qk_rope_head_dim=64, v_head_dim=128, moe_intermediate_size=1407,
        ),
        {"n_routed_experts": ("num_experts",)},
    ),
    "deepseek_v3": Family(
        replace(_DEEPSEEK, mlp_bias=False),
        sizes(
            129280, 7168, 18432, 61, 128, 4096, first_k_dense_replace=3, kv_lora_rank=512,
            q_lora_rank=1536, n_routed_experts=256, n_shared_experts=1, qk_nope_head_dim=128,
            qk_rope_head_dim=64, v_head_dim=128, moe_intermediate_size=2048, num_experts_per_tok=8,
        ),
        {"n_routed_experts": ("num_local_experts",)},
    ),
    "deepseek_v32": Family(
        replace(_DEEPSEEK, mixer=_indexed, mlp_bias=False),
        sizes(
            129280, 7168, 18432, 61, 128, 163840, first_k_dense_replace=3, kv_lora_rank=512,
            q_lora_rank=1536, n_routed_experts=256, n_shared_experts=1, qk_nope_head_dim=128,
            qk_rope_head_dim=64, v_head_dim=128, moe_intermediate_size=2048, num_experts_per_tok=8,
            index_n_heads=64, index_head_dim=128, index_topk=2048,
        ),
        {"n_routed_experts": ("num_local_experts",)},
    ),
    "glm_moe_dsa": Family(
        replace(_DEEPSEEK, mixer=_indexed, mlp_bias=False),
        sizes(
            154880, 6144, 12288, 78, 64, 202752, first_k_dense_replace=3, kv_lora_rank=512,
            q_lora_rank=2048, n_routed_experts=256, n_shared_experts=1, qk_nope_head_dim=192,
            qk_rope_head_dim=64, v_head_dim=256, moe_intermediate_size=2048, num_experts_per_tok=8,
            index_n_heads=32, index_head_dim=128, index_topk=2048,
        ),
        {"n_routed_experts": ("num_local_experts",)},
    ),
    "kimi_k2": Family(
        replace(_DEEPSEEK, mlp_bias=False),
        sizes(
            163840, 7168, 18432, 61, 64, 131072, first_k_dense_replace=1, kv_lora_rank=512,
            q_lora_rank=1536, n_routed_experts=384, n_shared_experts=1, qk_nope_head_dim=128,
            qk_rope_head_dim=64, v_head_dim=128, moe_intermediate_size=2048, num_experts_per_tok=8,
        ),
    ),
    "minimax_m2": Family(
        _MINIMAX_M2,
        sizes(
            200064, 3072, 1536, 62, 48, 196608, num_key_value_heads=8, head_dim=128,
            num_local_experts=256, num_experts_per_tok=8, use_qk_norm=True, rotary_dim=64,
        ),
    ),
    "qwen3_5_text": Family(
        _QWEN3_5,
        sizes(248320, 4096, 12288, 32, 16, 262144, num_key_value_heads=4, **_QWEN3_5_SIZES),
    ),
    "qwen3_5_moe_text": Family(
        replace(
            _QWEN3_5,
            experts=Experts(
                shared=lambda c: c.whole("shared_expert_intermediate_size"),
                shared_gate="shared_expert_gate",
            ),
        ),
        sizes(
            248320, 2048, None, 40, 16, 262144, num_key_value_heads=2, num_experts=256,
            num_experts_per_tok=8, moe_intermediate_size=512, shared_expert_intermediate_size=512,
            **_QWEN3_5_SIZES,
        ),
    ),
    "gpt_oss": Family(
        _GPT_OSS,
        sizes(
            201088, 2880, 2880, 36, 64, 131072, num_key_value_heads=8, head_dim=64,
            num_local_experts=128, num_experts_per_tok=4, sliding_window=128, attention_bias=True,
        ),
        {"num_local_experts": ("num_experts",), "num_experts_per_tok": ("experts_per_token",)},
    ),
    "dbrx": Family(
        _DBRX,
        sizes(
            32000, 2048, None, 24, 16, 2048, num_key_value_heads=1, moe_intermediate_size=3584,
            num_experts=4, num_experts_per_tok=1,
        ),
        {
            **D_MODEL, "num_key_value_heads": ("attn_config.kv_n_heads",),
            "moe_intermediate_size": ("ffn_config.ffn_hidden_size",),
            "num_experts": ("ffn_config.moe_num_experts",),
            "num_experts_per_tok": ("ffn_config.moe_top_k",),
            "hidden_act": ("ffn_config.ffn_act_fn.name",),
        },
    ),
    "mamba": Family(
        replace(_MAMBA, mixer=mamba),
        {
            "vocab_size": 50280, "hidden_size": 768, "num_hidden_layers": 32, "state_size": 16,
            "expand": 2, "conv_kernel": 4, "use_conv_bias": True, "time_step_rank": "auto",
            "hidden_act": "silu", "tie_word_embeddings": True,
        },
    ),
    "mamba2": Family(
        replace(_MAMBA, mixer=mamba2),
        {
            "vocab_size": 32768, "hidden_size": 4096, "num_hidden_layers": 64, "state_size": 128,
            "expand": 2, "conv_kernel": 4, "use_conv_bias": True, "num_heads": 128, "head_dim": 64,
            "n_groups": 8, "chunk_size": 256, "hidden_act": "silu", "tie_word_embeddings": False,
        },
    ),
    "jamba": Family(
        _JAMBA,
        sizes(
            65536, 4096, 14336, 32, 32, 262144, num_key_value_heads=8, num_experts=16,
            num_experts_per_tok=2, expert_layer_period=2, expert_layer_offset=1,
            attn_layer_period=8, attn_layer_offset=4, mamba_d_state=16, mamba_d_conv=4,
            mamba_expand=2, mamba_dt_rank="auto", mamba_conv_bias=True,
        ),
        {"num_experts": ("num_local_experts",)},
    ),
}  # fmt: skip
