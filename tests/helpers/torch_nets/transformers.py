"""BERT, GPT-2, GPT-3 and OPT, their attention as separate products.

So the first implementations have it.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn


class Attention(nn.Module):
    """Attention of several heads: separate projections, products and a softmax.

    A `mask` is added to the scores.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.softmax = nn.Softmax(dim=-1)
        self.dropout = nn.Dropout(0.1)
        self.output = nn.Linear(width, width)

    def split(self, x: Tensor) -> Tensor:
        n, length, width = x.shape
        return x.view(n, length, self.heads, width // self.heads).transpose(1, 2)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.shape[-1])
        if mask is not None:
            scores = scores + mask
        mixed = torch.matmul(self.dropout(self.softmax(scores)), v)
        return self.output(mixed.transpose(1, 2).reshape(x.shape))


class BertLayer(nn.Module):
    """A layer of BERT, normalized after each addition."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.attention = Attention(width, heads)
        self.dropout1 = nn.Dropout(0.1)
        self.norm1 = nn.LayerNorm(width)
        self.intermediate = nn.Linear(width, hidden)
        self.gelu = nn.GELU()
        self.output = nn.Linear(hidden, width)
        self.dropout2 = nn.Dropout(0.1)
        self.norm2 = nn.LayerNorm(width)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.norm1(x + self.dropout1(self.attention(x, mask)))
        y = self.output(self.gelu(self.intermediate(x)))
        return self.norm2(x + self.dropout2(y))


class Bert(nn.Module):
    """BERT of Devlin et al. (2018), the encoder with its pooler."""

    def __init__(self, layers: int, width: int, heads: int) -> None:
        super().__init__()
        self.words = nn.Embedding(30522, width)
        self.positions = nn.Embedding(512, width)
        self.kinds = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(0.1)
        self.encoder = nn.Sequential(*(BertLayer(width, heads, 4 * width) for _ in range(layers)))
        self.pooler = nn.Linear(width, width)
        self.tanh = nn.Tanh()

    def embedded(self, words: Tensor) -> Tensor:
        positions = torch.arange(words.shape[1], device=words.device)
        x = self.words(words) + self.kinds(torch.zeros_like(words)) + self.positions(positions)
        embedded: Tensor = self.dropout(self.norm(x))
        return embedded

    def pooled(self, x: Tensor) -> Tensor:
        pooled: Tensor = self.tanh(self.pooler(x[:, 0]))
        return pooled

    def forward(self, words: Tensor) -> Any:
        return self.pooled(self.encoder(self.embedded(words)))


class BertPretraining(Bert):
    """BERT with both heads of its pre-training: words that were masked, and the next sentence.

    A mask is added to scores of attention, as of sequences that are filled up. Of each sequence the
    words at so many positions are predicted, all of them if `predictions` is 0: as a step does the
    same whichever they are, they are the first. It gives logarithms of probabilities, of which
    losses are picked.
    """

    def __init__(self, layers: int, width: int, heads: int, predictions: int) -> None:
        super().__init__(layers, width, heads)
        self.predictions = predictions
        self.transform = nn.Linear(width, width)
        self.gelu = nn.GELU()
        self.transform_norm = nn.LayerNorm(width)
        self.decoder = nn.Linear(width, 30522)
        self.decoder.weight = self.words.weight
        self.seq_relationship = nn.Linear(width, 2)
        self.log_softmax = nn.LogSoftmax(dim=-1)

    def forward(self, words: Tensor) -> tuple[Tensor, Tensor]:
        mask = torch.zeros(1, 1, 1, words.shape[1], device=words.device)
        x = self.embedded(words)
        for layer in self.encoder:
            x = layer(x, mask)
        masked = x[:, : self.predictions] if self.predictions else x
        scores = self.decoder(self.transform_norm(self.gelu(self.transform(masked))))
        follows = self.seq_relationship(self.pooled(x))
        return self.log_softmax(scores), self.log_softmax(follows)


def bert_base() -> nn.Module:
    """BERT-Base, on 128 words as in the first phase of its training."""
    return Bert(12, 768, 12)


def bert_large() -> nn.Module:
    """BERT-Large, on 512 words."""
    return Bert(24, 1024, 16)


def bert_base_pretraining() -> nn.Module:
    """BERT-Base in the first phase of its training: 20 of 128 words are predicted."""
    return BertPretraining(12, 768, 12, 20)


def bert_base_pretraining_all() -> nn.Module:
    """The same where scores of all words are made, and the loss leaves out those not masked."""
    return BertPretraining(12, 768, 12, 0)


def bert_large_pretraining() -> nn.Module:
    """BERT-Large in the first phase: 20 of 128 words are predicted."""
    return BertPretraining(24, 1024, 16, 20)


def bert_large_pretraining_512() -> nn.Module:
    """BERT-Large in the second phase: 80 of 512 words are predicted."""
    return BertPretraining(24, 1024, 16, 80)


def bert_large_pretraining_all() -> nn.Module:
    """BERT-Large, of which scores of all 512 words are made."""
    return BertPretraining(24, 1024, 16, 0)


class GPT2Layer(nn.Module):
    """A layer of GPT-2, normalized before each part."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.dropout1 = nn.Dropout(0.1)
        self.ln_2 = nn.LayerNorm(width)
        self.c_fc = nn.Linear(width, 4 * width)
        self.gelu = nn.GELU(approximate="tanh")
        self.c_proj = nn.Linear(4 * width, width)
        self.dropout2 = nn.Dropout(0.1)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = x + self.dropout1(self.attn(self.ln_1(x), mask))
        return x + self.dropout2(self.c_proj(self.gelu(self.c_fc(self.ln_2(x)))))


class GPT2(nn.Module):
    """GPT-2 of Radford et al. (2019); the words' scores use the words' embedding."""

    def __init__(self, layers: int, width: int, heads: int, length: int = 1024) -> None:
        super().__init__()
        self.wte = nn.Embedding(50257, width)
        self.wpe = nn.Embedding(length, width)
        self.dropout = nn.Dropout(0.1)
        self.h = nn.ModuleList(GPT2Layer(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, 50257, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, words: Tensor) -> Tensor:
        length = words.shape[1]
        positions = torch.arange(length, device=words.device)
        mask = torch.full((length, length), float("-inf"), device=words.device).triu(1)
        x = self.dropout(self.wte(words) + self.wpe(positions))
        for layer in self.h:
            x = layer(x, mask)
        return self.lm_head(self.ln_f(x))


def gpt2() -> nn.Module:
    """GPT-2 of 124 million parameters, on 1024 words."""
    return GPT2(12, 768, 12)


def gpt2_medium() -> nn.Module:
    """GPT-2 of 355 million parameters."""
    return GPT2(24, 1024, 16)


def gpt2_large() -> nn.Module:
    """GPT-2 of 774 million parameters."""
    return GPT2(36, 1280, 20)


def gpt2_xl() -> nn.Module:
    """GPT-2 of 1.56 billion parameters."""
    return GPT2(48, 1600, 25)


def gpt3_xl() -> nn.Module:
    """GPT-3 of 1.3 billion parameters, on 2048 words, all of its attention dense."""
    return GPT2(24, 2048, 16, 2048)


def gpt3_xl_3072() -> nn.Module:
    """The model that NeuSight measured as GPT-3 XL: 24 heads of 128, and states as wide."""
    return GPT2(24, 3072, 24, 2048)


def gpt3_2_7b() -> nn.Module:
    """GPT-3 of 2.7 billion parameters."""
    return GPT2(32, 2560, 32, 2048)


class OPTLayer(nn.Module):
    """A layer of OPT, normalized before each part."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.self_attn_layer_norm = nn.LayerNorm(width)
        self.self_attn = Attention(width, heads)
        self.dropout1 = nn.Dropout(0.1)
        self.final_layer_norm = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, 4 * width)
        self.activation_fn = nn.ReLU()
        self.fc2 = nn.Linear(4 * width, width)
        self.dropout2 = nn.Dropout(0.1)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = x + self.dropout1(self.self_attn(self.self_attn_layer_norm(x), mask))
        return x + self.dropout2(self.fc2(self.activation_fn(self.fc1(self.final_layer_norm(x)))))


class OPT(nn.Module):
    """OPT of Zhang et al. (2022); its first two positions are never looked up."""

    def __init__(self, layers: int, width: int, heads: int) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(50272, width)
        self.embed_positions = nn.Embedding(2 + 2048, width)
        self.layers = nn.ModuleList(OPTLayer(width, heads) for _ in range(layers))
        self.final_layer_norm = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, 50272, bias=False)
        self.lm_head.weight = self.embed_tokens.weight

    def forward(self, words: Tensor) -> Tensor:
        length = words.shape[1]
        positions = torch.arange(2, 2 + length, device=words.device)
        mask = torch.full((length, length), float("-inf"), device=words.device).triu(1)
        x = self.embed_tokens(words) + self.embed_positions(positions)
        for layer in self.layers:
            x = layer(x, mask)
        return self.lm_head(self.final_layer_norm(x))


def opt_1_3b() -> nn.Module:
    """OPT of 1.3 billion parameters, on 2048 words."""
    return OPT(24, 2048, 32)
