"""From the graph that PyTorch exports to the Builder's layers, one node after another."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from paleo.core.errors import Mistakes
from paleo.core.tensor import format_shape
from paleo.net.importers.base import OperatorError
from paleo.net.importers.pytorch import elementwise, experts, recurrent, regions, reshape
from paleo.net.importers.pytorch.names import (
    Names,
    as_returned,
    base_of,
    declared,
    holds_truths,
    is_fresh,
    leaves_of,
    nodes_of,
    operator_of,
    outputs_of,
    placeholders,
    qualified,
    returns_several,
    shape_of,
    subgraph_of,
    tensors_in,
    whole_function,
    with_values,
    written_by,
)
from paleo.net.importers.pytorch.operators import OPERATORS, Call, Empty, Shape, is_value

#: They fill the table of operators.
_TABLE = (reshape, elementwise, recurrent, experts, regions)

#: Operators that compute nothing, so that repetition stays what it is.
_VIEWS = frozenset(
    ("view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "transpose", "t", "permute",
     "movedim", "expand", "expand_as", "repeat", "tile", "select", "slice", "narrow", "cat",
     "contiguous", "clone", "to", "_to_copy", "detach", "swapaxes", "unbind", "split", "chunk",
     "type_as", "alias", "float", "split_with_sizes")
)  # fmt: skip
#: Operators that make layers though they read no input: a table is a layer wherever it is read.
_TABLES = ("embedding", "embedding_bag")
#: What goes wrong in code that meets arguments it was not written for.
_SURPRISES = (
    ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError,
)  # fmt: skip
#: How far an operator is taken apart before it counts as not understood.
_DEPTH = 4


#: What stands for the output of a node that failed; whatever reads it is left out.
_POISON = object()


class ProgramTranslator:
    """Gives each node of an exported graph to the Builder."""

    def __init__(
        self, builder: Any, prefix: str, batch: int | None, mistakes: Mistakes, zero: bool
    ) -> None:
        self.builder = builder
        #: The batch that is traced, if it cannot be mistaken for another size.
        self.batch = batch
        self.mistakes = mistakes
        self.zero = zero
        self.names = Names(prefix)
        #: The operators that are not understood, and the layers where each stands.
        self.unknown: dict[str, list[str]] = {}
        self._values: dict[Any, Any] = {}
        #: The nodes that each value was given to, by its identity.
        self._holders: dict[int, list[Any]] = {}
        #: For each node of a function that is one layer, all of them.
        self._groups: dict[Any, list[Any]] = {}
        self._pointwise = importlib.import_module("torch").Tag.pointwise
        self._depth = 0
        #: An input, if there is one.
        self._sample: Any = None
        #: The modules that compute with integers of 8 bits, by their names.
        self.quantized: frozenset[str] = frozenset()

    def run(self, graph: Any, inputs: Sequence[Any]) -> list[Any]:
        """Return the values of a graph's outputs, given those of its placeholders."""
        inputs = list(inputs)
        self._sample = next((x for x in inputs if self._is_batched(x)), None)
        return self._named_and_run(graph, dict(zip(placeholders(graph), inputs, strict=True)), "")

    def _named_and_run(self, graph: Any, given: Mapping[Any, Any], outer: str) -> list[Any]:
        self._name(graph, {node for node, value in given.items() if self._is_batched(value)}, outer)
        return self._run(graph, given)

    # ---- Names ---------------------------------------------------------------------------------

    def _find_groups(self, graph: Any) -> None:
        """Note the nodes of each function that is one layer, if only its end is read."""
        groups: dict[str, list[Any]] = {}
        for node in graph.nodes:
            call = whole_function(node) if node.op == "call_function" else None
            if call is not None and operator_of(node)[0] != "getitem":
                groups.setdefault(call, []).append(node)
        for group in groups.values():
            inside = set(group)
            if {user for member in group[:-1] for user in member.users} <= inside:
                self._groups.update(dict.fromkeys(group, group))

    def _name(self, graph: Any, varying: set[Any], outer: str) -> None:
        """Name the nodes of a graph, of whose inputs these depend on an input of the net."""
        self._find_groups(graph)
        trained: set[Any] = {
            node
            for node in placeholders(graph)
            if getattr(node.meta.get("val"), "requires_grad", False)
        }
        for node in graph.nodes:
            if node.op != "call_function":
                continue
            operator, _ = operator_of(node)
            depends = any(each in varying for each in nodes_of(node))
            depends = (depends and not is_fresh(operator)) or operator in _TABLES
            depends = depends or self._is_for_each_sample(node, operator, trained)
            stack = node.meta.get("nn_module_stack")
            path = self.names.path(stack) if stack else outer
            inner = subgraph_of(node)
            if inner is not None:
                subgraph, given = inner
                self._name(subgraph, {h for h, each in given.items() if each in varying}, path)
            else:
                plain, group = operator.rstrip("_"), self._groups.get(node)
                is_layer = plain != "getitem" and plain not in elementwise.NOTHING
                if depends and group:
                    is_layer = node is group[-1]
                    operator = (whole_function(node) or "").rpartition("_")[0]
                self.names.add(node, path, operator, depends and is_layer)
            if depends or inner is not None:
                varying.add(node)
                varying.update(written_by(node))

    def _is_for_each_sample(self, node: Any, operator: str, trained: set[Any]) -> bool:
        """Say whether a node computes something of parameters that repeat for each sample."""
        if not any(each in trained for each in nodes_of(node)):
            return False
        trained.add(node)
        shape = getattr(node.meta.get("val"), "shape", ())
        return self.batch in shape and operator.rstrip("_") not in _VIEWS

    # ---- Values --------------------------------------------------------------------------------

    def _run(self, graph: Any, given: Mapping[Any, Any]) -> list[Any]:
        for node, value in given.items():
            self._set(node, value)
        for node in graph.nodes:
            if node.op == "output":
                return [self._values.get(each) for each in tensors_in(node.args)]
            if node.op == "call_function":
                self._set(node, self._checked(node))
            elif node.op == "get_attr":
                held = getattr(graph.owning_module, node.target, None)
                self._set(node, self.constant(shape_of(held)))
        return []

    def _set(self, node: Any, value: Any) -> None:
        self._values[node] = value
        self._holders.setdefault(id(value), []).append(node)

    def _checked(self, node: Any) -> Any:
        """Return the value of a node, of the shape that PyTorch says it has."""
        read = [self._values.get(each) for each in nodes_of(node)]
        if any(value is _POISON for value in read):
            return _POISON
        try:
            value = self._node(node)
            self._check_shapes(node, value)
        except OperatorError as fault:
            return self._failed(node, str(fault))
        except _SURPRISES as error:
            what = str(error).partition("\n")[0]
            return self._failed(node, f"these arguments are not understood ({what})")
        return value

    def _failed(self, node: Any, why: str) -> Any:
        """Return what stands for a node that does not fit."""
        if self.zero and subgraph_of(node) is None:
            try:
                return self._unknown(node)
            except OperatorError as fault:  # not even its size is known
                why = str(fault)
        self.mistakes.add(f"{qualified(node)}: {why}", layer=self.names.of(node))
        return _POISON

    def _check_shapes(self, node: Any, value: Any) -> None:
        values = value if isinstance(value, tuple) else (value,)
        for each, tensor in zip(values, outputs_of(node), strict=False):
            expected = getattr(tensor, "shape", None)
            if not is_value(each) or expected is None or not len(expected):
                continue  # a loss has a number for each sample here, and one in PyTorch
            if tuple(each.shape) != tuple(expected):
                raise OperatorError(
                    f"made {format_shape(tuple(each.shape))} where PyTorch has "
                    f"{format_shape(tuple(map(int, expected)))}"
                )

    def constant(self, shape: Shape | None) -> Any:
        """Return a constant; one with an axis of the batch's size repeats along it."""
        if shape is None:
            return None
        if 0 in shape:
            return Empty(shape)
        if self.batch not in shape:
            return self.builder.constant(shape)
        at = shape.index(self.batch)
        value = self.builder.constant((*shape[:at], *shape[at + 1 :]))
        return value.with_axes((*value.axes[:at], (), *value.axes[at:]), shape)

    def _node(self, node: Any) -> Any:
        operator, overload = operator_of(node)
        if operator == "getitem":
            source, index = self._values.get(node.args[0]), node.args[1]
            return source[index] if isinstance(source, list | tuple) else source
        inner = subgraph_of(node)
        if inner is not None:
            subgraph, given = inner
            return tuple(self._run(subgraph, with_values(given, self._values)))
        group = self._groups.get(node)
        if group:
            outside = {each for member in group for each in nodes_of(member)} - set(group)
            inputs = [self._values.get(each) for each in outside]
            if len(inputs) == 1 and self._is_batched(inputs[0]):
                return self._whole(node, group, inputs[0])
        read = [self._values.get(each) for each in nodes_of(node)]
        tensors: list[Any] = [each for each in leaves_of(read) if is_value(each)]
        outputs = outputs_of(node)
        if is_fresh(operator) or all(each.is_constant for each in tensors):
            value = as_returned(node, [self.constant(shape_of(each)) for each in outputs])
        elif all(0 in (shape_of(each) or ()) for each in outputs):
            value = as_returned(node, [Empty(each.shape) for each in outputs])
        elif not any(hasattr(each, "shape") for each in outputs):
            return None  # an assertion, or a number that nothing here depends on
        else:
            is_quantized = self.quantized and self.names.is_within(node, self.quantized)
            self.builder.dtype = "int8" if is_quantized else ""
            value = self._operator(node, operator, overload)
        if operator.endswith("_") and not operator.endswith("__"):
            self._write(node.args[0], value)
        return value

    def _operator(self, node: Any, operator: str, overload: str) -> Any:
        name = operator if operator.endswith("__") else operator.rstrip("_")
        is_aten = getattr(node.target, "namespace", "") in ("aten", "prims", "prim")
        handler = OPERATORS.get(name if is_aten else qualified(node))
        if handler is None and self._pointwise in getattr(node.target, "tags", ()):
            handler = elementwise.pointwise
        if handler is not None:
            call = self._call(node, name, overload)
            return handler(call if name in _VIEWS else self._for_each_sample(call))
        taken_apart = self._take_apart(node) if is_aten else None
        return self._unknown(node) if taken_apart is None else taken_apart[0]

    def _for_each_sample(self, call: Call) -> Call:
        """Return a call whose parameters and constants that repeat for each sample do so from here.

        Queries that are learnt are given to every sample before anything else is known of it, and
        so are positions: what is then computed is computed for each. A number of each sample
        carries the batch.
        """
        if self._sample is None or any(map(self._is_batched, leaves_of(call.arguments))):
            return call
        arguments = dict(call.arguments)
        for key, value in arguments.items():
            if not is_value(value) or self.batch not in value.shape:
                continue
            if value.is_constant and call.operator in _TABLES:
                continue  # the table is read once for all
            at = value.shape.index(self.batch)
            if value.axes[at] == ():
                ones = [1] * len(value.shape)
                ones[at] = value.shape[at]
                sample = self.builder.reshape(call.part("sample"), self._one_number(), ones)
                name = call.part(f"{key}_repeat")
                arguments[key] = self.builder.elementwise(name, "sum", [value, sample])
        return replace(call, arguments=arguments)

    def _one_number(self) -> Any:
        """Return one number of each sample of an input, which is a view of it."""
        x = self._sample
        for axis in range(len(x.shape)):
            if axis != x.batch_axis and x.shape[axis] > 1:
                x = self.builder.slice("sample", x, axis, 0, 1)
        return x

    def _call(self, node: Any, name: str, overload: str) -> Call:
        known = declared(node.target)
        given = {**known, **dict(zip(known, node.args, strict=False)), **node.kwargs}
        truths = [key for key, argument in given.items() if holds_truths(argument)]
        for key, argument in given.items():
            if isinstance(argument, list | tuple):
                truths += [f"{key}/{i}" for i, each in enumerate(argument) if holds_truths(each)]
        return Call(
            self.builder,
            self.names.of(node),
            name,
            overload,
            with_values(given, self._values),
            shapes=tuple(map(shape_of, outputs_of(node))),
            used=frozenset(user.args[1] for user in node.users if user.users and user.args[1:]),
            truths=frozenset(truths),
            modules=node.meta.get("nn_module_stack") or {},
        )

    @staticmethod
    def _is_batched(value: Any) -> bool:
        return is_value(value) and value.batched

    def _whole(self, node: Any, group: list[Any], x: Any) -> Any:
        """Return the layer of a function of several nodes on `x`, when the last of them comes."""
        if node is not group[-1]:
            return None
        function = (whole_function(node) or "").rpartition("_")[0]
        name = self.names.of(node)
        if function == "softsign":
            return self.builder.activation(name, "softsign", x)
        by_operator = {operator_of(member)[0]: member for member in group}
        if function == "local_response_norm":
            pool = by_operator.get("avg_pool3d") or by_operator["avg_pool2d"]
            return self.builder.lrn(name, x, pool.args[1][0])
        norm = by_operator.get("linalg_vector_norm") or by_operator.get("norm")
        axes = norm.args[2] if norm is not None and len(norm.args) > 2 else [1]
        return self.builder.normalize(name, x, axes[0])

    # ---- What PyTorch does in place -------------------------------------------------------------

    def _write(self, node: Any, value: Any) -> None:
        """Let a node stand for another value from here on, and what it is a view of as well."""
        before = self._values.get(node)
        if before is not None:
            for each in self._holders.pop(id(before), []):
                if self._values[each] is before:
                    self._set(each, value)
        self._set(node, value)
        base = base_of(node)
        if not hasattr(base, "meta"):
            return
        if self._values.get(base) is value:
            return  # a view that is the tensor itself was updated with it
        self._write(base, self._written(node, base, value))

    def _written(self, view: Any, base: Any, value: Any) -> Any:
        """Return what a tensor is once `value` was written to a view of it."""
        held = self._values.get(base)
        if not is_value(value) or not is_value(held) or value.is_constant:
            return held  # as many elements as before, of which some are other constants
        operator, overload = operator_of(view)
        shape = shape_of(base.meta["val"])
        assert shape is not None
        names = {"slice": "slice_scatter", "select": "select_scatter"}
        name = f"{self.names.of(view)}/write"
        if operator in names:
            call = self._call(view, names[operator], overload)
            arguments = {**call.arguments, "self": held, "src": value}
            call = replace(call, name=name, arguments=arguments, shapes=(shape,))
            return OPERATORS[call.operator](call)
        if operator in ("view", "reshape", "squeeze", "unsqueeze", "flatten", "unflatten"):
            return self.builder.reshape(name, value, shape)
        if operator in ("transpose", "permute", "t"):
            order = reshape.order_of(self._call(view, operator, overload), len(shape))
            back = [order.index(axis) for axis in range(len(shape))]
            return self.builder.transpose(name, value, back)
        raise OperatorError(f"writes to a view that {operator} made")

    # ---- Operators that have no entry -----------------------------------------------------------

    def _take_apart(self, node: Any) -> tuple[Any] | None:
        """Return the value of an operator by those that PyTorch makes it of; None if it cannot."""
        torch = importlib.import_module("torch")
        target = node.target
        function = importlib.import_module("torch._decomp").decomposition_table.get(target)
        if getattr(target, "_can_decompose", lambda: False)():
            function = target.decompose
        if function is None or self._depth >= _DEPTH:
            return None
        nodes = nodes_of(node)

        def run(*tensors: Any) -> Any:
            given = dict(zip(nodes, tensors, strict=True))
            return function(*with_values(node.args, given), **with_values(node.kwargs, given))

        make_fx = importlib.import_module("torch.fx.experimental.proxy_tensor").make_fx
        try:
            with torch.enable_grad():
                inner = make_fx(run)(*[each.meta["val"] for each in nodes])
        except Exception:  # noqa: BLE001  # whatever is wrong, the operator is not understood
            return None
        if any(each.target is target for each in inner.graph.nodes):
            return None
        given = dict(zip(placeholders(inner.graph), map(self._values.get, nodes), strict=True))
        self._depth += 1
        try:
            outputs = self._named_and_run(inner.graph, given, self.names.of(node))
        finally:
            self._depth -= 1
        return (_POISON if _POISON in outputs else as_returned(node, outputs),)

    def _unknown(self, node: Any) -> Any:
        """Return what stands for an operator that is not understood."""
        operator, name = qualified(node), self.names.of(node)
        if not self.zero:
            self.unknown.setdefault(operator, []).append(name)
            return _POISON
        inputs = leaves_of([self._values.get(each) for each in nodes_of(node)])
        inputs = [each for each in inputs if is_value(each) and not each.is_constant]
        values = []
        for i, shape in enumerate(map(shape_of, outputs_of(node)), start=1):
            part = f"{name}_{i}" if returns_several(node) else name
            known = shape is not None
            values.append(self.builder.unknown(part, operator, inputs, shape) if known else None)
        return as_returned(node, values)
