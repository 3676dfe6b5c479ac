"""The decoders that are known, by `model_type`: what each family is, and its defaults.

Defaults are those of transformers 5 for what a file may leave out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from paleo.core.frozen import dataclass
from paleo.net.importers.transformers.config import Config
from paleo.net.importers.transformers.decoder import Decoder, Experts
from paleo.net.importers.transformers.parts import LatentAttention
from paleo.net.importers.transformers.scans import jamba, mamba, mamba2


@dataclass(frozen=True)
class Family:
    """How a `model_type` is read: what it is, its defaults, and other spellings of its keys."""

    form: Any
    defaults: Mapping[str, Any]
    spellings: Mapping[str, Sequence[str]] = field(default_factory=dict)


def sizes(
    vocab: int, hidden: int, ffn: int | None, layers: int, heads: int, positions: int, **more: Any
) -> dict[str, Any]:
    """Return the defaults of keys that most families have."""
    return {
        "vocab_size": vocab, "hidden_size": hidden, "intermediate_size": ffn,
        "num_hidden_layers": layers, "num_attention_heads": heads,
        "max_position_embeddings": positions, "hidden_act": "silu",
        "tie_word_embeddings": False, "num_labels": 2, **more,
    }  # fmt: skip


def _alternating(full_every: int) -> Any:
    """Return kinds of layers of which each so manieth sees all positions, the others a window."""

    def kinds(c: Config) -> list[str]:
        said = c.has("sliding_window_pattern")
        period = c.whole("sliding_window_pattern") if said else full_every
        return [
            "full_attention" if (i + 1) % period == 0 else "sliding_attention"
            for i in range(c.whole("num_hidden_layers"))
        ]

    return kinds


def _sliding(c: Config) -> str:
    return "sliding_attention" if c.get("sliding_window") else "full_attention"


def _qwen_kinds(c: Config) -> Any:
    """Layers from `max_window_layers` on have a window, if they are to have one."""
    if not c.flag("use_sliding_window") or c.get("sliding_window") is None:
        return "full_attention"
    first = c.whole("max_window_layers", 0)
    count = c.whole("num_hidden_layers")
    return ["sliding_attention" if i >= first else "full_attention" for i in range(count)]


def _qwen2_moe_kinds(c: Config) -> Any:
    if not c.flag("use_sliding_window"):
        return "full_attention"
    most, count = c.whole("max_window_layers", 0), c.whole("num_hidden_layers")
    return [
        "sliding_attention" if (i + 1) % 2 and i < most else "full_attention" for i in range(count)
    ]


def _qwen3_moe_kinds(c: Config) -> str:
    return _sliding(c) if c.flag("use_sliding_window") else "full_attention"


# Names of modules that families have in common.
_GPT2_NAMES: dict[str, Any] = {
    "base": "transformer", "embed": "wte", "layers": "h", "final": "ln_f", "norm": "layer",
    "before": "ln_1", "before_feed": "ln_2", "gate": "", "act": "$activation_function",
    "kv_heads": None,
}  # fmt: skip
_BLOOM_NAMES: dict[str, Any] = {
    "base": "transformer", "embed": "word_embeddings", "layers": "h", "final": "ln_f",
    "norm": "layer", "attention": "self_attention", "fused": "query_key_value", "out": "dense",
    "gate": "", "up": "dense_h_to_4h", "down": "dense_4h_to_h",
}  # fmt: skip
_N_EMBD = {
    "hidden_size": ("n_embd",),
    "max_position_embeddings": ("n_positions", "n_ctx"),
    "num_attention_heads": ("n_head",),
    "num_hidden_layers": ("n_layer",),
}
_D_MODEL = {
    "hidden_size": ("d_model",),
    "max_position_embeddings": ("max_seq_len",),
    "num_attention_heads": ("n_heads",),
    "num_hidden_layers": ("n_layers",),
}


def _four_times(key: str = "") -> Callable[[Config], int]:
    """Return what says the size of an MLP: a key or, where it has none, four times the width."""
    return lambda c: (c.optional(key) if key else None) or 4 * c.whole("hidden_size")


def _falcon_heads(c: Config) -> int:
    """Return Falcon's heads of keys and values (FalconAttention)."""
    if c.flag("new_decoder_architecture"):
        return c.optional("num_kv_heads") or c.whole("num_attention_heads")
    return 1 if c.flag("multi_query") else c.whole("num_attention_heads")


def _falcon_norms(c: Config) -> int:
    """Return how many norms are before Falcon's attention and MLP, where both read one input."""
    wanted = c.optional("num_ln_in_parallel_attn")
    return wanted or (2 if c.flag("new_decoder_architecture") else 1)


def _falcon_parallel(c: Config) -> bool:
    return c.flag("parallel_attn") or c.flag("new_decoder_architecture")


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


def _is_windowed(c: Config, index: int) -> bool:
    kinds = c.listed("layer_types", c.whole("num_hidden_layers")) or _alternating(4)(c)
    return bool(kinds[index] == "sliding_attention")


def _after_dense(c: Config, index: int) -> bool:
    return index >= c.whole("first_k_dense_replace", 0)


def _shared_experts(c: Config) -> int:
    return c.whole("moe_intermediate_size") * (c.optional("n_shared_experts", 0) or 0)


# The rows of the table: LLaMA and what is like it.

_LLAMA = Decoder(bias="$attention_bias", out_bias="$attention_bias", mlp_bias="$mlp_bias")
_QWEN3 = replace(_LLAMA, mlp_bias=False, qk_norm="rms", kinds=_qwen_kinds)
_GEMMA = replace(_LLAMA, mlp_bias=False, scaled=True)
_GEMMA2 = replace(
    _GEMMA, act="$hidden_activation", after="post_attention_layernorm",
    before_feed="pre_feedforward_layernorm", after_feed="post_feedforward_layernorm",
    kinds=_alternating(2), logits=("affine", "tanh", "affine"),
    keys=lambda c: {"softcap": True} if c.get("attn_logit_softcapping") else {},
)  # fmt: skip
_COHERE = Decoder(
    norm="layer_no_bias", before_feed="", parallel=True, bias="$attention_bias",
    out_bias="$attention_bias", logits=("affine",), norm_over="each",
    qk_norm=lambda c: "layer" if c.flag("use_qk_norm") else "",
)  # fmt: skip
_OLMO2 = replace(
    _LLAMA, mlp_bias=False, before="", before_feed="", after="post_attention_layernorm",
    after_feed="post_feedforward_layernorm", qk_norm="rms", norm_over="all",
)  # fmt: skip

_GEMMA_SIZES = sizes(
    256000, 3072, 24576, 28, 16, 8192, num_key_value_heads=16, head_dim=256,
    hidden_act="gelu_pytorch_tanh", tie_word_embeddings=True,
)  # fmt: skip
_GEMMA2_SIZES = sizes(
    256000, 2304, 9216, 26, 8, 8192, num_key_value_heads=4, head_dim=256,
    hidden_activation="gelu_pytorch_tanh", tie_word_embeddings=True, sliding_window=4096,
    attn_logit_softcapping=50.0, final_logit_softcapping=30.0,
)  # fmt: skip
_COHERE_SIZES = sizes(256000, 8192, 22528, 40, 64, 8192, tie_word_embeddings=True)
_QWEN_WINDOW = {"sliding_window": 4096, "max_window_layers": 28}

# Those of the form of GPT-2, and of BLOOM.

_GPT2 = Decoder(
    **_GPT2_NAMES, positions="wpe", attention="attn", fused="c_attn", out="c_proj", bias=True,
    out_bias=True, rotary=0, size=_four_times("n_inner"), up="c_fc", down="c_proj", mlp_bias=True,
)  # fmt: skip
_GPTJ = Decoder(
    **{**_GPT2_NAMES, "before_feed": ""}, parallel=True, attention="attn", out="out_proj",
    rotary="$rotary_dim", size=_four_times("n_inner"), up="fc_in", down="fc_out", mlp_bias=True,
    head_bias=True,
)  # fmt: skip
_NEOX = replace(
    Decoder(**_BLOOM_NAMES), base="gpt_neox", embed="embed_in", layers="layers",
    final="final_layer_norm", head="embed_out", attention="attention",
    parallel="$use_parallel_residual", kv_heads=None, rotary="$rotary_pct",
    bias="$attention_bias", out_bias="$attention_bias", mlp_bias=True,
)  # fmt: skip
_BLOOM = replace(
    Decoder(**_BLOOM_NAMES), embed_norm="word_embeddings_layernorm", kv_heads=None, bias=True,
    out_bias=True, rotary=0, size=_four_times(), act="gelu", mlp_bias=True,
    keys=lambda c: {"alibi": True},
)  # fmt: skip
_FALCON = replace(
    Decoder(**_BLOOM_NAMES), kv_heads=_falcon_heads, bias="$bias", out_bias="$bias",
    mlp_bias="$bias", size=_four_times("ffn_hidden_size"), act="$activation", parallel=_falcon_parallel,
    rotary=lambda c: 0 if c.flag("alibi") else None,
    keys=lambda c: {"alibi": True} if c.flag("alibi") else {},
    before=lambda c: (
        "ln_attn" if _falcon_parallel(c) and _falcon_norms(c) == 2 else "input_layernorm"
    ),
    before_feed=lambda c: (
        ("ln_mlp" if _falcon_norms(c) == 2 else "")
        if _falcon_parallel(c) else "post_attention_layernorm"
    ),
)  # fmt: skip
_MPT = Decoder(
    base="transformer", embed="wte", layers="blocks", final="norm_f", norm="layer_no_bias",
    before="norm_1", before_feed="norm_2", attention="attn", fused="Wqkv", out="out_proj",
    kv_heads=None, rotary=0, mlp="ffn", gate="", act="gelu",
    size=_four_times(), keys=lambda c: {"alibi": True},
)  # fmt: skip
_OPT = Decoder(
    base="model/decoder", positions="embed_positions", before_positions=2,
    embed_size="$word_embed_proj_dim", norm=lambda c: (
        "layer_plain" if c.get("layer_norm_elementwise_affine") is False else "layer"
    ),
    final=lambda c: (
        "final_layer_norm"
        if c.flag("do_layer_norm_before") and not c.flag("_remove_final_layer_norm") else ""
    ),
    before=lambda c: "self_attn_layer_norm" if c.flag("do_layer_norm_before") else "",
    summed=lambda c: "" if c.flag("do_layer_norm_before") else "self_attn_layer_norm",
    before_feed=lambda c: "final_layer_norm" if c.flag("do_layer_norm_before") else "",
    summed_feed=lambda c: "" if c.flag("do_layer_norm_before") else "final_layer_norm",
    kv_heads=None, rotary=0, out="out_proj", bias="$enable_bias", out_bias="$enable_bias", mlp="",
    gate="", up="fc1", down="fc2", mlp_bias="$enable_bias", act="$activation_function",
)  # fmt: skip

# Those with experts.

_MIXTRAL = Decoder(
    kinds=_sliding, experts=Experts(size="intermediate_size", count="num_local_experts")
)
_QWEN2_MOE = Decoder(
    bias="$qkv_bias", kinds=_qwen2_moe_kinds,
    experts=Experts(
        where=_sparse, shared=lambda c: c.whole("shared_expert_intermediate_size"),
        shared_gate="shared_expert_gate",
    ),
)  # fmt: skip
_QWEN3_MOE = replace(_QWEN3, kinds=_qwen3_moe_kinds, experts=Experts(where=_sparse))
_LLAMA4 = replace(
    _LLAMA, mlp="feed_forward", mlp_bias=False, size="$intermediate_size_mlp", norm_last=True,
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
    _LLAMA, mlp_bias=False, kinds=_alternating(2), keys=lambda c: {"sinks": True},
    experts=Experts(
        size="intermediate_size", count="num_local_experts", router="router", router_bias=True,
        bias=True,
    ),
)  # fmt: skip
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

#: How each `model_type` of a decoder is read.
DECODERS: Mapping[str, Family] = {
    "gpt2": Family(
        _GPT2,
        sizes(50257, 768, None, 12, 12, 1024, activation_function="gelu_new", tie_word_embeddings=True),
        _N_EMBD,
    ),
    "gptj": Family(
        _GPTJ,
        sizes(50400, 4096, None, 28, 16, 2048, activation_function="gelu_new", rotary_dim=64),
        _N_EMBD,
    ),
    "gpt_neox": Family(
        _NEOX,
        sizes(
            50432, 6144, 24576, 44, 64, 2048, hidden_act="gelu", use_parallel_residual=True,
            attention_bias=True, rotary_pct=0.25,
        ),
    ),
    "opt": Family(
        _OPT,
        sizes(
            50272, 768, 3072, 12, 12, 2048, activation_function="relu", enable_bias=True,
            do_layer_norm_before=True, layer_norm_elementwise_affine=True, tie_word_embeddings=True,
        ),
        {"intermediate_size": ("ffn_dim",)},
    ),
    "bloom": Family(
        _BLOOM,
        sizes(250880, 64, None, 2, 8, 2048, tie_word_embeddings=True),
        {
            "hidden_size": ("n_embed",), "num_hidden_layers": ("n_layer",),
            "num_attention_heads": ("n_head",), "max_position_embeddings": ("seq_length",),
        },
    ),
    "falcon": Family(
        _FALCON,
        sizes(
            65024, 4544, None, 32, 71, 2048, activation="gelu", multi_query=True,
            parallel_attn=True, tie_word_embeddings=True,
        ),
        {
            "hidden_size": ("n_embed",),
            "num_hidden_layers": ("n_layer",), "num_attention_heads": ("n_head",),
            "num_kv_heads": ("n_head_kv",),
        },
    ),
    "mpt": Family(_MPT, sizes(50368, 2048, None, 24, 16, 2048, tie_word_embeddings=True), _D_MODEL),
    "llama": Family(_LLAMA, sizes(32000, 4096, 11008, 32, 32, 2048)),
    "mistral": Family(
        Decoder(kinds=_sliding),
        sizes(32000, 4096, 14336, 32, 32, 131072, num_key_value_heads=8, sliding_window=4096),
    ),
    "qwen2": Family(
        Decoder(bias=True, kinds=_qwen_kinds),
        sizes(151936, 4096, 22016, 32, 32, 32768, num_key_value_heads=32, **_QWEN_WINDOW),
    ),
    "qwen3": Family(
        _QWEN3,
        sizes(
            151936, 4096, 22016, 32, 32, 32768, num_key_value_heads=32, head_dim=128, **_QWEN_WINDOW
        ),
    ),
    "gemma": Family(_GEMMA, _GEMMA_SIZES),
    "gemma2": Family(_GEMMA2, _GEMMA2_SIZES),
    "gemma3_text": Family(
        replace(_GEMMA2, qk_norm="rms", kinds=_alternating(6)),
        {
            **_GEMMA2_SIZES, "vocab_size": 262208, "max_position_embeddings": 131072,
            "attn_logit_softcapping": None, "final_logit_softcapping": None,
        },
    ),
    "phi3": Family(
        Decoder(fused="qkv_proj", fused_up="gate_up_proj", kinds=_sliding),
        sizes(32064, 3072, 8192, 32, 32, 4096),
    ),
    "glm4": Family(
        Decoder(
            bias="$attention_bias", fused_up="gate_up_proj", after="post_self_attn_layernorm",
            after_feed="post_mlp_layernorm",
        ),
        sizes(
            151552, 4096, 13696, 40, 32, 131072, num_key_value_heads=2, head_dim=128,
            attention_bias=True, partial_rotary_factor=0.5,
        ),
    ),
    "cohere": Family(_COHERE, _COHERE_SIZES),
    "cohere2": Family(
        replace(_COHERE, qk_norm="", kinds=_alternating(4), rotates=_is_windowed),
        {**_COHERE_SIZES, "sliding_window": 4096},
    ),
    "olmo": Family(
        replace(_LLAMA, mlp_bias=False, norm="layer_plain"),
        sizes(50304, 4096, 11008, 32, 32, 2048),
    ),
    "olmo2": Family(_OLMO2, sizes(50304, 4096, 11008, 32, 32, 2048)),
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
            num_experts_per_tok=4, qkv_bias=True, **_QWEN_WINDOW,
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
            **_D_MODEL, "num_key_value_heads": ("attn_config.kv_n_heads",),
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
