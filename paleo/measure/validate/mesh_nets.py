"""Nets of rows that state sizes of a language model, as the software of their sources wrote them.

B batch, S positions, H hidden size, L layers, V vocabulary.
"""

from __future__ import annotations

import functools
import json
from typing import Any

from paleo.core.frozen import NamedTuple
from paleo.measure.validate.spellings import UnmappedError
from paleo.net.load import loads
from paleo.net.spec import NetSpec
from paleo.net.writer import dumps

#: The probability by which Megatron-LM keeps an element (--hidden-dropout, --attention-dropout).
KEPT = 0.9


#: The parts of a GPT: what stands before its blocks, a block, the scores, and the loss behind.
FIRST, LAYER, LAST, LOSS = "first", "layer", "last", "loss"


class GptSizes(NamedTuple):
    """The sizes of a GPT, and whether attention is one kernel; without dropout `kept` is 1."""

    layers: int
    hidden: int
    heads: int
    ffn: int
    vocabulary: int
    seq: int
    fused: bool = False
    kept: float = KEPT


def _product(parent: str, outputs: int) -> dict[str, Any]:
    return {"type": "InnerProduct", "parents": [parent], "num_outputs": outputs, "axis": -1}


def _attention(sizes: GptSizes) -> dict[str, Any]:
    """Return the layers from queries, keys and values as B x S x H to what they give."""
    seq, heads, size = sizes.seq, sizes.heads, sizes.hidden // sizes.heads

    def heads_of(name: str, order: list[int]) -> dict[str, Any]:
        view = {"type": "Reshape", "parents": [name], "output_shape": [-1, seq, heads, size]}
        return {
            f"{name}_view": view,
            f"{name}_heads": {"type": "Transpose", "parents": [f"{name}_view"], "perm": order},
        }

    keys = [0, 2, 1, 3] if sizes.fused else [0, 2, 3, 1]
    turned = {
        name: layer
        for each, order in (("q", [0, 2, 1, 3]), ("k", keys), ("v", [0, 2, 1, 3]))
        for name, layer in heads_of(each, order).items()
    }
    core: dict[str, Any] = {
        "scores": {"type": "MatMul", "parents": ["q_heads", "k_heads"]},
        "softmax": {"type": "Softmax", "parents": ["scores"], "dim": -1},
        **_dropout("kept", "softmax", sizes),
        "values": {"type": "MatMul", "parents": [_kept("kept", "softmax", sizes), "v_heads"]},
    }
    if sizes.fused:
        parents = ["q_heads", "k_heads", "v_heads"]
        core = {"values": {"type": "Attention", "parents": parents, "causal": True}}
    return {
        **turned,
        **core,
        "turned": {"type": "Transpose", "parents": ["values"], "perm": [0, 2, 1, 3]},
        "merged": {
            "type": "Reshape",
            "parents": ["turned"],
            "output_shape": [-1, seq, sizes.hidden],
        },
    }


def _dropout(name: str, parent: str, sizes: GptSizes) -> dict[str, Any]:
    if sizes.kept == 1:
        return {}
    return {name: {"type": "Dropout", "parents": [parent], "dropout_keep_prob": sizes.kept}}


def _kept(name: str, parent: str, sizes: GptSizes) -> str:
    """Return the layer behind which the net goes on: the dropout, where there is one."""
    return parent if sizes.kept == 1 else name


@functools.lru_cache(maxsize=64)
def gpt(sizes: GptSizes) -> NetSpec:
    """Return GPT as Megatron-LM has it.

    Its layers are those of arXiv:1909.08053, section 3; positions are learned. Unless attention is
    one kernel, each of its steps is one, of which the softmax also scales and masks.
    """
    hidden, vocabulary, seq = sizes.hidden, sizes.vocabulary, sizes.seq

    def part(begin: int) -> dict[str, Any]:
        return {"type": "Slice", "parents": ["qkv"], "dim": -1, "begin": begin, "size": hidden}

    block: dict[str, Any] = {
        "ln_1": {"type": "LayerNorm", "parents": []},
        "qkv": _product("ln_1", 3 * hidden),
        **{name: part(i * hidden) for i, name in enumerate("qkv")},
        **_attention(sizes),
        "proj": _product("merged", hidden),
        **_dropout("proj_kept", "proj", sizes),
        "add_1": {"type": "Elementwise", "parents": ["..", _kept("proj_kept", "proj", sizes)]},
        "ln_2": {"type": "LayerNorm", "parents": ["add_1"]},
        "fc": _product("ln_2", sizes.ffn),
        "gelu": {"type": "Activation", "parents": ["fc"], "function": "gelu"},
        "fc_back": _product("gelu", hidden),
        **_dropout("fc_kept", "fc_back", sizes),
        "add_2": {"type": "Elementwise", "parents": ["add_1", _kept("fc_kept", "fc_back", sizes)]},
    }
    embedding = {"num_embeddings": vocabulary, "num_outputs": hidden}
    blocks = {"type": "Block", "repeat": sizes.layers, "endpoint": "add_2", "layers": block}
    net = {
        "name": f"gpt {sizes.layers} x {hidden}",
        "layers": {
            "words": {"type": "Input", "parents": [], "tensor": [1, seq]},
            "wte": {"type": "Embedding", "parents": ["words"], **embedding},
            "wpe": {"type": "Parameter", "parents": [], "shape": [seq, hidden]},
            "embed": {"type": "Elementwise", "parents": ["wte", "wpe"]},
            **_dropout("embed_kept", "embed", sizes),
            "h": {**blocks, "parents": [_kept("embed_kept", "embed", sizes)]},
            "ln_f": {"type": "LayerNorm", "parents": ["h"]},
            "head": {**_product("ln_f", vocabulary), "shares": "wte", "use_bias": False},
        },
    }
    return loads(json.dumps(net))


def part_of_gpt(name: str) -> str:
    """Return the part that a layer of `gpt` belongs to, "" for the last normalization."""
    block, _, _ = name.partition("/")
    return {"h": LAYER, "ln_f": "", "head": LAST, "loss": LOSS, "labels": LOSS}.get(block, FIRST)


@functools.lru_cache(maxsize=64)
def with_layers(net: NetSpec, layers: int) -> NetSpec:
    """Return a net with so many blocks; raises UnmappedError where none repeats or they are few.

    Of several kinds of blocks one behind the other, the last has all but one of each of the others.
    """
    text = json.loads(dumps(net))
    chains = _chains(text)
    last = layers - len(chains) + 1
    if not chains or last < 1:
        raise UnmappedError(f"net {net.name!r} has no blocks of which there could be {layers}")
    for chain in chains:
        chain["repeat"] = 1
    chains[-1]["repeat"] = last
    return loads(json.dumps(text))


def _chains(text: dict[str, Any]) -> list[dict[str, Any]]:
    return [layer for layer in text["layers"].values() if "repeat" in layer]


@functools.lru_cache(maxsize=64)
def singles(net: NetSpec) -> int:
    """Return how many kinds of blocks there is one of, beside the last kind."""
    return sum(chain["repeat"] == 1 for chain in _chains(json.loads(dumps(net)))[:-1])
