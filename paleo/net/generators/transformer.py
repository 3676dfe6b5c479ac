"""A language model of today's usual form, from a handful of metaparameters.

A decoder as LLaMA 2 and 3 have it (H. Touvron et al., arXiv:2307.09288; A. Grattafiori et al.,
arXiv:2407.21783): before each part an RMSNorm, attention in which several heads of queries share
those of keys and values (J. Ainslie et al., arXiv:2305.13245), rotary positions (J. Su et al.,
arXiv:2104.09864), and a gated net for each word (N. Shazeer, arXiv:2002.05202). With H the width,
L layers, A heads of keys and values of d each and Q of queries, F the width of the gated net and V
words it has

    2 V H + L (2 H d (Q + A) + 3 H F + 2 H) + H

parameters, V H fewer if the scores share the table of words.
"""

from __future__ import annotations

import json
from typing import Any

from paleo.core.checks import shown, whole_number
from paleo.core.errors import Mistakes, NetSpecError, SettingError
from paleo.net.load import loads
from paleo.net.spec import NetSpec


def transformer(
    layers: int = 32,
    hidden: int = 4096,
    heads: int = 32,
    kv_heads: int | None = None,
    head: int | None = None,
    ffn: int | None = None,
    vocab: int = 32000,
    seq_len: int = 4096,
    window: int | None = None,
    tied: bool = False,
    batch_size: int = 1,
    name: str | None = None,
) -> NetSpec:
    """Return a decoder with rotary positions, RMSNorm and gated nets, as LLaMA is one.

    `kv_heads`, of keys and values, are as many as `heads` unless given; `head` is the size of each,
    `hidden` / `heads` unless given, and `ffn` the width of the gated nets, 4 times `hidden` unless
    given. A query sees `window` words at most, all unless given. If `tied`, the scores of words
    share the table of words. Dimensions of the net are named, and its layers are one repeated
    block. Raises SettingError with every setting that is out of its range.
    """
    given = {
        "layers": layers, "hidden": hidden, "heads": heads, "kv_heads": kv_heads, "head": head,
        "ffn": ffn, "vocab": vocab, "seq_len": seq_len, "window": window, "batch_size": batch_size,
    }  # fmt: skip
    _check(given, tied, name)
    dims: dict[str, Any] = {
        "seq": seq_len,
        "vocabulary": vocab,
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "kv_heads": kv_heads or "heads",
        "head": head or "hidden / heads",
        "ffn": ffn or "4 * hidden",
    }
    word = "_tied" * tied
    body = {
        "name": name or f"transformer_{layers}x{hidden}{word}",
        "source": "made by paleo generate transformer",
        "dims": dims,
        "layers": _net(batch_size, window, tied),
    }
    try:
        return loads(json.dumps(body))
    except NetSpecError as error:  # each setting is right by itself
        raise SettingError(f"too large together: {error.mistakes[0]}") from None


def _layer(kind: str, *parents: str, **keys: Any) -> dict[str, Any]:
    return {"type": kind, "parents": list(parents), **keys}


def _dense(num_outputs: str, *parents: str, **keys: Any) -> dict[str, Any]:
    """Return a product with a matrix, of each word, without a bias."""
    return _layer(
        "InnerProduct", *parents, **keys, num_outputs=num_outputs, axis=-1, use_bias=False
    )


def _block(endpoint: str, layers: dict[str, Any], *parents: str, **keys: Any) -> dict[str, Any]:
    return {**_layer("Block", *parents, **keys), "endpoint": endpoint, "layers": layers}


def _net(batch_size: int, window: int | None, tied: bool) -> dict[str, Any]:
    """Return the layers of the net, by name, in terms of its dimensions."""
    shares = {"shares": "embed_tokens"} if tied else {}
    decoder = {
        "input_norm": _layer("RMSNorm"),
        "attention": _block("o_proj", _attention(window), "input_norm"),
        "add_1": _layer("Elementwise", "..", "attention"),
        "post_norm": _layer("RMSNorm", "add_1"),
        "mlp": _block("down_proj", _gated(), "post_norm"),
        "add_2": _layer("Elementwise", "add_1", "mlp"),
    }
    return {
        "words": _layer("Input", tensor=[batch_size, "seq"]),
        "embed_tokens": _layer(
            "Embedding", "words", num_embeddings="vocabulary", num_outputs="hidden"
        ),
        "layers": _block("add_2", decoder, "embed_tokens", repeat="layers"),
        "norm": _layer("RMSNorm", "layers"),
        "lm_head": _dense("vocabulary", "norm", **shares),
    }


def _attention(window: int | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for letter, heads in (("q", "heads"), ("k", "kv_heads"), ("v", "kv_heads")):
        shape = [-1, "seq", heads, "head"]
        found[f"{letter}_proj"] = _dense(f"{heads} * head")
        found[f"{letter}_heads"] = _layer("Reshape", f"{letter}_proj", output_shape=shape)
        last = f"{letter}_heads"
        if letter != "v":
            found[f"{letter}_rotary"] = _layer("RotaryEmbedding", last)
            last = f"{letter}_rotary"
        found[letter] = _layer("Transpose", last, perm=[0, 2, 1, 3])
    seen = {} if window is None else {"window": window}
    return {
        **found,
        "attention": _layer("Attention", "q", "k", "v", causal=True, **seen),
        "transposed": _layer("Transpose", "attention", perm=[0, 2, 1, 3]),
        "joined": _layer("Reshape", "transposed", output_shape=[-1, "seq", "heads * head"]),
        "o_proj": _dense("hidden", "joined"),
    }


def _gated() -> dict[str, Any]:
    return {
        "gate_proj": _dense("ffn"),
        "silu": _layer("Activation", "gate_proj", function="silu"),
        "up_proj": _dense("ffn"),
        "product": _layer("Elementwise", "silu", "up_proj", function="product"),
        "down_proj": _dense("hidden", "product"),
    }


def _check(given: dict[str, Any], tied: Any, name: Any) -> None:
    """Raise SettingError with every setting that is out of its range."""
    mistakes = Mistakes()
    optional = ("kv_heads", "head", "ffn", "window")
    for setting, value in given.items():
        try:
            if value is not None or setting not in optional:
                whole_number(value)
        except ValueError as error:
            mistakes.add(f"{setting}: {error}")
    if not isinstance(tied, bool):
        mistakes.add(f"tied: expected true or false, got {shown(tied)}")
    if name is not None and (not isinstance(name, str) or not name):
        mistakes.add(f"name: expected a name that is not empty, got {shown(name)}")
    mistakes.raise_as(SettingError)
    hidden, heads, head = given["hidden"], given["heads"], given["head"]
    if given["kv_heads"] and heads % given["kv_heads"]:
        mistakes.add(f"kv_heads: {given['kv_heads']} do not divide {heads} heads")
    if not head and hidden % heads:
        mistakes.add(
            f"heads: {heads} do not divide a hidden size of {hidden}; head gives their own"
        )
    elif (head or hidden // heads) % 2:
        size = head or hidden // heads
        mistakes.add(f"head: {size} elements of a head cannot be turned in pairs")
    mistakes.raise_as(SettingError)
