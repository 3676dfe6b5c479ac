"""How a `model_type` is read, and what the tables of families have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from paleo.core.frozen import dataclass
from paleo.net.importers.transformers.config import Config


@dataclass(frozen=True)
class Family:
    """How a `model_type` is read: what it is, its defaults, and other spellings of its keys."""

    form: Any
    defaults: Mapping[str, Any]
    spellings: Mapping[str, Sequence[str]] = field(default_factory=dict)


def sizes(
    vocab: int, hidden: int, ffn: int | None, layers: int, heads: int, positions: int, **more: Any
) -> dict[str, Any]:
    """Return the defaults of keys that most families have."""
    return {
        "vocab_size": vocab, "hidden_size": hidden, "intermediate_size": ffn,
        "num_hidden_layers": layers, "num_attention_heads": heads,
        "max_position_embeddings": positions, "hidden_act": "silu",
        "tie_word_embeddings": False, "num_labels": 2, **more,
    }  # fmt: skip


def alternating(full_every: int) -> Any:
    """Return kinds of layers of which each so manieth sees all positions, the others a window."""

    def kinds(c: Config) -> list[str]:
        said = c.has("sliding_window_pattern")
        period = c.whole("sliding_window_pattern") if said else full_every
        return [
            "full_attention" if (i + 1) % period == 0 else "sliding_attention"
            for i in range(c.whole("num_hidden_layers"))
        ]

    return kinds


def sliding(c: Config) -> str:
    """Return the kind of all layers: with a window, if there is one."""
    return "sliding_attention" if c.get("sliding_window") else "full_attention"
