"""Mixtures of experts as ONNX files have them, made by hand: FLOPs and parameters by hand.

All have samples of 6 tokens of 16 features, and are counted for 2 samples. Each token goes to 2
of 4 experts, of a matrix of 16x24 and one of 24x16. So there are 2*6*2 = 24 rows, and a matrix
takes 2 * 24*16*24 = 18432 FLOPs; the router takes 2 * 12*16*4 = 1536 and has 16*4 parameters.
"""

from __future__ import annotations

from typing import Any

import pytest
from onnx_models import INT, Read, last, load, node
from products import counts

__all__ = ["load"]

ROUTER, MATRIX = 1536, 18432
STACKED = 16 * 4 + 2 * 4 * 16 * 24
TOKENS = {"x": ["N", 6, 16]}


def test_matrices_that_are_read_for_each_row(load: Read) -> None:
    nodes = [
        node("MatMul", "x router", "scores"),
        node("TopK", "scores two", "gates chosen", axis=-1),
        node("Unsqueeze", "chosen end", "at"),
        node("GatherND", "up at", "ups"),
        node("GatherND", "down at", "downs"),
        node("Unsqueeze", "x middle", "rows"),
        node("MatMul", "rows ups", "between"),
        node("Relu", "between", "active"),
        node("MatMul", "active downs", "given"),
    ]
    weights: dict[str, Any] = {
        "router": (16, 4),
        "up": (4, 16, 24),
        "down": (4, 24, 16),
        "two": [2],
        "end": [-1],
        "middle": [2, 3],
    }
    net = load(nodes, TOKENS, weights)
    assert counts(net, 2)[:2] == (STACKED, ROUTER + 2 * MATRIX)


@pytest.mark.parametrize(
    ("at", "output"),
    [
        # Rows of a table, and its parts of 5 by two indices each.
        (["N", 7, 1], (1, 7, 3, 5)),
        (["N", 7, 2], (1, 7, 5)),
        # Single numbers of it.
        (["N", 7, 3], (1, 7)),
    ],
)
def test_parts_of_a_table(load: Read, at: list[Any], output: tuple[int, ...]) -> None:
    net = load([node("GatherND", "table at")], {"at": at}, {"table": (4, 3, 5)}, types={"at": INT})
    assert (counts(net)[0], last(net)[1]) == (60, output)


def test_parts_of_samples(load: Read) -> None:
    inputs = {**TOKENS, "at": ["N", 3, 2]}
    net = load([node("GatherND", "x at")], inputs, types={"at": INT})
    assert last(net)[1] == (1, 3, 16)
