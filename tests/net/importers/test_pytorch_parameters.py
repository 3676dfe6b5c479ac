"""What a PyTorch module holds is counted once, whatever is computed of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from products import counts  # noqa: E402

import paleo  # noqa: E402
from paleo.net.importers import ImportOptions  # noqa: E402
from paleo.net.importers.pytorch import read  # noqa: E402

nn = torch.nn
F = torch.nn.functional


@pytest.fixture
def imported(monkeypatch: pytest.MonkeyPatch) -> Callable[..., paleo.NetSpec]:
    """Import a module, which is given one tensor of a shape."""

    def make(net: Any, *shape: int) -> paleo.NetSpec:
        monkeypatch.setattr(torch, "net_of_this_test", net, raising=False)
        return read("python:torch:net_of_this_test", ImportOptions(input=((None, shape),)))

    return make


class Holder(nn.Module):  # type: ignore[name-defined]
    """A function of what is held, by name, and of an input."""

    def __init__(self, function: Callable[[Any, Any], Any], **held: Any) -> None:
        super().__init__()
        self.function = function
        for name, each in held.items():
            if isinstance(each, torch.Tensor) and not isinstance(each, nn.Parameter):
                self.register_buffer(name, each)
            else:
                setattr(self, name, each)

    def forward(self, x: Any) -> Any:
        return self.function(self, x)


def weight(*shape: int) -> Any:
    return nn.Parameter(torch.zeros(shape))


def standardized(m: Any, x: Any) -> Any:
    """Convolve by filters brought to mean 0 and variance 1, times a gain."""
    filters = m.filters.reshape(1, 8, -1)
    filters = F.batch_norm(filters, None, None, weight=(m.gain * 0.5).view(-1), training=True)
    return F.conv2d(x, filters.reshape_as(m.filters), m.bias, padding=1)


def of_positions(m: Any, x: Any) -> Any:
    """Add to scores of 4 heads, 5x5, what a table has for each pair of positions."""
    scores = x @ x.transpose(-2, -1)
    bias = m.table[m.index.view(-1)].view(5, 5, 4).permute(2, 0, 1)
    return (scores + bias.unsqueeze(0)).softmax(-1) @ x


def placed(m: Any, x: Any) -> Any:
    """Add what a convolution makes of positions, which are the same for each sample."""
    return x + m.conv(m.positions.expand(len(x), -1, -1, -1))


def repeated(m: Any, x: Any) -> Any:
    """Add it once made and then repeated, both brought into another shape."""
    positions = m.conv(m.positions).repeat(len(x), 1, 1, 1)
    return x.flatten(2) + positions.flatten(2)


def rows_and_columns(m: Any, x: Any) -> Any:
    """Go through the columns of an image as sequences, then through its rows."""
    n, h, w, c = x.shape
    y = m.down(x.permute(0, 2, 1, 3).reshape(n * w, h, c))[0]
    x = y.reshape(n, w, h, c).permute(0, 2, 1, 3)
    return m.across(x.reshape(n * h, w, c))[0].reshape(n, h, w, c)


def mixed(m: Any, x: Any) -> Any:
    """Convolve each sample by filters of its own, which are groups of one convolution."""
    n, c, h, w = x.shape
    filters = m.route(x.mean((2, 3))).softmax(-1) @ m.experts
    y = F.conv2d(x.reshape(1, n * c, h, w), filters.view(n * 8, c, 3, 3), padding=1, groups=n)
    return y.view(n, 8, h, w)


def modulated(m: Any, x: Any) -> Any:
    """Scale the filters of a transposed convolution for each sample by what it is like."""
    n, c, h, w = x.shape
    filters = m.filters[None] * m.style(x.mean((2, 3)))[:, :, None, None, None]
    y = F.conv_transpose2d(
        x.reshape(1, n * c, h, w), filters.reshape(n * c, 6, 3, 3), stride=2, groups=n
    )
    return y.view(n, 6, 2 * h + 1, 2 * w + 1)


def with_prefix(m: Any, x: Any) -> Any:
    """Leave the first rows, of which there are none, as they are."""
    return torch.cat([x[:, :0], m.linear(x[:, 0:])], dim=1)


# A module, the shape that it takes with a batch of 2, its parameters, and the FLOPs of its products
# on a batch of 3.
HELD: dict[str, tuple[Any, tuple[int, ...], int, int]] = {
    "a bias computed of two parameters and zeros": (
        lambda: Holder(
            lambda m, x: F.linear(x, m.w, torch.cat([m.q, m.k, m.v])),
            w=weight(18, 6), q=weight(6), k=torch.zeros(6), v=weight(6),
        ),
        (2, 7, 6), 18 * 6 + 6 + 6, 2 * 3 * 7 * 18 * 6,
    ),
    "a bias that is a buffer": (
        lambda: Holder(lambda m, x: F.linear(x, m.w, m.b), w=weight(18, 6), b=torch.zeros(18)),
        (2, 7, 6), 18 * 6, 2 * 3 * 7 * 18 * 6,
    ),
    "a table of positions": (
        lambda: Holder(of_positions, table=weight(81, 4), index=torch.zeros(5, 5).long()),
        (2, 4, 5, 16), 81 * 4, 2 * (2 * 3 * 4 * 5 * 5 * 16),
    ),
    "filters that blur": (
        lambda: Holder(
            lambda m, x: F.conv2d(m.conv(x), m.blur.repeat(8, 1, 1, 1), stride=2, groups=8),
            conv=nn.Conv2d(3, 8, 1, bias=False), blur=torch.ones(1, 1, 3, 3),
        ),
        # (9 - 3) / 2 + 1 = 4
        (2, 3, 9, 9), 24, 2 * 3 * (81 * 24 + 4 * 4 * 8 * 9),
    ),
    "transposed filters that are a buffer": (
        lambda: Holder(
            lambda m, x: F.conv_transpose2d(x, m.up, m.b, stride=2, groups=4),
            up=torch.ones(4, 1, 2, 2), b=weight(4),
        ),
        (2, 4, 5, 5), 4, 2 * 3 * 5 * 5 * 4 * 4,
    ),
    "standardized filters with a gain": (
        lambda: Holder(standardized, filters=weight(8, 4, 3, 3), gain=weight(8), bias=weight(8)),
        (2, 4, 5, 5), 8 * 4 * 9 + 8 + 8, 2 * 3 * 25 * 8 * 4 * 9,
    ),
    "filters of a parameter and a low rank": (
        lambda: Holder(
            lambda m, x: F.linear(x, m.w + m.b @ m.a, m.bias),
            w=weight(8, 6), a=weight(2, 6), b=weight(8, 2), bias=weight(8),
        ),
        # The low rank is a product of its own, once for all samples.
        (2, 7, 6), 48 + 12 + 16 + 8, 2 * 3 * 7 * 48 + 2 * 8 * 2 * 6,
    ),
    "a scale that is computed": (
        lambda: Holder(lambda m, x: F.layer_norm(x, (6,), m.w + 1, m.b), w=weight(6), b=weight(6)),
        (2, 7, 6), 12, 0,
    ),
    "a scale of a norm that is a buffer": (
        lambda: Holder(lambda m, x: F.layer_norm(x, (6,), m.w, m.b), w=torch.ones(6), b=weight(6)),
        (2, 7, 6), 6, 0,
    ),
    "a shift alone": (
        lambda: Holder(
            lambda m, x: F.batch_norm(x, None, None, None, m.b, training=True), b=weight(4)
        ),
        (2, 4, 5, 5), 4, 0,
    ),
    "a part of a matrix, and all of it": (
        lambda: Holder(lambda m, x: F.linear(F.linear(x, m.w), m.w[:3]), w=weight(6, 6)),
        (2, 7, 6), 36, 2 * 3 * 7 * (36 + 18),
    ),
    "positions for each sample": (
        lambda: Holder(placed, conv=nn.Conv2d(6, 4, 1), positions=torch.zeros(1, 6, 5, 5)),
        (2, 4, 5, 5), 28, 2 * 3 * 25 * 24,
    ),
    "positions for all samples": (
        lambda: Holder(repeated, conv=nn.Conv2d(6, 4, 1), positions=torch.zeros(1, 6, 5, 5)),
        (2, 4, 5, 5), 28, 2 * 25 * 24,
    ),
    "a buffer of the size that batches are traced with": (
        lambda: Holder(
            lambda m, x: x @ m.linear(m.coordinates).view(169, 4), linear=nn.Linear(2, 4),
            coordinates=torch.zeros(1, 13, 13, 2),
        ),
        (2, 5, 169), 12, 2 * 169 * 8 + 2 * 3 * 5 * 169 * 4,
    ),
    "an equation of parameters alone": (
        lambda: Holder(
            lambda m, x: x + torch.einsum("hij,xi->hxj", m.table, m.rows),
            table=weight(4, 9, 7), rows=torch.zeros(5, 9),
        ),
        (2, 4, 5, 7), 4 * 9 * 7, 2 * 4 * 5 * 9 * 7,
    ),
    "rows and columns as sequences": (
        lambda: Holder(
            rows_and_columns,
            down=nn.LSTM(6, 3, bidirectional=True, batch_first=True),
            across=nn.LSTM(6, 6, batch_first=True),
        ),
        # 4 gates: twice 3 units of 6 and 3 features and two biases, then 6 of 6 and 6.
        (2, 5, 7, 6), 2 * 12 * (6 + 3 + 2) + 24 * (6 + 6 + 2),
        2 * 3 * 35 * (2 * 12 * (6 + 3) + 24 * (6 + 6)),
    ),
    "filters of each sample's own": (
        lambda: Holder(mixed, experts=weight(3, 8 * 4 * 9), route=nn.Linear(4, 3)),
        # Which filter is said by the means of channels; 3 filters are mixed for each sample.
        (2, 4, 5, 5), 3 * 288 + 15, 2 * 3 * (4 * 3 + 3 * 288 + 25 * 288),
    ),
    "filters of each sample's own, transposed": (
        lambda: Holder(modulated, filters=weight(4, 6, 3, 3), style=nn.Linear(4, 4)),
        (2, 4, 5, 5), 4 * 6 * 9 + 20, 2 * 3 * (4 * 4 + 25 * 4 * 6 * 9),
    ),
    "a scale that two norms have, with shifts of their own": (
        lambda: Holder(
            lambda m, x: F.layer_norm(F.layer_norm(x, (6,), m.g, m.b), (6,), m.g, m.c),
            g=weight(6), b=weight(6), c=weight(6),
        ),
        (2, 7, 6), 18, 0,
    ),
    "filters of 1x1 that are a matrix too": (
        lambda: Holder(
            lambda m, x: m.conv(x) + F.linear(x.mT, m.conv.weight[:, :, 0], m.conv.bias).mT,
            conv=nn.Conv1d(4, 6, 1),
        ),
        (2, 4, 7), 4 * 6 + 6, 2 * (2 * 3 * 7 * 24),
    ),
    "no rows": (
        lambda: Holder(with_prefix, linear=nn.Linear(6, 6)), (2, 7, 6), 42, 2 * 3 * 7 * 36
    ),
    "slopes that are computed": (
        lambda: Holder(lambda m, x: F.prelu(x, m.w.abs()), w=weight(4)), (2, 4, 5, 5), 4, 0
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HELD)
def test_what_is_held_is_counted_once(name: str, imported: Callable[..., paleo.NetSpec]) -> None:
    make, shape, params, flops = HELD[name]
    assert counts(imported(make(), *shape), 3)[:2] == (params, flops)


def test_a_filter_that_is_a_buffer_is_an_input(imported: Callable[..., paleo.NetSpec]) -> None:
    make, shape, *_ = HELD["filters that blur"]
    graph = paleo.build(imported(make(), *shape))
    conv = graph.nodes[-1]
    first, filters = (graph.nodes[parent] for parent in conv.parents)
    assert first.type_name == "Convolution"
    # R, S, the one channel that each sees, and 8 of them.
    assert (conv.num_params, filters.output) == (0, (1, 3, 3, 1, 8))


def test_more_parameters_than_there_are_is_an_error(
    imported: Callable[..., paleo.NetSpec],
) -> None:
    def both(m: Any, x: Any) -> Any:
        return F.linear(x, m.w[:4]) + F.linear(x, m.w[2:])

    # Each is counted as a matrix of 4x6 of its own, though they have two rows in common.
    with pytest.raises(paleo.PaleoError, match="48 parameters would be counted of 36 that it"):
        imported(Holder(both, w=weight(6, 6)), 2, 7, 6)


def test_weights_of_steps_that_are_computed_are_no_layer(
    imported: Callable[..., paleo.NetSpec],
) -> None:
    lstm = nn.utils.parametrizations.weight_norm(nn.LSTM(6, 4, batch_first=True), "weight_hh_l0")
    with pytest.raises(paleo.PaleoError, match=r"aten\.lstm: its weights are computed"):
        imported(Holder(lambda m, x: m.lstm(x)[0], lstm=lstm), 2, 7, 6)
