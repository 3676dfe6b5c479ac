"""DeBERTa's attention: of contents and of relative positions (He et al., arXiv:2006.03654).

Scores are three products: of contents, of contents with positions, and of positions with contents.
They are written to memory, as no fused kernel has them. Letters: T positions, P relative ones.
"""

from __future__ import annotations

from paleo.core.frozen import dataclass
from paleo.net.importers.transformers.body import Block, Path
from paleo.net.importers.transformers.config import Config
from paleo.net.importers.transformers.parts import (
    Length,
    add,
    heads,
    linear,
    norm,
    part,
    together,
)
from paleo.net.lengths import SEQ


@dataclass(frozen=True)
class Disentangled:
    """Attention to contents and to positions.

    `positions` is the table of relative positions, as it is read, and how many rows of it; None
    where positions take no part. `kinds` says which products there are beside that of contents:
    "c2p", "p2c". With `fused` (the first version) one product without a bias makes queries, keys
    and values; with `shares` positions go through the products of contents.
    """

    hidden: int
    num_heads: int
    positions: tuple[Path, Length] | None
    kinds: tuple[str, ...]
    fused: bool
    shares: bool

    def write(self, block: Block, x: Path, length: Length) -> Path:
        """Write it as a block."""
        inner = block.block("attention", x)
        x, hidden = inner.entry, self.hidden
        shape = (length, self.num_heads, hidden // self.num_heads)
        own: dict[str, Path] = {}
        if self.fused:
            all_three = linear(inner, "self/in_proj", x, 3 * hidden, False)
            for k, name in enumerate(("query", "key", "value")):
                own[name] = part(inner, f"self/{name}", all_three, k * hidden, hidden)
            for name, bias in (("query", "q_bias"), ("value", "v_bias")):
                added = inner.add(f"self/{bias}", "Parameter", shape=[1, hidden])
                own[name] = add(inner, f"self/{name}_add", own[name], added)
        else:
            own = {
                name: linear(inner, f"self/{name}_proj", x, hidden)
                for name in ("query", "key", "value")
            }
        split = {name: heads(inner, f"self/{name}", found, shape) for name, found in own.items()}
        scores = inner.add("self/scores", "MatMul", split["query"], split["key"], transpose_b=True)
        found = [scores]
        if self.positions is not None and "c2p" in self.kinds:
            found.append(self._positions(inner, "c2p", split["query"], "key", own, length))
        if self.positions is not None and "p2c" in self.kinds:
            turned = self._positions(inner, "p2c", split["key"], "query", own, length)
            found.append(inner.add("self/p2c", "Transpose", turned, perm=[0, 1, 3, 2]))
        scores = add(inner, "self/add", *found) if found[1:] else scores
        weights = inner.add("self/softmax", "Softmax", scores, dim=-1)
        mixed = inner.add("self/values", "MatMul", weights, split["value"])
        merged = together(inner, mixed, (length, hidden))
        return linear(inner, "output/dense", merged, hidden)

    def _positions(
        self, block: Block, kind: str, x: Path, of: str, own: dict[str, Path], length: Length
    ) -> Path:
        """Write products with positions, of which each pair of tokens takes its own."""
        assert self.positions is not None
        table, rows = self.positions
        names = {"query": "pos_q_proj", "key": "pos_proj"}
        name = f"self/{names[of]}" if self.fused else f"self/pos_{of}_proj"
        shared = own[of] if self.shares else None
        # The first version has a bias for queries alone.
        found = linear(block, name, table, self.hidden, not self.fused or of == "query", shared)
        shape = (rows, self.num_heads, self.hidden // self.num_heads)
        places = heads(block, name, found, shape)
        scores = block.add(f"self/{kind}_scores", "MatMul", x, places, transpose_b=True)
        picked = [-1, self.num_heads, length, length]
        return block.add(f"self/{kind}_picked", "Gather", scores, output_shape=picked)


def disentangled(c: Config, root: Block, base: str, fused: bool) -> Disentangled:
    """Write the table of relative positions at the root; return the attention of a layer."""
    hidden, count = c.whole("hidden_size"), c.whole("num_attention_heads")
    c.divided("hidden_size", "num_attention_heads")
    kinds = c.get("pos_att_type") or ()
    if isinstance(kinds, str):
        kinds = [kind.strip() for kind in kinds.lower().split("|")]
    positions = None
    if c.flag("relative_attention"):
        most = c.get("max_relative_positions")
        far = most if isinstance(most, int) and most > 0 else c.whole("max_position_embeddings")
        buckets = c.get("position_buckets")
        is_bucketed = not fused and isinstance(buckets, int) and buckets > 0
        rows = 2 * (buckets if is_bucketed else far)
        place = f"{base}/encoder/rel_embeddings"
        table = root.add(f"{place}/weight", "Parameter", shape=[rows, hidden])
        if "layer_norm" in str(c.get("norm_rel_ebd")):
            table = norm(root, f"{base}/encoder/LayerNorm", table, "layer")
        read: Length = rows
        if fused:  # as far as tokens can be apart
            read = f"2 * min({SEQ}, {far})"
            begin = f"{far} - min({SEQ}, {far})"
            table = root.add(place, "Slice", table, dim=1, begin=begin, size=read)
        positions = (table, read)
    shares = not fused and c.flag("share_att_key")
    return Disentangled(hidden, count, positions, tuple(kinds), fused, shares)
