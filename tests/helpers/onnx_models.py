"""ONNX models of a few nodes, and what Paleo makes of them: what tests of operators share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import paleo

onnx = pytest.importorskip("onnx")

import numpy as np  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from paleo.net.importers.base import ImportOptions  # noqa: E402
from paleo.net.importers.onnx import read  # noqa: E402

__all__ = ["BOOL", "FLOAT", "IMAGE", "INT", "NEWEST", "Read", "last", "load", "node", "types"]

FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
IMAGE = {"x": ["N", 3, 9, 8]}
NEWEST = 25

Read = Callable[..., paleo.NetSpec]


def node(op: str, inputs: str, outputs: str = "y", **attributes: Any) -> Any:
    """Make a node; "-" is an input that is left out."""
    names = ["" if name == "-" else name for name in inputs.split()]
    return helper.make_node(op, names, outputs.split(), **attributes)


def model(
    nodes: list[Any],
    inputs: dict[str, Any],
    weights: dict[str, Any] | None = None,
    opset: int = 17,
    outputs: str | None = None,
    types: dict[str, int] | None = None,
) -> Any:
    """Make a model. A weight is a shape (a tuple), or whole numbers (a list or one number)."""
    tensors = [
        numpy_helper.from_array(
            np.zeros(each, np.float32) if isinstance(each, tuple) else np.asarray(each), name
        )
        for name, each in (weights or {}).items()
    ]
    types = types or {}
    graph = helper.make_graph(
        nodes,
        "net",
        [
            helper.make_tensor_value_info(name, types.get(name, TensorProto.FLOAT), shape)
            for name, shape in inputs.items()
        ],
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
            for name in (outputs or nodes[-1].output[0]).split()
        ],
        tensors,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


@pytest.fixture
def load(tmp_path: Path) -> Read:
    """Write a model and read it; options of the import have their own names."""

    def write_and_read(*arguments: Any, **more: Any) -> paleo.NetSpec:
        options = {
            name: more.pop(name)
            for name in ("input", "dims", "values", "proposals")
            if name in more
        }
        path = tmp_path / "model.onnx"
        path.write_bytes(model(*arguments, **more).SerializeToString())
        return read(str(path), ImportOptions(**options))

    return write_and_read


def last(net: paleo.NetSpec) -> tuple[str, tuple[Any, ...], int, Any]:
    """Return type, output, parameters and forward FLOPs of the last layer."""
    layer = paleo.summarize(net).layers[-1]
    return layer.type_name, tuple(layer.output), layer.num_params, layer.forward_flops


def types(net: paleo.NetSpec) -> list[str]:
    return [each.layer.type_name for each in net.layers]
