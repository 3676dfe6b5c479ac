"""Every operator test of the onnx package, beside the shapes and the products of a run of it.

Each test is a model of one operator, or of the function that an operator stands for, with inputs
and outputs. Paleo sees the model alone, and what its messages ask for: shapes and numbers of
inputs, from the test's data. A net is exact if all of the test's outputs have their shapes in it,
if its products have the FLOPs that a run of the model by onnx's reference has, and if its
parameters are the weights of recurrent layers: those of others are fed here, and are none.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np

import paleo
from collected.outcome import Outcome, counts_differ, outcome
from paleo.net.importers import ImportOptions

Shape = tuple[int, ...]

#: What a message asks for: an option, the name of an input and, for a dimension, its own name.
_ASKED = re.compile(r"give (?:it|them|the whole shape) with --(input|value) (\S+?)=")
_MOST_ASKED = 8
#: Where recurrent layers have their weights; those of others may be fed and are then none.
_WEIGHTS: Mapping[str, Sequence[int]] = {"GRU": (1, 2, 3), "LSTM": (1, 2, 3), "RNN": (1, 2, 3)}
#: The operators that multiply.
_MULTIPLYING = frozenset({
    "Attention", "CausalConvWithState", "Conv", "ConvInteger", "ConvTranspose", "DeformConv",
    "Einsum", "FlexAttention", "GRU", "Gemm", "LSTM", "LinearAttention", "MatMul", "MatMulInteger",
    "QLinearConv", "QLinearMatMul", "RNN",
})  # fmt: skip
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


@functools.cache
def _cases() -> dict[str, Any]:
    """Return the tests by name. The package makes them all: this takes some 15 seconds."""
    node: Any = importlib.import_module("onnx.backend.test.case.node")
    with warnings.catch_warnings(action="ignore"):
        return {case.name: case for case in node.collect_testcases(None)}


def names() -> list[str]:
    """Return the names of all tests."""
    return list(_cases())


def run(name: str) -> Outcome:
    """Import a test's model and compare it with the test."""
    reader: Any = importlib.import_module("paleo.net.importers.onnx.reader")
    graph: Any = importlib.import_module("paleo.net.importers.onnx.graph")
    case = _cases()[name]
    data = case.model.SerializeToString()
    given, expected = case.data_sets[0]
    given, expected = _arrays(given), _arrays(expected)
    inputs = dict(zip((each.name for each in case.model.graph.input), given, strict=True))
    translators: list[Any] = []

    class Translator(graph.GraphTranslator):
        """Keeps what names of the model stand for."""

        def __post_init__(self) -> None:
            super().__post_init__()
            translators.append(self)

    def load() -> paleo.NetSpec:
        with mock.patch.object(reader, "GraphTranslator", Translator):
            return answering(lambda options: reader.read_bytes(data, name, options), inputs)

    def difference(net: paleo.NetSpec) -> str:
        names = [each.name for each in case.model.graph.output]
        tensors = [translators[-1].tensors.get(name) for name in names]
        # What data decide on is as much as a note says that it may be.
        bounded = any("at most" in note for note in net.notes)
        triples = zip(names, tensors, expected, strict=True)
        said = [_shapes_differ(*triple, bounded) for triple in triples]
        params, flops = _weights(case.model, inputs), products(case.model, inputs)
        said.append(counts_differ(net, (params, flops), translators[-1].builder.batch))
        return ", ".join(filter(None, said))

    return outcome(load, difference)


def _arrays(values: Sequence[Any]) -> list[Any]:
    """Return values as arrays, lists of them, or None; NumPy has no types for some of them."""
    helper: Any = importlib.import_module("onnx.numpy_helper")
    return [helper.to_array(each) if hasattr(each, "dims") else each for each in values]


def answering(load: Any, inputs: Mapping[str, Any]) -> paleo.NetSpec:
    """Return a net that `load` reads; what its messages ask for is given from `inputs`."""
    options = ImportOptions(phase="test")
    for _ in range(_MOST_ASKED):
        try:
            net: paleo.NetSpec = load(options)
            return net
        except paleo.NetSpecError as error:
            asked = {found for each in error.mistakes for found in _ASKED.findall(each.message)}
            values, shapes = dict(options.values), dict(options.input)
            for option, name in asked:
                if option == "value" and name in inputs:
                    values[name] = tuple(np.asarray(inputs[name], float).reshape(-1).tolist())
                elif name in inputs:
                    shapes[name] = np.shape(inputs[name])
            answered = replace(options, values=values, input=tuple(shapes.items()))
            if answered == options:
                raise
            options = answered
    raise AssertionError(asked)


def _shapes_differ(name: str, tensor: Any, expected: Any, bounded: bool) -> str:
    """Return in what an output is not as a test has it, "" if in nothing."""
    if tensor is None:
        return f"no {name}"
    if tensor.items is not None and isinstance(expected, list):
        if len(tensor.items) != len(expected):
            return f"{name} has {len(tensor.items)} tensors, not {len(expected)}"
        pairs = zip(tensor.items, expected, strict=True)
        return ", ".join(filter(None, (_shapes_differ(name, *pair, bounded) for pair in pairs)))
    wanted = np.shape(expected)
    # A dimension of 0 is an open one, as some exporters write it.
    sizes = zip(tensor.shape, wanted, strict=False)
    if len(tensor.shape) != len(wanted) or any(
        size not in (0, have) and not (bounded and size < have) for have, size in sizes
    ):
        return f"{name} is {tensor.shape}, not {wanted}"
    if tensor.made is not None and tensor.made.layer is not None:
        # An axis that nothing but repeats has no dimension in the layer.
        axes = zip(tensor.made.axes, tensor.made.shape, strict=True)
        held = math.prod(size for group, size in axes if group)
        have = math.prod(tensor.made.dims)
        if have and held % have:
            return f"{name} has {have} elements a sample of {held}"
    return ""


def _weights(model: Any, inputs: Mapping[str, Any]) -> int:
    """Return how many numbers the weights have that operators of a model read."""
    found = {}
    for node in model.graph.node:
        for index in _WEIGHTS.get(node.op_type, ()):
            if index < len(node.input) and node.input[index] in inputs:
                found[node.input[index]] = np.size(inputs[node.input[index]])
    return sum(found.values())


# ---- What a run multiplies ---------------------------------------------------------------------


def products(model: Any, inputs: Mapping[str, Any]) -> int:
    """Return the FLOPs of the products in a run of a model by onnx's reference."""
    if not any(node.op_type in _MULTIPLYING for node in _all_nodes(model.graph)):
        return 0
    reference: Any = importlib.import_module("onnx.reference")
    counted: list[int] = []
    with _watched(counted), warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
        reference.ReferenceEvaluator(model).run(None, dict(inputs))
    return sum(counted)


def _all_nodes(graph: Any) -> Iterator[Any]:
    """Yield the nodes of a graph, and of the graphs that they hold."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            yield from _all_nodes(attribute.g)


@contextlib.contextmanager
def _watched(counted: list[int]) -> Iterator[None]:
    """Count the products of every operator that onnx's reference runs."""
    classes: list[Any] = [
        importlib.import_module("onnx.reference.op_run").OpRun,
        importlib.import_module("onnx.reference.ops._op").OpRunBinary,
    ]

    def counting(run: Any) -> Any:
        def counted_run(op: Any, *args: Any, **kwargs: Any) -> Any:
            results = run(op, *args, **kwargs)
            counted.append(_flops(op, args, results))
            return results

        return counted_run

    with contextlib.ExitStack() as stack:
        for each in classes:
            stack.enter_context(mock.patch.object(each, "run", counting(each.run)))
        yield


def _flops(op: Any, args: Sequence[Any], results: Sequence[Any]) -> int:
    """Return two FLOPs for each multiply-add of an operator, by its arrays; 0 if it has none."""
    kind = op.onnx_node.op_type
    texts = {each.name: each.s.decode() for each in op.onnx_node.attribute}
    numbers: dict[str, int] = {each.name: each.i for each in op.onnx_node.attribute}
    shapes: list[Shape] = [np.shape(arg) for arg in args]
    size = math.prod
    given: int = size(np.shape(results[0]))
    match kind:
        case "MatMul" | "MatMulInteger" | "QLinearMatMul":
            return 2 * given * shapes[0][-1]
        case "Gemm":
            return 2 * given * shapes[0][0 if numbers.get("transA") else 1]
        case "Conv" | "ConvInteger" | "DeformConv" | "CausalConvWithState":
            return 2 * given * size(shapes[1][1:])
        case "QLinearConv":
            return 2 * given * size(shapes[3][1:])
        case "ConvTranspose":
            return 2 * size(shapes[0]) * size(shapes[1][1:])
        case "LSTM" | "GRU" | "RNN":
            directions, _, hidden = shapes[2]
            features = shapes[0][2] + hidden
            return 2 * size(shapes[0][:2]) * directions * _GATES[kind] * hidden * features
        case "Einsum":
            return _einsum(texts["equation"], shapes)
        case "Attention" | "FlexAttention":
            return _attention(numbers, shapes)
        case "LinearAttention":
            asks = "delta" in texts.get("update_rule", "gated_delta")
            return _linear_attention(numbers, shapes, asks)
    return 0


def _einsum(equation: str, shapes: Sequence[Shape]) -> int:
    """Return the FLOPs of a sum of products; without a sum it is none."""
    left, _, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) < 2 or "." in left:
        return 0
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        sizes.update(zip(term, shape, strict=True))
    return 2 * math.prod(sizes.values()) if set(sizes) - set(right) else 0


def _attention(heads_of: Mapping[str, int], shapes: Sequence[Shape]) -> int:
    """Return the FLOPs of the scores of all queries and keys, and of the mean of the values."""
    q, k, v = shapes[:3]
    heads, steps = (q[1], q[2]) if len(q) == 4 else (heads_of["q_num_heads"], q[1])
    kv_heads = k[1] if len(q) == 4 else heads_of["kv_num_heads"]
    keys = k[-2] + (shapes[4][2] if len(shapes) > 4 and shapes[4] else 0)
    size, values = (k[-1], v[-1]) if len(q) == 4 else (k[-1] // kv_heads, v[-1] // kv_heads)
    return 2 * q[0] * heads * steps * keys * (size + values)


def _linear_attention(heads_of: Mapping[str, int], shapes: Sequence[Shape], asks: bool) -> int:
    """Return the FLOPs of a state that takes in each key and value, and meets each query.

    The delta rules also ask the state for each key.
    """
    heads, kv_heads = heads_of["q_num_heads"], heads_of["kv_num_heads"]
    state = (shapes[1][2] // kv_heads) * (shapes[2][2] // kv_heads)
    times = heads + kv_heads * (2 if asks else 1)
    return 2 * math.prod(shapes[0][:2]) * state * times
