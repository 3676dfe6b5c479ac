"""From the graph that PyTorch exports to the Builder's layers, one node after another."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from paleo.errors import Mistakes
from paleo.importers.base import OperatorError
from paleo.importers.pytorch import moves, pointwise, recurrent
from paleo.importers.pytorch.aten import OPERATORS, Call, Shape, is_value
from paleo.importers.pytorch.names import (
    Names,
    is_fresh,
    nodes_of,
    operator_of,
    qualified,
    shape_of,
    subgraph_of,
    tensors_in,
    whole_function,
)
from paleo.tensor import format_shape

__all__ = ["Walk"]

#: They fill the table of operators.
_TABLE = (moves, pointwise, recurrent)

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


@dataclass(frozen=True)
class _Empty:
    """A tensor without elements, such as a list begins with that is then filled."""

    shape: Shape
    is_constant: bool = True
    batched: bool = False


class _Poison:
    """What stands for the output of a node that failed; whatever reads it is left out."""


_POISON = _Poison()


@dataclass
class Unknown:
    """An operator that is not understood, and the layers where it stands."""

    operator: str
    names: list[str] = field(default_factory=list)


class Walk:
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
        #: What was computed from parameters alone, and read by a layer as its own parameters.
        self.computed: list[Any] = []
        self.unknown: dict[str, Unknown] = {}
        self._values: dict[Any, Any] = {}
        #: For each node of a function that is one layer, all of them.
        self._groups: dict[Any, list[Any]] = {}
        self._pointwise = importlib.import_module("torch").Tag.pointwise
        self._depth = 0
        #: An input, if there is one.
        self._sample: Any = None

    def run(self, graph: Any, inputs: Sequence[Any]) -> list[Any]:
        """Return the values of a graph's outputs, given those of its placeholders."""
        inputs = list(inputs)
        self._sample = next((x for x in inputs if self._is_batched(x)), None)
        placeholders = [node for node in graph.nodes if node.op == "placeholder"]
        given = dict(zip(placeholders, inputs, strict=True))
        varying = {node for node, value in given.items() if is_value(value) and value.batched}
        self._name(graph, varying, "")
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
            read = {user for member in group[:-1] for user in member.users}
            if read <= inside:
                self._groups.update(dict.fromkeys(group, group))

    def _name(self, graph: Any, varying: set[Any], outer: str) -> list[bool]:
        """Name the nodes of a graph; return which outputs depend on an input."""
        self._find_groups(graph)
        outputs: list[bool] = []
        varying = set(varying)
        trained: set[Any] = {
            node
            for node in graph.nodes
            if node.op == "placeholder" and getattr(node.meta.get("val"), "requires_grad", False)
        }
        for node in graph.nodes:
            if node.op == "output":
                outputs = [each in varying for each in tensors_in(node.args)]
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
                module, arguments = inner
                holders = [each for each in module.graph.nodes if each.op == "placeholder"]
                pairs = zip(holders, arguments, strict=False)
                self._name(module.graph, {h for h, each in pairs if each in varying}, path)
            elif depends:
                group = self._groups.get(node)
                plain = operator.rstrip("_")
                is_layer = plain != "getitem" and plain not in pointwise.NOTHING
                if group:
                    is_layer = node is group[-1]
                    operator = (whole_function(node) or "").rpartition("_")[0]
                self.names.add(node, path, operator, is_layer)
            else:
                self.names.add(node, path, operator, False)
            if depends or inner is not None:
                varying.add(node)
        return outputs

    def _is_for_each_sample(self, node: Any, operator: str, trained: set[Any]) -> bool:
        """Say whether a node computes something of parameters that repeat for each sample."""
        if not any(each in trained for each in nodes_of(node)):
            return False
        trained.add(node)
        shape = getattr(node.meta.get("val"), "shape", ())
        return self.batch in shape and operator.rstrip("_") not in _VIEWS

    # ---- Values --------------------------------------------------------------------------------

    def _run(self, graph: Any, given: Mapping[Any, Any]) -> list[Any]:
        self._values.update(given)
        for node in graph.nodes:
            if node.op == "output":
                return [self._value(each) for each in tensors_in(node.args)]
            if node.op == "call_function":
                self._values[node] = self._checked(node)
            elif node.op == "get_attr":
                held = getattr(graph.owning_module, node.target, None)
                shape = getattr(held, "shape", None)
                self._values[node] = self.constant(None if shape is None else tuple(shape))
        return []

    def _value(self, thing: Any) -> Any:
        """Return arguments with values in the place of nodes."""
        if isinstance(thing, list | tuple):
            return [self._value(each) for each in thing]
        if hasattr(thing, "op") and hasattr(thing, "meta"):
            return self._values.get(thing)
        return thing

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
            return self._unknown(node)
        self.mistakes.add(f"{qualified(node)}: {why}", layer=self.names.of(node))
        return _POISON

    def _check_shapes(self, node: Any, value: Any) -> None:
        outputs = node.meta.get("val")
        values = value if isinstance(value, tuple) else (value,)
        tensors = outputs if isinstance(outputs, list | tuple) else (outputs,)
        for each, tensor in zip(values, tensors, strict=False):
            expected = getattr(tensor, "shape", None)
            if not is_value(each) or expected is None or not len(expected):
                continue  # a loss has a number for each sample here, and one in PyTorch
            if tuple(each.shape) != tuple(expected):
                raise OperatorError(
                    f"made {format_shape(tuple(each.shape))} where PyTorch has "
                    f"{format_shape(tuple(map(int, expected)))}"
                )

    def _constants(self, node: Any) -> Any:
        """Return constants of the shapes that a node returns."""
        val = node.meta.get("val")
        if isinstance(val, list | tuple):
            return tuple(self.constant(shape_of(each)) for each in val)
        return self.constant(shape_of(val))

    def constant(self, shape: Shape | None) -> Any:
        """Return a constant; one with an axis of the batch's size repeats along it."""
        if shape is None:
            return None
        if 0 in shape:
            return _Empty(shape)
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
            module, arguments = inner
            holders = [each for each in module.graph.nodes if each.op == "placeholder"]
            values = [self._value(each) for each in arguments]
            return tuple(self._run(module.graph, dict(zip(holders, values, strict=False))))
        group = self._groups.get(node)
        if group and self._reads_inputs(group):
            return self._whole(node, group)
        read = [self._values.get(each) for each in nodes_of(node)]
        tensors: list[Any] = [each for each in _flat(read) if is_value(each)]
        fresh = is_fresh(operator)
        if fresh or all(each.is_constant for each in tensors):
            value = self._constants(node)
        elif not self._returns_tensors(node):
            return None  # an assertion, or a number that nothing here depends on
        else:
            value = self._operator(node, operator, overload)
            if any(each.batched for each in tensors):
                own = [each for each in tensors if not (each.batched or each.is_constant)]
                self.computed += [each for each in own if each.layer is not None]
        if operator.endswith("_") and not operator.endswith("__"):
            self._write(node.args[0], value)
        return value

    def _returns_tensors(self, node: Any) -> bool:
        val = node.meta.get("val")
        values = val if isinstance(val, list | tuple) else (val,)
        return any(getattr(each, "shape", None) is not None for each in values)

    def _operator(self, node: Any, operator: str, overload: str) -> Any:
        name = operator if operator.endswith("__") else operator.rstrip("_")
        is_aten = getattr(node.target, "namespace", "") in ("aten", "prims", "prim")
        handler = OPERATORS.get(name) if is_aten else None
        if handler is None and self._pointwise in getattr(node.target, "tags", ()):
            handler = pointwise.pointwise
        if handler is not None:
            call = self._call(node, name, overload)
            return handler(call if name in _VIEWS else self._for_each_sample(call))
        taken_apart = self._take_apart(node) if is_aten else None
        return self._unknown(node) if taken_apart is None else taken_apart[0]

    def _for_each_sample(self, call: Call) -> Call:
        """Return a call whose parameters that repeat for each sample do so from here on.

        Queries that are learnt are given to every sample before anything else is known of it:
        what is then computed is computed for each. A number of each sample carries the batch.
        """
        values = list(_flat(call.arguments.values()))
        tensors = [value for value in values if is_value(value)]
        if self._sample is None or any(value.batched for value in tensors):
            return call
        arguments = dict(call.arguments)
        for key, value in arguments.items():
            if not is_value(value) or value.is_constant or self.batch not in value.shape:
                continue
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
        arguments: dict[str, Any] = {}
        truths = set()
        for i, declared in enumerate(node.target._schema.arguments):
            if i < len(node.args):
                given = node.args[i]
            else:
                given = node.kwargs.get(declared.name, declared.default_value)
            arguments[declared.name] = self._value(given)
            dtype = getattr(getattr(given, "meta", {}).get("val"), "dtype", None)
            if str(dtype) == "torch.bool":
                truths.add(declared.name)
        val = node.meta["val"]
        several = isinstance(val, list | tuple)
        shapes = tuple(map(shape_of, val)) if several else (shape_of(val),)
        used = {user.args[1] for user in node.users if user.users and len(user.args) > 1}
        if not several:
            used = {0}
        layer = self.names.of(node)
        used_numbers = frozenset(i for i in used if isinstance(i, int))
        return Call(
            self.builder, layer, name, overload, arguments, shapes, used_numbers, frozenset(truths)
        )

    def _reads_inputs(self, group: list[Any]) -> bool:
        """Say whether a group reads one tensor that is computed from an input."""
        read = {each for member in group for each in nodes_of(member)} - set(group)
        return all(self._is_batched(self._values.get(each)) for each in read) and len(read) == 1

    @staticmethod
    def _is_batched(value: Any) -> bool:
        return is_value(value) and value.batched

    def _whole(self, node: Any, group: list[Any]) -> Any:
        """Return the layer of a function of several nodes, when the last of them comes."""
        if node is not group[-1]:
            return None
        inside = set(group)
        outside = [each for member in group for each in nodes_of(member) if each not in inside]
        x = self._values[outside[0]]
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
        for each, held in self._values.items():
            if held is before and before is not None:
                self._values[each] = value
        self._values[node] = value
        target = getattr(node, "target", None)
        schema = getattr(target, "_schema", None)
        if node.op != "call_function" or schema is None or not schema.arguments:
            return
        alias = schema.arguments[0].alias_info
        base = node.args[0] if node.args else None
        if alias is None or alias.is_write or not hasattr(base, "meta"):
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
            call = self._call(view, operator, overload)
            arguments = {**call.arguments, "self": held, "src": value}
            call = Call(
                self.builder, name, names[operator], overload, arguments, (shape,), call.used
            )
            return OPERATORS[names[operator]](call)
        if operator in ("view", "reshape", "squeeze", "unsqueeze", "flatten", "unflatten"):
            return self.builder.reshape(name, value, shape)
        if operator in ("transpose", "permute", "t"):
            call = self._call(view, operator, overload)
            rank = len(shape)
            order = [int(axis) for axis in call.get("dims", range(rank))]
            if operator != "permute":
                i, j = (call["dim0"], call["dim1"]) if operator == "transpose" else (0, 1)
                order[i], order[j] = order[j], order[i]
            back = [order.index(axis) for axis in range(rank)]
            return self.builder.transpose(name, value, back)
        raise OperatorError(f"writes to a view that {operator} made")

    # ---- Operators that have no entry -----------------------------------------------------------

    def _take_apart(self, node: Any) -> tuple[Any] | None:
        """Return the value of an operator by those that PyTorch makes it of; None if it cannot."""
        torch = importlib.import_module("torch")
        target = node.target
        tables = importlib.import_module("torch._decomp").decomposition_table
        function = tables.get(target)
        if getattr(target, "_can_decompose", lambda: False)():
            function = target.decompose
        if function is None or self._depth >= _DEPTH:
            return None
        nodes = nodes_of(node)

        def run(*tensors: Any) -> Any:
            given = dict(zip(nodes, tensors, strict=True))

            def fill(thing: Any) -> Any:
                if isinstance(thing, list | tuple):
                    return [fill(each) for each in thing]
                return given[thing] if thing in nodes else thing

            kwargs = {key: fill(value) for key, value in node.kwargs.items()}
            return function(*[fill(each) for each in node.args], **kwargs)

        make_fx = importlib.import_module("torch.fx.experimental.proxy_tensor").make_fx
        try:
            with torch.enable_grad():
                inner = make_fx(run)(*[each.meta["val"] for each in nodes])
        except Exception:  # noqa: BLE001  # whatever is wrong, the operator is not understood
            return None
        if any(each.target is target for each in inner.graph.nodes):
            return None
        holders = [each for each in inner.graph.nodes if each.op == "placeholder"]
        given = {h: self._values.get(each) for h, each in zip(holders, nodes, strict=True)}
        varying = {h for h, value in given.items() if is_value(value) and value.batched}
        self._depth += 1
        try:
            self._name(inner.graph, varying, self.names.of(node))
            outputs = self._run(inner.graph, given)
        finally:
            self._depth -= 1
        if any(each is _POISON for each in outputs):
            return (_POISON,)
        several = isinstance(node.meta["val"], list | tuple)
        return (tuple(outputs) if several else outputs[0],)

    def _unknown(self, node: Any) -> Any:
        """Return what stands for an operator that is not understood."""
        operator, name = qualified(node), self.names.of(node)
        if not self.zero:
            self.unknown.setdefault(operator, Unknown(operator)).names.append(name)
            return _POISON
        val = node.meta.get("val")
        several = isinstance(val, list | tuple)
        inputs = [self._values.get(each) for each in nodes_of(node)]
        inputs = [each for each in _flat(inputs) if is_value(each) and not each.is_constant]
        found = []
        for i, tensor in enumerate(val if several else [val]):
            shape = shape_of(tensor)
            each = f"{name}_{i + 1}" if several else name
            known = shape is not None
            found.append(self.builder.unknown(each, operator, inputs, shape) if known else None)
        return tuple(found) if several else found[0]


def _flat(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _flat(value)
        else:
            yield value
