"""Small nets of 102 families of transformers, beside PyTorch's own counter.

Each is made from its configuration class with small sizes, with weights that have no data; nothing
is downloaded. Which tokens an expert gets depends on data, so that PyTorch cannot count experts
without any: they are left out of its count, and are counted here from the configuration, k rows of
a token through each of an expert's matrices.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any

from collected.outcome import Outcome, counts_differ, module_counts, outcome
from paleo.net.importers import ImportOptions

#: Samples in a batch, tokens of a text, samples of a sound.
BATCH, TOKENS, SOUND = 2, 16, 4000
#: What the keys of configurations are set to, where a class has them.
SIZES = {
    key: size
    for size, keys in {
        1: "first_k_dense_replace num_sparse_encoder_layers num_sparse_decoder_layers",
        2: """num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers depth
            num_decoder_layers num_experts_per_tok num_key_value_heads n_head_kv num_kv_heads""",
        4: """num_attention_heads n_head n_heads num_heads encoder_attention_heads
            decoder_attention_heads""",
        8: """num_experts num_local_experts n_routed_experts moe_num_experts qk_rope_head_dim
            num_image_tokens""",
        16: """head_dim kv_lora_rank qk_nope_head_dim v_head_dim patch_size d_kv embedding_size
            rotary_dim""",
        32: "moe_intermediate_size q_lora_rank",
        64: """hidden_size d_model n_embd image_size dim emb_dim projection_dim
            shared_expert_intermediate_size""",
        128: """intermediate_size d_ff ffn_dim encoder_ffn_dim decoder_ffn_dim n_positions
            max_position_embeddings hidden_dim ffn_hidden_size max_source_positions""",
        512: "vocab_size n_vocab",
    }.items()
    for key in keys.split()
}  # fmt: skip
#: The families, by what they are.
FAMILIES = (
    # Encoders of text
    "albert", "bert", "big_bird", "canine", "convbert", "deberta", "deberta-v2", "distilbert",
    "electra", "esm", "fnet", "funnel", "ibert", "layoutlm", "mobilebert", "modernbert", "mpnet",
    "nystromformer", "roberta", "roformer", "squeezebert", "xlnet",
    # Decoders
    "bloom", "codegen", "cohere", "ctrl", "falcon", "gemma2", "gemma3_text", "glm", "gpt2",
    "gpt_bigcode", "gpt_neo", "gpt_neox", "gptj", "granite", "llama", "mistral", "mpt", "olmo2",
    "opt", "phi", "phi3", "qwen2", "qwen3", "stablelm", "starcoder2",
    # Mixtures of experts
    "deepseek_v2", "deepseek_v3", "ernie4_5_moe", "glm4_moe", "gpt_oss", "granitemoe",
    "llama4_text", "minimax", "mixtral", "olmoe", "phimoe", "qwen2_moe", "qwen3_moe",
    "switch_transformers",
    # State spaces and recurrences
    "falcon_mamba", "mamba", "mamba2", "recurrent_gemma", "rwkv",
    # Encoders with decoders
    "bart", "longt5", "m2m_100", "marian", "pegasus", "prophetnet", "t5",
    # Images
    "beit", "convnext", "cvt", "deit", "dinov2", "dpt", "efficientnet", "focalnet", "levit",
    "mobilenet_v2", "mobilevit", "poolformer", "pvt", "regnet", "resnet", "segformer", "swin",
    "swinv2", "vit", "vitdet",
    # Sounds
    "audio-spectrogram-transformer", "hubert", "speech_to_text", "wav2vec2", "whisper",
    # Several of them
    "blip", "clip", "clipseg", "siglip",
)  # fmt: skip
#: What the configurations of some need besides; None leaves a key as it is.
OWN: Mapping[str, Mapping[str, Any]] = {
    "deepseek_v2": {"head_dim": None, "num_key_value_heads": 4, "num_experts_per_tok": 2},
    "deepseek_v3": {"head_dim": None, "num_key_value_heads": 4, "n_group": 2, "topk_group": 1},
    "efficientnet": {"hidden_dim": None},
    "esm": {"vocab_size": 33, "mask_token_id": 32, "pad_token_id": 1},
    "falcon": {"head_dim": None},
    "funnel": {"num_hidden_layers": None, "block_sizes": [1, 1]},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "mamba2": {"num_heads": 8},
    "prophetnet": {"num_hidden_layers": None},
    "recurrent_gemma": {"num_hidden_layers": 3},
    "squeezebert": {"embedding_size": 64},
    "swin": {"image_size": 224},
    "swinv2": {"image_size": 224},
    "xlnet": {"max_position_embeddings": None},
}


#: What some take besides: an export of them has no mask where it is given none.
OWN_INPUTS = {"longt5": ["attention_mask"], "switch_transformers": ["attention_mask"]}


def _transformers() -> Any:
    """Return the package, which is kept from the network."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    package: Any = importlib.import_module("transformers")
    package.logging.set_verbosity_error()
    return package


def names() -> list[str]:
    """Return the families."""
    _transformers()
    return list(FAMILIES)


def small(default: Any) -> dict[str, Any]:
    """Return keys of a configuration that make it small, and those that are inside it."""
    keys: dict[str, Any] = {
        key: size for key, size in SIZES.items() if type(getattr(default, key, None)) is int
    }
    if (getattr(default, "pad_token_id", None) or 0) >= SIZES["vocab_size"]:
        keys["pad_token_id"] = 0
    if hasattr(default, "depths"):  # sizes of one stage are not those of another
        for key in ("hidden_size", "num_hidden_layers", "num_layers", "patch_size"):
            keys.pop(key, None)
    for key, inner in vars(default).items():
        if hasattr(inner, "to_dict"):
            keys[key] = {**small(inner), "model_type": inner.model_type}
    return keys


def configured(name: str) -> tuple[Any, Any]:
    """Return the configuration of a family and the class of its nets."""
    package = _transformers()
    default = package.AutoConfig.for_model(name)
    keys = {**small(default), **OWN.get(name, {})}
    config = type(default)(**{key: value for key, value in keys.items() if value is not None})
    kinds = importlib.import_module("transformers.models.auto.modeling_auto").MODEL_MAPPING
    kind = kinds[type(config)]
    return config, kind[0] if isinstance(kind, tuple | list) else kind


def shapes_of(net: Any) -> dict[str, tuple[int, ...]]:
    """Return the shapes of what a net takes, by the names of its arguments."""
    config, main = net.config, net.main_input_name
    seen = getattr(config, "vision_config", config)
    size = getattr(seen, "image_size", None) or 64
    sizes = (size, size) if isinstance(size, int) else tuple(size)
    images = (BATCH, getattr(seen, "num_channels", None) or 3, *sizes)
    taken = inspect.signature(net.forward).parameters
    is_spectrogram = main == "input_values" and hasattr(config, "num_mel_bins")
    shapes = {
        "input_ids": (BATCH, TOKENS),
        "attention_mask": (BATCH, TOKENS),
        "pixel_values": images,
        "input_features": (BATCH, 80, 2 * getattr(config, "max_source_positions", 0)),
        "input_values": (BATCH, SOUND),
    }
    if is_spectrogram:
        shapes["input_values"] = (BATCH, config.max_length, config.num_mel_bins)
    if "input_channels" in vars(config):  # frames come before the numbers of each
        shapes["input_features"] = (BATCH, 128, config.input_feat_per_channel)
    asked = [main, *OWN_INPUTS.get(config.model_type, ())]
    if config is not seen and "pixel_values" in taken:
        asked = ["input_ids", "pixel_values"]
    if "decoder_input_ids" in taken:
        shapes["decoder_input_ids"] = (BATCH, TOKENS)
        asked.append("decoder_input_ids")
    return {key: shapes[key] for key in asked}


# ---- Mixtures of experts -----------------------------------------------------------------------


def _experts_of(net: Any) -> list[Any]:
    """Return the parts of a net whose rows depend on data; Llama 4 has each expert read all."""
    kinds = ((part, type(part).__name__) for part in net.modules())
    return [part for part, kind in kinds if kind.endswith("Experts") and "Llama4" not in kind]


@contextlib.contextmanager
def _without_experts(net: Any) -> Iterator[None]:
    """Have experts give back what they are given for a while: they are counted apart."""
    torch: Any = importlib.import_module("torch")

    def passing(part: Any) -> Any:
        def forward(hidden: Any, *_: Any, **__: Any) -> Any:
            for parameter in part.parameters():
                torch.sum(parameter)  # it counts as read
            return hidden

        return forward

    cast, parts = torch.nn.Module.to, _experts_of(net)
    try:
        torch.nn.Module.to = lambda self, *_, **__: self  # weights without data cannot change type
        for part in parts:
            part.forward = passing(part)
        yield
    finally:
        torch.nn.Module.to = cast
        for part in parts:
            del part.forward


def experts_flops(net: Any) -> int:
    """Return the FLOPs of all experts: two for each weight of a matrix and row that meets it."""
    keys = ("num_experts_per_tok", "moe_topk")
    chosen = (getattr(net.config, key, None) for key in keys)
    rows = BATCH * TOKENS * next(filter(None, chosen), 1)
    weights = 0
    for part in _experts_of(net):
        named = part.named_parameters()
        held = sum(w.numel() for key, w in named if w.dim() > 1 and not key.endswith("bias"))
        weights += held // part.num_experts
    return 2 * rows * weights


# ---- Running -----------------------------------------------------------------------------------


def run(name: str) -> Outcome:
    """Import a net for inference and compare what it counts."""
    torch: Any = importlib.import_module("torch")
    export: Any = importlib.import_module("paleo.net.importers.pytorch.export")
    reader: Any = importlib.import_module("paleo.net.importers.pytorch.reader")
    config, kind = configured(name)
    net = export.construct(lambda: kind(config))
    holder: Any = types.ModuleType("collected_net")
    holder.net = net
    sys.modules[holder.__name__] = holder
    shapes = shapes_of(net)
    options = ImportOptions(input=tuple(shapes.items()), phase="test")

    def difference(read: Any) -> str:
        inputs = {
            key: torch.empty(
                shape, device="meta", dtype=torch.int64 if key.endswith("ids") else torch.float32
            )
            for key, shape in shapes.items()
        }
        fresh = export.construct(
            lambda: kind(config)
        )  # nothing is left in it of what the import has seen
        with _without_experts(fresh):
            params, flops = module_counts(fresh, (), inputs, training=False)
        return counts_differ(read, (params, flops + experts_flops(fresh)), BATCH)

    target = f"python:{holder.__name__}:net"
    return outcome(lambda: reader.read(target, options), difference, [(torch.export, "export")])
