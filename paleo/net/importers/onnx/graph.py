"""An ONNX graph, told to the Builder from its inputs to its outputs.

What each operator is stands in `layers`, `reshape` and `elementwise`. Here is what all of them
need: the tensors by name, the shapes that the onnx package infers, the numbers that are
known, and where faults are noted.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from paleo.core.errors import Mistakes
from paleo.core.tensor import format_shape
from paleo.net.importers.base import OperatorError, free_name
from paleo.net.importers.onnx.control import CONTROLS
from paleo.net.importers.onnx.fold import Budget, fold
from paleo.net.importers.onnx.mixtures import DOMAIN, Live, join_turns
from paleo.net.importers.onnx.names import fault_name, layer_names
from paleo.net.importers.onnx.node import (
    INT64,
    OPERATORS,
    STRING,
    Array,
    Context,
    InsideError,
    Node,
    NotUnderstoodError,
    Operator,
    Output,
    Shape,
    Tensor,
    one_line,
    plain_domain,
    reads,
)
from paleo.net.importers.onnx.quantized import element_type, product_type
from paleo.net.importers.onnx.tied_weights import find_copies
from paleo.net.importers.onnx.untrained import find_untrained

#: Elements of a tensor that is handed to onnx's shape inference: shapes, axes, scales.
_FEW = 64
#: TensorProto's numbers of the element types that can be weights: float, float16, double,
#: bfloat16 and those of 8 bits and fewer.
_FLOATS = frozenset({1, 10, 11, 16, 17, 18, 19, 20, 23, 24})
#: What a tensor is stored as that a file says no type of.
_UINT8 = 2
#: What a mask adds to a score to hide it; e to the power of it is nothing.
_HIDDEN = -50.0
#: Operators that hand weights on as they are, or with their dimensions in another order.
_VIEWS = """
    Cast CastLike DequantizeLinear Flatten Identity QuantizeLinear Reshape Squeeze Transpose
    Unsqueeze"""
#: Operators whose outputs are numbers drawn by chance: of known shape, of nothing else.
_RANDOM = frozenset({"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"})


@dataclass
class GraphTranslator(Context):
    """Tells the Builder one graph, node by node, and notes what goes wrong."""

    mistakes: Mistakes
    versions: dict[str, int]
    ir_version: int
    #: What open dimensions are, by name: to read the shapes that the file declares.
    sizes: dict[str, int]
    unknown: str = "error"
    #: Names that stand for nothing, because a node before had a fault.
    broken: set[str] = field(default_factory=set)
    not_understood: dict[str, list[str]] = field(default_factory=dict)
    #: How many products are of each element type of few bits, or of "".
    products: Counter[str] = field(default_factory=Counter)
    #: As what number of TensorProto tensors between nodes are stored that nothing else reads.
    stored_after: dict[str, int] = field(default_factory=dict)
    #: What the file itself says of tensors between nodes, for operators unknown to onnx.
    declared: dict[str, Any] = field(default_factory=dict)

    #: The tensors that the file holds, by the names under which the Builder knows them.
    held: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.budget = Budget()
        onnx = self._onnx = importlib.import_module("onnx")
        self._refusals = (
            onnx.shape_inference.InferenceError,
            onnx.checker.ValidationError,
            RuntimeError,
            ValueError,
        )
        self._opsets = [onnx.helper.make_opsetid(*each) for each in self.versions.items()]

    def add_initializers(self, graph: Any) -> None:
        """Note the tensors that a graph holds."""
        same, untrained = find_copies(graph.initializer), find_untrained(graph)
        for proto in graph.initializer:
            key = same.get(proto.name) or self._key(proto.name, proto)
            tensor = self._held(key, proto, proto.name not in untrained)
            tensor.untrained = proto.name in untrained
            self.tensors[proto.name] = tensor
        for sparse in graph.sparse_initializer:
            name = sparse.values.name
            self.tensors[name] = Tensor(
                tuple(sparse.dims), sparse.values.data_type, key=name, trainable=True
            )

    def _key(self, name: str, proto: Any) -> str:
        """Return under which name the Builder knows a tensor: graphs within nodes share names."""
        for key in (name, free_name(name, self.held)):
            if self.held.setdefault(key, proto) is proto:
                break
        return key

    def _held(self, key: str, proto: Any, trainable: bool = True) -> Tensor:
        shape = tuple(proto.dims)
        if any(size < 0 for size in shape):
            self.mistakes.add(f'tensor "{key}" has a negative dimension: {list(shape)}')
            shape = tuple(max(size, 0) for size in shape)
        tensor = Tensor(shape, proto.data_type, key=key, proto=proto)
        # A number that stands alone is a factor or a bound; weights come in numbers.
        tensor.trainable = trainable and proto.data_type in _FLOATS and tensor.size > 1
        if tensor.trainable and len(shape) > 1 and _is_mask(tensor.numbers()):
            tensor.trainable = False
        return tensor

    def run(self, graph: Any, outputs: Iterable[str], within: str = "") -> None:
        """Translate a graph as far as `outputs` need it; note what goes wrong.

        `within` is what the names of its layers begin with.
        """
        outputs = list(outputs)
        live = self._prepare(list(enumerate(graph.node)), outputs)
        if live is None:
            return
        joined = join_turns(live, self.tensors, outputs)
        if joined is not None:
            live = self._prepare(joined, outputs) or live
        for (index, proto), name in zip(live, layer_names(live, set(self.biases)), strict=True):
            whole = f"{within}/{name}" if within else name
            self._visit(proto, whole, fault_name(proto, index))

    def inside(self, graph: Any, name: str, inputs: Sequence[Tensor] = ()) -> list[Tensor]:
        """See `Context.inside`: names of the graph hide those around it while it is followed."""
        noted = len(self.mistakes.found), self._num_not_understood()
        around = self.tensors, self.uses, self.biases, self.merged, self.broken
        self.tensors, self.broken = dict(self.tensors), set(self.broken)
        self.uses, self.biases, self.merged = {}, {}, {}
        try:
            self.tensors.update(
                {proto.name: tensor for proto, tensor in zip(graph.input, inputs, strict=False)}
            )
            self.add_initializers(graph)
            names = [each.name for each in graph.output]
            self.run(graph, names, name)
            found = [self.tensors[each] for each in names if each in self.tensors]
        finally:
            self.tensors, self.uses, self.biases, self.merged, self.broken = around
        if noted != (len(self.mistakes.found), self._num_not_understood()):
            raise InsideError("")
        if len(found) < len(names):
            raise OperatorError("the graph that it holds does not give all of its outputs")
        return found

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """See `Context.attempt`."""
        found = list(self.mistakes.found)
        not_understood = {title: list(nodes) for title, nodes in self.not_understood.items()}
        try:
            yield
        except OperatorError:
            self.mistakes.found[:] = found
            self.not_understood = not_understood

    def _num_not_understood(self) -> int:
        return sum(map(len, self.not_understood.values()))

    def _prepare(self, all_nodes: Live, outputs: Sequence[str]) -> Live | None:
        """Return the nodes that `outputs` need, if the graph hangs together."""
        givers: dict[str, int] = {}
        for index, (_, proto) in enumerate(all_nodes):
            for name in proto.output:
                if name and name in givers:
                    self.mistakes.add(f'two nodes give "{name}"')
                    return None
                givers[name] = index
        givers.pop("", None)
        needed = set(outputs)
        live: Live = []
        uses = Counter(needed)
        for index in range(len(all_nodes) - 1, -1, -1):
            proto = all_nodes[index][1]
            if not needed.isdisjoint(proto.output):
                live.append(all_nodes[index])
                for name in reads(proto):
                    needed.add(name)
                    uses[name] += 1
                    if givers.get(name, -1) >= index:
                        self.mistakes.add(
                            f'it reads "{name}" before a node gives it: the graph has a cycle, '
                            "or its nodes are not in order",
                            layer=fault_name(proto, all_nodes[index][0]),
                        )
                        return None
        live.reverse()
        self.uses.clear()
        self.uses.update(uses)
        self.biases.clear()
        self._find_biases(live, uses)
        self._find_stored(live, uses)
        return live

    def _find_stored(self, live: Live, uses: dict[str, int]) -> None:
        """Note tensors that are made into integers at once, and read by nothing else."""
        for _, proto in live:
            if proto.op_type == "QuantizeLinear" and uses[proto.input[0]] == 1:
                zero = self.tensors.get(proto.input[2]) if len(proto.input) > 2 else None
                self.stored_after[proto.input[0]] = zero.dtype if zero else _UINT8

    def _find_biases(self, live: Live, uses: dict[str, int]) -> None:
        products = {
            proto.output[0] for _, proto in live if proto.op_type == "MatMul" and proto.output
        }
        for _, proto in live:
            if proto.op_type != "Add" or len(proto.input) != 2:
                continue
            for product, bias in (tuple(proto.input), tuple(proto.input)[::-1]):
                if product in products and uses[product] == 1 and bias in self.tensors:
                    self.biases[product] = proto

    def _visit(self, proto: Any, name: str, fault: str) -> None:
        outputs = [each for each in proto.output if each]
        if outputs and outputs[0] in self.merged:
            self._alias(outputs[0], self.merged[outputs[0]])
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
        node = Node(self, proto, name, self.versions.get(plain_domain(proto.domain), 0))
        node.inputs = [self.tensors[each] if each else None for each in proto.input]
        try:
            self._follow(node, fault)
            self._note_stored(node)
        except NotUnderstoodError:
            self._not_understood(node, fault)
        except InsideError:
            self.broken.update(outputs)
        except OperatorError as error:
            self.mistakes.add(str(error), fault)
            self.broken.update(outputs)

    def _note_stored(self, node: Node) -> None:
        """Note what a tensor of few bits stands for, and which products are of such."""
        kind = product_type(node)
        given = self.tensors.get(node.proto.output[0]) if node.proto.output else None
        if kind is not None and given is not None and given.made is not None:
            self.products[kind] += 1
        first = node.inputs[0] if node.inputs else None
        if node.op == "DequantizeLinear" and first is not None and given is not None:
            self.tensors[node.proto.output[0]] = replace(given, stored=first.dtype)

    def _alias(self, name: str, other: str) -> None:
        if other in self.tensors:
            self.tensors[name] = self.tensors[other]
        else:
            self.broken.add(name)

    def _follow(self, node: Node, fault: str) -> None:
        own = "" if node.domain else node.op
        if own == "Constant":
            self._give(node, [self._constant(node)])
            return
        if own in CONTROLS:
            self._give(node, self._controlled(node, CONTROLS[own]))
            return
        first = node.inputs[0] if node.inputs else None
        if first is not None and first.items is not None:
            if own != "Identity":
                raise OperatorError(f"{node.op} reads a sequence where a tensor should be")
            self._give(node, [first])
            return
        node.inferred = self._infer(node)
        if own in ("Shape", "Size") and first is not None:
            whole = np.asarray(first.shape, np.int64)
            array = whole[slice(node.integer("start", 0), node.integer("end", None))]
            array = array if own == "Shape" else np.asarray(first.size, np.int64)
            self._give(node, [Tensor(array.shape, INT64, array=array)])
            return
        if own in _VIEWS.split() and first is not None and first.made is None:
            # Quantized weights are integers; what they stand for is trained.
            dequantized = own == "DequantizeLinear" and first.key is not None and first.size > 1
            if first.trainable or dequantized:
                view = Tensor(node.output_shape(), node.inferred[0][1] or 1, key=first.key)
                view.trainable = True
                view.stored = first.dtype if dequantized else first.stored
                self._give(node, [view])
                return
        constant = all(each is None or each.is_constant for each in node.inputs)
        if own and (constant or own in _RANDOM):
            self._give(node, self._constants(node))
            return
        if any(each is not None and not each.size for each in node.inputs) and all(
            shape is not None and 0 in shape for shape, _ in node.inferred
        ):  # nothing of nothing
            self._give(node, [Tensor(shape or (), dtype or 1) for shape, dtype in node.inferred])
            return
        function = OPERATORS.get((node.domain, node.op))
        if function is None:
            raise NotUnderstoodError
        self.builder.dtype = element_type(node, self.stored_after)
        result = function(node)
        self._give(node, result if isinstance(result, Sequence) else [result])

    def _controlled(self, node: Node, function: Operator) -> Sequence[Output]:
        """Return what an operator gives that decides on others; it may be left out."""
        try:
            result = function(node)
        except InsideError:
            raise
        except OperatorError:
            if self.unknown == "zero":
                raise NotUnderstoodError from None
            raise
        return result if isinstance(result, Sequence) else [result]

    def _constant(self, node: Node) -> Tensor:
        """Return what a Constant node holds; it counts as a weight where one is needed."""
        key = self._key(node.proto.output[0], node.proto)
        held = node.attribute("value")
        if held is not None:
            return self._held(key, held.t, trainable=False)
        sparse = node.attribute("sparse_value")
        if sparse is not None:
            dims = tuple(sparse.sparse_tensor.dims)
            return Tensor(dims, sparse.sparse_tensor.values.data_type, key=key)
        for kind, dtype, numpy_type in (("float", 1, np.float32), ("int", INT64, np.int64)):
            numbers = node.attribute(f"value_{kind}") or node.attribute(f"value_{kind}s")
            if numbers is not None:
                array = np.asarray(self._onnx.helper.get_attribute_value(numbers), numpy_type)
                return Tensor(array.shape, dtype, key=key, array=array)
        strings = node.attribute("value_strings")
        return Tensor(() if strings is None else (len(strings.strings),), STRING)

    def _constants(self, node: Node) -> list[Output]:
        """Return the outputs of a node that reads constants only."""
        arrays = None if node.op in _RANDOM else fold(node, self.budget)
        result: list[Output] = []
        for index, name in enumerate(node.proto.output):
            _, dtype = node.inferred[index]
            if arrays is not None and name in arrays:
                array = arrays[name]
                dtype = dtype or self._onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
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

    def _infer(self, node: Node) -> list[tuple[Shape | None, int | None]]:
        """Return shape and element type of each output, by onnx or as the file says."""
        types: dict[str, Any] = {}
        if node.domain == DOMAIN:
            return [(None, None)] * len(node.proto.output)
        schema = None if node.op in CONTROLS else self._schema(node)
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
        given = len(node.proto.output)
        if node.op == "Split" and node.integer("num_outputs", given) != given:
            # onnx's inference would end the whole process.
            raise OperatorError(f"Split in {node.integer('num_outputs', given)}, not in {given}")
        types, data = {}, {}
        for name, tensor in zip(node.proto.input, node.inputs, strict=True):
            if tensor is None:
                continue
            types[name] = self._onnx.helper.make_tensor_type_proto(tensor.dtype, tensor.shape)
            if tensor.made is None and tensor.size <= _FEW:
                numbers = tensor.numbers()
                if numbers is not None:
                    data[name] = self._onnx.numpy_helper.from_array(numbers, name)
        try:
            found: dict[str, Any] = self._onnx.shape_inference.infer_node_outputs(
                schema, node.proto, types, data, None, self._opsets, self.ir_version
            )
        except self._refusals as error:
            raise OperatorError(f"{node.op}: {one_line(error)}") from None
        return found

    def _schema(self, node: Node) -> Any:
        defs = self._onnx.defs
        try:
            schema = defs.get_schema(node.op, node.version or 1, node.domain)
        except defs.SchemaError:
            if not defs.has(node.op, node.domain):
                return None
            # Some tools write operators before the version that brought them.
            schema = defs.get_schema(node.op, node.domain)
        return None if schema.deprecated else schema

    def _give(self, node: Node, parts: Sequence[Output]) -> None:
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
            parts: list[Output] = [
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


def _is_mask(numbers: Array | None) -> bool:
    """Tell whether numbers hide scores from a softmax: zeros, and one that is very small."""
    if numbers is None or numbers.dtype.kind != "f":
        return False
    for part in (numbers.reshape(-1)[:_FEW], numbers):  # most weights show it in the first ones
        lowest = part.min()
        if not ((part == 0) | (part == lowest)).all():
            return False
    return bool(lowest <= _HIDDEN)


def needed(graph: Any) -> set[str]:
    """Return the names of tensors that a graph's outputs need, by shape or by numbers."""
    names = {each.name for each in graph.output}
    for proto in reversed(graph.node):
        if not names.isdisjoint(proto.output):
            # Of the tensor that it is like, a cast knows the type alone.
            names.update(proto.input[:1] if proto.op_type == "CastLike" else reads(proto))
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
