"""ATen operators of mixtures of experts: products of rows by groups, and how many each has.

See `operators.py`, whose table these join. Routers choose experts by data. Each expert is taken to
have as many rows as any other, so that only the number of rows is asked of what a router computes.
"""

from __future__ import annotations

from typing import Any

from paleo.net.importers.base import OperatorError
from paleo.net.importers.pytorch.operators import Call, elementwise, operator
from paleo.net.importers.pytorch.reshape import spread

__all__: list[str] = []


@operator("_grouped_mm", "transformers.grouped_mm_fallback")
def _grouped_mm(call: Call) -> Any:
    rows, matrices = call.leading(2)
    ranks = len(rows.shape), len(matrices.shape)
    if ranks == (3, 3):
        return call.builder.matmul(call.name, rows, matrices)
    if ranks != (2, 3):
        raise OperatorError("a grouped product whose groups are of columns")
    y = call.builder.experts(call.name, rows, [matrices], k=call.shape[-1])
    bias = call.get("bias")
    return y if bias is None else elementwise(call, call.part("sum"), "sum", [y, bias])


@operator("paleo.experts")
def _experts(call: Call) -> Any:
    weights, biases = call["weights"], call["biases"]
    return call.builder.experts(call.name, call["rows"], weights, biases, k=call.shape[-1])


@operator("histc", "bincount")
def _histogram(call: Call) -> Any:
    """Return how often each of some numbers occurs: a pass over where they are looked for."""
    b, x = call.builder, call.first
    count = b.reduce(call.name, "sum", x, list(range(len(x.shape))), False)
    count = b.unsqueeze(call.part("unsqueeze"), count, [0])
    return b.expand(call.part("expand"), count, call.shape)


@operator("index_add")
def _index_add(call: Call) -> Any:
    x, rows = call["self"], call["source"]
    axis = call["dim"] % len(x.shape)
    if rows.batch_axis != axis or rows.shape[axis] == x.shape[axis]:
        return spread(call)
    return call.builder.put_back(call.name, x, rows, axis)
