"""Decoders: language models that read what came before, from a table of what each family is.

A `Decoder` says how a family differs from LLaMA. Its values are what they are, or "$key" for what
the configuration says of a key, or a function of the configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, ClassVar

from paleo.core.checks import shown
from paleo.core.frozen import dataclass
from paleo.net.importers.transformers.body import Block, Path
from paleo.net.importers.transformers.config import Config
from paleo.net.importers.transformers.functions import function
from paleo.net.importers.transformers.parts import (
    MLP,
    Attention,
    Mixture,
    activation,
    add,
    linear,
    norm,
    table,
)
from paleo.net.importers.transformers.stack import Layer, Part, stack
from paleo.net.lengths import SEQ

#: A value of the table.
Said = Any
#: The dimension of positions, and the most that it is without being asked for.
MOST_POSITIONS = 4096


@dataclass(frozen=True)
class Experts:
    """What a mixture of experts of a family is: keys that have its sizes, and names of modules.

    `where` tells which layers have it, `shared` the size of the expert that all tokens go to, 0 for
    none.
    """

    size: str = "moe_intermediate_size"
    count: str = "num_experts"
    chosen: str = "num_experts_per_tok"
    where: Callable[[Config, int], bool] = lambda c, index: True
    name: str = "mlp"
    router: str = "gate"
    router_bias: bool = False
    bias: bool = False
    shared: Callable[[Config], int] = lambda c: 0
    shared_name: str = "shared_expert"
    shared_gate: str = ""


@dataclass(frozen=True)
class Decoder:
    """What a family of decoders is. Names of modules are paths, "" for one that is not there."""

    # Names, from the root of the model. Without words it reads and gives hidden states.
    words: bool = True
    base: Said = "model"
    embed: str = "embed_tokens"
    layers: str = "layers"
    final: Said = "norm"
    head: str = "lm_head"
    head_bias: bool = False
    # Embeddings: learned positions, how many rows come before the first, a norm, a factor.
    positions: str = ""
    before_positions: int = 0
    embed_size: Said = None
    embed_norm: str = ""
    scaled: bool = False
    logits: tuple[str, ...] = ()
    # Norms of a layer, as in `stack.Layer`.
    norm: Said = "rms"
    before: Said = "input_layernorm"
    after: str = ""
    summed: Said = ""
    before_feed: Said = "post_attention_layernorm"
    after_feed: str = ""
    summed_feed: Said = ""
    parallel: Said = False
    # Attention, as in `parts.Attention`.
    mixer: Callable[[Config, int], Part | None] | None = None
    attention: str = "self_attn"
    q: str = "q_proj"
    k: str = "k_proj"
    v: str = "v_proj"
    out: str = "o_proj"
    fused: str = ""
    heads: str = "num_attention_heads"
    kv_heads: Said = "$num_key_value_heads"
    bias: Said = False
    k_bias: bool | None = None
    out_bias: Said = False
    qk_norm: Said = ""
    norm_over: str = "head"
    norm_last: bool = False
    q_norm: str = "q_norm"
    k_norm: str = "k_norm"
    gated: Said = False
    rotary: Said = "$partial_rotary_factor"
    #: The kinds of the layers' attention, one of `_KEYS`, and which of them have rotary positions.
    kinds: Said = "full_attention"
    rotates: Callable[[Config, int], bool] | None = None
    keys: Callable[[Config], dict[str, Any]] = lambda c: {}
    # The MLP, as in `parts.MLP`.
    mlp: str = "mlp"
    size: Said = "$intermediate_size"
    act: Said = "$hidden_act"
    gate: Said = "gate_proj"
    up: str = "up_proj"
    down: str = "down_proj"
    fused_up: str = ""
    mlp_bias: Said = False
    #: What is in the place of the MLP of some layers.
    experts: Experts | None = None
    no_feed: bool = False
    #: What an architecture's name ends in, and its head; and that of one that is not named.
    heads_of: ClassVar[Mapping[str, str]] = {
        "ForCausalLM": "words", "LMHeadModel": "words", "Model": "",
        "ForSequenceClassification": "classify",
    }  # fmt: skip
    usual_head: ClassVar[str] = "words"

    def write(
        self, c: Config, root: Block, head: str, before: tuple[Path, int] | None = None
    ) -> dict[str, Any]:
        """Write it at the root of a net, up to its head: "" for none, or as `heads_of` has it.

        So many tokens that are not words, such as those of an image, may stand before the words.
        Return the dimensions that stay open, with their sizes.
        """
        f = said(self, c)
        hidden, layers = c.whole("hidden_size"), layers_of(self, c)
        prefix = f"{f['base']}/" if f["base"] else ""
        width = f["embed_size"] or hidden
        if self.words:
            words, x = self._embedded(c, root, prefix, width)
        else:
            x = root.add("hidden_states", "Input", tensor=[1, SEQ, hidden])
        x = norm(root, self.embed_norm and prefix + self.embed_norm, x, f["norm"])
        length = SEQ
        if before:
            length = f"{SEQ} + {before[1]}"
            x = root.add(f"{prefix}concatenate", "Concatenate", before[0], x, dim=1)
        x = stack(root, prefix + self.layers, x, layers, length)
        x = norm(root, f["final"] and prefix + f["final"], x, f["norm"])
        if width != hidden:
            x = linear(root, f"{prefix}project_out", x, width, False)
        if self.words:
            write_head(self, c, root, x, words, head)
        return open_dims(c, before[1] if before else 0)

    def _embedded(self, c: Config, root: Block, prefix: str, width: int) -> tuple[Path, Path]:
        """Write the embeddings; return the table of words, and what the layers read."""
        hidden = c.whole("hidden_size")
        tokens = root.add("input_ids", "Input", tensor=[1, SEQ])
        words = x = root.add(
            prefix + self.embed, "Embedding", tokens, num_embeddings=c.whole("vocab_size"),
            num_outputs=width,
        )  # fmt: skip
        if self.scaled:
            x = activation(root, f"{prefix}embed_scale", x, "affine")
        if width != hidden:
            x = linear(root, f"{prefix}project_in", x, hidden, False)
        if self.positions:
            rows = c.whole("max_position_embeddings") + self.before_positions
            name = prefix + self.positions
            places = table(root, name, rows, hidden, SEQ, self.before_positions)
            x = add(root, f"{prefix}embed", x, places)
        return words, x


#: What a kind of attention in `layer_types` adds to the keys of the layer.
_KEYS: Mapping[str, Callable[[Config], dict[str, Any]]] = {
    "full_attention": lambda c: {},
    "attention": lambda c: {},
    "linear_attention": lambda c: {},
    "indexed_attention": lambda c: {},
    "sliding_attention": lambda c: _optional("window", c.optional("sliding_window")),
    "chunked_attention": lambda c: _optional("chunk", c.optional("attention_chunk_size")),
}


#: The fields that a key may say true or false of.
_FLAGS = ("bias", "out_bias", "mlp_bias", "parallel", "gated")


def _optional(key: str, value: int | None) -> dict[str, Any]:
    return {} if value is None else {key: value}


def said(form: Any, c: Config) -> dict[str, Any]:
    """Return the values of a table's row for a configuration."""
    taken = ("mixer", "keys", "rotates")
    found = {field.name: getattr(form, field.name) for field in fields(form)}
    for name, value in found.items():
        if name not in taken and callable(value):
            found[name] = value(c)
        elif isinstance(value, str) and value.startswith("$"):
            found[name] = c.flag(value[1:]) if name in _FLAGS else c.get(value[1:])
    return found


def write_head(form: Decoder, c: Config, root: Block, x: Path, words: Path, head: str) -> None:
    """Write what a model's task adds behind its body."""
    if head == "classify":
        linear(root, "score", x, num_labels(c), False)
    elif head:
        shared = words if c.flag("tie_word_embeddings") else None
        x = linear(root, form.head, x, c.whole("vocab_size"), form.head_bias, shared)
        for k, function in enumerate(form.logits):
            if function != "tanh" or c.get("final_logit_softcapping"):
                x = activation(root, f"logits_{k}", x, function)


def open_dims(c: Config, unused: int = 0) -> dict[str, Any]:
    """Return the dimension of positions and what it is unless it is set: as many as there are.

    Some of those that the configuration counts may be unused.
    """
    most = c.optional("max_position_embeddings") or MOST_POSITIONS
    return {SEQ: max(1, min(most - unused, MOST_POSITIONS))}


def num_labels(c: Config) -> int:
    """Return how many classes a classifier has."""
    labels = c.get("id2label")
    return len(labels) if isinstance(labels, Mapping) else c.whole("num_labels")


def layers_of(form: Decoder, c: Config) -> list[Layer]:
    """Return the layers of a decoder."""
    f, count = said(form, c), c.whole("num_hidden_layers")
    attention = None
    if form.mixer is None or form.mixer(c, -1) is None:
        attention = attention_of(form, f, c)
    kinds = c.listed("layer_types", count)
    if kinds is None:
        kinds = f["kinds"] if isinstance(f["kinds"], list) else [f["kinds"]] * count
    names = ("norm", "before", "after", "summed", "before_feed", "after_feed", "summed_feed")
    keys = {kind: _keys_of(kind, c) for kind in dict.fromkeys(kinds)}
    found = []
    for index, kind in enumerate(kinds):
        mixed = form.mixer(c, index) if form.mixer else None
        if mixed is None:
            assert attention
            turned = form.rotates is None or form.rotates(c, index)
            mixed = attention(keys[kind], turned)
        feed: Part | None = None
        if form.experts and form.experts.where(c, index):
            feed = mixture_of(form.experts, form, f, c)
        elif not form.no_feed:
            feed = mlp_of(form, f, c)
        found.append(
            Layer(mixed, feed, parallel=bool(f["parallel"]), **{name: f[name] for name in names})
        )
    return found


def _keys_of(kind: Any, c: Config) -> dict[str, Any]:
    """Return the keys that a kind of attention adds."""
    if kind in _KEYS:
        return _KEYS[kind](c)
    hint = c.mistakes.near(str(kind), _KEYS)
    c.wrong("layer_types", f"unknown kind of layer {shown(kind)}{hint}")
    return {}


def attention_of(
    form: Decoder, f: Mapping[str, Any], c: Config
) -> Callable[[dict[str, Any], bool], Attention]:
    """Return what makes the attention of a layer of its keys and of whether positions turn."""
    count = c.whole(form.heads)
    shared = f["kv_heads"]
    if form.kv_heads == "$num_key_value_heads":
        shared = c.optional("num_key_value_heads")
    kv_count = shared or count
    if count % kv_count:
        c.wrong(
            "num_key_value_heads",
            f"{count} heads of queries cannot be divided among {kv_count} of keys",
        )
        kv_count = 1
    head_dim = c.optional("head_dim") or c.divided("hidden_size", form.heads)
    rotary = rotary_features(f["rotary"], head_dim, c)
    same = form.keys(c)

    def make(keys: dict[str, Any], turned: bool) -> Attention:
        return Attention(
            c.whole("hidden_size"), count, kv_count, head_dim, form.attention,
            form.q, form.k, form.v, form.out, form.fused, f["bias"], form.k_bias, f["out_bias"],
            f["qk_norm"] if turned or not form.norm_last else "", form.norm_over, form.norm_last,
            form.q_norm, form.k_norm, rotary if turned else 0,
            tuple(({"causal": True} | same | keys).items()), gated=f["gated"],
        )  # fmt: skip

    return make


def rotary_features(share: Any, head_dim: int, c: Config) -> int:
    """Return how many of a head's features are turned: 0, a number, or a share of them."""
    inner = c.get("rope_parameters") or c.get("rope_scaling")
    if isinstance(inner, Mapping) and share is not None and share != 0:
        share = inner.get("partial_rotary_factor", share)
    if share is None:
        return head_dim
    found = int(head_dim * share) if isinstance(share, float) else int(share)
    if found % 2 or found > head_dim:
        c.wrong("head_dim", f"{found} of {head_dim} features of a head cannot be turned in pairs")
        return 0
    return found


def mixture_of(experts: Experts, form: Decoder, f: Mapping[str, Any], c: Config) -> Mixture:
    """Return the mixture of experts of a layer."""
    count, chosen = c.whole(experts.count), c.whole(experts.chosen)
    if chosen > count:
        c.wrong(experts.chosen, f"{chosen} experts are chosen, of {count}")
    size = experts.shared(c)
    shared = replace(mlp_of(form, f, c, size), name=experts.shared_name) if size else None
    return Mixture(
        c.whole("hidden_size"), c.whole(experts.size), count, min(chosen, count),
        _act(form, c), experts.name, experts.router, "experts", experts.router_bias,
        experts.bias, shared, experts.shared_gate,
    )  # fmt: skip


def _act(form: Decoder, c: Config) -> str:
    return function(c, form.act(c) if callable(form.act) else form.act)


def mlp_of(form: Decoder, f: Mapping[str, Any], c: Config, size: int | None = None) -> MLP:
    """Return the MLP of a layer."""
    if size is None:
        size = c.whole(form.size[1:]) if isinstance(form.size, str) else f["size"]
    return MLP(
        c.whole("hidden_size"), size, _act(form, c), form.mlp, form.up, form.down, f["gate"],
        form.fused_up, f["mlp_bias"],
    )  # fmt: skip
