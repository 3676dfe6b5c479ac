"""ATen operators of mixtures of experts: products of rows by groups, and how many each has.

See `operators.py`, whose table these join. Routers choose experts by data. Each expert is taken to
have as many rows as any other, so that only the number of rows is asked of what a router computes.
"""

from __future__ import annotations

from typing import Any

from paleo.net.importers.base import OperatorError
from paleo.net.importers.builder.layout import BATCH
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
    y = call.builder.experts(call.name, rows, matrices)
    bias = call.get("bias")
    return y if bias is None else elementwise(call, call.part("sum"), "sum", [y, bias])


@operator("histc", "bincount")
def _histogram(call: Call) -> Any:
    """Return how often each of some numbers occurs: a pass over where they are looked for."""
    b, x = call.builder, call.first
    count = b.reduce(call.name, "sum", x, list(range(len(x.shape))), False)
    count = b.unsqueeze(call.part("unsqueeze"), count, [0])
    return b.expand(call.part("expand"), count, call.shape)


@operator("index_add")
def _index_add(call: Call) -> Any:
    """Return what rows add up to where they belong: of each sample, as many rows to each place."""
    b, x, rows, axis = call.builder, call["self"], call["source"], call["dim"]
    axis %= len(x.shape)
    size, each = x.shape[axis], rows.shape[axis] // x.shape[axis]
    if rows.batch_axis != axis or rows.shape[axis] == size:
        return spread(call)
    if each * size == rows.shape[axis] and rows.axes[axis][0] == BATCH:
        split = (*x.shape[:axis], size, each, *x.shape[axis + 1 :])
        parts = b.reshape(call.part("places"), rows, split)
        y = b.reduce(call.name, "sum", parts, [axis + 1], False)
    else:
        y = b.rearrange(call.name, rows, x.shape)
    return y if x.is_constant else elementwise(call, call.part("sum"), "sum", [x, y])
