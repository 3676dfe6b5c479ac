"""An ONNX graph, walked from its inputs to its outputs and told to the Builder.

What each operator is stands in `layers`, `moves` and `pointwise`. Here is what all of them
need: the tensors by name, the shapes that the onnx package infers, the numbers that are
known, and where faults are noted.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from paleo.errors import Mistakes
from paleo.importers.base import OperatorError
from paleo.importers.onnx.copies import find_copies
from paleo.importers.onnx.fold import Budget, fold
from paleo.importers.onnx.names import fault_name, layer_names
from paleo.importers.onnx.node import (
    OPERATORS,
    STRING,
    Node,
    NotUnderstoodError,
    Part,
    Shape,
    Tensor,
    one_line,
    plain_domain,
)
from paleo.tensor import format_shape

if TYPE_CHECKING:
    from paleo.importers.builder import Builder, Value

__all__ = ["Walk"]

#: Elements of a tensor that is handed to onnx's shape inference: shapes, axes, scales.
_FEW = 64
#: TensorProto's numbers of the element types that can be weights: float, float16, double,
#: bfloat16 and those of 8 bits and fewer.
_FLOATS = frozenset({1, 10, 11, 16, 17, 18, 19, 20, 23, 24})
#: Operators that hand weights on as they are, or with their dimensions in another order.
_VIEWS = frozenset(
    [
        "Cast",
        "CastLike",
        "DequantizeLinear",
        "Flatten",
        "Identity",
        "QuantizeLinear",
        "Reshape",
        "Squeeze",
        "Transpose",
        "Unsqueeze",
    ]
)
#: Operators whose outputs are numbers drawn by chance: of known shape, of nothing else.
_RANDOM = frozenset({"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"})
#: Operators that hold graphs: they are followed, or not understood, but never constants.
_HOLDING = frozenset({"If", "Loop", "Scan", "SequenceMap"})


@dataclass
class Walk:
    """The walk through one graph: what its names stand for, and what went wrong."""

    builder: Builder
    mistakes: Mistakes
    versions: dict[str, int]
    ir_version: int
    #: What open dimensions are, by name: to read the shapes that the file declares.
    sizes: dict[str, int]
    unknown: str = "error"
    tensors: dict[str, Tensor] = field(default_factory=dict)
    #: Names that stand for nothing, because a node before had a fault.
    broken: set[str] = field(default_factory=set)
    uses: dict[str, int] = field(default_factory=dict)
    not_understood: dict[str, list[str]] = field(default_factory=dict)
    kept: list[Value] = field(default_factory=list)
    #: What the file itself says of tensors between nodes, for operators unknown to onnx.
    declared: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.budget = Budget()
        self._defs = importlib.import_module("onnx.defs")
        self._inference = importlib.import_module("onnx.shape_inference")
        self._helper = importlib.import_module("onnx.helper")
        self._arrays = importlib.import_module("onnx.numpy_helper")
        checker = importlib.import_module("onnx.checker")
        self._refusals = (
            self._inference.InferenceError,
            checker.ValidationError,
            RuntimeError,
            ValueError,
        )
        self._schemas: dict[tuple[str, str], Any] = {}
        self._opsets = [self._helper.make_opsetid(*each) for each in self.versions.items()]
        #: MatMul nodes and the Add after each that is its bias, by the names they give.
        self.biases: dict[str, Any] = {}
        self._merged: dict[str, str] = {}

    def keep(self, tensor: Tensor) -> None:
        """Have the net end in this tensor too, so that nothing before it is dropped."""
        if tensor.made is not None and tensor.made.batched:
            self.kept.append(tensor.made)

    def add_initializers(self, graph: Any) -> None:
        """Note the tensors that a graph holds."""
        same = find_copies(graph.initializer)
        for proto in graph.initializer:
            self.tensors[proto.name] = self._held(same.get(proto.name, proto.name), proto)
        for sparse in graph.sparse_initializer:
            name = sparse.values.name
            self.tensors[name] = Tensor(
                tuple(sparse.dims), sparse.values.data_type, key=name, trainable=True
            )

    def _held(self, key: str, proto: Any, trainable: bool = True) -> Tensor:
        shape = tuple(proto.dims)
        if any(size < 0 for size in shape):
            self.mistakes.add(f'tensor "{key}" has a negative dimension: {list(shape)}')
            shape = tuple(max(size, 0) for size in shape)
        tensor = Tensor(shape, proto.data_type, key=key, proto=proto)
        # A number that stands alone is a factor or a bound; weights come in numbers.
        tensor.trainable = trainable and proto.data_type in _FLOATS and tensor.size > 1
        return tensor

    def run(self, graph: Any, outputs: Iterable[str]) -> None:
        """Walk through a graph as far as `outputs` need it; note what goes wrong."""
        live = self._prepare(graph.node, outputs)
        if live is None:
            return
        names = layer_names(live, set(self.biases))
        for (index, proto), name in zip(live, names, strict=True):
            self._visit(proto, name, fault_name(proto, index))

    def _prepare(self, nodes: Any, outputs: Iterable[str]) -> list[tuple[int, Any]] | None:
        """Return the nodes that `outputs` need, if the graph hangs together."""
        all_nodes = list(nodes)
        givers: dict[str, int] = {}
        for index, proto in enumerate(all_nodes):
            for name in proto.output:
                if name and name in givers:
                    self.mistakes.add(f'two nodes give "{name}"')
                    return None
                givers[name] = index
        givers.pop("", None)
        needed = set(outputs)
        live: list[tuple[int, Any]] = []
        uses: dict[str, int] = dict.fromkeys(needed, 1)
        for index in range(len(all_nodes) - 1, -1, -1):
            proto = all_nodes[index]
            if not needed.isdisjoint(proto.output):
                live.append((index, proto))
                for name in reads(proto):
                    needed.add(name)
                    uses[name] = uses.get(name, 0) + 1
                    if givers.get(name, -1) >= index:
                        self.mistakes.add(
                            f'it reads "{name}" before a node gives it: the graph has a cycle, '
                            "or its nodes are not in order",
                            layer=fault_name(proto, index),
                        )
                        return None
        live.reverse()
        self.uses.update(uses)
        self._find_biases(live, uses)
        return live

    def _find_biases(self, live: list[tuple[int, Any]], uses: dict[str, int]) -> None:
        products = {
            proto.output[0] for _, proto in live if proto.op_type == "MatMul" and proto.output
        }
        for _, proto in live:
            if proto.op_type != "Add" or len(proto.input) != 2:
                continue
            for product, bias in (tuple(proto.input), tuple(proto.input)[::-1]):
                if product in products and uses[product] == 1 and bias in self.tensors:
                    self.biases[product] = proto

    def bias_after(self, name: str, features: int) -> Tensor | None:
        """Return the bias that the next node adds to `name`; that node then does nothing."""
        proto = self.biases.get(name)
        if proto is None:
            return None
        bias = self.tensors[next(each for each in proto.input if each != name)]
        if not (bias.trainable and bias.size == features == bias.shape[-1]):
            return None
        self._merged[proto.output[0]] = name
        return bias

    def _visit(self, proto: Any, name: str, fault: str) -> None:
        outputs = [each for each in proto.output if each]
        if outputs and outputs[0] in self._merged:
            self._alias(outputs[0], self._merged[outputs[0]])
            return
        known = True
        for each in reads(proto):
            if each in self.broken:
                known = False
            elif each not in self.tensors:
                hint = self.mistakes.near(each, self.tensors)
                self.mistakes.add(
                    f'{proto.op_type} reads "{each}", which nothing gives{hint}', fault
                )
                known = False
        if not known:
            self.broken.update(outputs)
            return
        domain = plain_domain(proto.domain)
        node = Node(self, proto, name, self.versions.get(domain, 0))
        node.inputs = [self.tensors[each] if each else None for each in proto.input]
        try:
            self._follow(node, fault)
        except NotUnderstoodError:
            self._not_understood(node, fault)
        except OperatorError as error:
            self.mistakes.add(str(error), fault)
            self.broken.update(outputs)

    def _alias(self, name: str, other: str) -> None:
        if other in self.tensors:
            self.tensors[name] = self.tensors[other]
        else:
            self.broken.add(name)

    def _follow(self, node: Node, fault: str) -> None:
        if node.op == "Constant" and not node.domain:
            self._give(node, [self._constant(node)])
            return
        if node.op == "If" and not node.domain:
            self._branch(node)
            return
        node.inferred = self._infer(node)
        first = node.inputs[0] if node.inputs else None
        if not node.domain and node.op in ("Shape", "Size") and first is not None:
            whole = np.asarray(first.shape, np.int64)
            array = whole[slice(node.whole("start", 0), node.whole("end", None))]
            array = array if node.op == "Shape" else np.asarray(first.size, np.int64)
            self._give(node, [Tensor(array.shape, 7, array=array)])
            return
        if not node.domain and node.op in _VIEWS and first is not None and first.made is None:
            # Quantized weights are integers; what they stand for is trained.
            dequantized = node.op == "DequantizeLinear" and first.key is not None and first.size > 1
            if first.trainable or dequantized:
                view = Tensor(node.output_shape(), node.inferred[0][1] or 1, key=first.key)
                view.trainable = True
                self._give(node, [view])
                return
        constant = all(each is None or each.is_constant for each in node.inputs)
        if not node.domain and node.op not in _HOLDING and (constant or node.op in _RANDOM):
            self._give(node, self._constants(node))
            return
        function = OPERATORS.get((node.domain, node.op))
        if function is None:
            raise NotUnderstoodError
        result = function(node)
        self._give(node, result if isinstance(result, Sequence) else [result])

    def _constant(self, node: Node) -> Tensor:
        """Return what a Constant node holds; it counts as a weight where one is needed."""
        key = node.proto.output[0]
        held = node.attribute("value")
        if held is not None:
            return self._held(key, held.t, trainable=False)
        sparse = node.attribute("sparse_value")
        if sparse is not None:
            dims = tuple(sparse.sparse_tensor.dims)
            return Tensor(dims, sparse.sparse_tensor.values.data_type, key=key)
        for kind, values, numpy_type in (
            ("float", "floats", np.float32),
            ("int", "ints", np.int64),
        ):
            one, many = node.attribute(f"value_{kind}"), node.attribute(f"value_{values}")
            if one is not None or many is not None:
                numbers = getattr(many, values) if one is None else getattr(one, kind[0])
                array = np.asarray(numbers, numpy_type)
                return Tensor(array.shape, 1 if kind == "float" else 7, key=key, array=array)
        strings = node.attribute("value_strings")
        return Tensor(() if strings is None else (len(strings.strings),), STRING)

    def _constants(self, node: Node) -> list[Part]:
        """Return the outputs of a node that reads constants only."""
        arrays = None if node.op in _RANDOM else fold(node, self.budget)
        result: list[Part] = []
        for index, name in enumerate(node.proto.output):
            _, dtype = node.inferred[index]
            if arrays is not None and index < len(arrays):
                array = arrays[index]
                dtype = dtype or self._helper.np_dtype_to_tensor_dtype(array.dtype)
                result.append(Tensor(array.shape, dtype, key=name, array=array))
            elif node.wants(index):
                tensor = Tensor(node.output_shape(index), dtype or 1, key=name)
                tensor.why = next(
                    (each.why for each in node.inputs if each and each.numbers() is None),
                    f"given by {node.op} and too many, or not followed",
                )
                result.append(tensor)
            else:
                result.append(None)
        return result

    def _branch(self, node: Node) -> None:
        """Follow the branch of an If that its condition, a constant, takes."""
        condition = node.tensor(0).numbers() if node.tensor(0).is_constant else None
        if condition is None or not condition.size:
            raise NotUnderstoodError
        name = "then_branch" if condition.reshape(-1)[0] else "else_branch"
        found = node.attribute(name)
        if found is None:
            raise OperatorError(f"If has no {name}")
        self.add_initializers(found.g)
        outputs = [each.name for each in found.g.output]
        self.run(found.g, outputs)
        for given, inner in zip(node.proto.output, outputs, strict=False):
            self._alias(given, inner)

    def _infer(self, node: Node) -> list[tuple[Shape | None, int | None]]:
        """Return shape and element type of each output, by onnx or as the file says."""
        types: dict[str, Any] = {}
        schema = None if node.op in _HOLDING else self._schema(node)
        if schema is not None:
            types = self._ask(schema, node)
        result = []
        for name in node.proto.output:
            shape, dtype = read_type(types.get(name), self.sizes)
            if shape is None and name in self.declared:
                shape, other = read_type(self.declared[name].type, self.sizes)
                dtype = dtype or other
            result.append((shape, dtype))
        return result

    def _ask(self, schema: Any, node: Node) -> dict[str, Any]:
        types, data = {}, {}
        for name, tensor in zip(node.proto.input, node.inputs, strict=True):
            if tensor is None:
                continue
            types[name] = self._helper.make_tensor_type_proto(tensor.dtype, tensor.shape)
            if tensor.made is None and tensor.size <= _FEW:
                numbers = tensor.numbers()
                if numbers is not None:
                    data[name] = self._arrays.from_array(numbers, name)
        try:
            found: dict[str, Any] = self._inference.infer_node_outputs(
                schema, node.proto, types, data, None, self._opsets, self.ir_version
            )
        except self._refusals as error:
            raise OperatorError(f"{node.op}: {one_line(error)}") from None
        return found

    def _schema(self, node: Node) -> Any:
        key = (node.domain, node.op)
        if key not in self._schemas:
            schema = None
            try:
                schema = self._defs.get_schema(node.op, node.version or 1, node.domain)
            except self._defs.SchemaError:
                # Some tools write operators before the version that brought them.
                if self._defs.has(node.op, node.domain):
                    schema = self._defs.get_schema(node.op, node.domain)
            self._schemas[key] = None if schema is None or schema.deprecated else schema
        return self._schemas[key]

    def _give(self, node: Node, parts: Sequence[Part]) -> None:
        """Note what a node's outputs stand for; compare with what onnx says of their shapes."""
        for index, name in enumerate(node.proto.output):
            part = parts[index] if index < len(parts) else None
            shape, dtype = node.inferred[index] if index < len(node.inferred) else (None, None)
            if not name:
                continue
            if part is None:
                self.broken.add(name)
                if node.wants(index):
                    raise OperatorError(f"output {index} of {node.op}, {name!r}, is not understood")
                continue
            if not isinstance(part, Tensor):
                dtype = dtype or next((each.dtype for each in node.inputs if each), 1)
                part = Tensor(tuple(part.shape), dtype, part)
                if shape is not None and part.shape != shape:
                    raise OperatorError(
                        f"{node.op} gives {format_shape(part.shape) or 'a number'}; by onnx's "
                        f"rules it would be {format_shape(shape) or 'a number'}"
                    )
            self.tensors[name] = part

    def _not_understood(self, node: Node, fault: str) -> None:
        """List a node, and go on behind it where the shapes of its outputs are known."""
        title = node.op + (f" ({node.domain})" if node.domain else "")
        zero = self.unknown == "zero"
        if not zero:
            self.not_understood.setdefault(title, []).append(fault)
        try:
            inputs = [each.value(self.builder) for each in node.inputs if each is not None]
            if not node.inferred:
                node.inferred = self._infer(node)
            parts: list[Part] = [
                self.builder.unknown(node.name, title, inputs, node.output_shape(index))
                if node.wants(index)
                else None
                for index in range(len(node.proto.output))
            ]
            self._give(node, parts)
        except OperatorError:
            self.broken.update(each for each in node.proto.output if each)
            if zero:
                self.mistakes.add(
                    f"{title} is not understood, and neither onnx nor the file says what shape "
                    "it gives: it cannot be left out",
                    fault,
                )


def reads(proto: Any) -> list[str]:
    """Return the names that a node reads, those of graphs inside it included."""
    names = [name for name in proto.input if name]
    for attribute in proto.attribute:
        graphs = [attribute.g] if attribute.HasField("g") else attribute.graphs
        for graph in graphs:
            inner = {each.name for each in (*graph.initializer, *graph.input)}
            read = [each.name for each in graph.output]
            for node in graph.node:
                read += reads(node)
                inner.update(node.output)
            names += [name for name in read if name not in inner]
    return names


def read_type(type_proto: Any, sizes: dict[str, int]) -> tuple[Shape | None, int | None]:
    """Return shape and element type of a tensor; the shape is None if any of it is open."""
    if type_proto is None or not type_proto.HasField("tensor_type"):
        return None, None
    tensor = type_proto.tensor_type
    dtype = tensor.elem_type or None
    if not tensor.HasField("shape"):
        return None, dtype
    shape = []
    for dim in tensor.shape.dim:
        size = dim.dim_value if dim.HasField("dim_value") else sizes.get(dim.dim_param, -1)
        if size < 0:
            return None, dtype
        shape.append(size)
    return tuple(shape), dtype
