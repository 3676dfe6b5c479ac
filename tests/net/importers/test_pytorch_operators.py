"""Every operator that the PyTorch importer knows: sizes and parameters as PyTorch has them.

Each case runs in PyTorch with three samples, is imported with two and built with three. What
comes out must have as many elements, and the parameters that were used must be counted.
"""

from __future__ import annotations

import math
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

import paleo  # noqa: E402
from paleo.net.importers import ImportOptions  # noqa: E402
from paleo.net.importers.pytorch import read  # noqa: E402

nn = torch.nn
F = torch.nn.functional
T = Any

SEQUENCE = (10, 16)
IMAGE = (8, 12, 12)


class Net(nn.Module):  # type: ignore[name-defined]
    """A function of modules and inputs."""

    def __init__(self, function: Callable[..., Any], *modules: Any) -> None:
        super().__init__()
        self.function = function
        self.m = nn.ModuleList(modules)

    def forward(self, *inputs: T) -> Any:
        return self.function(*self.m, *inputs)


def linear() -> Any:
    return nn.Linear(16, 16)


def convolution() -> Any:
    return nn.Conv2d(8, 8, 3, padding=1)


def in_slices(m: Any, x: T) -> T:
    y = m(x) * 1
    y[:, 2:5] = y[:, :3] * 2
    return y + 1


def every_other(m: Any, x: T) -> T:
    out = torch.zeros_like(x)
    out[:, ::2] = m(x)[:, ::2]
    out[..., 3:5] = 1
    return out


def in_columns(m: Any, x: T) -> T:
    out = torch.empty(x.shape[0], 10, 2, 16)
    out[:, :, 0] = m(x)
    out[:, :, 1] = x
    return out.sum(2)


def without_gradient(m: Any, x: T) -> T:
    with torch.no_grad():
        y = m(x)
    return y * m(x)


def checkpointed(m: Any, x: T) -> T:
    from torch.utils.checkpoint import checkpoint

    return checkpoint(m, x, use_reentrant=False)


def asserted(m: Any, x: T) -> T:
    torch._assert(x.shape[0] > 0, "no samples")
    return m(x)


def heads(x: T, count: int = 4) -> T:
    return x.reshape(x.shape[0], 10, count, -1).transpose(1, 2)


def rotated(m: Any, x: T) -> T:
    pairs = torch.view_as_complex(m(x).view(-1, 10, 8, 2))
    turn = torch.polar(torch.ones(10, 8), torch.rand(10, 8))
    return torch.view_as_real(pairs * turn).flatten(2)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(_: Any, x: T) -> T:
        return x * x

    @staticmethod
    def backward(_: Any, gradient: T) -> T:
        return gradient


ON_SEQUENCES: dict[str, Callable[[Any, Any], Any]] = {
    # Elements
    "relu_": lambda m, x: F.relu_(m(x)),
    "gelu": lambda m, x: F.gelu(m(x)),
    "glu": lambda m, x: F.glu(m(x)),
    "softsign": lambda m, x: F.softsign(m(x)),
    "tanhshrink": lambda m, x: F.tanhshrink(m(x)),
    "logsigmoid": lambda m, x: F.logsigmoid(m(x)),
    "hardshrink": lambda m, x: F.hardshrink(m(x)),
    "mish": lambda m, x: F.mish(m(x)),
    "sinc": lambda m, x: torch.sinc(m(x)),
    "atan2": lambda m, x: torch.atan2(m(x), x),
    "sin cos": lambda m, x: m(x).sin() * m(x).cos(),
    "floor": lambda m, x: torch.floor(m(x)),
    "ndtr": lambda m, x: torch.special.ndtr(m(x)),
    "power of a number": lambda m, x: 2 ** m(x),
    "power": lambda m, x: m(x) ** x,
    "1 - x": lambda m, x: 1 - m(x),
    "1 / x": lambda m, x: 1 / m(x),
    "clamp": lambda m, x: m(x).clamp(0, 6),
    "nan_to_num": lambda m, x: m(x).nan_to_num(),
    "logic": lambda m, x: (m(x) > 0) & (x > 0) | ~(x < 1),
    "compare": lambda m, x: (m(x) > x).float() * x,
    "where": lambda m, x: torch.where(x > 0, m(x), x),
    "masked_fill": lambda m, x: m(x).masked_fill(x > 0, 0.0),
    "constant mask": lambda m, x: m(x).masked_fill(torch.ones(10, 16).bool(), -1.0),
    "addcmul": lambda m, x: torch.addcmul(x, m(x), x),
    "lerp": lambda m, x: torch.lerp(x, m(x), 0.3),
    "add alpha": lambda m, x: torch.add(m(x), x, alpha=2),
    "in place": lambda m, x: m(x).add_(x).mul_(2).sub_(x),
    "types": lambda m, x: m(x).double().type_as(x) + x.to(torch.float32).half().float(),
    "detach": lambda m, x: m(x).detach() * x,
    "dropout": lambda m, x: F.dropout(m(x), 0.3),
    "dropout in place": lambda m, x: F.dropout(m(x), 0.3, training=True, inplace=True),
    "bernoulli": lambda m, x: torch.bernoulli(m(x).sigmoid()),
    "drop path": lambda m, x: m(x) * x.new_empty(x.shape[0], 1, 1).bernoulli_(0.9).div_(0.9),
    "constants": lambda m, x: m(x) + x.new_zeros(x.shape) + torch.rand_like(x) + torch.randn(16),
    "meshgrid": lambda m, x: (
        m(x)
        + torch.stack(torch.meshgrid(torch.arange(10.0), torch.arange(16.0), indexing="ij")).sum(0)
    ),
    "custom function": lambda m, x: Square.apply(m(x)),
    "one_hot": lambda m, x: F.one_hot(m(x).argmax(-1) * 0 + 15, 16).float() @ x.mT,
    # Normalizations
    "softmin": lambda m, x: F.softmin(m(x), -1),
    "log_softmax": lambda m, x: m(x).log_softmax(-1).exp(),
    "gumbel_softmax": lambda m, x: F.gumbel_softmax(m(x), hard=True),
    "normalize": lambda m, x: F.normalize(m(x), dim=-1),
    "normalize rows": lambda m, x: F.normalize(m(x)),
    "layer_norm": lambda m, x: F.layer_norm(m(x), (10, 16)),
    "rms_norm": lambda m, x: F.rms_norm(m(x), (16,)),
    "batch_norm": lambda m, x: F.batch_norm(m(x).mT, None, None, training=True),
    # Reductions
    "max": lambda m, x: m(x).max(1)[0],
    "min": lambda m, x: m(x).min(dim=-1, keepdim=True).values,
    "amax": lambda m, x: m(x).amax((1, 2)),
    "var": lambda m, x: m(x).var(-1),
    "std": lambda m, x: m(x).std(1, keepdim=True),
    "var_mean": lambda m, x: sum(torch.var_mean(m(x), -1)),
    "norm": lambda m, x: m(x).norm(dim=-1),
    "logsumexp": lambda m, x: m(x).logsumexp(-1),
    "median": lambda m, x: m(x).median(1)[0],
    "prod": lambda m, x: m(x).prod(-1),
    "any": lambda m, x: (m(x) > 0).any(-1),
    "argmax": lambda m, x: m(x).argmax(-1),
    "aminmax": lambda m, x: torch.aminmax(m(x), dim=-1)[0],
    # Views
    "view -1": lambda m, x: m(x).reshape(-1, 4, 4),
    "movedim": lambda m, x: m(x).movedim(1, -1) * 2,
    "swapaxes": lambda m, x: m(x).swapaxes(0, 1) * 2,
    "permute": lambda m, x: m(x).permute(0, 2, 1).softmax(-1),
    "contiguous": lambda m, x: m(x).transpose(1, 2).contiguous().view(-1, 16, 10) * 2,
    "steps first": lambda m, x: m(x.transpose(0, 1)).transpose(0, 1) * 2,
    "unflatten": lambda m, x: m(x).unflatten(-1, (4, 4)).sum(-1),
    "squeeze": lambda m, x: m(x)[:, :1].squeeze(1) * 2,
    "expand": lambda m, x: m(x)[:, :1].expand(-1, 5, -1) * x[:, :5],
    "expand_as": lambda m, x: m(x)[:, :1].expand_as(x) * x,
    "repeat": lambda m, x: m(x).repeat(1, 2, 1),
    "tile": lambda m, x: m(x).tile(2),
    "repeat_interleave": lambda m, x: m(x).repeat_interleave(3, dim=-1) * 2,
    # Parts
    "last": lambda m, x: m(x)[:, -1] * 2,
    "steps of two": lambda m, x: m(x)[:, 1:-1:2] * 2,
    "narrow": lambda m, x: m(x).narrow(1, 2, 3) * 2,
    "split": lambda m, x: torch.mul(*m(x).split(8, -1)),
    "chunk": lambda m, x: m(x).chunk(3, -1)[2] * 2,
    "unbind": lambda m, x: m(x).unbind(1)[3] * 2,
    "index": lambda m, x: m(x)[:, [0, 3, 1]],
    "index_select": lambda m, x: m(x).index_select(1, torch.tensor([1, 2])),
    "one of each": lambda m, x: m(x)[torch.arange(x.shape[0]), torch.zeros(x.shape[0]).long()] * 2,
    "two indices": lambda m, x: m(x)[:, torch.arange(3), torch.arange(3)],
    "gather": lambda m, x: m(x).gather(1, m(x).argmax(1, keepdim=True)),
    "take_along_dim": lambda m, x: torch.take_along_dim(m(x), m(x).argsort(1), 1),
    "topk": lambda m, x: m(x).topk(3, -1)[0] * 2,
    "sort": lambda m, x: m(x).sort(-1)[0],
    "diagonal": lambda m, x: torch.diagonal(m(x) @ x.mT, dim1=1, dim2=2) * 2,
    # Together
    "cat": lambda m, x: torch.cat([m(x), x], 1),
    "stack": lambda m, x: torch.stack([m(x), x], -1),
    "hstack": lambda m, x: torch.hstack([m(x), x]),
    "write slices": in_slices,
    "write every other": every_other,
    "write columns": in_columns,
    "scatter": lambda m, x: torch.zeros_like(x).scatter(-1, *m(x).topk(2, -1)[::-1]),
    "scatter a number": lambda m, x: torch.zeros_like(x).scatter_(-1, m(x).topk(2)[1], 1.0) * x,
    # Moves
    "flip": lambda m, x: m(x).flip(1),
    "roll": lambda m, x: m(x).roll(2, 1),
    "cumsum": lambda m, x: m(x).cumsum(1),
    "unfold": lambda m, x: m(x).unfold(1, 4, 2) * 2,
    "complex": rotated,
    # Products
    "matmul": lambda m, x: m(x) @ x.mT,
    "bmm": lambda m, x: torch.bmm(m(x), x.transpose(1, 2)),
    "baddbmm": lambda m, x: torch.baddbmm(x.new_zeros(len(x), 10, 10), m(x), x.mT),
    "addmm": lambda m, x: torch.addmm(m.bias, x.reshape(-1, 16), m.weight).view(x.shape) * 2,
    "vector": lambda m, x: m(x) @ m.bias,
    "outer": lambda m, x: m(x)[:, 0, :, None] * x[:, 1, None, :],
    "inner": lambda m, x: torch.inner(m(x), m.weight),
    "tensordot": lambda m, x: torch.tensordot(m(x), m.weight, dims=([2], [0])),
    "einsum": lambda m, x: torch.einsum("b t d, b s d -> b t s", m(x), x),
    "einsum of the rest": lambda m, x: torch.einsum("...td, ...sd -> ...ts", m(x), x),
    "einsum of weights": lambda m, x: (
        m(x) + torch.einsum("td,kd->tk", torch.ones(10, 16), m.weight)
    ),
    "fourier": lambda m, x: torch.fft.fftn(m(x), dim=(1, 2)).real,
    "fourier of numbers": lambda m, x: torch.fft.irfft(torch.fft.rfft(m(x), dim=-1), dim=-1),
    "nothing sliced": lambda m, x: torch.cat([m(x)[..., :16], x[..., 16:] * 2], -1),
    "nothing split": lambda m, x: torch.cat([p * 2 for p in m(x).split([16, 0], -1)], -1),
    "cdist": lambda m, x: torch.cdist(m(x), x),
    "cosine": lambda m, x: F.cosine_similarity(m(x), x, dim=-1),
    "distance": lambda m, x: F.pairwise_distance(m(x)[:, 0], x[:, 0]),
    "attention": lambda m, x: F.scaled_dot_product_attention(m(x), x, x),
    "causal": lambda m, x: F.scaled_dot_product_attention(
        heads(m(x)), heads(x), heads(x), is_causal=True
    ).flatten(2),
    "grouped queries": lambda m, x: F.scaled_dot_product_attention(
        heads(m(x)), heads(x[..., :8], 2), heads(x[..., :8], 2), enable_gqa=True
    ),
    "learnt mask": lambda m, x: F.scaled_dot_product_attention(
        m(x), x, x, attn_mask=m.weight[:10, :10]
    ),
    "mask of truths": lambda m, x: F.scaled_dot_product_attention(
        m(x), x, x, attn_mask=x[:, None, :, 0] < 9
    ),
    # Around
    "no_grad": without_gradient,
    "checkpoint": checkpointed,
    "assert": asserted,
    "number of the shape": lambda m, x: m(x) / math.sqrt(x.size(-1)) / x.numel(),
}

ON_IMAGES: dict[str, Callable[[Any, Any], Any]] = {
    "max_pool": lambda m, x: F.max_pool2d(m(x), 3, 2, 1, ceil_mode=True),
    "avg_pool": lambda m, x: F.avg_pool2d(m(x), 3, 2, 1, ceil_mode=True),
    "unpool": lambda m, x: F.max_unpool2d(*F.max_pool2d(m(x), 2, return_indices=True), 2),
    "adaptive_avg": lambda m, x: F.adaptive_avg_pool2d(m(x), (3, 5)),
    "adaptive_max": lambda m, x: F.adaptive_max_pool2d(m(x), 1),
    "lp_pool": lambda m, x: F.lp_pool2d(m(x), 2, 2),
    "pixel_shuffle": lambda m, x: F.pixel_shuffle(m(x), 2),
    "pixel_unshuffle": lambda m, x: F.pixel_unshuffle(m(x), 2),
    "channel_shuffle": lambda m, x: F.channel_shuffle(m(x), 4),
    "nearest": lambda m, x: F.interpolate(m(x), scale_factor=2),
    "bilinear": lambda m, x: F.interpolate(m(x), size=(7, 9), mode="bilinear"),
    "bicubic": lambda m, x: F.interpolate(m(x), scale_factor=1.5, mode="bicubic"),
    "area": lambda m, x: F.interpolate(m(x), scale_factor=0.5, mode="area"),
    "antialias": lambda m, x: F.interpolate(m(x), size=8, mode="bilinear", antialias=True),
    "reflect": lambda m, x: F.pad(m(x), (1, 2, 3, 0), mode="reflect"),
    "crop": lambda m, x: F.pad(m(x), (1, 2, -1, 0)),
    "replicate": lambda m, x: F.pad(m(x), (1, 1, 1, 1), mode="replicate"),
    "circular": lambda m, x: F.pad(m(x), (1, 1, 1, 1), mode="circular"),
    "unfold": lambda m, x: F.unfold(m(x), 3, padding=1),
    "fold": lambda m, x: F.fold(F.unfold(m(x), 2, stride=2), (12, 12), 2, stride=2),
    "grid_sample": lambda m, x: F.grid_sample(
        m(x), torch.zeros(len(x), 5, 6, 2), align_corners=False
    ),
    "transformer of space": lambda m, x: F.grid_sample(
        x,
        F.affine_grid(m(x).mean((2, 3))[:, :6].view(-1, 2, 3), x.shape, align_corners=False),
        align_corners=False,
    ),
    "group_norm": lambda m, x: F.group_norm(m(x), 4),
    "instance_norm": lambda m, x: F.instance_norm(m(x)),
    "local_response_norm": lambda m, x: F.local_response_norm(m(x), 3),
    "dropout2d": lambda m, x: F.dropout2d(m(x), 0.2),
    "alpha_dropout": lambda m, x: F.alpha_dropout(m(x), 0.2, training=True),
    "channels_last": lambda m, x: m(x.to(memory_format=torch.channels_last)),
    "frozen scale": lambda m, x: m(x) * torch.rand(1, 8, 1, 1) + torch.rand(1, 8, 1, 1),
    "gate": lambda m, x: m(x) * m(x).mean((2, 3), keepdim=True).sigmoid(),
    "channels last norm": lambda m, x: F.layer_norm(m(x).permute(0, 2, 3, 1), (8,)),
    "patches": lambda m, x: m(x).unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5) * 2,
    "windows": lambda m, x: (
        m(x).view(-1, 8, 3, 4, 3, 4).permute(0, 2, 4, 1, 3, 5).reshape(-1, 8, 4, 4).mean((2, 3))
    ),
    "rot90": lambda m, x: torch.rot90(m(x), 1, (2, 3)),
    "focus": lambda m, x: torch.cat([m(x)[..., ::2, ::2], m(x)[..., 1::2, ::2]], 1),
    "coordinates": lambda m, x: torch.cat(
        [m(x), torch.linspace(0, 1, 12).expand(len(x), 1, 12, 12)], 1
    ),
}


def steps(m: Any, x: T) -> T:
    state, outputs = None, []
    for t in range(4):
        state = m(x[:, t], state)
        outputs.append(state[0] if isinstance(state, tuple) else state)
    return torch.stack(outputs, 1)


def attend(**options: Any) -> Callable[[Any, Any], Any]:
    return lambda m, x: m(x, x, x, **options)[0]


def attention(**options: Any) -> Callable[[], Any]:
    return lambda: nn.MultiheadAttention(16, 4, batch_first=True, **options)


def layers(*parts: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: nn.Sequential(*[part() for part in parts])


FIRST: Callable[[Any, Any], Any] = lambda m, x: m(x)[0]  # noqa: E731
CALL: Callable[[Any, Any], Any] = lambda m, x: m(x)  # noqa: E731

#: What is called, modules, and the shape of one sample.
MODULES: dict[str, tuple[Callable[..., Any], Callable[[], Any], tuple[int, ...]]] = {
    "lstm": (FIRST, lambda: nn.LSTM(16, 8, 2, batch_first=True, bidirectional=True), SEQUENCE),
    "lstm h": (lambda m, x: m(x)[1][0][-1], lambda: nn.LSTM(16, 8, batch_first=True), SEQUENCE),
    "lstm projected": (FIRST, lambda: nn.LSTM(16, 8, batch_first=True, proj_size=4), SEQUENCE),
    "lstm no bias": (FIRST, lambda: nn.LSTM(16, 8, bias=False, batch_first=True), SEQUENCE),
    "lstm steps first": (lambda m, x: m(x.transpose(0, 1))[0], lambda: nn.LSTM(16, 8), SEQUENCE),
    "gru": (FIRST, lambda: nn.GRU(16, 8, batch_first=True), SEQUENCE),
    "rnn": (FIRST, lambda: nn.RNN(16, 8, batch_first=True, nonlinearity="relu"), SEQUENCE),
    "lstm cell": (steps, lambda: nn.LSTMCell(16, 8), SEQUENCE),
    "gru cell": (steps, lambda: nn.GRUCell(16, 8), SEQUENCE),
    "rnn cell": (steps, lambda: nn.RNNCell(16, 8), SEQUENCE),
    "attention": (attend(need_weights=False), attention(), SEQUENCE),
    "attention weights": (attend(), attention(), SEQUENCE),
    "attention padding": (
        lambda m, x: m(x, x, x, key_padding_mask=x[..., 0] > 9, need_weights=False)[0],
        attention(),
        SEQUENCE,
    ),
    "encoder": (
        CALL,
        lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2, enable_nested_tensor=False
        ),
        SEQUENCE,
    ),
    "weight_norm": (
        CALL,
        lambda: nn.utils.parametrizations.weight_norm(nn.Linear(16, 6)),
        SEQUENCE,
    ),
    "spectral_norm": (
        CALL,
        lambda: nn.utils.parametrizations.spectral_norm(nn.Conv2d(8, 6, 3)),
        IMAGE,
    ),
    "bilinear": (lambda m, x: m(x, x), lambda: nn.Bilinear(16, 16, 5), SEQUENCE),
    "prelu": (CALL, lambda: nn.PReLU(8), IMAGE),
    "prelu shared": (CALL, nn.PReLU, IMAGE),
    "batch norm": (CALL, lambda: nn.BatchNorm2d(8), IMAGE),
    "batch norm plain": (CALL, lambda: nn.BatchNorm2d(8, affine=False), IMAGE),
    "instance norm": (CALL, lambda: nn.InstanceNorm2d(8, affine=True), IMAGE),
    "group norm": (CALL, lambda: nn.GroupNorm(2, 8), IMAGE),
    "layer norm": (CALL, lambda: nn.LayerNorm(IMAGE), IMAGE),
    "layer norm no bias": (CALL, lambda: nn.LayerNorm(12, bias=False), IMAGE),
    "rms norm": (CALL, lambda: nn.RMSNorm(12), IMAGE),
    "reflected": (CALL, lambda: nn.Conv2d(8, 8, 3, padding=1, padding_mode="reflect"), IMAGE),
    "same": (CALL, lambda: nn.Conv2d(8, 8, 4, padding="same", dilation=2), IMAGE),
    "depthwise": (CALL, lambda: nn.Conv2d(8, 16, 3, groups=8), IMAGE),
    "transposed": (CALL, lambda: nn.ConvTranspose2d(8, 4, 3, 2, 1, 1, dilation=2), IMAGE),
    "transposed groups": (
        CALL,
        lambda: nn.ConvTranspose2d(8, 4, 3, 3, output_padding=2, groups=2),
        IMAGE,
    ),
    "fractional": (CALL, lambda: nn.FractionalMaxPool2d(2, output_size=5), IMAGE),
    "threshold": (CALL, lambda: nn.Threshold(0.1, 2), IMAGE),
    "volume": (
        CALL,
        layers(
            lambda: nn.Conv3d(2, 4, 3, padding=1),
            lambda: nn.BatchNorm3d(4),
            lambda: nn.MaxPool3d(2),
            lambda: nn.AdaptiveAvgPool3d(1),
            nn.Flatten,
        ),
        (2, 6, 8, 8),
    ),
    "signal": (CALL, lambda: nn.ConvTranspose1d(16, 4, 3, 2, 1, 1), (16, 10)),
    "no tokens of its own": (
        lambda m, x: torch.cat([x * 2, m.weight.expand(len(x), 0, 16)], 1),
        lambda: nn.Embedding(0, 16),
        SEQUENCE,
    ),
}


def made(function: Callable[..., Any], module: Callable[[], Any]) -> Callable[[], Any]:
    """Return what makes a net of a function and a module: one on each call."""
    return lambda: Net(function, module())


CASES: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    **{n: (made(f, linear), SEQUENCE) for n, f in ON_SEQUENCES.items()},
    **{f"{n} (image)": (made(f, convolution), IMAGE) for n, f in ON_IMAGES.items()},
    **{f"nn: {n}": (made(f, m), s) for n, (f, m, s) in MODULES.items()},
}

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def models() -> Iterator[Any]:
    """Give a module whose attributes targets may name."""
    module = types.ModuleType("models_of_this_test")
    sys.modules[module.__name__] = module
    yield module
    del sys.modules[module.__name__]


def elements(output: Any) -> list[int]:
    if isinstance(output, torch.Tensor):
        return [output.numel()]
    return sorted(n for part in output for n in elements(part))


@pytest.mark.parametrize("phase", ["train", "test"])
@pytest.mark.parametrize("case", CASES)
def test_sizes_and_parameters_are_those_of_pytorch(case: str, phase: str, models: Any) -> None:
    factory, shape = CASES[case]
    models.net = factory
    options = ImportOptions(input=((None, (2, *shape)),), phase=phase)
    net = read("python:models_of_this_test:net", options)
    graph = paleo.build(net, batch_size=3)

    torch.manual_seed(1)
    module = factory().train(phase == "train")
    output = module(torch.randn(3, *shape))
    read_by_others = {parent for node in graph.nodes for parent in node.parents}
    leaves = [  # a weight that was computed is one too, of a single sample
        node for node in graph.nodes if node.index not in read_by_others and node.output[0] != 1
    ]
    made = sorted(math.prod(int(size) for size in node.output) for node in leaves)
    assert made == elements(output)

    assert graph.num_params == sum(p.numel() for p in module.parameters())
