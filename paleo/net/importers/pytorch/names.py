"""The nodes of a graph that PyTorch exports, and what the layers made of them are called."""

from __future__ import annotations

import functools
import importlib
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from typing import Any

from paleo.net.importers.base import OperatorError

_fx: Any = importlib.import_module("torch.fx")

Shape = tuple[int, ...]

#: Functions of `torch.nn.functional` that PyTorch takes apart where Paleo has one layer.
_WHOLE = ("local_response_norm", "normalize", "softsign")
#: In place, these leave nothing of what was there.
_FRESH = frozenset(
    ("bernoulli_", "uniform_", "normal_", "zero_", "random_", "exponential_", "geometric_",
     "cauchy_", "log_normal_", "fill_diagonal_")
)  # fmt: skip
#: Higher-order operators that run a graph as it is.
_PLAIN = frozenset(
    ("wrap_with_set_grad_enabled", "wrap_with_autocast", "invoke_subgraph", "wrap", "strict_mode",
     "tag_activation_checkpoint", "wrap_activation_checkpoint", "hints_wrapper")
)  # fmt: skip
#: Of their second input these take the shape alone.
_SHAPED = frozenset(("expand_as", "view_as", "reshape_as", "type_as", "resize_as_"))


def operator_of(node: Any) -> tuple[str, str]:
    """Return an operator's name and overload: ("add_", "Tensor")."""
    return _named(node.target)


@functools.lru_cache(maxsize=1024)  # a net has many nodes of few operators
def _named(target: Any) -> tuple[str, str]:
    schema = getattr(target, "_schema", None)
    if schema is None:
        return getattr(target, "__name__", str(target)), ""
    return schema.name.split("::")[1], schema.overload_name or "default"


@functools.lru_cache(maxsize=1024)
def declared(target: Any) -> Mapping[str, Any]:
    """Return the arguments of an operator by name, with their defaults; not to be changed."""
    return {each.name: each.default_value for each in target._schema.arguments}


def qualified(node: Any) -> str:
    """Return an operator's name for a reader: aten.add, or mylib.op."""
    schema = getattr(node.target, "_schema", None)
    return schema.name.replace("::", ".") if schema else operator_of(node)[0]


def leaves_of(arguments: Any) -> list[Any]:
    """Return what is in arguments, at any depth of lists and dictionaries."""
    if isinstance(arguments, dict):
        arguments = list(arguments.values())
    elif not isinstance(arguments, list | tuple):
        return [arguments]
    return [leaf for each in arguments for leaf in leaves_of(each)]


def tensors_in(arguments: Any) -> list[Any]:
    """Return the nodes among arguments, at any depth of lists."""
    return [leaf for leaf in leaves_of(arguments) if isinstance(leaf, _fx.Node)]


def nodes_of(node: Any) -> list[Any]:
    """Return the nodes that a node reads."""
    if operator_of(node)[0] in _SHAPED:
        return tensors_in(node.args[:1])
    nodes: list[Any] = node.all_input_nodes
    return nodes


def with_values(arguments: Any, values: Mapping[Any, Any]) -> Any:
    """Return arguments with values in the place of nodes; None where a node has none."""
    return _fx.map_arg(arguments, values.get)


def returns_several(node: Any) -> bool:
    """Say whether a node returned several things."""
    return isinstance(node.meta.get("val"), list | tuple)


def outputs_of(node: Any) -> list[Any]:
    """Return the tensors that a node returned, and what else."""
    val = node.meta.get("val")
    return list(val) if returns_several(node) else [val]


def as_returned(node: Any, values: Sequence[Any]) -> Any:
    """Return values of the outputs of a node: a tuple, if it returned several."""
    return tuple(values) if returns_several(node) else values[0]


def placeholders(graph: Any) -> list[Any]:
    """Return the nodes that stand for the inputs of a graph."""
    return [node for node in graph.nodes if node.op == "placeholder"]


def shape_of(tensor: Any) -> Shape | None:
    """Return the shape of what a node returned; None if that is no tensor."""
    shape = getattr(tensor, "shape", None)
    if shape is None:
        return None
    if not all(type(size) is int for size in shape):
        raise OperatorError("the size of its output depends on the data")
    return tuple(shape)


def holds_truths(argument: Any) -> bool:
    """Say whether an argument is a node that returns truth values."""
    return str(getattr(getattr(argument, "meta", {}).get("val"), "dtype", "")) == "torch.bool"


def is_fresh(name: str) -> bool:
    """Say whether an operator takes no more than the shape of its input."""
    return name.startswith("new_") or name.endswith("_like") or name in _FRESH


def subgraph_of(node: Any) -> tuple[Any, dict[Any, Any]] | None:
    """Return the graph that a higher-order operator runs as it is, and what its inputs are."""
    if operator_of(node)[0] not in _PLAIN:
        return None
    for i, argument in enumerate(node.args):
        if getattr(argument, "op", None) == "get_attr":
            rest = [each for each in node.args[i + 1 :] if not isinstance(each, str)]
            if len(rest) == 1 and isinstance(rest[0], tuple | list):
                rest = list(rest[0])
            graph = getattr(node.graph.owning_module, argument.target).graph
            return graph, dict(zip(placeholders(graph), rest, strict=False))
    return None


def written_by(node: Any) -> list[Any]:
    """Return the tensor that a node writes to in place, and those of which that is a view."""
    name, _ = operator_of(node)
    if not name.endswith("_") or name.endswith("__") or not node.args:
        return []
    written = [node.args[0]]
    while (base := base_of(written[-1])) is not None:
        written.append(base)
    return written


def base_of(node: Any) -> Any:
    """Return what a node is a view of, None if it is none."""
    schema = getattr(getattr(node, "target", None), "_schema", None)
    if getattr(node, "op", "") != "call_function" or schema is None or not schema.arguments:
        return None
    alias = schema.arguments[0].alias_info
    return node.args[0] if node.args and alias is not None and not alias.is_write else None


def whole_function(node: Any) -> str | None:
    """Return which call of one of `_WHOLE` a node is part of: "normalize_2"."""
    call, function = node.meta.get("torch_fn") or ("", "")
    return call if function.partition(".")[2] in _WHOLE else None


class Names:
    """The names of layers, from the modules whose `forward` each node was seen in.

    A module of one operator is a layer of the module's name; any other is a block. What is
    called again gets a number.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        #: For each block and module in it, the calls that were seen.
        self._calls: dict[tuple[str, str], list[str]] = {}
        #: The block and the operator of each node, and which of those it is, if it is a layer.
        self._nodes: dict[Any, tuple[str, str, int | None]] = {}
        self._counts: Counter[str] = Counter()
        self._blocks: set[str] = set()
        self._same: Counter[tuple[str, str]] = Counter()

    def path(self, stack: Mapping[str, tuple[str, Any]]) -> str:
        """Return the block of what was seen with this stack of modules."""
        block = last = ""
        for call, (path, _) in stack.items():
            if path == self._prefix or not path.startswith(f"{self._prefix}."):
                continue
            path = path[len(self._prefix) + 1 :]
            relative = path[len(last) + 1 :] if last and path.startswith(f"{last}.") else path
            calls = self._calls.setdefault((block, relative), [])
            if call not in calls:
                calls.append(call)
            number = calls.index(call)
            name = relative.replace(".", "/") + (f"_{number + 1}" if number else "")
            block = f"{block}/{name}" if block else name
            last = path
        return block

    def is_within(self, node: Any, modules: Container[str]) -> bool:
        """Tell whether a node was seen in the `forward` of one of these modules."""
        stack = node.meta.get("nn_module_stack") or {}
        return any(path.removeprefix(f"{self._prefix}.") in modules for path, _ in stack.values())

    def add(self, node: Any, path: str, operator: str, is_layer: bool) -> None:
        """Note a node in a block."""
        operator = operator.strip("_") or "op"
        if not is_layer:
            self._nodes[node] = path, operator, None
            return
        self._counts[path] += 1
        self._same[path, operator] += 1
        self._nodes[node] = path, operator, self._same[path, operator]
        while "/" in path:
            path = path.rpartition("/")[0]
            self._blocks.add(path)

    def of(self, node: Any) -> str:
        """Return the name of the layer that a node is."""
        path, operator, number = self._nodes.get(node, ("", "op", None))
        if number and path and self._counts[path] == 1 and path not in self._blocks:
            return path
        if number and self._same[path, operator] > 1:
            operator = f"{operator}_{number}"
        return f"{path}/{operator}" if path else operator
