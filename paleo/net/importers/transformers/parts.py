"""What models are made of, written as layers: norms, projections, attention, MLPs.

Each part is a value that says its sizes and what its modules are called, with `write`, which writes
its layers in a block and returns where its output is. Letters: N samples, T positions, H features,
d features of a head.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from paleo.core.frozen import dataclass
from paleo.net.importers.transformers.body import Block, Path
from paleo.net.importers.transformers.functions import OWN_GELU, plain

#: How many positions there are: a number, or the text of a dimension.
Length: TypeAlias = int | str

#: How a word of the tables is written as a layer.
_NORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "rms": ("RMSNorm", {}),
    "rms_plain": ("RMSNorm", {"affine": False}),
    "layer": ("LayerNorm", {}),
    "layer_no_bias": ("LayerNorm", {"bias_term": False}),
    "layer_plain": ("LayerNorm", {"affine": False}),
}


def norm(block: Block, name: str, x: Path, kind: str) -> Path:
    """Write a normalization of the last dimension; without a name there is none."""
    if not name:
        return x
    layer, keys = _NORMS[kind]
    return block.add(name, layer, x, **keys)


def linear(
    block: Block, name: str, x: Path, outputs: int, bias: bool = True, shares: Path | None = None
) -> Path:
    """Write a product of the last dimension with a matrix, which may be another layer's."""
    said = {} if bias else {"use_bias": False}
    return block.add(name, "InnerProduct", x, shares=shares, num_outputs=outputs, axis=-1, **said)


def activation(block: Block, name: str, x: Path, function: str) -> Path:
    """Write a function of each element."""
    own: dict[str, Any] = {"custom": True} if function == OWN_GELU else {}
    return block.add(name, "Activation", x, function=plain(function), **own)


def add(block: Block, name: str, *parents: Path) -> Path:
    """Write a sum."""
    return block.add(name, "Elementwise", *parents)


def first_of(block: Block, name: str, x: Path) -> Path:
    """Write what takes the first position."""
    return block.add(name, "Slice", x, dim=1, begin=0, size=1, keep_dim=False)


def table(
    block: Block, name: str, rows: int, features: int, length: Length, begin: int = 0
) -> Path:
    """Write learned positions: parameters, of which as many rows are read as there are positions.

    They begin at a row.
    """
    found = block.add(f"{name}/weight", "Parameter", shape=[rows, features])
    if length == rows:
        return found
    return block.add(name, "Slice", found, dim=1, begin=begin, size=length)


def part(block: Block, name: str, x: Path, begin: int, size: int) -> Path:
    """Write what takes some of the last dimension's elements."""
    return block.add(name, "Slice", x, dim=-1, begin=begin, size=size)


def heads(block: Block, name: str, x: Path, shape: tuple[Length, int, int]) -> Path:
    """Write what turns N x T x H into N x heads x T x d; the shape is T, heads, d."""
    view = block.add(f"{name}_view", "Reshape", x, output_shape=[-1, *shape])
    return block.add(f"{name}_heads", "Transpose", view, perm=[0, 2, 1, 3])


def rotated(block: Block, name: str, x: Path, count: int, head_dim: int) -> Path:
    """Write what turns some features of each head, N x heads x T x d, by their positions."""
    some: dict[str, Any] = {} if count == head_dim else {"rotated": count}
    return block.add(name, "RotaryEmbedding", x, **some)


def together(block: Block, x: Path, shape: tuple[Length, int]) -> Path:
    """Write what turns N x heads x T x d into N x T x H; the shape is T, H."""
    moved = block.add("transpose", "Transpose", x, perm=[0, 2, 1, 3])
    return block.add("merge", "Reshape", moved, output_shape=[-1, *shape])


@dataclass(frozen=True)
class Attention:
    """Multi-head attention, with fewer heads of keys and values or as many.

    `fused` is the one product that makes queries, keys and values, where there is one.
    `qk_norm` is the kind of normalization that queries and keys go through, `norm_over` what it
    normalizes: "head" the features of a head, "all" those of all, "each" those of a head with
    weights for each head. It stands before rotary positions, or behind with `norm_last`. `rotary`
    are the features that are turned, 0 for none. `keys` are keys of the Attention layer that are
    not their defaults. Where it is `gated`, the queries' product makes a gate of the output, too.
    """

    hidden: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    name: str = "self_attn"
    q: str = "q_proj"
    k: str = "k_proj"
    v: str = "v_proj"
    out: str = "o_proj"
    fused: str = ""
    bias: bool = False
    k_bias: bool | None = None
    out_bias: bool = False
    qk_norm: str = ""
    norm_over: str = "head"
    norm_last: bool = False
    q_norm: str = "q_norm"
    k_norm: str = "k_norm"
    rotary: int = 0
    keys: tuple[tuple[str, Any], ...] = ()
    memory: tuple[Path, Length] | None = None
    scores: Path | None = None
    gated: bool = False

    @property
    def query_size(self) -> int:
        """The features of all heads of queries."""
        return self.head_dim * self.num_heads

    def write(self, block: Block, x: Path, length: Length) -> Path:
        """Write it as a block."""
        inner = block.block(self.name, x)
        x = inner.entry
        source, keys_length = self.memory or (x, length)
        d, q_size, kv_size = self.head_dim, self.query_size, self.head_dim * self.num_kv_heads
        if self.fused:
            both = linear(inner, self.fused, x, q_size + 2 * kv_size, self.bias)
            q = part(inner, "q", both, 0, q_size)
            k = part(inner, "k", both, q_size, kv_size)
            v = part(inner, "v", both, q_size + kv_size, kv_size)
        else:
            k_bias = self.bias if self.k_bias is None else self.k_bias
            q = linear(inner, self.q, x, q_size * (1 + self.gated), self.bias)
            k = linear(inner, self.k, source, kv_size, k_bias)
            v = linear(inner, self.v, source, kv_size, self.bias)
        gate = part(inner, "gate", q, q_size, q_size) if self.gated else None
        q = part(inner, "q", q, 0, q_size) if self.gated else q
        q = self._placed(inner, "q", self.q_norm, q, (length, self.num_heads, d))
        k = self._placed(inner, "k", self.k_norm, k, (keys_length, self.num_kv_heads, d))
        v = heads(inner, "v", v, (keys_length, self.num_kv_heads, d))
        biases = () if self.scores is None else (self.scores,)
        found = inner.add("attention", "Attention", q, k, v, *biases, **dict(self.keys))
        merged = together(inner, found, (length, self.query_size))
        if gate is not None:
            gate = activation(inner, "gate_weight", gate, "sigmoid")
            merged = inner.add("gated", "Elementwise", merged, gate, function="product")
        return linear(inner, self.out, merged, self.hidden, self.out_bias)

    def _placed(
        self, block: Block, name: str, normalizes: str, x: Path, shape: tuple[Length, int, int]
    ) -> Path:
        """Write what becomes of queries or keys before they are compared."""
        kind = self.qk_norm
        if kind and self.norm_over == "all":
            x = norm(block, normalizes, x, kind)
            kind = ""
        if kind and not self.norm_last:
            x = block.add(f"{name}_view", "Reshape", x, output_shape=[-1, *shape])
            if self.norm_over == "each":
                plain = norm(block, f"{normalizes}_plain", x, "layer_plain")
                weight = block.add(f"{normalizes}_weight", "Parameter", shape=list(shape[1:]))
                x = block.add(normalizes, "Elementwise", plain, weight, function="product")
            else:
                x = norm(block, normalizes, x, kind)
            x = block.add(f"{name}_heads", "Transpose", x, perm=[0, 2, 1, 3])
        else:
            x = heads(block, name, x, shape)
        if self.rotary:
            x = rotated(block, f"{name}_rotary", x, self.rotary, self.head_dim)
        return norm(block, normalizes, x, kind) if kind and self.norm_last else x


@dataclass(frozen=True)
class Indexer:
    """What chooses the keys that attention sees (transformers, DeepseekV32Indexer)."""

    num_heads: int
    head_dim: int
    chosen: int

    def write(self, block: Block, x: Path, latent: Path, length: Length, rotary: int) -> Path:
        """Write it as a block, of the layer's input and the latent of its queries."""
        inner, d = block.block("indexer", x), self.head_dim
        x = inner.entry
        q = linear(inner, "wq_b", latent, self.num_heads * d, False)
        q = rotated(inner, "q_rotary", heads(inner, "q", q, (length, self.num_heads, d)), rotary, d)
        k = norm(inner, "k_norm", linear(inner, "wk", x, d, False), "layer")
        k = rotated(inner, "k_rotary", heads(inner, "k", k, (length, 1, d)), rotary, d)
        weights = linear(inner, "weights_proj", x, self.num_heads, False)
        return inner.add("select", "SelectKeys", q, k, weights, k=self.chosen)


@dataclass(frozen=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1), not absorbed.

    Keys and values are made of a latent of `kv_rank` features; a part of each key, `rotary`
    features, is the same for all heads. `q_rank` is 0 where queries have no latent. An `indexer`,
    which reads it, may choose the keys that are seen.
    """

    hidden: int
    num_heads: int
    nope: int
    rotary: int
    value_dim: int
    q_rank: int
    kv_rank: int
    bias: bool = False
    keys: tuple[tuple[str, Any], ...] = ()
    name: str = "self_attn"
    indexer: Indexer | None = None

    def write(self, block: Block, x: Path, length: Length) -> Path:
        """Write it as a block."""
        inner = block.block(self.name, x)
        chosen: tuple[Path, ...] = ()
        x, d, count = inner.entry, self.nope + self.rotary, self.num_heads
        if self.q_rank:
            down = linear(inner, "q_a_proj", x, self.q_rank, self.bias)
            latent = norm(inner, "q_a_layernorm", down, "rms")
            q = linear(inner, "q_b_proj", latent, count * d, False)
            if self.indexer:
                chosen = (self.indexer.write(inner, x, latent, length, self.rotary),)
        else:
            q = linear(inner, "q_proj", x, count * d, False)
        q = heads(inner, "q", q, (length, count, d))
        q = rotated(inner, "q_rotary", q, self.rotary, d)
        both = linear(inner, "kv_a_proj_with_mqa", x, self.kv_rank + self.rotary, self.bias)
        latent = part(inner, "kv_latent", both, 0, self.kv_rank)
        latent = norm(inner, "kv_a_layernorm", latent, "rms")
        kv = linear(inner, "kv_b_proj", latent, count * (self.nope + self.value_dim), False)
        kv = heads(inner, "kv", kv, (length, count, self.nope + self.value_dim))
        shared = part(inner, "k_shared", both, self.kv_rank, self.rotary)
        shared = heads(inner, "k_shared", shared, (length, 1, self.rotary))
        shared = rotated(inner, "k_rotary", shared, self.rotary, self.rotary)
        shared = inner.add(
            "k_expand", "Expand", shared, output_shape=[-1, count, length, self.rotary]
        )
        k = part(inner, "k_nope", kv, 0, self.nope)
        k = inner.add("k", "Concatenate", k, shared)
        v = part(inner, "v", kv, self.nope, self.value_dim)
        best: dict[str, Any] = {"best": self.indexer.chosen} if self.indexer else {}
        found = inner.add("attention", "Attention", q, k, v, *chosen, **dict(self.keys), **best)
        merged = together(inner, found, (length, count * self.value_dim))
        return linear(inner, "o_proj", merged, self.hidden, self.bias)


@dataclass(frozen=True)
class MLP:
    """Two products with a function between; with a gate, three.

    `fused` is the one product that makes the gate and what it lets through, where there is one.
    Without a `name` it is no block of its own.
    """

    hidden: int
    size: int
    function: str
    name: str = "mlp"
    up: str = "up_proj"
    down: str = "down_proj"
    gate: str = ""
    fused: str = ""
    bias: bool = False
    out_bias: bool | None = None
    outputs: int = 0

    def write(self, block: Block, x: Path, length: Length) -> Path:
        """Write it, as a block if it has a name."""
        if self.name:
            block = block.block(self.name, x)
            x = block.entry
        if self.fused:
            both = linear(block, self.fused, x, 2 * self.size, self.bias)
            x = gated(block, self.function, both)
        elif self.gate:
            gate = linear(block, self.gate, x, self.size, self.bias)
            x = gated(block, self.function, gate, linear(block, self.up, x, self.size, self.bias))
        else:
            x = linear(block, self.up, x, self.size, self.bias)
            x = activation(block, "act", x, self.function)
        bias = self.bias if self.out_bias is None else self.out_bias
        return linear(block, self.down, x, self.outputs or self.hidden, bias)


def gated(block: Block, function: str, *parents: Path) -> Path:
    """Write a function of a gate times what it lets through; one parent has both."""
    return block.add("act", "Gated", *parents, function=plain(function))


@dataclass(frozen=True)
class Mixture:
    """A mixture of experts, each a gated MLP, behind a router; with a shared one, or without.

    `shared_gate` is the product that weighs the shared expert, where there is one.
    """

    hidden: int
    size: int
    num_experts: int
    per_token: int
    function: str
    name: str = "mlp"
    router: str = "gate"
    experts: str = "experts"
    router_bias: bool = False
    bias: bool = False
    shared: MLP | None = None
    shared_gate: str = ""

    def write(self, block: Block, x: Path, length: Length) -> Path:
        """Write it as a block."""
        block = block.block(self.name, x)
        x = block.entry
        scores = linear(block, self.router, x, self.num_experts, self.router_bias)
        scores = block.add("scores", "Softmax", scores, dim=-1)
        chosen = block.add("top_k", "TopK", scores, k=self.per_token)
        rows = block.add("dispatch", "Dispatch", x, chosen)
        keys: dict[str, Any] = {"num_experts": self.num_experts}
        if not self.bias:
            keys["use_bias"] = False
        inner = block.block(self.experts, rows)
        both = inner.add("gate_up_proj", "Experts", inner.entry, num_outputs=2 * self.size, **keys)
        act = gated(inner, self.function, both)
        rows = inner.add("down_proj", "Experts", act, num_outputs=self.hidden, **keys)
        found = block.add("combine", "Combine", rows, chosen)
        if self.shared is None:
            return found
        beside = self.shared.write(block, x, length)
        if self.shared_gate:
            gate = linear(block, self.shared_gate, x, 1, False)
            gate = activation(block, "shared_weight", gate, "sigmoid")
            beside = block.add("shared", "Elementwise", beside, gate, function="product")
        return add(block, "add", found, beside)
