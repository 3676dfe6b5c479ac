"""Tensors that an exporter filled with one number and wrote into an ONNX file: no parameters.

PyTorch's exporter computes what no input decides on beforehand, and calls it by the operator that
made it. Zeros to which a module adds rows, or a state before the first step, then stand among the
weights. A parameter that happens to be of one number keeps its own name, or that of another
operator.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

#: Names of what operators filled, and of what an exporter has no name for.
_FILLED = re.compile(r"(new_)?(zeros|ones|full)(_like)?(_\d+)?\Z")
_NAMELESS = re.compile(r"val_\d+\Z")
#: Operators that put rows into their first input.
SCATTERS = frozenset({"Scatter", "ScatterElements", "ScatterND"})
_EXTERNAL = 1


def find_filled(graph: Any) -> set[str]:
    """Return the names of tensors that a graph holds though nobody trains them.

    One without a name of its own is such only if rows are put into it. Numbers outside the file
    are not looked at.
    """
    bases = {node.input[0] for node in graph.node if node.op_type in SCATTERS and node.input}
    return {
        tensor.name
        for tensor in graph.initializer
        if _FILLED.match(tensor.name) or (tensor.name in bases and _NAMELESS.match(tensor.name))
        if tensor.data_location == _EXTERNAL or _is_of_one_number(tensor)
    }


def _is_of_one_number(tensor: Any) -> bool:
    data = np.frombuffer(tensor.raw_data, np.uint8)
    count = int(np.prod(tensor.dims, dtype=np.int64))
    if not count or not len(data) or len(data) % count:
        return False
    rows = data.reshape(count, -1)
    return bool((rows == rows[0]).all())
