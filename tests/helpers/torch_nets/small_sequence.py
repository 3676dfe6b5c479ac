"""Small nets with attention or recurrence, for tests of the importer."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812


class SelfAttention(nn.Module):
    """Attention of several heads, of separate projections, matrix products and a softmax."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.softmax = nn.Softmax(dim=-1)
        self.dropout = nn.Dropout(0.1)
        self.out = nn.Linear(width, width)

    def split(self, x: Tensor) -> Tensor:
        n, length, width = x.shape
        return x.view(n, length, self.heads, width // self.heads).transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.shape[-1])
        mixed = torch.matmul(self.dropout(self.softmax(scores)), v)
        return self.out(mixed.transpose(1, 2).reshape(x.shape))


class EncoderLayer(nn.Module):
    """A layer of the Transformer's encoder, normalized after each addition."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.attention = SelfAttention(width, heads)
        self.norm1 = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, hidden)
        self.gelu = nn.GELU()
        self.fc2 = nn.Linear(hidden, width)
        self.norm2 = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.fc2(self.gelu(self.fc1(x))))


class Encoder(nn.Module):
    """A small BERT: words, positions, two layers, the first word's state classified."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(1000, 64)
        self.positions = nn.Embedding(32, 64)
        self.norm = nn.LayerNorm(64)
        self.layer1 = EncoderLayer(64, 4, 128)
        self.layer2 = EncoderLayer(64, 4, 128)
        self.pooler = nn.Linear(64, 64)
        self.classifier = nn.Linear(64, 2)

    def forward(self, words: Tensor) -> Tensor:
        positions = torch.arange(words.shape[1], device=words.device)
        x = self.norm(self.words(words) + self.positions(positions))
        x = self.layer2(self.layer1(x))
        return self.classifier(torch.tanh(self.pooler(x[:, 0])))


class StockEncoder(nn.Module):
    """PyTorch's own encoder layers on continuous features."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(40, 64)
        layer = nn.TransformerEncoderLayer(
            64, 4, 128, dropout=0.1, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(self.project(x)).mean(dim=1))


class CausalSelfAttention(nn.Module):
    """Fused causal attention after one projection to queries, keys and values."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        n, length, width = x.shape
        q, k, v = (
            part.view(n, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(x).split(width, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).contiguous().view(n, length, width))


class DecoderLayer(nn.Module):
    """A layer of GPT, normalized before each part."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.ln1 = nn.LayerNorm(width)
        self.attn = CausalSelfAttention(width, heads)
        self.ln2 = nn.LayerNorm(width)
        self.fc = nn.Linear(width, 4 * width)
        self.gelu = nn.GELU(approximate="tanh")
        self.proj = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln1(x))
        return x + self.dropout(self.proj(self.gelu(self.fc(self.ln2(x)))))


class GPT(nn.Module):
    """A small GPT whose output layer has the embedding's weights."""

    def __init__(self) -> None:
        super().__init__()
        self.wte = nn.Embedding(1000, 64)
        self.wpe = nn.Parameter(torch.zeros(32, 64))
        self.h1 = DecoderLayer(64, 4)
        self.h2 = DecoderLayer(64, 4)
        self.ln_f = nn.LayerNorm(64)
        self.lm_head = nn.Linear(64, 1000, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, words: Tensor) -> Tensor:
        x = self.wte(words) + self.wpe[: words.shape[1]]
        return self.lm_head(self.ln_f(self.h2(self.h1(x))))


class ViT(nn.Module):
    """A small vision transformer: patches, a class token, learnt positions."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 48, 8, stride=8)
        self.class_token = nn.Parameter(torch.zeros(1, 1, 48))
        self.positions = nn.Parameter(torch.zeros(1, 17, 48))
        self.layer1 = EncoderLayer(48, 3, 96)
        self.layer2 = EncoderLayer(48, 3, 96)
        self.norm = nn.LayerNorm(48)
        self.head = nn.Linear(48, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        token = self.class_token.expand(x.shape[0], -1, -1)
        x = torch.cat([token, x], dim=1) + self.positions
        return self.head(self.norm(self.layer2(self.layer1(x)))[:, 0])


class Tagger(nn.Module):
    """A tagger of words: a bidirectional LSTM, then a bidirectional GRU, of two layers each."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(500, 32, padding_idx=0)
        self.lstm = nn.LSTM(32, 24, num_layers=2, bidirectional=True, batch_first=True, dropout=0.1)
        self.gru = nn.GRU(48, 16, num_layers=2, bidirectional=True, batch_first=True)
        self.tags = nn.Linear(32, 9)

    def forward(self, words: Tensor) -> Tensor:
        x, _ = self.lstm(self.embedding(words))
        x, _ = self.gru(x)
        return self.tags(x)


class WindowAttention(nn.Module):
    """Attention within shifted windows of an image, with a bias for each relative position."""

    def __init__(self, width: int, heads: int, window: int, shift: int) -> None:
        super().__init__()
        self.heads, self.window, self.shift = heads, window, shift
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.bias = nn.Parameter(torch.zeros((2 * window - 1) ** 2, heads))
        rows, columns = torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")
        places = torch.stack([rows.flatten(), columns.flatten()])
        apart = places[:, :, None] - places[:, None, :] + window - 1
        self.register_buffer("index", apart[0] * (2 * window - 1) + apart[1])

    def forward(self, x: Tensor) -> Tensor:
        n, h, w, c = x.shape
        s, area = self.window, self.window**2
        x = torch.roll(x, shifts=(-self.shift, -self.shift), dims=(1, 2))
        x = x.view(n, h // s, s, w // s, s, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, area, c)
        qkv = self.qkv(x).reshape(-1, area, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        scores = (q * (c // self.heads) ** -0.5) @ k.transpose(-2, -1)
        bias = self.bias[self.index.view(-1)].view(area, area, self.heads).permute(2, 0, 1)
        x = (torch.softmax(scores + bias, dim=-1) @ v).transpose(1, 2).reshape(-1, area, c)
        x = self.proj(x).view(n, h // s, w // s, s, s, c).permute(0, 1, 3, 2, 4, 5)
        x = x.reshape(n, h, w, c)
        return torch.roll(x, shifts=(self.shift, self.shift), dims=(1, 2))


class Swin(nn.Module):
    """Two layers of window attention, the second shifted, then patches merged."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 32, 4, stride=4)
        self.norm1 = nn.LayerNorm(32)
        self.attention1 = WindowAttention(32, 2, 4, 0)
        self.norm2 = nn.LayerNorm(32)
        self.attention2 = WindowAttention(32, 2, 4, 2)
        self.merge = nn.Linear(4 * 32, 2 * 32, bias=False)
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).permute(0, 2, 3, 1)
        x = x + self.attention1(self.norm1(x))
        x = x + self.attention2(self.norm2(x))
        corners = [x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)]
        x = self.merge(torch.cat(corners, dim=-1))
        return self.head(x.mean(dim=(1, 2)))


class EinsumAttention(nn.Module):
    """Attention whose projections and products are all written as einsum."""

    def __init__(self) -> None:
        super().__init__()
        self.wq = nn.Parameter(torch.empty(4, 48, 12))
        self.wk = nn.Parameter(torch.empty(4, 48, 12))
        self.wv = nn.Parameter(torch.empty(4, 48, 12))
        self.wo = nn.Parameter(torch.empty(4, 12, 48))
        for weight in self.parameters():
            nn.init.normal_(weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        q = torch.einsum("bld,hde->bhle", x, self.wq)
        k = torch.einsum("bld,hde->bhle", x, self.wk)
        v = torch.einsum("bld,hde->bhle", x, self.wv)
        weights = torch.einsum("bhqe,bhke->bhqk", q, k).mul(12**-0.5).softmax(dim=-1)
        mixed = torch.einsum("bhqk,bhke->bhqe", weights, v)
        return torch.einsum("bhqe,hed->bqd", mixed, self.wo)
