"""A graph as functions of PyTorch tensors: what each layer runs, and how its tensors lie in memory.

Nothing is computed here: layers run on tensors without data, which have shapes and strides.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from paleo.core.errors import ExecutorError, Mistake
from paleo.core.frozen import dataclass
from paleo.core.tensor import format_shape
from paleo.measure.executors.torch import layers, reshape
from paleo.measure.executors.torch.builders import (
    BUILDERS,
    BuildContext,
    CannotBuildError,
    Held,
    Order,
    Run,
    Value,
    inverse,
    plain,
    torch,
)
from paleo.measure.executors.torch.elementwise import IN_PLACE
from paleo.net.graph import Graph, Node
from paleo.net.layers.pointwise import Activation, Elementwise

del layers, reshape  # they have filled the table


@dataclass(frozen=True)
class Stage:
    """One of the operations that a layer consists of, such as a convolution or its activation."""

    run: Run
    held: tuple[Held, ...]
    #: What is done with what it holds when that has been made.
    finish: Callable[[list[Any]], None] | None
    #: Whether all its gradients are made at once.
    joins: bool
    value: Value


@dataclass(frozen=True)
class Planned:
    """A node: the stages that run one after the other (none of a source), what comes out."""

    node: Node
    stages: tuple[Stage, ...]
    value: Value


def plan(graph: Graph, dtype: Any) -> list[Planned | ExecutorError]:
    """Return for each node what it runs, or why PyTorch cannot build it.

    `dtype` is the type of parameters, in which the meta tensors are.
    """
    contents, orders = _contents(graph), _orders(graph)
    found: list[Planned | ExecutorError] = []
    for node in graph.nodes:
        if node.layer.is_source():  # its tensor is there from the start
            value = _source(node, contents[node.index], orders[node.index], dtype)
            found.append(Planned(node, (), value))
            continue
        values = [value_of(found[k], graph.nodes[k], dtype) for k in node.parents]
        try:
            found.append(_planned(node, values, dtype))
        except (CannotBuildError, RuntimeError, ValueError, TypeError) as error:
            found.append(_error(node, str(error).strip().partition("\n")[0]))
    for i, (node, each) in enumerate(zip(graph.nodes, found, strict=True)):
        if node.owner is not None and isinstance(each, Planned):
            owner = found[node.owner]
            if isinstance(owner, Planned):
                found[i] = _shared(each, owner)
    return found


def _shared(planned: Planned, owner: Planned) -> Planned | ExecutorError:
    """Return a node with the parameters of another for those of as many elements, in order."""
    left = [
        (math.prod(held.shape), (owner.node.index, stage, place))
        for stage, each in enumerate(owner.stages)
        for place, held in enumerate(each.held)
        if held.learns
    ] or [(owner.node.num_params, (owner.node.index, -1, 0))]
    stages, shared = [], 0
    for stage in planned.stages:
        tensors = list(stage.held)
        for i, held in enumerate(tensors):
            size = math.prod(held.shape)
            k = next((k for k, (have, _) in enumerate(left) if held.learns and have == size), None)
            if k is not None:
                tensors[i] = replace(held, shared=left.pop(k)[1])
                shared += size
        stages.append(replace(stage, held=tuple(tensors)))
    if shared != planned.node.shared_params:
        name = owner.node.name
        return _error(planned.node, f"the parameters of {name} have not the shapes that it takes")
    return replace(planned, stages=tuple(stages))


def _error(node: Node, why: str) -> ExecutorError:
    return ExecutorError(
        Mistake(f"executor torch cannot build {node.type_name}: {why}", layer=node.name)
    )


def value_of(planned: Planned | ExecutorError, node: Node, dtype: Any) -> Value:
    """Return what a node gives, or one that cannot be built would, for those who read it."""
    if isinstance(planned, Planned):
        return planned.value
    return Value(torch.empty(node.output, dtype=dtype, device="meta"), plain(len(node.output)))


def _planned(node: Node, values: list[Value], dtype: Any) -> Planned:
    layers = node.layer.parts if node.layer.is_convolution else (node.layer,)
    stages: list[Stage] = []
    inputs: Any = node.inputs
    output: Any = node.output
    for layer in layers:
        context = BuildContext(layer, values, inputs, output, dtype)
        stages.append(_stage(context, in_place=bool(stages)))
        values, inputs = [stages[-1].value], (output,)
    return Planned(node, tuple(stages), stages[-1].value)


def _stage(context: BuildContext, *, in_place: bool) -> Stage:
    layer, output = context.layer, context.output
    entry = BUILDERS.get(type(layer))
    if entry is None:
        raise CannotBuildError("there is nothing for this type")
    context.wanted = entry.wanted(layer, len(context.inputs[0]), None)
    run, order = entry.build(context)
    made = _on_meta(context, run, order)
    if in_place and isinstance(layer, Activation) and layer.function in IN_PLACE:
        function = IN_PLACE[layer.function]

        def run(tensors: list[Any], held: list[Any], training: bool) -> Any:
            return function(tensors[0])

    shape = tuple(made.permute(inverse(order)).shape if made.dim() == len(order) else made.shape)
    if shape != output:
        hint = "; an Activation keeps the shape" * (layer.keeping_shape() is not layer)
        raise CannotBuildError(
            f"PyTorch gives {format_shape(shape)}, the net format {format_shape(output)}{hint}"
        )
    limit = None
    if not made.is_floating_point():
        limits = [value.limit for value in context.values if value.limit is not None]
        limit = max(limits) if limits and layer.only_moves else None
    return Stage(run, tuple(context.held), context.finish, context.joins, Value(made, order, limit))


def _on_meta(context: BuildContext, run: Run, order: Order) -> Any:
    tensors, dtype = [value.tensor for value in context.values], context.dtype
    if context.is_opaque:
        shape = [context.output[dimension] for dimension in order]
        return torch.empty(shape, dtype=dtype, device="meta", requires_grad=True)
    held: list[Any] = [
        None
        if each.is_generator
        else each.numbers.to("meta")
        if each.numbers is not None
        else torch.empty(each.shape, dtype=dtype, device="meta", requires_grad=each.learns)
        for each in context.held
    ]
    with torch.enable_grad():
        made = run(tensors, held, False)
    return made.detach().requires_grad_(made.requires_grad)


# ---- Sources -----------------------------------------------------------------------------------

#: What whole numbers are below; TRUTHS for truth values, None for what is computed with.
_TRUTHS = 0


def _source(node: Node, content: int | None, order: Order | None, dtype: Any) -> Value:
    rank = len(node.output)
    order = order or plain(rank)
    shape = tuple(node.output[dimension] for dimension in order)
    if content is None:
        learns = node.is_trained
        made = torch.empty(shape, dtype=dtype, device="meta", requires_grad=learns)
        return Value(made, order)
    kind = torch.bool if content == _TRUTHS else torch.long
    return Value(torch.empty(shape, dtype=kind, device="meta"), order, content or None)


def _contents(graph: Graph) -> list[int | None]:
    """Return for each node below what its whole numbers are, by who reads it."""
    wanted: list[int | None] = [None] * len(graph.nodes)
    for node in reversed(graph.nodes):
        for k, parent in enumerate(node.parents):
            content = _wanted(node, k)
            if content is None and node.layer.only_moves:
                content = wanted[node.index]
            if content is not None and not graph.nodes[parent].is_trained:
                wanted[parent] = content
    return wanted


def _wanted(node: Node, k: int) -> int | None:
    layer = node.layer
    if isinstance(layer, Elementwise) and layer.function == "where" and k == 0:
        return _TRUTHS if len(node.parents) == 3 else None
    return layer.index_limit(k, node.inputs)


def _orders(graph: Graph) -> list[Order | None]:
    """Return for each node in which order those who read it want its axes, None if any will do."""
    wanted: list[Order | None] = [None] * len(graph.nodes)
    for node in reversed(graph.nodes):
        for parent, shape in zip(node.parents, node.inputs, strict=True):
            entry = BUILDERS.get(type(node.layer))
            if entry and (order := entry.wanted(node.layer, len(shape), wanted[node.index])):
                wanted[parent] = order
    return wanted
