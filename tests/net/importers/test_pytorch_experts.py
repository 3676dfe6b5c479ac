"""Mixtures of experts in PyTorch, as people write them: FLOPs and parameters by hand.

All have 2 samples of 6 tokens of 16 features. Each token goes to 2 of 4 experts, of a matrix of
16x24 and one of 24x16. So there are 2*6*2 = 24 rows, and a matrix takes 2 * 24*16*24 = 18432
FLOPs; the router takes 2 * 12*16*4 = 1536 and has 16*4 + 4 parameters.
"""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from products import counts  # noqa: E402

import paleo  # noqa: E402
from paleo.core.operations import Pass  # noqa: E402
from paleo.net.importers import ImportOptions  # noqa: E402
from paleo.net.importers.pytorch import read  # noqa: E402

nn = torch.nn
F = torch.nn.functional
T = Any

EVEN = "each expert of a mixture is taken to have as many rows as any other"
ROUTER, MATRIX = 1536, 18432
STACKED = 16 * 4 + 4 + 2 * 4 * 16 * 24


class Mixture(nn.Module):  # type: ignore[name-defined]
    """A router, and the matrices of the experts as two tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(16, 4)
        self.up = nn.Parameter(torch.empty(4, 16, 24))
        self.down = nn.Parameter(torch.empty(4, 24, 16))

    def chosen(self, x: T) -> Any:
        weights, experts = self.router(x).softmax(-1).topk(2, -1)
        return weights / weights.sum(-1, keepdim=True), experts


class Grouped(Mixture):
    """Rows sorted by their experts, one grouped product, and back to where they were."""

    def forward(self, x: T) -> T:
        tokens = x.reshape(-1, 16)
        weights, experts = self.chosen(tokens)
        _, order = experts.reshape(-1).sort()
        ends = torch.histc(experts.float(), bins=4, min=0, max=3).cumsum(0).int()
        rows = F.grouped_mm(tokens[order // 2], self.up, offs=ends).relu()
        rows = F.grouped_mm(rows, self.down, offs=ends) * weights.reshape(-1)[order].unsqueeze(-1)
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order))
        return rows[back].view(len(tokens), 2, 16).sum(1).view_as(x)


class Added(Grouped):
    """The same, with rows added up where they belong, behind an expert that all tokens share."""

    def forward(self, x: T) -> T:
        tokens = x.reshape(-1, 16)
        _, experts = self.chosen(tokens)
        order = experts.t().reshape(-1).argsort()  # the first choice of all tokens comes first
        ends = torch.histc(experts.float(), bins=4, min=0, max=3).cumsum(0).int()
        rows = F.grouped_mm(tokens[order % len(tokens)], self.up, offs=ends).relu()
        rows = F.grouped_mm(rows, self.down, offs=ends)
        return (tokens * 2).index_add(0, order % len(tokens), rows).view_as(x)


class OfWeights(Mixture):
    """The matrices of each row's expert are read for it."""

    def forward(self, x: T) -> T:
        weights, experts = self.chosen(x)
        rows = torch.einsum("btd,btkdh->btkh", x, self.up[experts]).relu()
        rows = torch.einsum("btkh,btkhd->btkd", rows, self.down[experts])
        return (rows * weights.unsqueeze(-1)).sum(2)


class OfAll(Mixture):
    """Each expert computes each token, and weights choose."""

    def forward(self, x: T) -> T:
        weights, experts = self.chosen(x)
        gates = torch.zeros(*x.shape[:-1], 4).scatter(-1, experts, weights)
        rows = torch.einsum("btd,edh->bteh", x, self.up).relu()
        rows = torch.einsum("bteh,ehd->bted", rows, self.down)
        return torch.einsum("bte,bted->btd", gates, rows)


class Repeated(Mixture):
    """The same on tokens that are repeated for each expert."""

    def forward(self, x: T) -> T:
        tokens = x.reshape(-1, 16)
        weights, experts = self.chosen(tokens)
        gates = torch.zeros(len(tokens), 4).scatter(1, experts, weights)
        rows = (tokens.repeat(4, 1) * gates.t().reshape(-1, 1)).view(4, -1, 16)
        return torch.bmm(torch.bmm(rows, self.up).relu(), self.down).sum(0).view_as(x)


class OneHot(Mixture):
    """Each expert has 3 places for tokens of a sample, to which matrices of ones send them."""

    def forward(self, x: T) -> T:
        _, experts = self.chosen(x)
        to = F.one_hot(experts, 4).float()
        place = (to.flatten(1, 2).cumsum(1).view_as(to) * to).sum(-1).long() % 3
        sent = torch.einsum("btke,btkc->btec", to, F.one_hot(place, 3).float())
        rows = torch.einsum("btec,btd->becd", sent, x)
        rows = torch.einsum("becd,edh->bech", rows, self.up).relu()
        rows = torch.einsum("bech,ehd->becd", rows, self.down)
        return torch.einsum("btec,becd->btd", sent, rows)


class Loop(nn.Module):  # type: ignore[name-defined]
    """Experts one after another, each a module, on the rows that a mask picks."""

    def __init__(self, *hidden: int) -> None:
        super().__init__()
        self.router = nn.Linear(16, 4)
        sizes = hidden or (24,) * 4
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(16, size), nn.GELU(), nn.Linear(size, 16)) for size in sizes
        )

    chosen = Mixture.chosen

    def turn(self, i: int, tokens: T, y: T, weights: T, experts: T) -> None:
        token, place = torch.where(experts == i)
        y.index_add_(0, token, self.experts[i](tokens[token]) * weights[token, place, None])

    def forward(self, x: T) -> T:
        tokens = x.reshape(-1, 16)
        weights, experts = self.chosen(tokens)
        y = torch.zeros_like(tokens)
        for i in range(4):
            self.turn(i, tokens, y, weights, experts)
        return y.view_as(x)


class OfOneHot(Loop):
    """The same with masks as Mixtral has them, and rows set where they were."""

    def turn(self, i: int, tokens: T, y: T, weights: T, experts: T) -> None:
        mask = F.one_hot(experts, num_classes=4).permute(2, 1, 0)
        place, token = torch.where(mask[i])
        rows = tokens[None, token].reshape(-1, 16)
        y[token] += self.experts[i](rows) * weights[token, place, None]


class OfTruths(Loop):
    """The same with truths of each token in place of indices."""

    def turn(self, i: int, tokens: T, y: T, weights: T, experts: T) -> None:
        mask = (experts == i).any(-1)
        weight = (weights * (experts == i)).sum(-1)
        y[mask] += self.experts[i](tokens[mask]) * weight[mask].unsqueeze(-1)


class Asked(Loop):
    """The same where an expert without rows is left out, in two ways."""

    def turn(self, i: int, tokens: T, y: T, weights: T, experts: T) -> None:
        mask = experts == i
        if mask.any():
            token, place = torch.where(mask)
            if token.numel() == 0:
                return
            y.index_add_(0, token, self.experts[i](tokens[token]) * weights[token, place, None])


class InParts(Loop):
    """Rows sorted by their experts and cut where the next expert's begin."""

    asks = False

    def forward(self, x: T) -> T:
        tokens = x.reshape(-1, 16)
        weights, experts = self.chosen(tokens)
        counts = experts.new_zeros(len(tokens), 4).scatter_(1, experts, 1).sum(0)
        order = experts.view(-1).argsort()
        rows, made, begin = tokens[order // 2], [], 0
        for i, count in enumerate(counts.tolist()):
            if self.asks and count == 0:
                continue
            made.append(self.experts[i](rows[begin : begin + count]))
            begin += count
        joined = torch.cat(made)
        back = torch.empty_like(joined)
        back[order] = joined
        return (back.view(*experts.shape, -1) * weights.unsqueeze(-1)).sum(1).view_as(x)


class InPartsThatAre(InParts):
    """The same where there is nothing to cut for an expert without rows."""

    asks = True


class Split(Mixture):
    """Sorted rows split into those of each expert, twice."""

    def forward(self, x: T) -> T:
        tokens = x.reshape(-1, 16)
        weights, experts = self.chosen(tokens)
        counts = torch.zeros(len(tokens), 4).scatter(1, experts, 1).long().sum(0).tolist()
        order = experts.flatten().sort(0)[1]
        rows = tokens[order // 2]
        for weight in (self.up, self.down):
            parts = rows.split(counts, dim=0)
            rows = torch.cat([part @ weight[i] for i, part in enumerate(parts)])
        rows = rows * weights.flatten()[order, None]
        return torch.zeros_like(tokens).index_add(0, order // 2, rows).view_as(x)


class OfSlices(Mixture):
    """A loop whose experts are parts of one tensor, two such layers of which share a router."""

    def forward(self, x: T) -> T:
        tokens = x.reshape(-1, 16)
        for _ in range(2):
            _, experts = self.chosen(tokens)
            y = torch.zeros_like(tokens)
            for i in range(4):
                token, _ = torch.where(experts == i)
                rows = torch.relu(tokens[token] @ self.up[i])
                y = y.index_add(0, token, F.linear(rows, self.down[i].t()))
            tokens = tokens + y
        return tokens.view_as(x)


def imported(make: Any, batch: int = 2, tokens: int = 6) -> paleo.NetSpec:
    module: Any = types.ModuleType("mixture")
    module.make = make
    sys.modules["mixture"] = module
    try:
        options = ImportOptions(input=((None, (batch, tokens, 16)),), phase="test")
        return read("python:mixture:make", options)
    finally:
        del sys.modules["mixture"]


LOOP = 16 * 4 + 4 + 4 * (16 * 24 + 24 + 24 * 16 + 16)
CASES = {
    Loop: ROUTER + 2 * MATRIX,
    OfOneHot: ROUTER + 2 * MATRIX,
    OfTruths: ROUTER + 2 * MATRIX,
    InParts: ROUTER + 2 * MATRIX,
    Asked: ROUTER + 2 * MATRIX,
    InPartsThatAre: ROUTER + 2 * MATRIX,
    Split: ROUTER + 2 * MATRIX,
    OfSlices: 2 * (ROUTER + 2 * MATRIX),
    Grouped: ROUTER + 2 * MATRIX,
    Added: ROUTER + 2 * MATRIX,
    OfWeights: ROUTER + 2 * MATRIX,
    # 12*4 = 48 rows; a weight times an expert's output, summed over 4: 2 * 12*4*16
    OfAll: ROUTER + 4 * MATRIX + 2 * 12 * 4 * 16,
    Repeated: ROUTER + 4 * MATRIX,
    # 2*4*3 = 24 rows; to places: 2 * 12*4*3 * 2 over the choices, 2 * 2*4*3*16 * 6 over the tokens
    OneHot: ROUTER + 2 * MATRIX + 2 * 12 * 4 * 3 * 2 + 2 * (2 * 2 * 4 * 3 * 16 * 6),
}


@pytest.mark.parametrize("kind", CASES, ids=lambda kind: kind.__name__)
def test_counts(kind: Any) -> None:
    # On a processor the grouped product is of 16 bits only.
    net = imported(lambda: kind().bfloat16() if issubclass(kind, Grouped) else kind())
    params, flops, _ = counts(net, 2)
    assert (params, flops) == (LOOP if issubclass(kind, Loop) else STACKED, CASES[kind])
    assert (EVEN in net.notes) == issubclass(kind, Grouped | Loop | OfSlices | Split)


def test_experts_that_differ_are_refused() -> None:
    with pytest.raises(paleo.NetSpecError, match="rows that data pick are multiplied"):
        imported(lambda: Loop(24, 24, 24, 32))


def test_other_questions_of_data_are_refused() -> None:
    class Large(Loop):
        def forward(self, x: T) -> T:
            y = super().forward(x)
            return self.router(y) if y.sum() > 0 else y

    with pytest.raises(paleo.NetSpecError, match="branches on data"):
        imported(Large)


def test_what_is_no_choice_of_experts_is_refused() -> None:
    class Positive(Loop):
        def turn(self, i: int, tokens: T, y: T, weights: T, experts: T) -> None:
            mask = weights[:, 0] > i / 4
            y[mask] += self.experts[i](tokens[mask])

    with pytest.raises(paleo.NetSpecError, match="rows that data pick are multiplied"):
        imported(Positive)


def test_more_experts_than_rows_read_no_more_than_they_need() -> None:
    net = imported(lambda: Grouped().bfloat16(), batch=1, tokens=1)
    graph = paleo.build(net, 1)
    (up, down) = [node for node in graph.nodes if node.layer.type_name == "Experts"]
    # Two rows of 16 and two matrices of 16x24, in 4 bytes.
    (work,) = graph.operations(up, Pass.FORWARD, (True,))
    assert work.reads == (4 * 2 * 16, 4 * 2 * 16 * 24)
    assert graph.operations(down, Pass.FORWARD, (True,))[0].flops == 2 * 2 * 24 * 16
