"""A graph as functions of PyTorch tensors: what each layer runs, and how its tensors lie in memory.

Nothing is computed here: layers run on tensors without data, which have shapes and strides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from paleo.errors import ExecutorError, Mistake
from paleo.executors import pytorch_layers
from paleo.executors.pytorch_elements import IN_PLACE
from paleo.executors.pytorch_moves import is_dense, labels_of, rows_of
from paleo.executors.pytorch_site import (
    BUILDERS,
    SEQUENCE,
    CannotBuildError,
    Held,
    Order,
    Run,
    Site,
    Value,
    image_order,
    inverse,
    plain,
    torch,
)
from paleo.graph import Graph, Node
from paleo.layers import Layer
from paleo.layers.attention import Attention
from paleo.layers.convolution import Filtered
from paleo.layers.dense import Einsum, Embedding, InnerProduct, MatMul
from paleo.layers.normalization import (
    LRN,
    BatchNorm,
    GroupNorm,
    InstanceNorm,
    L2Norm,
    LayerNorm,
    RMSNorm,
    Scale,
)
from paleo.layers.objectives import Accuracy, Loss
from paleo.layers.parts import made_of
from paleo.layers.pointwise import (
    FUNCTIONS,
    Activation,
    Dropout,
    Elementwise,
    PReLU,
    Sigmoid,
    Softmax,
)
from paleo.layers.pooling import GlobalPooling, Pooling, Resize, UpSampling2D
from paleo.layers.recurrent import RNN
from paleo.layers.shaping import (
    Concatenate,
    Expand,
    Flatten,
    Gather,
    Input,
    Pad,
    Parameter,
    Rearrange,
    Reduce,
    Reshape,
    Slice,
    Transpose,
)
from paleo.tensor import format_shape

del pytorch_layers  # it has filled the table

__all__ = ["Planned", "Stage", "is_source", "plan", "unbuilt"]

#: Names of normalizations that a convolution may be followed by, and what they are.
_NORMALIZERS: dict[str, Layer] = {
    "batch_norm": BatchNorm(affine=False),
    "batchnorm": BatchNorm(affine=False),
    "batch_normalization": BatchNorm(affine=False),
    "bn": BatchNorm(affine=False),
    "layer_norm": LayerNorm(num_dims=1, affine=False, bias_term=False),
    "instance_norm": InstanceNorm(affine=False),
    "l2_norm": L2Norm(),
    "lrn": LRN(local_size=5),
}
#: Where a tensor of whole numbers or truth values is still one.
_PASS_ON = (Reshape, Flatten, Slice, Transpose, Expand, Concatenate, Gather, Pad, Rearrange)
#: Layers that run in whatever order their input is, and those that want the net format's.
_FOLLOW = (Activation, Dropout, PReLU, Scale, Elementwise, Concatenate, L2Norm, Pad)
_PLAIN = (
    InnerProduct, MatMul, Einsum, Attention, LayerNorm, RMSNorm, Softmax, Reshape,
    Flatten, Transpose, Expand, Gather, Reduce, Loss, Accuracy,
)  # fmt: skip


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


def is_source(node: Node) -> bool:
    """Tell whether a node's tensor is there from the start."""
    return isinstance(node.layer, Input | Parameter)


def plan(graph: Graph, dtype: Any) -> list[Planned | ExecutorError]:
    """Return for each node what it runs, or why PyTorch cannot build it.

    `dtype` is the type of parameters, in which the meta tensors are.
    """
    contents, orders = _contents(graph), _orders(graph)
    found: list[Planned | ExecutorError] = []
    for node in graph.nodes:
        if is_source(node):
            value = _source(node, contents[node.index], orders[node.index], dtype)
            found.append(Planned(node, (), value))
            continue
        values = [
            each.value if isinstance(each, Planned) else unbuilt(graph.nodes[k], dtype)
            for k, each in ((k, found[k]) for k in node.parents)
        ]
        try:
            found.append(_planned(node, values, dtype))
        except CannotBuildError as error:
            found.append(_error(node, str(error)))
        except (RuntimeError, ValueError, TypeError) as error:
            found.append(_error(node, _first_line(error)))
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
        stages.append(replace(stage, run=_viewed(stage.run, tensors), held=tuple(tensors)))
    if shared != planned.node.shared_params:
        name = owner.node.name
        return _error(planned.node, f"the parameters of {name} have not the shapes that it takes")
    return replace(planned, stages=tuple(stages))


def _viewed(run: Run, held: Sequence[Held]) -> Run:
    """Return what takes shared parameters in whatever shape they are."""
    shapes = [each.shape if each.shared else None for each in held]

    def viewed(tensors: list[Any], held: list[Any], training: bool) -> Any:
        own = [
            each if shape is None else each.view(shape)
            for each, shape in zip(held, shapes, strict=True)
        ]
        return run(tensors, own, training)

    return viewed


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _error(node: Node, why: str) -> ExecutorError:
    return ExecutorError(
        Mistake(f"executor torch cannot build {node.type_name}: {why}", layer=node.name)
    )


def unbuilt(node: Node, dtype: Any) -> Value:
    """Return what a node that cannot be built would give, for those who read it."""
    return Value(torch.empty(node.output, dtype=dtype, device="meta"), plain(len(node.output)))


def _planned(node: Node, values: list[Value], dtype: Any) -> Planned:
    layers = _stages(node.layer)
    stages: list[Stage] = []
    inputs = node.inputs
    for i, layer in enumerate(layers):
        is_last = i == len(layers) - 1
        output = node.output if is_last or isinstance(node.layer, Filtered) else None
        assert output is not None
        stages.append(_stage(layer, values, inputs, output, dtype, in_place=i > 0))
        values, inputs = [stages[-1].value], (output,)
    return Planned(node, tuple(stages), stages[-1].value)


def _stages(layer: Layer) -> tuple[Layer, ...]:
    """Return a layer, or a convolution and what is joined in it; raises CannotBuildError."""
    if not isinstance(layer, Filtered):
        return (layer,)
    normalizer, active = layer.normalizer_fn, layer.activation
    if normalizer and normalizer not in _NORMALIZERS:
        raise CannotBuildError(f"it knows no normalizer_fn {normalizer!r}")
    if active and active not in FUNCTIONS:
        raise CannotBuildError(f"it knows no activation_fn {active!r}")
    if not normalizer:
        return made_of(layer)
    first, _, *rest = made_of(layer)
    return (first, _NORMALIZERS[normalizer], *rest)


def _stage(
    layer: Layer,
    values: list[Value],
    inputs: tuple[Any, ...],
    output: Any,
    dtype: Any,
    *,
    in_place: bool,
) -> Stage:
    builder = BUILDERS.get(type(layer))
    if builder is None:
        raise CannotBuildError("there is nothing for this type")
    site = Site(layer, values, inputs, output, dtype)
    run, order = builder(site)
    made = _on_meta(site, run, order, values, dtype)
    if in_place and isinstance(layer, Activation) and layer.function in IN_PLACE:
        function = IN_PLACE[layer.function]

        def run(tensors: list[Any], held: list[Any], training: bool) -> Any:
            return function(tensors[0])

    shape = tuple(made.permute(inverse(order)).shape if made.dim() == len(order) else made.shape)
    if shape != output:
        hint = "; an Activation keeps the shape" * isinstance(layer, Sigmoid)
        raise CannotBuildError(
            f"PyTorch gives {format_shape(shape)}, the net format {format_shape(output)}{hint}"
        )
    limit = None
    if not made.is_floating_point():
        limits = [value.limit for value in values if value.limit is not None]
        limit = max(limits) if limits and isinstance(layer, _PASS_ON) else None
    return Stage(run, tuple(site.held), site.finish, site.joins, Value(made, order, limit))


def _on_meta(site: Site, run: Run, order: Order, values: list[Value], dtype: Any) -> Any:
    tensors = [value.tensor for value in values]
    if site.is_opaque:
        shape = [site.output[dimension] for dimension in order]
        return torch.empty(shape, dtype=dtype, device="meta", requires_grad=True)
    held: list[Any] = [
        None
        if each.is_generator
        else each.numbers.to("meta")
        if each.numbers is not None
        else torch.empty(each.shape, dtype=dtype, device="meta", requires_grad=each.learns)
        for each in site.held
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
            if content is None and isinstance(node.layer, _PASS_ON):
                content = wanted[node.index]
            if content is not None and not graph.nodes[parent].is_trained:
                wanted[parent] = content
    return wanted


def _wanted(node: Node, k: int) -> int | None:
    layer = node.layer
    if isinstance(layer, Embedding):
        return layer.num_embeddings
    if isinstance(layer, Gather) and k == 1:
        return rows_of(node.inputs, node.output)[0]
    if isinstance(layer, Accuracy) and k == 1:
        return labels_of(node.inputs)[1]
    if isinstance(layer, Loss) and k == 1 and not is_dense(node.inputs, 1):
        return labels_of(node.inputs)[1]
    if isinstance(layer, Elementwise) and layer.function == "where" and k == 0:
        return _TRUTHS if len(node.parents) == 3 else None
    return None


def _orders(graph: Graph) -> list[Order | None]:
    """Return for each node in which order those who read it want its axes, None if any will do."""
    wanted: list[Order | None] = [None] * len(graph.nodes)
    for node in reversed(graph.nodes):
        for parent, shape in zip(node.parents, node.inputs, strict=True):
            order, after = _order(node, len(shape)), wanted[node.index]
            if order is None and isinstance(node.layer, _FOLLOW) and len(node.output) == len(shape):
                order = after
            elif isinstance(node.layer, Embedding) and after == SEQUENCE:
                order = SEQUENCE[:2]
            if order is not None:
                wanted[parent] = order
    return wanted


def _order(node: Node, rank: int) -> Order | None:
    layer = node.layer
    if isinstance(layer, Filtered):
        return image_order(rank, layer.rank)
    if isinstance(layer, RNN):
        return SEQUENCE
    if isinstance(layer, Pooling | UpSampling2D):
        return image_order(rank, len(layer.ksize))
    if isinstance(layer, Resize):
        return image_order(rank, len(layer.size))
    if isinstance(layer, GlobalPooling | BatchNorm | GroupNorm | InstanceNorm | LRN):
        return image_order(rank, rank - 2)
    return plain(rank) if isinstance(layer, _PLAIN) else None
