"""The numbers that an ONNX graph computes from numbers it holds.

Exporters write shapes as little graphs of their own: the shape of a tensor, one of its
entries, times four, joined with another, handed to a Reshape. The operators of such graphs
are computed here, by onnx's reference of them and on small tensors only; whatever else is
constant is known by its shape alone. Nothing of the file is run.
"""

from __future__ import annotations

import importlib
from math import prod

import numpy as np

from paleo.net.importers.onnx.node import LARGEST, Array, Node

#: Elements of all of them together: what a file can make Paleo compute and keep.
_ALL_TOGETHER = 2**25

#: The operators of shapes, which are computed.
_SHAPES = """
    Abs Add And Cast CastLike Ceil Clip Concat ConstantOfShape Cos CumSum Div Equal Exp Expand
    Flatten Floor Gather Greater GreaterOrEqual Identity Less LessOrEqual Log Max Min Mod Mul Neg
    NonZero Not Or Pow Range Reciprocal ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum Relu
    Reshape Round Shape Sign Sin Size Slice Split Sqrt Squeeze Sub Sum Tile Transpose
    Unsqueeze Where Xor"""
_FOLDED = frozenset(_SHAPES.split())


class Budget:
    """How many elements may still be computed."""

    def __init__(self) -> None:
        self.left = _ALL_TOGETHER

    def allows(self, elements: int) -> bool:
        """Whether a tensor of so many elements may be computed; notes that it was."""
        if elements > min(self.left, LARGEST):
            return False
        self.left -= elements
        return True


def fold(node: Node, budget: Budget) -> dict[str, Array] | None:
    """Return the numbers of a node's outputs by name; None where they are not to be had."""
    if node.domain or node.op not in _FOLDED:
        return None
    inputs = {}
    for name, tensor in zip(node.proto.input, node.inputs, strict=True):
        numbers = None if tensor is None else tensor.numbers()
        if tensor is not None and numbers is None:
            return None
        if numbers is not None:
            inputs[name] = numbers
    if not budget.allows(_elements(node, list(inputs.values()))):
        return None
    helper = importlib.import_module("onnx.helper")
    evaluator = importlib.import_module("onnx.reference").ReferenceEvaluator
    opsets = [helper.make_opsetid("", node.version)]
    outputs = [name for name in node.proto.output if name]
    try:
        function = helper.make_function("", "", list(inputs), outputs, [node.proto], opsets)
        with np.errstate(all="ignore"):
            results = evaluator(function).run(None, inputs, attributes={})
    except Exception:  # noqa: BLE001  # numbers that do not fit their operator are unknown
        return None
    return {name: np.asarray(array) for name, array in zip(outputs, results, strict=True)}


def _elements(node: Node, inputs: list[Array]) -> int:
    """Return how large an output becomes, before it is made."""
    if node.op == "Range" and len(inputs) == 3:
        start, limit, delta = (float(x.reshape(-1)[0]) if x.size else 0.0 for x in inputs)
        steps = (limit - start) / delta if delta else float("inf")
        return int(min(max(steps, 0), LARGEST + 1)) + 1 if steps == steps else LARGEST + 1
    if node.op == "NonZero":
        return inputs[0].size * max(inputs[0].ndim, 1)
    shapes = [shape for shape, _ in node.inferred if shape is not None]
    if len(shapes) < len(node.inferred):
        return LARGEST + 1
    return sum(map(prod, shapes))
