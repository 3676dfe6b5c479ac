"""Transformer-XL of Dai et al. (2019) on WikiText-103, as in NVIDIA's DeepLearningExamples.

Segments of `length` words attend to themselves and to `memory` states of each layer that were kept
from the segments before. That states are copied to every sample here stands for the copies by which
that program keeps them. Which words are rare decides on the rows of an adaptive embedding or
softmax; here ranks of words are distributed as its own sampler has them, P(rank <= r) = ln(r + 1) /
ln(V + 1). Segments come first here and in that program time does, which moves no elements.
"""

import itertools
import math

import torch
from torch import Tensor, nn
from torch.nn import functional

#: The words of WikiText-103, and the ranks at which clusters of rarer ones begin.
WORDS = 267_735
ENDS = (19_997, 39_997, 199_997, WORDS)
BEGINS = (0, *ENDS[:-1])


def rows(length: int) -> list[int]:
    """Words of a segment in each cluster, at least one; they are all of its words together."""
    shares = [math.log(end + 1) / math.log(WORDS + 1) for end in ENDS]
    rare = [max(1, round(length * (high - low))) for low, high in itertools.pairwise(shares)]
    return [length - sum(rare), *rare]


def picked(x: Tensor, first: int, count: int) -> Tensor:
    """Rows of a segment, copied as those are that a mask finds."""
    return x.index_select(1, torch.arange(first, first + count, device=x.device))


class Table(nn.Module):
    """Words to rows of a table: scaled, or brought to the width of states."""

    def __init__(self, words: int, narrow: int, width: int, *, projected: bool) -> None:
        super().__init__()
        self.scale = width**0.5
        self.weight = nn.Parameter(torch.zeros(words, narrow))
        self.projection = nn.Parameter(torch.zeros(width, narrow)) if projected else None

    def forward(self, words: Tensor) -> Tensor:
        x = functional.embedding(words, self.weight)
        return x * self.scale if self.projection is None else functional.linear(x, self.projection)


class AdaptiveEmbedding(nn.Module):
    """Words to states, those of each rarer cluster through `divided` times narrower tables."""

    def __init__(self, width: int, divided: int) -> None:
        super().__init__()
        self.scale = width**0.5
        clusters = list(zip(BEGINS, ENDS, strict=True)) if divided > 1 else [(0, WORDS)]
        self.tables = nn.ModuleList(
            Table(end - begin, width // divided**i, width, projected=divided > 1)
            for i, (begin, end) in enumerate(clusters)
        )

    def forward(self, words: Tensor) -> Tensor:
        if len(self.tables) == 1:
            only: Tensor = self.tables[0](words)
            return only
        found, first = [], 0
        for table, count in zip(self.tables, rows(words.shape[1]), strict=True):
            found.append(table(picked(words, first, count)))
            first += count
        return torch.cat(found, 1) * self.scale


class AdaptiveSoftmax(nn.Module):
    """Log-probabilities of frequent words and of clusters for all, of rarer words for theirs.

    Weights are those of the embedding's tables, and its projections but for the first.
    """

    def __init__(self, width: int, divided: int) -> None:
        super().__init__()
        self.is_divided = divided > 1
        self.cluster_weight = nn.Parameter(torch.zeros(len(ENDS) - 1, width))
        self.cluster_bias = nn.Parameter(torch.zeros(len(ENDS) - 1))
        sizes = [end - begin for begin, end in zip(BEGINS, ENDS, strict=True)]
        self.biases = nn.ParameterList(
            nn.Parameter(torch.zeros(size)) for size in (sizes if self.is_divided else [WORDS])
        )
        self.projection = nn.Parameter(torch.zeros(width, width)) if self.is_divided else None

    def cluster(self, i: int, table: Table) -> tuple[Tensor, Tensor]:
        """Weights and biases of the words of a cluster."""
        if self.is_divided:
            return table.weight, self.biases[i]
        part = slice(BEGINS[i], ENDS[i])
        return table.weight[part], self.biases[0][part]

    def forward(self, x: Tensor, tables: nn.ModuleList) -> tuple[Tensor, ...]:
        counts, found = rows(x.shape[1]), []
        for i in range(len(ENDS)):
            table = tables[i if self.is_divided else 0]
            weight, bias = self.cluster(i, table)
            if i == 0:
                weight = torch.cat([weight, self.cluster_weight])
                bias = torch.cat([bias, self.cluster_bias])
            of = picked(x, sum(counts[:i]), counts[i]) if i else x
            if self.is_divided:  # states are made as narrow as the table
                of = torch.matmul(of, table.projection if i else self.projection)
            found.append(functional.log_softmax(functional.linear(of, weight, bias), -1))
        return tuple(found)


class RelativeAttention(nn.Module):
    """Attention to the states kept and to the segment, by contents and by distance."""

    def __init__(self, width: int, heads: int, dropout: float, in_attention: float) -> None:
        super().__init__()
        self.heads = heads
        self.qkv_net = nn.Linear(width, 3 * width, bias=False)
        self.r_net = nn.Linear(width, width, bias=False)
        self.softmax = nn.Softmax(dim=-1)
        self.dropatt = nn.Dropout(in_attention)
        self.o_net = nn.Linear(width, width, bias=False)
        self.drop = nn.Dropout(dropout)
        self.layer_norm = nn.LayerNorm(width)

    def split(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], x.shape[1], self.heads, -1)

    def forward(
        self,
        x: Tensor,
        kept: Tensor,
        distances: Tensor,
        biases: tuple[Tensor, Tensor],
        mask: Tensor,
    ) -> Tensor:
        n, length, width = x.shape
        known = torch.cat([kept, x], 1)
        q, k, v = self.qkv_net(known).chunk(3, -1)
        q, k, v = self.split(q[:, -length:]), self.split(k), self.split(v)
        r = self.split(self.r_net(distances))
        of_content, of_distance = biases
        content = torch.matmul((q + of_content).transpose(1, 2), k.permute(0, 2, 3, 1))
        distance = torch.matmul((q + of_distance).transpose(1, 2), r.permute(0, 2, 3, 1))
        scores = (content + self.shifted(distance)) * (width // self.heads) ** -0.5
        scores = scores.masked_fill(mask, float("-inf"))
        mixed = torch.matmul(self.dropatt(self.softmax(scores)), v.transpose(1, 2))
        mixed = mixed.transpose(1, 2).reshape(n, length, width)
        return self.layer_norm(x + self.drop(self.o_net(mixed)))

    @staticmethod
    def shifted(x: Tensor) -> Tensor:
        """Scores by distance to scores by place: each row further left than that above it."""
        n, heads, length, known = x.shape
        padded = torch.cat([x.new_zeros(n, heads, length, 1), x], 3)
        return padded.view(n, heads, known + 1, length)[:, :, 1:].reshape(x.shape)


class Layer(nn.Module):
    """Attention and a net for each word, each normalized after its input is added."""

    def __init__(
        self, width: int, heads: int, hidden: int, dropout: float, in_attention: float
    ) -> None:
        super().__init__()
        self.dec_attn = RelativeAttention(width, heads, dropout, in_attention)
        self.linear1 = nn.Linear(width, hidden)
        self.relu = nn.ReLU()
        self.dropout1 = nn.Dropout(dropout)
        self.linear2 = nn.Linear(hidden, width)
        self.dropout2 = nn.Dropout(dropout)
        self.layer_norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, *others: Tensor | tuple[Tensor, Tensor]) -> Tensor:
        x = self.dec_attn(x, *others)
        y = self.dropout1(self.relu(self.linear1(x)))
        return self.layer_norm(x + self.dropout2(self.linear2(y)))


class TransformerXL(nn.Module):
    """The model with its adaptive softmax; `dropout` also after the softmax of attention."""

    def __init__(
        self,
        layers: int,
        width: int,
        heads: int,
        memory: int,
        *,
        divided: int,
        dropout: tuple[float, float],
    ) -> None:
        super().__init__()
        self.word_emb = AdaptiveEmbedding(width, divided)
        self.drop = nn.Dropout(dropout[0])
        self.layers = nn.ModuleList(Layer(width, heads, 4 * width, *dropout) for _ in range(layers))
        self.r_w_bias = nn.Parameter(torch.zeros(heads, width // heads))
        self.r_r_bias = nn.Parameter(torch.zeros(heads, width // heads))
        self.crit = AdaptiveSoftmax(width, divided)
        self.register_buffer("kept", torch.zeros(1, memory, width))
        self.register_buffer("frequencies", 1e-4 ** torch.linspace(0, 1, width // 2))

    def forward(self, words: Tensor) -> tuple[Tensor, ...]:
        length, memory = words.shape[1], self.kept.shape[1]
        known = memory + length
        mask = torch.ones(length, known, dtype=torch.bool, device=words.device).triu(1 + memory)
        angles = torch.arange(known - 1, -1, -1, device=words.device)[:, None] * self.frequencies
        distances = self.drop(torch.cat([angles.sin(), angles.cos()], 1)[None])
        x = self.drop(self.word_emb(words))
        kept = self.kept.expand(len(words), -1, -1)
        for layer in self.layers:
            x = layer(x, kept, distances, (self.r_w_bias, self.r_r_bias), mask)
        return self.crit(self.drop(x), self.word_emb.tables)


def _base(memory: int) -> nn.Module:
    return TransformerXL(16, 512, 8, memory, divided=1, dropout=(0.1, 0.0))


def _large(memory: int) -> nn.Module:
    return TransformerXL(18, 1024, 16, memory, divided=4, dropout=(0.2, 0.2))


def transformer_xl_base() -> nn.Module:
    """The base model in training: 192 words, and as many kept."""
    return _base(192)


def transformer_xl_base_eval() -> nn.Module:
    """The base model in inference: 64 words, and 640 kept."""
    return _base(640)


def transformer_xl_large() -> nn.Module:
    """The large model in training: 384 words, and as many kept."""
    return _large(384)


def transformer_xl_large_eval() -> nn.Module:
    """The large model in inference: 128 words, and 1600 kept."""
    return _large(1600)
