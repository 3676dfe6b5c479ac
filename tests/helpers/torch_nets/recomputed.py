"""A small GPT whose activations are computed again, as torch.utils.checkpoint does."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.checkpoint import checkpoint

#: Layers, heads, width, tokens and words of it.
LAYERS, HEADS, WIDTH, TOKENS, WORDS = 4, 4, 64, 64, 200


def _again(function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """Call a function, of which only the inputs are kept."""
    found: Any = checkpoint(function, *inputs, use_reentrant=False)
    assert isinstance(found, Tensor)
    return found


class Block(nn.Module):
    """Attention and an MLP, each behind a normalization; `fused` has attention as one kernel."""

    def __init__(self, fused: bool, mode: str) -> None:
        super().__init__()
        self.fused, self.mode = fused, mode
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH)
        self.dropout = nn.Dropout(0.1)
        self.fc1, self.fc2 = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def core(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if self.fused:
            return F.scaled_dot_product_attention(q, k, v)
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.shape[-1])
        return torch.matmul(self.dropout(torch.softmax(scores, -1)), v)

    def all_of_it(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        shape = (y.shape[0], y.shape[1], HEADS, WIDTH // HEADS)
        q, k, v = (
            part(y).view(shape).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        # Otherwise a kernel copies each beside the core.
        selective = self.mode == "selective" and not self.fused
        mixed = _again(self.core, q, k, v) if selective else self.core(q, k, v)
        x = x + self.out(mixed.transpose(1, 2).reshape(y.shape))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))

    def forward(self, x: Tensor) -> Tensor:
        return _again(self.all_of_it, x) if self.mode == "full" else self.all_of_it(x)


class Gpt(nn.Module):
    """Words, blocks and the scores of the next word."""

    def __init__(self, fused: bool = False, mode: str = "none") -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.h = nn.ModuleList(Block(fused, mode) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, words: Tensor) -> Tensor:
        x = self.words(words)
        for block in self.h:
            x = block(x)
        scores: Tensor = self.head(self.norm(x))
        return scores
