"""A language model of an architecture that is not known: embeddings, layers unknown, a head."""

from __future__ import annotations

from typing import Any, ClassVar

from paleo.core.frozen import dataclass
from paleo.net.importers.transformers.body import Block
from paleo.net.importers.transformers.config import MODEL_TYPE, Config
from paleo.net.importers.transformers.decoder import open_dims
from paleo.net.importers.transformers.family import Family
from paleo.net.importers.transformers.parts import linear
from paleo.net.lengths import SEQ


@dataclass(frozen=True)
class Opaque:
    """What is known of any language model: a table of words, and how many layers there are."""

    heads_of: ClassVar[dict[str, str]] = {"": "words"}
    usual_head: ClassVar[str] = "words"

    def write(self, c: Config, root: Block, head: str) -> dict[str, Any]:
        """Write it at the root of a net; its layers cost nothing, and are listed."""
        vocabulary, hidden = c.whole("vocab_size"), c.whole("hidden_size")
        tokens = root.add("input_ids", "Input", tensor=[1, SEQ])
        words = root.add(
            "embed_tokens", "Embedding", tokens, num_embeddings=vocabulary, num_outputs=hidden
        )
        layers = root.block("layers", words, repeat=c.whole("num_hidden_layers"))
        x = layers.add(
            "layer", "Unknown", layers.entry, operator=f"a layer of {c.text(MODEL_TYPE)}",
            output_shape=[-1, SEQ, hidden],
        )  # fmt: skip
        x = root.end("layers", x)
        shared = words if c.flag("tie_word_embeddings") else None
        linear(root, "lm_head", x, vocabulary, False, shared)
        return open_dims(c)


OPAQUE = Family(
    Opaque(),
    {},
    {
        "hidden_size": ("n_embd", "d_model"),
        "num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
    },
)
