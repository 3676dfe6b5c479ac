"""Encoders of text: BERT and what is like it, from a table of what each family is.

Norms stand behind each sum (Vaswani et al., arXiv:1706.03762). A token has a word, a position and
a type. Values of the table are as in `decoder`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, ClassVar

from paleo.core.frozen import dataclass
from paleo.net.importers.transformers.body import Block, Path
from paleo.net.importers.transformers.config import Config
from paleo.net.importers.transformers.decoder import num_labels, open_dims
from paleo.net.importers.transformers.functions import function
from paleo.net.importers.transformers.parts import (
    MLP,
    Attention,
    activation,
    add,
    first_of,
    linear,
    norm,
    table,
)
from paleo.net.importers.transformers.stack import Layer, Part, stack
from paleo.net.lengths import SEQ

#: What an architecture's name ends in, and what it has behind the encoder.
HEADS: Mapping[str, str] = {
    "ForMaskedLM": "words",
    "ForPreTraining": "words pool pair",
    "Model": "pool",
    "ForSequenceClassification": "classify",
    "ForTokenClassification": "label",
    "ForQuestionAnswering": "answer",
}


@dataclass(frozen=True)
class Encoder:
    """What a family of encoders is; names of modules are paths from the root of the model.

    `words` are the names of what predicts words: a product, its norm, and the product with the
    table. `pooler` is the product on the first position, `pair` that of whether two texts belong
    together. `classifier` are the products of a classifier; of one, it reads the pooler.
    """

    base: str = "bert"
    projection: str = ""
    layers: str = "encoder/layer"
    #: How many rows of the table of positions come before the first.
    before_positions: int = 0
    has_positions: Callable[[Config], bool] = lambda c: True
    attention: Attention | None = None
    mixer: Callable[[Config, Block, str], Part] | None = None
    out_norm: str = "attention/output/LayerNorm"
    up: str = "intermediate/dense"
    down: str = "output/dense"
    feed_norm: str = "output/LayerNorm"
    #: Whether all layers have the parameters of the first.
    shares: bool = False
    words: tuple[str, str, str] = (
        "cls/predictions/transform/dense",
        "cls/predictions/transform/LayerNorm",
        "cls/predictions/decoder",
    )
    pooler: str = "bert/pooler/dense"
    pooler_act: str = "tanh"
    pair: str = "cls/seq_relationship"
    classifier: tuple[str, ...] = ("classifier",)
    discriminator: tuple[str, str] = ("", "")
    heads_of: Mapping[str, str] = field(default_factory=lambda: HEADS)
    usual_head: ClassVar[str] = "words"

    def write(self, c: Config, root: Block, head: str) -> dict[str, Any]:
        """Write it at the root of a net, with what `head` lists behind it."""
        hidden, act = c.whole("hidden_size"), function(c, "$hidden_act")
        width = c.optional("embedding_size") or hidden
        words, x = self._embedded(c, root, width)
        if self.projection and (width != hidden or self.shares):
            x = linear(root, f"{self.base}/{self.projection}", x, hidden)
        name = f"{self.base}/{self.layers}"
        count = c.whole("num_hidden_layers")
        mixer = self.mixer(c, root, self.base) if self.mixer else attention(c)
        feed = MLP(hidden, c.whole("intermediate_size"), act, "", self.up, self.down, bias=True)
        layer = Layer(mixer, feed, "layer", summed=self.out_norm, summed_feed=self.feed_norm)
        if c.optional("conv_kernel_size", 0):
            # DeBERTa's convolution beside the first layer (arXiv:2111.09543).
            first = stack(root, f"{name}_0", x, [layer], SEQ)
            x = convolution(c, root, f"{self.base}/encoder/conv", x, first)
            name, count = f"{name}_1_{count - 1}", count - 1
        x = stack(root, name, x, [layer] * count, SEQ) if count else x
        if self.shares:
            share(root.layers[name]["layers"], f"{name}/0")
        self._head(c, root, x, words, (width, act), head.split())
        return open_dims(c, self.before_positions)

    def _embedded(self, c: Config, root: Block, width: int) -> tuple[Path, Path]:
        """Write the embeddings; return the table of words, and what the layers read."""
        place = f"{self.base}/embeddings"
        tokens = root.add("input_ids", "Input", tensor=[1, SEQ])

        def rows(name: str, x: Path, count: int) -> Path:
            return root.add(
                f"{place}/{name}", "Embedding", x, num_embeddings=count, num_outputs=width
            )

        words = rows("word_embeddings", tokens, c.whole("vocab_size"))
        parts = [words]
        if kinds := c.optional("type_vocab_size", 0):
            types = root.add("token_type_ids", "Input", tensor=[1, SEQ])
            parts.append(rows("token_type_embeddings", types, kinds))
        if self.has_positions(c):
            count = c.whole("max_position_embeddings")
            name = f"{place}/position_embeddings"
            parts.append(table(root, name, count, width, SEQ, self.before_positions))
        x = add(root, f"{place}/add", *parts) if parts[1:] else words
        return words, norm(root, f"{place}/LayerNorm", x, "layer")

    def _head(
        self,
        c: Config,
        root: Block,
        x: Path,
        words: Path,
        sizes: tuple[int, str],
        heads: list[str],
    ) -> None:
        """Write what is behind the layers. The sizes are those of a word, and the function."""
        hidden, (width, act) = c.whole("hidden_size"), sizes
        pooled = x
        needs_pool = "pool" in heads or ("classify" in heads and not self.classifier[1:])
        if needs_pool and self.pooler:
            first = first_of(root, f"{self.pooler}_first", x)
            pooled = linear(root, self.pooler, first, hidden)
            pooled = activation(root, f"{self.pooler}_act", pooled, self.pooler_act)
        if "words" in heads:
            dense, normalizes, decoder = self.words
            found = linear(root, dense, x, width)
            found = norm(root, normalizes, activation(root, f"{dense}_act", found, act), "layer")
            shared = None if c.get("tie_word_embeddings") is False else words
            linear(root, decoder, found, c.whole("vocab_size"), shares=shared)
        if "pair" in heads:
            linear(root, self.pair, pooled, 2)
        if "discriminate" in heads:
            dense, last = self.discriminator
            found = activation(root, f"{dense}_act", linear(root, dense, x, hidden), act)
            linear(root, last, found, 1)
        if "classify" in heads and self.classifier[1:]:
            first = first_of(root, "classifier/first", x)
            found = linear(root, self.classifier[0], first, hidden)
            pooled = activation(root, "classifier/act", found, "tanh")
        if "classify" in heads:
            linear(root, self.classifier[-1], pooled, num_labels(c))
        if "label" in heads:
            linear(root, "classifier", x, num_labels(c))
        if "answer" in heads:
            linear(root, "qa_outputs", x, 2)


def attention(c: Config, **names: Any) -> Attention:
    """Return the attention of a layer, with the modules' names of BERT unless others are given."""
    said = {"name": "attention", "q": "self/query", "k": "self/key", "v": "self/value"}
    heads = c.whole("num_attention_heads")
    return Attention(
        c.whole("hidden_size"), heads, heads, c.divided("hidden_size", "num_attention_heads"),
        **{**said, "out": "output/dense", "bias": True, "out_bias": True, **names},
    )  # fmt: skip


def convolution(c: Config, root: Block, place: str, x: Path, beside: Path) -> Path:
    """Write a convolution of tokens whose result is added to what is beside it."""
    hidden, size, groups = (
        c.whole(key) for key in ("hidden_size", "conv_kernel_size", "conv_groups")
    )
    found = root.add(
        f"{place}/conv", "Convolution", x, filter=[size, hidden // groups, hidden],
        strides=[1, 1, 1], padding=[(size - 1) // 2],
    )  # fmt: skip
    found = activation(root, f"{place}/act", found, function(c, "$conv_act"))
    return norm(root, f"{place}/LayerNorm", add(root, f"{place}/add", beside, found), "layer")


#: Layers that have parameters.
_WITH_PARAMETERS = ("InnerProduct", "LayerNorm")


def share(layers: dict[str, Any], place: str) -> None:
    """Have the layers of a block use the parameters of those of the same names at another place."""
    for name, body in layers.items():
        if "layers" in body:
            share(body["layers"], f"{place}/{name}")
        elif body["type"] in _WITH_PARAMETERS:
            body["shares"] = f"/{place}/{name}"
