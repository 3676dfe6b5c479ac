"""ONNX files: what PyTorch, TensorFlow, JAX and many others export.

Shapes come from the onnx package, operator by operator, so that the weights are never
copied; their numbers are not looked at, and may be missing.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from paleo.core.errors import Mistake, Mistakes, NetSpecError
from paleo.net.importers.base import (
    ImportOptions,
    OperatorError,
    file_content,
    first_of,
    missing_library,
)
from paleo.net.importers.builder.builder import Builder
from paleo.net.importers.onnx import elementwise, layers, microsoft, quantized, reshape
from paleo.net.importers.onnx.graph import GraphTranslator, needed
from paleo.net.importers.onnx.inputs import READINGS, Inputs, find_inputs
from paleo.net.importers.onnx.names import net_name
from paleo.net.importers.onnx.node import Tensor, graphs_in, one_line, plain_domain
from paleo.net.spec import NetSpec

#: The files that hold what operators are.
_OPERATORS = (layers, reshape, elementwise, microsoft)
#: Nodes of a graph, with functions written out where they are called.
_MOST_NODES = 100_000
_OLDEST = 6
_LISTED = 4
#: The domain of trees, encoders and support vector machines.
_CLASSICAL = "ai.onnx.ml"


def read(target: str, options: ImportOptions) -> NetSpec:
    """Return the net of an ONNX file; raises NetSpecError with all that is wrong with it."""
    return read_bytes(file_content(target), target, options)


def read_bytes(data: bytes, target: str, options: ImportOptions) -> NetSpec:
    """Return the net that the bytes of an ONNX file describe; `target` names it in messages."""
    model = _load(data, target)
    mistakes = Mistakes(target)
    _check(model, mistakes)
    mistakes.raise_as(NetSpecError)
    model = _without_functions(model, target)
    said: list[Mistakes] = []
    for reading in READINGS:
        found = Mistakes(target)
        note = _whole(said[1].found[0]) if reading == "whole" else ""
        net = _read(model, target, options, found, reading, note)
        if net is not None:
            return net
        said.append(found)
    # What goes wrong where all is one sample goes wrong for a reason of its own, unless it is that
    # an open size, which a first reading took for the batch, has to be given.
    said[1].found[:] = [_with_advice(each, said[2]) for each in said[1].found]
    said[1].raise_as(NetSpecError)
    raise AssertionError(said)


def _with_advice(mistake: Mistake, whole: Mistakes) -> Mistake:
    """Return a mistake with what else would do where it is about the samples of a batch."""
    open_sizes = [each for each in whole.found if each.layer is None]
    if mistake.layer is None or "batch" not in mistake.message or not open_sizes:
        return mistake
    _, found, option = open_sizes[0].message.rpartition(" --input ")
    if not found:
        return mistake
    message = f"{mistake.message}; --input {option} makes all of it one sample"
    return replace(mistake, message=message)


def _whole(mistake: Mistake) -> str:
    """Return what a net says whose samples a first reading could not keep apart."""
    if mistake.layer is None:
        return ""
    return (
        f'all of its inputs is read as one sample, for layer "{mistake.layer}": '
        f"{mistake.message}; a batch of 2 is all of it twice"
    )


def _load(data: bytes, target: str) -> Any:
    """Return the model in the bytes of a file. Weights outside it are left where they are."""
    try:
        onnx = importlib.import_module("onnx")
    except ImportError:
        raise missing_library(target, "onnx", "onnx") from None
    if not data:
        raise NetSpecError(f"{target}: the file is empty")
    model = onnx.ModelProto()
    decode_error = importlib.import_module("google.protobuf.message").DecodeError
    try:
        model.ParseFromString(data)
    except decode_error:
        raise NetSpecError(f"{target}: {_what_it_is(data)}") from None
    if not model.ir_version or not model.HasField("graph"):
        raise NetSpecError(f"{target}: {_what_it_is(data)}")
    return model


def _what_it_is(data: bytes) -> str:
    """Return what is to be said of a file that is no ONNX model."""
    start = data[:512].lstrip()
    if start.startswith((b"{", b"[")):
        return "not an ONNX model, but JSON"
    if start.startswith(b"PK"):
        return "not an ONNX model, but a zip archive, as PyTorch saves them"
    if all(byte in b"\t\n\r" or 32 <= byte < 127 for byte in start) and start:
        return "not an ONNX model, but text; ONNX files are binary"
    return "not an ONNX model, or not all of one"


def _check(model: Any, mistakes: Mistakes) -> None:
    """Note what makes a model unreadable as a whole."""
    defs = importlib.import_module("onnx.defs")
    graph = model.graph
    if not graph.node:
        mistakes.add("the model has no nodes; it may be cut off")
        return
    if not graph.output:
        mistakes.add("the model has no outputs; it may be cut off")
    versions = {plain_domain(each.domain): each.version for each in model.opset_import}
    newest = defs.onnx_opset_version()
    if "" not in versions:
        if any(not plain_domain(node.domain) for node in graph.node[:_MOST_NODES]):
            mistakes.add("the model does not say which version of the operators it has (opset)")
    elif versions[""] < _OLDEST:
        mistakes.add(
            f"its operators are of version {versions['']} (opset); Paleo reads {_OLDEST} and "
            "newer: onnx.version_converter can convert it"
        )
    elif versions[""] > newest:
        mistakes.add(
            f"its operators are of version {versions['']} (opset); the onnx installed here "
            f"knows those up to {newest}: a newer one can read it"
        )
    _check_size(model, mistakes)
    if not mistakes and not all(isinstance(name, str) for name in _names(model)):
        mistakes.add("a name in it is not UTF-8: it is damaged")


def _names(model: Any) -> Iterator[Any]:
    """Yield the names in a model; one that is not UTF-8 is bytes."""
    yield model.graph.name
    for each in model.functions:
        yield from (each.name, each.domain, *each.input, *each.output, *each.attribute)
    for nodes in (model.graph.node, *(each.node for each in model.functions)):
        for node in _all_nodes(nodes):
            yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
            for attribute in node.attribute:
                yield attribute.name
                if attribute.HasField("g"):
                    yield from (each.name for each in attribute.g.initializer)
                    yield from (each.name for each in attribute.g.output)
    for each in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        yield each.name
        yield from (dim.dim_param for dim in each.type.tensor_type.shape.dim)
    yield from (each.name for each in model.graph.initializer)
    yield from (each.values.name for each in model.graph.sparse_initializer)
    yield from (each.domain for each in model.opset_import)


def _check_size(model: Any, mistakes: Mistakes) -> None:
    """Note too many nodes, also where functions that call functions make them many."""
    functions = {_called(each): each for each in model.functions}
    sizes: dict[tuple[str, str, str], int] = {}

    def measure(nodes: Any, calling: tuple[tuple[str, str, str], ...]) -> int:
        if len(nodes) > _MOST_NODES:
            return len(nodes)
        total = 0
        for node in _all_nodes(nodes):
            called = (node.domain, node.op_type, getattr(node, "overload", ""))
            if called in calling:
                mistakes.add(f'the function "{node.op_type}" calls itself')
                return 0
            if called in functions and called not in sizes:
                sizes[called] = measure(functions[called].node, (*calling, called))
            total += sizes.get(called, 1)
            if total > _MOST_NODES:
                break
        return total

    total = measure(model.graph.node, ())
    if total > _MOST_NODES:
        mistakes.add(f"the model has more than {_MOST_NODES:,} nodes, which is too many to read")


def _called(function: Any) -> tuple[str, str, str]:
    return (function.domain, function.name, getattr(function, "overload", ""))


def _all_nodes(nodes: Any) -> Iterator[Any]:
    """Yield nodes, and those of graphs inside them."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in graphs_in(attribute):
                yield from _all_nodes(graph.node)


def _without_functions(model: Any, target: str) -> Any:
    """Return a model in which the functions of its own are written out where it calls them."""
    if not model.functions:
        return model
    onnx = importlib.import_module("onnx")
    inliner = importlib.import_module("onnx.inliner")
    # The inliner copies the model: it gets the weights' shapes only.
    weights = list(model.graph.initializer)
    del model.graph.initializer[:]
    for each in weights:
        model.graph.initializer.add(name=each.name, dims=each.dims, data_type=each.data_type)
    try:
        inlined = inliner.inline_local_functions(model)
    except (RuntimeError, ValueError, TypeError, onnx.checker.ValidationError) as error:
        raise NetSpecError(
            f"{target}: its functions cannot be written out: {one_line(error)}"
        ) from None
    del inlined.graph.initializer[:]
    inlined.graph.initializer.extend(weights)
    return inlined


def _read(
    model: Any, target: str, options: ImportOptions, mistakes: Mistakes, reading: str, note: str
) -> NetSpec | None:
    """Return the net; None, with mistakes noted, if there are any."""
    graph = model.graph
    inputs = find_inputs(graph, needed(graph), options, mistakes, reading)
    if inputs is None:
        return None
    builder = Builder(net_name(graph.name, Path(target).stem), target, inputs.batch)
    if note:
        builder.note(note)
    translator = GraphTranslator(
        builder,
        mistakes,
        {plain_domain(each.domain): each.version for each in model.opset_import},
        model.ir_version,
        inputs.sizes,
        options.unknown,
    )
    translator.proposals = options.proposals
    translator.declared = {each.name: each for each in (*graph.value_info, *graph.output)}
    for each in graph.input:  # what nobody needs may yet be named
        translator.tensors[each.name] = Tensor((), each.type.tensor_type.elem_type or 1)
    translator.add_initializers(graph)
    _add_inputs(translator, inputs, whole=reading == "whole")
    outputs = [each.name for each in graph.output]
    translator.run(graph, outputs)
    _name_not_understood(translator)
    ends = []
    for name in outputs:
        if name in translator.tensors:
            tensor = translator.tensors[name]
            parts = [each.made for each in tensor.items or [tensor]]
            ends += [made for made in parts if made is not None and made.batched]
        elif name not in translator.broken and not mistakes:
            mistakes.add(
                f'output "{name}" is given by no node{mistakes.near(name, translator.tensors)}'
            )
    if not mistakes and not ends:
        mistakes.add("none of its outputs is computed from its inputs")
    if mistakes:
        return None
    if said := quantized.note(translator.products):
        builder.note(said)
    try:
        return builder.finish([*ends, *translator.kept])
    except OperatorError as error:
        mistakes.add(str(error))
        return None


def _add_inputs(translator: GraphTranslator, inputs: Inputs, whole: bool) -> None:
    for name, array in inputs.values.items():
        dtype = translator.tensors[name].dtype
        translator.tensors[name] = Tensor(array.shape, dtype, array=array)
    for each in inputs.inputs:
        why = f"an input of the net: give them with --value {each.name}=..."
        if each.batch_axis is None and (each.is_weight or not whole):
            # The same for every sample, such as a mask, the indices of positions, or weights.
            translator.tensors[each.name] = Tensor(each.shape, each.dtype, why=why)
            continue
        try:
            if each.batch_axis is None:
                made = translator.builder.sample(each.name, each.shape)
            else:
                made = translator.builder.input(each.name, each.shape, each.batch_axis)
        except OperatorError as error:
            translator.mistakes.add(f'input "{each.name}": {error}')
            translator.broken.add(each.name)
            continue
        translator.tensors[each.name] = Tensor(each.shape, each.dtype, made, why=why)


def _name_not_understood(translator: GraphTranslator) -> None:
    """Note all operators that are not understood, in one line."""
    if not translator.not_understood:
        return
    named = []
    for title, nodes in translator.not_understood.items():
        listed = first_of([f'"{node}"' for node in nodes], _LISTED)
        named.append(f"{title} ({listed})")
    learned = any(f"({_CLASSICAL})" in title for title in translator.not_understood)
    what = f", of which {_CLASSICAL} is no neural network's" if learned else ""
    translator.mistakes.add(
        f"not understood: {'; '.join(named)}{what}; with --unknown=zero they cost nothing and are "
        "listed as not counted"
    )
