"""Blocks of published language models, written as a person would: layers by name.

Each takes what it reads as "x". Letters as in `paleo.net.layers`: T positions, H heads.
"""

from __future__ import annotations

from typing import Any

Layers = dict[str, Any]


def layer(kind: str, *parents: str, **keys: Any) -> dict[str, Any]:
    return {"type": kind, "parents": list(parents), **keys}


def linear(parent: str, outputs: int, **keys: Any) -> dict[str, Any]:
    """Return a product over the last dimension, without a bias unless `keys` say so."""
    return layer(
        "InnerProduct", parent, num_outputs=outputs, **{"axis": -1, "use_bias": False} | keys
    )


def part(parent: str, begin: int, size: int) -> dict[str, Any]:
    return layer("Slice", parent, begin=begin, size=size)


def in_heads(name: str, parent: str, positions: int, heads: int, features: int) -> Layers:
    """Return a tensor of N x T x (H features) as N x H x T x features, called `name`."""
    return {
        f"{name}/split": layer("Reshape", parent, output_shape=[-1, positions, heads, features]),
        name: layer("Transpose", f"{name}/split", perm=[0, 2, 1, 3]),
    }


def joined(parent: str, positions: int, width: int, outputs: int) -> Layers:
    """Return what goes from N x H x T x d back to N x T x `outputs`."""
    return {
        "together": layer("Transpose", parent, perm=[0, 2, 1, 3]),
        "flat": layer("Reshape", "together", output_shape=[-1, positions, width]),
        "out": linear("flat", outputs),
    }


#: Of DeepSeek-V2 (arXiv:2405.04434, section 3.1.2): hidden size, heads, ranks of queries and of the
#: latent, features of a head without and with positions, and of its values.
D, H, Q_RANK, RANK, PLAIN, TURNED, VALUES = 5120, 128, 1536, 512, 128, 64, 128


def _queries(positions: int) -> Layers:
    return {
        "q_down": linear("x", Q_RANK),
        "q_norm": layer("RMSNorm", "q_down"),
        "q_up": linear("q_norm", H * (PLAIN + TURNED)),
        **in_heads("q", "q_up", positions, H, PLAIN + TURNED),
        "q_plain": part("q", 0, PLAIN),
        "q_part": part("q", PLAIN, TURNED),
        "q_turned": layer("RotaryEmbedding", "q_part"),
        "down": linear("x", RANK + TURNED),
        "latent": part("down", 0, RANK),
        "norm": layer("RMSNorm", "latent"),
        "k_part": part("down", RANK, TURNED),
        **in_heads("k_one", "k_part", positions, 1, TURNED),
        "k_turned": layer("RotaryEmbedding", "k_one"),
    }


def latent_attention(positions: int) -> Layers:
    """Return multi-head latent attention as it is trained: keys and values of each head."""
    return {
        **_queries(positions),
        "q_all": layer("Concatenate", "q_plain", "q_turned", dim=3),
        "up": linear("norm", H * (PLAIN + VALUES)),
        **in_heads("kv", "up", positions, H, PLAIN + VALUES),
        "k_plain": part("kv", 0, PLAIN),
        "v": part("kv", PLAIN, VALUES),
        "k_heads": layer("Expand", "k_turned", output_shape=[-1, H, positions, TURNED]),
        "k_all": layer("Concatenate", "k_plain", "k_heads", dim=3),
        "attention": layer("Attention", "q_all", "k_all", "v", causal=True),
        **joined("attention", positions, H * VALUES, D),
    }


def absorbed_attention(positions: int) -> Layers:
    """Return the same with the latent as the keys and values of all heads, as it is decoded."""
    return {
        **_queries(positions),
        "k_up": layer("Parameter", shape=[H, PLAIN, RANK]),
        "q_latent": layer("MatMul", "q_plain", "k_up"),
        "q_all": layer("Concatenate", "q_latent", "q_turned", dim=3),
        **in_heads("k_latent", "norm", positions, 1, RANK),
        "k_all": layer("Concatenate", "k_latent", "k_turned", dim=3),
        "v": part("k_all", 0, RANK),
        "attention": layer("Attention", "q_all", "k_all", "v", causal=True, values_in_keys=True),
        "v_up": layer("Parameter", shape=[H, RANK, VALUES]),
        "values": layer("MatMul", "attention", "v_up"),
        **joined("values", positions, H * VALUES, D),
    }


def mixture(hidden: int, inner: int, experts: int, k: int, shared: int, **sent: Any) -> Layers:
    """Return a mixture of gated experts, with `shared` columns of those that all tokens go to."""
    return {
        "scores": linear("x", experts),
        "shares": layer("Softmax", "scores", dim=2),
        "chosen": layer("TopK", "shares", k=k),
        "rows": layer("Dispatch", "x", "chosen", **sent),
        "up": layer("Experts", "rows", num_experts=experts, num_outputs=2 * inner, use_bias=False),
        "gated": layer("Gated", "up"),
        "down": layer("Experts", "gated", num_experts=experts, num_outputs=hidden, use_bias=False),
        "mixed": layer("Combine", "down", "chosen"),
        "own_up": linear("x", 2 * shared),
        "own_gated": layer("Gated", "own_up"),
        "own": linear("own_gated", hidden),
        "both": layer("Elementwise", "mixed", "own"),
    }


def short(parent: str, channels: int, **keys: Any) -> dict[str, Any]:
    """Return a causal convolution of each channel over 4 positions."""
    return layer(
        "Convolution", parent, filter=[4, 1, channels], strides=[1, 1, 1], padding=[[3, 0]],
        groups=channels, activation_fn="silu", **keys,
    )  # fmt: skip


def mamba(hidden: int, inner: int, states: int, rank: int) -> Layers:
    """Return a block of Mamba (arXiv:2312.00752, section 3.4)."""
    return {
        "in": linear("x", 2 * inner),
        "u": part("in", 0, inner),
        "z": part("in", inner, inner),
        "short": short("u", inner),
        "of_x": linear("short", rank + 2 * states),
        "low": part("of_x", 0, rank),
        "steps": linear("low", inner, use_bias=True),
        "b": part("of_x", rank, states),
        "c": part("of_x", rank + states, states),
        "scan": layer("SelectiveScan", "short", "steps", "b", "c", "z"),
        "out": linear("scan", hidden),
    }


def mamba2(positions: int, hidden: int, inner: int, heads: int, states: int) -> Layers:
    """Return a block of Mamba-2 with one group (arXiv:2405.21060, section 7.1)."""
    split = {"b": ("xbc", inner), "c": ("xbc", inner + states)}
    return {
        "in": linear("x", 2 * inner + 2 * states + heads),
        "z": part("in", 0, inner),
        "before": part("in", inner, inner + 2 * states),
        "steps": part("in", 2 * inner + 2 * states, heads),
        "xbc": short("before", inner + 2 * states),
        "u_flat": part("xbc", 0, inner),
        "u": layer("Reshape", "u_flat", output_shape=[-1, positions, heads, inner // heads]),
        **{f"{name}_flat": part(parent, begin, states) for name, (parent, begin) in split.items()},
        **{
            name: layer("Reshape", f"{name}_flat", output_shape=[-1, positions, 1, states])
            for name in split
        },
        "scan": layer("StateSpaceDual", "u", "steps", "b", "c"),
        "flat": layer("Reshape", "scan", output_shape=[-1, positions, inner]),
        "gated": layer("Gated", "z", "flat"),
        "norm": layer("RMSNorm", "gated"),
        "out": linear("norm", hidden),
    }


def gated_delta(positions: int, hidden: int, keys: int, values: int, features: int) -> Layers:
    """Return the linear attention of Qwen3-Next, with so many heads of keys and of values."""
    q, v = keys * features, values * features
    heads = {"q": (0, keys), "k": (q, keys), "v": (2 * q, values)}
    return {
        "qkv": linear("x", 2 * q + v),
        "z": linear("x", v),
        "mixed": short("qkv", 2 * q + v, use_bias=False),
        **{
            f"{name}_flat": part("mixed", begin, count * features)
            for name, (begin, count) in heads.items()
        },
        **{
            name: layer("Reshape", f"{name}_flat", output_shape=[-1, positions, count, features])
            for name, (_, count) in heads.items()
        },
        "decay": linear("x", values),
        "replaced": linear("x", values),
        "delta": layer("GatedDelta", "q", "k", "v", "decay", "replaced"),
        "norm": layer("RMSNorm", "delta"),
        "flat": layer("Reshape", "norm", output_shape=[-1, positions, v]),
        "gated": layer("Gated", "z", "flat"),
        "out": linear("gated", hidden),
    }
