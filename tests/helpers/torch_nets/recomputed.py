"""Small transformers whose activations are computed again, as torch.utils.checkpoint does.

A GPT, a LLaMA (RMS norms, rotary positions, grouped queries, SwiGLU), a mixture of experts (two of
eight) and a ViT. `mode` is none, selective (the core of attention again) or full (each block
again); `fused` has attention as one kernel.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.checkpoint import checkpoint

#: Layers, heads, heads of keys, width, tokens, words, experts, and how many of them a token takes.
LAYERS, HEADS, GROUPS, WIDTH, TOKENS, WORDS, EXPERTS, TAKEN = 4, 4, 2, 64, 64, 200, 8, 2
#: Height and width of an image, and of its patches; classes.
IMAGE, PATCH, CLASSES = 64, 8, 10


@contextlib.contextmanager
def sized(sizes: Mapping[str, int]) -> Iterator[None]:
    """Set other sizes, by the names above, for nets and batches that are made and run inside."""
    before = {name: globals()[name] for name in sizes}
    globals().update(sizes)
    try:
        yield
    finally:
        globals().update(before)


def _again(function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """Call a function, of which only the inputs are kept."""
    found: Any = checkpoint(function, *inputs, use_reentrant=False)
    assert isinstance(found, Tensor)
    return found


class Attention(nn.Module):
    """Attention of several heads; its core is computed again if `again`."""

    #: Heads of keys and values, and whether queries and keys are turned by their positions.
    groups, turns, bias = HEADS, False, True

    def __init__(self, fused: bool, again: bool) -> None:
        super().__init__()
        self.fused = fused
        # Otherwise a kernel copies each beside the core.
        self.again = again and not fused
        few = WIDTH * self.groups // HEADS
        self.query = nn.Linear(WIDTH, WIDTH, bias=self.bias)
        self.key, self.value = (nn.Linear(WIDTH, few, bias=self.bias) for _ in range(2))
        self.out = nn.Linear(WIDTH, WIDTH, bias=self.bias)
        self.dropout = nn.Dropout(0.1)

    def core(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if self.fused:
            return F.scaled_dot_product_attention(q, k, v, enable_gqa=self.groups < HEADS)
        if self.groups < HEADS:
            k, v = (x.repeat_interleave(HEADS // self.groups, 1) for x in (k, v))
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.shape[-1])
        return torch.matmul(self.dropout(torch.softmax(scores, -1)), v)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            part(x).view(*x.shape[:2], -1, WIDTH // HEADS).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        if self.turns:
            q, k = turned(q), turned(k)
        mixed = _again(self.core, q, k, v) if self.again else self.core(q, k, v)
        y: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return y


def turned(x: Tensor) -> Tensor:
    """Return queries or keys turned by their positions, as LLaMA does in transformers."""
    half = x.shape[-1] // 2
    rates = 1e-4 ** (torch.arange(half) / half)
    angles = torch.outer(torch.arange(x.shape[-2]), rates).repeat(1, 2)
    first, second = x.chunk(2, -1)
    return x * angles.cos() + torch.cat((-second, first), -1) * angles.sin()


class GroupedAttention(Attention):
    """The attention of LLaMA."""

    groups, turns, bias = GROUPS, True, False


class RMSNorm(nn.Module):
    """The norm of LLaMA, of elementary operators."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class MLP(nn.Module):
    """Two layers with GELU between."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.fc2(F.gelu(self.fc1(x)))
        return y


class SwiGLU(nn.Module):
    """The MLP of LLaMA."""

    def __init__(self, hidden: int = 176) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(WIDTH, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.down(F.silu(self.gate(x)) * self.up(x))
        return y


class Mixture(nn.Module):
    """Experts, of which each token takes some; each computes the rows that go to it."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.experts = nn.ModuleList(SwiGLU(128) for _ in range(EXPERTS))

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, WIDTH)
        shares, chosen = torch.topk(torch.softmax(self.router(rows), -1), TAKEN, -1)
        shares = shares / shares.sum(-1, keepdim=True)
        found = torch.zeros_like(rows)
        for i, expert in enumerate(self.experts):
            which, place = torch.where(chosen == i)
            found.index_add_(0, which, expert(rows[which]) * shares[which, place, None])
        return found.reshape(x.shape)


class Block(nn.Module):
    """Attention and an MLP, each behind a normalization."""

    def __init__(
        self,
        fused: bool,
        mode: str,
        norm: Callable[[int], nn.Module] = nn.LayerNorm,
        attention: type[Attention] = Attention,
        mlp: Callable[[], nn.Module] = MLP,
    ) -> None:
        super().__init__()
        self.mode = mode
        self.norm1, self.norm2 = norm(WIDTH), norm(WIDTH)
        self.attention, self.mlp = attention(fused, mode == "selective"), mlp()

    def all_of_it(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        y: Tensor = x + self.mlp(self.norm2(x))
        return y

    def forward(self, x: Tensor) -> Tensor:
        return _again(self.all_of_it, x) if self.mode == "full" else self.all_of_it(x)


class Gpt(nn.Module):
    """Words, blocks the loss of what they say of each word, and the scores."""

    norm: Callable[[int], nn.Module] = nn.LayerNorm
    block: Callable[[bool, str], nn.Module] = Block
    #: A share of the blocks that others have.
    share = 1

    def __init__(self, fused: bool = False, mode: str = "none") -> None:
        super().__init__()
        kind = type(self)
        self.words = nn.Embedding(WORDS, WIDTH)
        self.h = nn.ModuleList(kind.block(fused, mode) for _ in range(LAYERS // self.share))
        self.norm_f = kind.norm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def begin(self, words: Tensor) -> Tensor:
        """Return what the first block reads."""
        y: Tensor = self.words(words)
        return y

    def end(self, x: Tensor) -> Tensor:
        """Return the scores of what the last block gives."""
        y: Tensor = self.head(self.norm_f(x))
        return y

    def forward(self, words: Tensor) -> tuple[Tensor, Tensor]:
        x = self.begin(words)
        for block in self.h:
            x = block(x)
        scores = self.end(x)
        return loss_of_words(scores, words), scores


def loss_of_words(scores: Tensor, words: Tensor) -> Tensor:
    """Return the cross entropy of the words."""
    return F.cross_entropy(scores.flatten(0, 1), words.flatten())


_LLAMA: dict[str, Any] = {"norm": RMSNorm, "attention": GroupedAttention}


class Llama(Gpt):
    """LLaMA."""

    norm = RMSNorm
    block = functools.partial(Block, **_LLAMA, mlp=SwiGLU)


class Moe(Gpt):
    """LLaMA of fewer layers, whose MLPs are mixtures of experts, as Mixtral's are."""

    share = 2
    norm = RMSNorm
    block = functools.partial(Block, **_LLAMA, mlp=Mixture)


class Vit(nn.Module):
    """A vision transformer: patches, positions, blocks, the loss of its classes, and the scores."""

    def __init__(self, fused: bool = False, mode: str = "none") -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, PATCH, PATCH)
        self.positions = nn.Parameter(torch.zeros(1, (IMAGE // PATCH) ** 2 + 1, WIDTH))
        self.token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.dropout = nn.Dropout(0.1)
        self.h = nn.ModuleList(Block(fused, mode) for _ in range(LAYERS))
        self.norm_f = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def begin(self, images: Tensor) -> Tensor:
        """Return what the first block reads."""
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(x.shape[0], -1, -1), x), 1) + self.positions
        y: Tensor = self.dropout(x)
        return y

    def end(self, x: Tensor) -> Tensor:
        """Return the scores of what the last block gives."""
        y: Tensor = self.head(self.norm_f(x)[:, 0])
        return y

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        x = self.begin(images)
        for block in self.h:
            x = block(x)
        scores = self.end(x)
        return F.cross_entropy(scores, torch.zeros(x.shape[0], dtype=torch.int64)), scores


class ConvBlock(nn.Module):
    """Two convolutions and what comes in, as in a ResNet."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(WIDTH, WIDTH, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(WIDTH)
        self.conv2 = nn.Conv2d(WIDTH, WIDTH, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(x + self.norm2(self.conv2(y)))


class ConvNet(nn.Module):
    """Patches, residual blocks of convolutions, the loss of the image's classes, and the scores."""

    def __init__(self, fused: bool = False, mode: str = "none") -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, PATCH, PATCH)
        self.h = nn.ModuleList(ConvBlock() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, CLASSES)

    def begin(self, images: Tensor) -> Tensor:
        """Return what the first block reads."""
        y: Tensor = self.patches(images)
        return y

    def end(self, x: Tensor) -> Tensor:
        """Return the scores of what the last block gives."""
        y: Tensor = self.head(x.mean((2, 3)))
        return y

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        x = self.begin(images)
        for block in self.h:
            x = block(x)
        scores = self.end(x)
        return F.cross_entropy(scores, torch.zeros(x.shape[0], dtype=torch.int64)), scores


#: By name.
NETS: dict[str, Callable[[bool, str], nn.Module]] = {
    "gpt": Gpt, "llama": Llama, "moe": Moe, "vit": Vit, "conv": ConvNet,
}  # fmt: skip


def batch_of(name: str, size: int) -> Tensor:
    """Return what a net reads."""
    if name in ("vit", "conv"):
        return torch.randn(size, 3, IMAGE, IMAGE)
    return torch.randint(0, WORDS, (size, TOKENS))
