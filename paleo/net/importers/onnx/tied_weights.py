"""Weights that an ONNX file holds twice: as they are, and transposed.

An exporter that computes what it can beforehand turns a weight around for the MatMul that
reads it. Where another layer reads the weight too, as the words of a language model are
read at both ends, the file has both; the net has one.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np

#: Names that exporters make up for what they computed.
_MADE_UP = re.compile(r"(onnx::\w+_\d+|val_\d+|_?v_\d+)\Z")
#: NumPy's types of the same size, by TensorProto's number: only equality matters.
_SIZES = {1: np.uint32, 10: np.uint16, 11: np.uint64, 16: np.uint16}


def find_copies(tensors: Iterable[Any]) -> dict[str, str]:
    """Return the names of tensors that are another one transposed, with that one's name."""
    made_up: list[Any] = []
    named: dict[tuple[int, ...], list[Any]] = defaultdict(list)
    for tensor in tensors:
        if len(tensor.dims) == 2 and tensor.data_type in _SIZES and tensor.HasField("raw_data"):
            rows, columns = tensor.dims
            # Square ones would be too many to compare.
            if rows != columns and rows > 1 and columns > 1:
                if _MADE_UP.match(tensor.name):
                    made_up.append(tensor)
                else:
                    named[tensor.data_type, columns, rows].append(tensor)
    copies = {}
    for tensor in made_up:
        for other in named.get((tensor.data_type, *tensor.dims), ()):
            if _is_transposed(tensor, other):
                copies[tensor.name] = other.name
    return copies


def _is_transposed(tensor: Any, other: Any) -> bool:
    numbers = _numbers(tensor)
    others = _numbers(other)
    if numbers is None or others is None or (numbers[0, 0] == numbers[0]).all():
        # All alike, such as zeros: that says nothing.
        return False
    return bool((numbers[0] == others[:, 0]).all()) and np.array_equal(numbers, others.T)


def _numbers(tensor: Any) -> Any:
    rows, columns = tensor.dims
    kind = _SIZES[tensor.data_type]
    data = tensor.raw_data
    if len(data) != rows * columns * np.dtype(kind).itemsize:
        return None
    return np.frombuffer(data, kind).reshape(rows, columns)
