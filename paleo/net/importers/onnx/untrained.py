"""Tensors that an exporter computed and wrote into an ONNX file among the weights: no parameters.

PyTorch's exporter computes what no input decides on beforehand, and calls it by the operator that
made it. Two kinds are told from weights by their numbers too: what is filled with one number, as
zeros to which a module adds rows or a state before the first step, and the cosines and sines of
rotary embeddings. A parameter that happens to be of one number keeps its own name, or that of
another operator.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from math import prod
from typing import Any

import numpy as np

#: Names of what operators filled, and of what an exporter has no name for.
_FILLED = re.compile(r"(new_)?(zeros|ones|full)(_like)?(_\d+)?\Z")
_NAMELESS = re.compile(r"val_\d+\Z")
#: Names of tensors that no module holds: those of an operator, and maybe its number.
_OF_OPERATOR = re.compile(r"[a-z_]+(_\d+)?\Z")
#: Operators that put rows into their first input.
SCATTERS = frozenset({"Scatter", "ScatterElements", "ScatterND"})
_EXTERNAL = 1
#: NumPy's types by TensorProto's numbers of float, float16, double and bfloat16, whose bits are
#: the first of a float's, and how far off the square of a number of each may be.
_TYPES = {
    1: (np.float32, 1e-4),
    10: (np.float16, 1e-2),
    11: (np.float64, 1e-4),
    16: (np.uint16, 5e-2),
}
#: Elements of a table that are looked at.
_MOST = 2**20


def find_untrained(graph: Any) -> set[str]:
    """Return the names of tensors that a graph holds though nobody trains them.

    One without a name of its own is filled only if rows are put into it. Numbers outside the file
    are not looked at: the name of what is filled then says enough, and there are no tables.
    """
    bases = {node.input[0] for node in graph.node if node.op_type in SCATTERS and node.input}
    found = {
        tensor.name
        for tensor in graph.initializer
        if _FILLED.match(tensor.name) or (tensor.name in bases and _NAMELESS.match(tensor.name))
        if tensor.data_location == _EXTERNAL or _is_of_one_number(tensor)
    }
    alike: dict[tuple[int, ...], list[Any]] = defaultdict(list)
    for tensor in graph.initializer:
        if len(tensor.dims) > 1 and tensor.data_type in _TYPES and _OF_OPERATOR.match(tensor.name):
            alike[tensor.data_type, *tensor.dims].append(tensor)
    for tensors in alike.values():
        for one, other in itertools.pairwise(tensors):
            if _are_of_angles(one, other):
                found |= {one.name, other.name}
    return found


def _is_of_one_number(tensor: Any) -> bool:
    data = np.frombuffer(tensor.raw_data, np.uint8)
    count = prod(tensor.dims)
    if not count or not len(data) or len(data) % count:
        return False
    rows = data.reshape(count, -1)
    return bool((rows == rows[0]).all())


def _are_of_angles(one: Any, other: Any) -> bool:
    """Tell whether two tensors are the cosines and sines of the same angles, maybe scaled."""
    kind, tolerance = _TYPES[one.data_type]
    tables = []
    for tensor in (one, other):
        if len(tensor.raw_data) != prod(tensor.dims) * np.dtype(kind).itemsize:
            return False
        numbers = np.frombuffer(tensor.raw_data, kind, min(prod(tensor.dims), _MOST))
        if kind is np.uint16:
            numbers = (numbers.astype(np.uint32) << 16).view(np.float32)
        tables.append(numbers.astype(np.float64))
    squares = [table**2 for table in tables]
    total = squares[0] + squares[1]
    level = total.mean() if total.size else 0.0
    if not level > 0 or not (abs(total - level) < tolerance * level).all():
        return False
    # Scales and shifts of one number each have such a sum too.
    return all(table.max() - table.min() > np.sqrt(level * tolerance) for table in tables)
