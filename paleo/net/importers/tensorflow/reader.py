"""SavedModels: the graph of a signature, without its weights, as ONNX.

The graph is in the file saved_model.pb, the numbers of its variables in others, which are not
opened: each variable gets one number of its own everywhere, neither 0 nor 1, so that no two become
one weight and none is taken for a constant that does nothing. Nor are the functions run that a
SavedModel has for when it is loaded; TensorFlow's own `tf.saved_model.load` would run them.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from paleo.core.errors import NetSpecError, printable
from paleo.core.quiet import no_stderr
from paleo.net.importers import onnx
from paleo.net.importers.base import ImportOptions, file_content, first_of, missing_library
from paleo.net.importers.pytorch.running import guarded, quietly
from paleo.net.spec import NetSpec

#: The file of a SavedModel's folder that has its graph.
GRAPH = "saved_model.pb"
#: The newest operators that tf2onnx makes.
_OPSET = 18
#: The operators that are variables, and what the name of one's value ends in.
_VARIABLES = ("VarHandleOp", "VariableV2", "Variable")
_READING = "/Read/ReadVariableOp"
#: The number that the first weight is full of, and what each has more than the one before.
_FIRST = 2
_STEP = 2**-10
#: What has loops taken apart into jumps, which tf2onnx does not know as loops.
_TAKEN_APART = "_lower_using_switch_merge"
#: Operators that deal with what is outside of a graph. tf2onnx has TensorFlow compute each operator
#: whose inputs are all constants, and of these none is to run.
_OUTSIDE = re.compile("File|Restore|Save|Checkpoint|Reader|Dataset|PyFunc")
#: Bytes that the message of a graph with its constants cannot have.
_MOST = 2**31
#: The tag of the graph to run a model by, and the signature that callers use who name none.
_SERVE = "serve"
_DEFAULT = "serving_default"
#: What a signature is called that is run when a model is loaded.
_AT_LOADING = "__saved_model"
_LISTED = 8
#: What grappler is to do: write functions out where they are called, and nothing else.
_INLINING = ("function", "dependency")
#: How the names begin of what functions do that are written out.
_CALLS = re.compile(r"((Stateful)?PartitionedCall(_\d+)?/)+")
#: The input of a recurrent node that is its biases, and what is said of them.
_BIASES = 3
_TWICE = (
    "of recurrent layers the parameters are ONNX's, which has a bias for the input and another for "
    "the state where TensorFlow has one"
)


def read(target: str, options: ImportOptions) -> NetSpec:
    """Return the net of a SavedModel, given by its folder or the file saved_model.pb in it.

    Raises NetSpecError with what is wrong with it, and if TensorFlow or tf2onnx is missing.
    """
    path = Path(target)
    file = path if path.name == GRAPH else path / GRAPH
    data = file_content(str(file))
    with no_stderr(), quietly():
        _require(target)
        model = guarded(target, "tf2onnx", lambda: _converted(data, target))
        model.graph.name = PurePath(file.absolute().parent).name
        written = guarded(target, "tf2onnx", model.SerializeToString)
    net = onnx.read_bytes(written, target, options)
    recurrent = [node for node in model.graph.node if node.op_type in ("LSTM", "GRU", "RNN")]
    twice = any(len(node.input) > _BIASES and node.input[_BIASES] for node in recurrent)
    return replace(net, notes=(*net.notes, _TWICE)) if twice else net


def _require(target: str) -> None:
    """Raise NetSpecError if a library is missing."""
    for library in ("tensorflow", "tf2onnx", "onnx"):
        try:
            importlib.import_module(library)
        except ImportError:
            raise missing_library(target, library, "tensorflow") from None


def _converted(data: bytes, target: str) -> Any:
    """Return the ONNX model of the graph in a file saved_model.pb."""
    tf: Any = importlib.import_module("tensorflow")
    tfonnx: Any = importlib.import_module("tf2onnx.tfonnx")
    optimizer: Any = importlib.import_module("tf2onnx.optimizer")
    identity: Any = importlib.import_module("tf2onnx.optimizer.identity_optimizer")
    graph_def, signature = _signature(data, target)
    inputs = {each.name: name for name, each in signature.inputs.items()}
    outputs = {each.name: name for name, each in signature.outputs.items()}
    variables = _variables(graph_def, target)
    frozen = _frozen(tf, graph_def, variables, outputs, target)
    inlined = _inlined(tf, frozen, [*inputs, *outputs])
    _check_inside(inlined, target)
    frozen = _with_weights(tf, inlined, variables)
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(frozen, name="")
        made = tfonnx.process_tf_graph(
            graph,
            input_names=list(inputs),
            output_names=list(outputs),
            tensors_to_rename=inputs | outputs,
            opset=_OPSET,
        )
        # All of tf2onnx's optimizers would fold scales into weights; nodes that only pass on what
        # they get are not right without this one.
        steps = {"remove_identity": identity.IdentityOptimizer}
        model = optimizer.optimize_graph(made, optimizers=steps).make_model("")
    for node in model.graph.node:
        node.name = _CALLS.sub("", node.name)
    # Names of open sizes that are made up anew each time name nothing.
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.ClearField("dim_param")
    return model


def _signature(data: bytes, target: str) -> tuple[Any, Any]:
    """Return the graph to run a model by, and its signature."""
    saved_model_pb2: Any = importlib.import_module("tensorflow.core.protobuf.saved_model_pb2")
    decode_error = importlib.import_module("google.protobuf.message").DecodeError
    saved = saved_model_pb2.SavedModel()
    try:
        saved.ParseFromString(data)
    except decode_error:
        saved.Clear()
    graphs = list(saved.meta_graphs)
    if not graphs:
        raise NetSpecError(f"{target}: not a SavedModel, or not all of one")
    meta_graph = next((each for each in graphs if _SERVE in each.meta_info_def.tags), graphs[0])
    signatures = {
        name: each
        for name, each in sorted(meta_graph.signature_def.items())
        if not name.startswith(_AT_LOADING)
    }
    if not signatures:
        raise NetSpecError(
            f"{target}: it has no signature, which would say what goes in and comes out: save it "
            "with tf.saved_model.save(..., signatures=...)"
        )
    if _DEFAULT not in signatures and len(signatures) > 1:
        raise NetSpecError(
            f'{target}: which of its signatures? There are {_listed(signatures)}; "{_DEFAULT}" '
            "would be read: save it with one signature, or one that is called so"
        )
    name = _DEFAULT if _DEFAULT in signatures else next(iter(signatures))
    signature = signatures[name]
    parts = (*signature.inputs.values(), *signature.outputs.values())
    if not signature.inputs or not signature.outputs:
        raise NetSpecError(f'{target}: its signature "{printable(name)}" has no inputs or outputs')
    if not all(each.WhichOneof("encoding") == "name" for each in parts):
        raise NetSpecError(
            f'{target}: its signature "{printable(name)}" takes or gives tensors in several parts '
            "(sparse or ragged), which is not understood"
        )
    return meta_graph.graph_def, signature


def _listed(names: Iterable[str]) -> str:
    return first_of([f'"{printable(name)}"' for name in names], _LISTED)


class _Numbers:
    """Stands where a session is expected, of which the values of variables are asked by name."""

    def __init__(self, tf: Any, variables: Mapping[str, Any], target: str) -> None:
        self._tf = tf
        self._variables = variables
        self._target = target

    def run(self, names: Iterable[str]) -> list[Any]:
        """Return zeros of the shapes of variables, by the names of their values."""
        found = []
        for name in names:
            each = self._variables[name.removesuffix(":0").removesuffix(_READING)]
            dtype = self._tf.as_dtype(each.attr["dtype"].type).as_numpy_dtype
            sizes = [dim.size for dim in each.attr["shape"].shape.dim]
            found.append(np.broadcast_to(np.zeros((), dtype), sizes))
        if (total := sum(each.nbytes for each in found)) >= _MOST:
            raise NetSpecError(
                f"{self._target}: it has {total / 2**30:.1f} GiB of variables, and a graph of "
                "constants in TensorFlow and ONNX is less than 2 GiB"
            )
        return found


def _variables(graph_def: Any, target: str) -> dict[str, Any]:
    """Return the nodes that are variables, by their names; raises NetSpecError."""
    found = {node.name: node for node in graph_def.node if node.op in _VARIABLES}
    for name, node in found.items():
        shape = node.attr["shape"].shape
        if shape.unknown_rank or any(dim.size < 0 for dim in shape.dim):
            raise NetSpecError(
                f'{target}: variable "{printable(name)}" has no fixed shape, which is not '
                "understood"
            )
    return found


def _frozen(
    tf: Any, graph_def: Any, variables: Mapping[str, Any], outputs: Iterable[str], target: str
) -> Any:
    """Return what outputs need of a graph, with its variables as placeholders."""
    functions = graph_def.library.function
    for node in (*graph_def.node, *(node for each in functions for node in each.node_def)):
        node.attr.pop(_TAKEN_APART, None)
    names = [output.partition(":")[0] for output in outputs]
    freeze = tf.compat.v1.graph_util.convert_variables_to_constants
    frozen = freeze(_Numbers(tf, variables, target), graph_def, names)
    for node in frozen.node:
        if node.name in variables:
            node.op = "Placeholder"
            node.attr.clear()
            for key in ("dtype", "shape"):
                node.attr[key].CopyFrom(variables[node.name].attr[key])
    return frozen


def _check_inside(graph_def: Any, target: str) -> None:
    """Raise NetSpecError for operators that deal with what is outside of a graph."""
    inside = (node for each in graph_def.library.function for node in each.node_def)
    for node in (*graph_def.node, *inside):
        if _OUTSIDE.search(node.op):
            raise NetSpecError(
                f'{target}: "{printable(node.name)}" is a {printable(node.op)}, which opens files '
                "or calls Python: it is not read"
            )


def _inlined(tf: Any, graph_def: Any, ends: Iterable[str]) -> Any:
    """Return a graph with functions written out where they are called."""
    config_pb2: Any = importlib.import_module("tensorflow.core.protobuf.config_pb2")
    meta_graph_pb2: Any = importlib.import_module("tensorflow.core.protobuf.meta_graph_pb2")
    grappler: Any = importlib.import_module("tensorflow.python.grappler.tf_optimizer")
    config = config_pb2.ConfigProto()
    config.graph_options.infer_shapes = True
    rewriting = config.graph_options.rewrite_options
    rewriting.optimizers[:] = _INLINING
    rewriting.min_graph_nodes = -1  # else it leaves small graphs as they are
    with tf.Graph().as_default():
        meta_graph = tf.compat.v1.train.export_meta_graph(graph_def=graph_def)
    fetched = meta_graph_pb2.CollectionDef()
    fetched.node_list.value.extend(ends)
    meta_graph.collection_def["train_op"].CopyFrom(fetched)
    return grappler.OptimizeGraph(config, meta_graph)


def _with_weights(tf: Any, graph_def: Any, variables: Mapping[str, Any]) -> Any:
    """Return a graph whose variables are constants, each of one number of its own."""
    found = [node for node in graph_def.node if node.name in variables]
    for number, node in enumerate(found):
        dtype = tf.as_dtype(node.attr["dtype"].type)
        value: Any = _FIRST + number * _STEP if dtype.is_floating else _FIRST
        sizes = [dim.size for dim in node.attr["shape"].shape.dim]
        filled = tf.make_tensor_proto(dtype.as_numpy_dtype(value), dtype=dtype, shape=sizes)
        node.op = "Const"
        node.attr.pop("shape")
        node.attr["value"].tensor.CopyFrom(filled)
    return graph_def
