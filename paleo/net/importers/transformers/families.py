"""The decoders without experts, by `model_type`: what each family is, and its defaults.

Defaults are those of transformers 5 for what a file may leave out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from paleo.net.importers.transformers.config import Config
from paleo.net.importers.transformers.decoder import Decoder
from paleo.net.importers.transformers.family import Family, alternating, sizes, sliding


def _qwen_kinds(c: Config) -> Any:
    """Layers from `max_window_layers` on have a window, if they are to have one."""
    if not c.flag("use_sliding_window") or c.get("sliding_window") is None:
        return "full_attention"
    first = c.whole("max_window_layers", 0)
    count = c.whole("num_hidden_layers")
    return ["sliding_attention" if i >= first else "full_attention" for i in range(count)]


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
D_MODEL = {
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


def _is_windowed(c: Config, index: int) -> bool:
    kinds = c.listed("layer_types", c.whole("num_hidden_layers")) or alternating(4)(c)
    return bool(kinds[index] == "sliding_attention")


# The rows of the table: LLaMA and what is like it.

LLAMA = Decoder(bias="$attention_bias", out_bias="$attention_bias", mlp_bias="$mlp_bias")
QWEN3 = replace(LLAMA, mlp_bias=False, qk_norm="rms", kinds=_qwen_kinds)
_GEMMA = replace(LLAMA, mlp_bias=False, scaled=True)
_GEMMA2 = replace(
    _GEMMA, act="$hidden_activation", after="post_attention_layernorm",
    before_feed="pre_feedforward_layernorm", after_feed="post_feedforward_layernorm",
    kinds=alternating(2), logits=("affine", "tanh", "affine"),
    keys=lambda c: {"softcap": True} if c.get("attn_logit_softcapping") else {},
)  # fmt: skip
_COHERE = Decoder(
    norm="layer_no_bias", before_feed="", parallel=True, bias="$attention_bias",
    out_bias="$attention_bias", logits=("affine",), norm_over="each",
    qk_norm=lambda c: "layer" if c.flag("use_qk_norm") else "",
)  # fmt: skip
_OLMO2 = replace(
    LLAMA, mlp_bias=False, before="", before_feed="", after="post_attention_layernorm",
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
QWEN_WINDOW = {"sliding_window": 4096, "max_window_layers": 28}

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
_PHI = Decoder(
    norm="layer", final="final_layernorm", head_bias=True, before_feed="", parallel=True,
    bias=True, out="dense", out_bias=True, gate="", up="fc1", down="fc2", mlp_bias=True,
    qk_norm=lambda c: "layer" if c.flag("qk_layernorm") else "", q_norm="q_layernorm",
    k_norm="k_layernorm",
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
    mlp_bias="$bias", size=_four_times("ffn_hidden_size"), act="$activation",
    parallel=_falcon_parallel,
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

#: How each `model_type` of a decoder without experts is read.
DENSE: Mapping[str, Family] = {
    "gpt2": Family(
        _GPT2,
        sizes(
            50257, 768, None, 12, 12, 1024, activation_function="gelu_new", tie_word_embeddings=True
        ),
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
    "mpt": Family(_MPT, sizes(50368, 2048, None, 24, 16, 2048, tie_word_embeddings=True), D_MODEL),
    "llama": Family(LLAMA, sizes(32000, 4096, 11008, 32, 32, 2048)),
    "mistral": Family(
        Decoder(kinds=sliding),
        sizes(32000, 4096, 14336, 32, 32, 131072, num_key_value_heads=8, sliding_window=4096),
    ),
    "qwen2": Family(
        Decoder(bias=True, kinds=_qwen_kinds),
        sizes(151936, 4096, 22016, 32, 32, 32768, num_key_value_heads=32, **QWEN_WINDOW),
    ),
    "qwen3": Family(
        QWEN3,
        sizes(
            151936, 4096, 22016, 32, 32, 32768, num_key_value_heads=32, head_dim=128, **QWEN_WINDOW
        ),
    ),
    "gemma": Family(_GEMMA, _GEMMA_SIZES),
    "gemma2": Family(_GEMMA2, _GEMMA2_SIZES),
    "gemma3_text": Family(
        replace(_GEMMA2, qk_norm="rms", kinds=alternating(6)),
        {
            **_GEMMA2_SIZES, "vocab_size": 262208, "max_position_embeddings": 131072,
            "attn_logit_softcapping": None, "final_logit_softcapping": None,
        },
    ),
    "phi": Family(
        _PHI,
        sizes(
            51200, 2048, 8192, 24, 32, 2048, hidden_act="gelu_new", partial_rotary_factor=0.5,
        ),
    ),
    "phi3": Family(
        Decoder(fused="qkv_proj", fused_up="gate_up_proj", kinds=sliding),
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
        replace(_COHERE, qk_norm="", kinds=alternating(4), rotates=_is_windowed),
        {**_COHERE_SIZES, "sliding_window": 4096},
    ),
    "olmo": Family(
        replace(LLAMA, mlp_bias=False, norm="layer_plain"),
        sizes(50304, 4096, 11008, 32, 32, 2048),
    ),
    "olmo2": Family(_OLMO2, sizes(50304, 4096, 11008, 32, 32, 2048)),
}  # fmt: skip
