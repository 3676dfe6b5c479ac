"""Operators that are traced once, and of which parts are run by themselves.

A part is a function of its own, of the tensors that its operators read and do not make: so the
gradients run on what the forward pass has made, and nothing is computed twice or folded into
constants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

#: Operators that compute nothing: they hand on, or look at memory in another shape.
_VIEWS = (
    "Const",
    "ExpandDims",
    "Identity",
    "IdentityN",
    "NoOp",
    "Placeholder",
    "PreventGradient",
    "ReadVariableOp",
    "Reshape",
    "Squeeze",
    "StopGradient",
)


def by_name(things: Iterable[Any]) -> dict[str, Any]:
    """Return tensors or operators by name, each once."""
    return {each.name: each for each in things}


def operator_of(thing: Any) -> Any:
    """Return what makes a tensor; an operator itself."""
    return getattr(thing, "op", thing)


def before(targets: Iterable[Any]) -> dict[str, Any]:
    """Return the operators that tensors or operators need, themselves too, by name."""
    found: dict[str, Any] = {}
    left = [operator_of(target) for target in targets]
    while left:
        operator = left.pop()
        if operator.name not in found:
            found[operator.name] = operator
            left += [tensor.op for tensor in operator.inputs]
            left += operator.control_inputs
    return found


def one_by_one(*targets: Iterable[Any]) -> list[dict[str, Any]]:
    """Return the operators that some targets need, then what others need besides, and so on."""
    parts: list[dict[str, Any]] = []
    done = set[str]()
    for wanted in targets:
        needed = before(wanted)
        parts.append({name: needed[name] for name in needed if name not in done})
        done.update(needed)
    return parts


def computes(operators: Mapping[str, Any]) -> bool:
    """Tell whether operators do more than hand on tensors and work out shapes."""
    return any(
        operator.type not in _VIEWS
        and not (
            operator.outputs and all(tensor.dtype.name == "int32" for tensor in operator.outputs)
        )
        for operator in operators.values()
    )


def _is_argument(operator: Any) -> bool:
    return bool(operator.type == "Placeholder")


class Traced:
    """A graph of what a function adds for arguments like these."""

    def __init__(self, tf: Any, function: Callable[..., object], arguments: Sequence[Any]) -> None:
        self._tf = tf
        specs = [tf.TensorSpec(each.shape, each.dtype) for each in arguments]
        # Without the dependencies that a tf.function adds between what changes variables.
        graph = tf.compat.v1.wrap_function(function, specs).graph
        #: The arguments, by the names of the tensors that stand for them.
        self.given = dict(zip(by_name(graph.inputs), arguments, strict=False))
        #: What it has from outside by itself, such as variables: by the name of what stands for it.
        self._captured = {inner.name: outer for outer, inner in graph.captures}
        self._definition = graph.as_graph_def()
        self._nodes = {node.name: node for node in self._definition.node}

    def fed(self, operators: Mapping[str, Any]) -> dict[str, Any]:
        """Return the tensors, by name, that operators need from arguments and other operators.

        What stands for an argument counts as an operator that needs it.
        """
        needed = [
            tensor
            for operator in operators.values()
            for tensor in (operator.outputs if _is_argument(operator) else operator.inputs)
            if tensor.name not in self._captured and tensor.op.type != "Const"
        ]
        return by_name(
            tensor
            for tensor in needed
            if _is_argument(tensor.op) or tensor.op.name not in operators
        )

    def call(self, operators: Mapping[str, Any], fetched: Sequence[Any]) -> Callable[[], list[Any]]:
        """Return what runs operators on what is given, as `part` does."""
        run = self.part(operators, fetched)
        return partial(run, *(self.given[name] for name in self.fed(operators)))

    def part(
        self, operators: Mapping[str, Any], fetched: Sequence[Any]
    ) -> Callable[..., list[Any]]:
        """Return a function of the tensors `fed` that runs operators.

        It gives the tensors that are fetched, which they make. It is called as one operator: that
        takes a tenth of the time that the call of a tf.function does.
        """
        tf = self._tf
        fed = self.fed(operators)
        piece = tf.compat.v1.GraphDef()
        piece.library.CopyFrom(self._definition.library)
        piece.versions.CopyFrom(self._definition.versions)
        constants = {
            tensor.op.name: tensor.op
            for operator in operators.values()
            for tensor in operator.inputs
            if tensor.op.type == "Const"
        }
        own = {
            name: operator
            for name, operator in {**operators, **constants}.items()
            if not _is_argument(operator)
        }
        read = by_name(tensor for operator in own.values() for tensor in operator.inputs)
        captured = {name: self._captured[name] for name in read if name in self._captured}
        for name in own:
            node = piece.node.add()
            node.CopyFrom(self._nodes[name])
            # What others were to do before has been done.
            kept = [each for each in node.input if each[0] != "^" or each[1:] in own]
            del node.input[:]
            node.input.extend(kept)
            node.attr.pop("_class", None)

        def function(*tensors: Any) -> list[Any]:
            outer = {name: tf.identity(each) for name, each in captured.items()}
            given = dict(zip(fed, tensors, strict=True)) | outer
            wanted = [each.name for each in fetched if each.name not in fed]
            taken = {name: each for name, each in given.items() if name in read}
            made = tf.graph_util.import_graph_def(piece, taken, wanted, name="")
            found = iter(made or ())
            return [given[each.name] if each.name in fed else next(found) for each in fetched]

        specs = [tf.TensorSpec(each.shape, each.dtype) for each in fed.values()]
        # A tf.function also runs what is not fetched but changes variables.
        compiled = tf.function(function, autograph=False).get_concrete_function(*specs)
        call, kinds = tf.raw_ops.StatefulPartitionedCall, [each.dtype for each in compiled.outputs]
        outside = list(compiled.captured_inputs)

        def run(*values: Any) -> list[Any]:
            return list(call(args=[*values, *outside], Tout=kinds, f=compiled) or ())

        return run
