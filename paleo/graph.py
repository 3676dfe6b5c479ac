"""The layer graph: a net-spec with a batch size, every shape known, parents first."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from paleo.errors import Mistakes, NetSpecError, SettingError
from paleo.layers import Layer, ShapeError
from paleo.netspec import LayerSpec, NetSpec
from paleo.quantity import Quantity, is_array, largest, maximum, whole_array
from paleo.tensor import Precision, Shape, find_precision, num_elements
from paleo.values import MAX_COUNT, shown
from paleo.work import Operation, Pass, Unpriced, Work, total_work

__all__ = ["Graph", "Node", "build", "infer_nodes", "longest_path", "unpriced"]


@dataclass(frozen=True)
class Node:
    """One layer in the graph. `parents` are indices of earlier nodes, `inputs` their shapes."""

    index: int
    name: str
    layer: Layer
    shard: int | None
    parents: tuple[int, ...]
    inputs: tuple[Shape, ...]
    output: Shape
    #: Parameters that are counted in the layer that it shares them with.
    shared_params: int = 0
    #: The index of that layer.
    owner: int | None = None

    @property
    def type_name(self) -> str:
        """The layer's type, as in a net file."""
        return self.layer.type_name

    @property
    def num_params(self) -> int:
        """Trainable parameters, of this slice if the layer is split; shared ones left out."""
        return self.layer.num_params(self.inputs) - self.shared_params

    @property
    def is_trained(self) -> bool:
        """Whether it has parameters, its own or shared ones."""
        return self.layer.num_params(self.inputs) > 0


@dataclass(frozen=True)
class Graph:
    """A net at one batch size (or an array of them) and element type.

    `nodes` are sorted: parents come before children, else in the order of the file.
    """

    name: str
    nodes: tuple[Node, ...]
    dtype: str = "fp32"

    @property
    def precision(self) -> Precision:
        """The element types: what layers compute in, and what parameters are."""
        return find_precision(self.dtype)

    @property
    def element_size(self) -> int:
        """Bytes of one element of what layers read and write."""
        return self.precision.element_size

    @property
    def batch_size(self) -> Quantity:
        """Samples in a batch: the first dimension of every tensor made from an input."""
        return next(node.output[0] for node in self.nodes if node.layer.is_input)

    @property
    def num_params(self) -> int:
        """Trainable parameters of all layers and slices."""
        return sum(node.num_params for node in self.nodes)

    def operations(
        self, node: Node, direction: Pass, needed: tuple[bool, ...] | None = None
    ) -> tuple[Operation, ...]:
        """Return what a device does for this node in this pass.

        With `needed`, the input gradient is that of these inputs alone.
        """
        if direction is Pass.INPUT_GRADIENT and needed is not None:
            if not any(needed):
                return ()
            return node.layer.input_gradient(node.inputs, self.element_size, needed)
        return node.layer.operations(direction, node.inputs, self.element_size)

    def work(self, node: Node, direction: Pass) -> Work:
        """Return the FLOPs and bytes of this node in this pass."""
        return total_work(self.operations(node, direction))


def build(
    net: NetSpec,
    batch_size: Quantity | None = None,
    dtype: str = "fp32",
    adapt: Callable[[Layer], Layer] | None = None,
) -> Graph:
    """Return the graph of a net.

    `batch_size` replaces the first dimension of every tensor; None keeps the file's. An
    array of batch sizes gives a graph of array-valued shapes. `dtype` is one of
    paleo.tensor.PRECISIONS. `adapt` may put another layer in the place of each. Raises
    NetSpecError with every layer that does not fit, SettingError for an unknown dtype or a
    batch size that is not a whole number above 0.
    """
    find_precision(dtype)
    batch = None if batch_size is None else checked_batch(batch_size)
    mistakes = Mistakes(net.file)
    nodes = infer_nodes(net, batch, mistakes, adapt)
    mistakes.raise_as(NetSpecError)
    return Graph(net.name, nodes, dtype)


def checked_batch(batch_size: Any) -> Quantity:
    """Return a batch size as int or array of int64; raises SettingError."""
    if is_array(batch_size):
        array = whole_array(batch_size, MAX_COUNT)
        if array is not None:
            return array
    elif isinstance(batch_size, int) and not isinstance(batch_size, bool) and batch_size >= 1:
        return batch_size
    raise SettingError(f"batch_size: expected a whole number of 1 or more, got {shown(batch_size)}")


def infer_nodes(
    net: NetSpec,
    batch: Quantity | None,
    mistakes: Mistakes,
    adapt: Callable[[Layer], Layer] | None = None,
) -> tuple[Node, ...]:
    """Return the nodes of a net in order, noting cycles and layers that do not fit.

    A layer below a mistake is left out, so that each mistake is noted once.
    """
    nodes: dict[str, Node] = {}
    noted: set[tuple[str, str]] = set()
    for spec in _sorted(net, mistakes):
        if any(parent not in nodes for parent in spec.parents):
            continue
        layer = adapt(spec.layer) if adapt else spec.layer
        parents = [nodes[parent] for parent in spec.parents]
        inputs = tuple(parent.output for parent in parents)
        try:
            output = layer.infer_shape(inputs)
            if layer.is_input:
                output = _with_batch(output, batch, nodes)
            _check_size(layer, inputs, output)
        except ShapeError as error:
            mistake = (spec.origin, str(error))
            if mistake not in noted:  # the slices of one layer share their mistake
                noted.add(mistake)
                mistakes.add(str(error), spec.origin, error.key)
            continue
        indices = tuple(parent.index for parent in parents)
        nodes[spec.name] = Node(len(nodes), spec.name, layer, spec.shard, indices, inputs, output)
    for spec in net.layers:
        if spec.shares in nodes and spec.name in nodes:
            nodes[spec.name] = _sharing(nodes[spec.name], nodes[spec.shares])
    return tuple(nodes.values())


def _sharing(node: Node, owner: Node) -> Node:
    """Return the node without the parameters that are counted in their owner."""
    own, theirs = (each.layer.num_params(each.inputs) for each in (node, owner))
    return replace(node, shared_params=min(own, theirs), owner=owner.index)


def _with_batch(shape: Shape, batch: Quantity | None, nodes: dict[str, Node]) -> Shape:
    """Return an input's shape at this batch; raises ShapeError if other inputs have another."""
    if batch is not None:
        return (batch, *shape[1:])
    first = next((node for node in nodes.values() if node.layer.is_input), None)
    if first is not None and first.output[0] != shape[0]:
        raise ShapeError(
            f"its batch of {shape[0]} is not that of {first.name}, {first.output[0]}", "tensor"
        )
    return shape


def _check_size(layer: Layer, inputs: tuple[Shape, ...], output: Shape) -> None:
    """Raise ShapeError if a count of this layer is too large to mean anything."""
    most = largest(output[0])

    def at_most(shape: Shape) -> Shape:
        return (most, *shape[1:])

    counts = [("elements in its output", num_elements(at_most(output)))]
    if inputs:
        shapes = tuple(map(at_most, inputs))
        counts.append(("parameters", layer.num_params(shapes)))
        counts += [
            ("FLOPs or bytes in a pass", operation.magnitude)
            for operation in layer.operations(Pass.FORWARD, shapes, 8)
        ]
    for what, count in counts:
        if count > MAX_COUNT:
            raise ShapeError(f"{float(count):.3g} {what} are too many to mean anything")


def _sorted(net: NetSpec, mistakes: Mistakes) -> list[LayerSpec]:
    """Return the layers parents first, else in the file's order; notes a cycle as a mistake."""
    position = {spec.name: i for i, spec in enumerate(net.layers)}
    children: list[list[int]] = [[] for _ in net.layers]
    waiting = [0] * len(net.layers)
    for i, spec in enumerate(net.layers):
        for parent in spec.parents:
            if parent in position:  # a parent with a mistake is not there
                children[position[parent]].append(i)
                waiting[i] += 1
    ready = [i for i, count in enumerate(waiting) if not count]
    order: list[LayerSpec] = []
    left = set(range(len(net.layers)))
    while left:
        while ready:
            i = heapq.heappop(ready)
            if i not in left:
                continue
            left.remove(i)
            order.append(net.layers[i])
            for child in children[i]:
                waiting[child] -= 1
                if not waiting[child]:
                    heapq.heappush(ready, child)
        if left:
            # Go on behind the cycle: there may be another.
            cycle = _cycle(net, left, position)
            specs = [net.layers[i] for i in cycle]
            shown = [spec.name for spec in specs[:6]] + ["..."] * (len(specs) > 6)
            path = " -> ".join([*shown, specs[0].name])
            mistakes.add(f"a cycle: {path}", specs[0].name, "parents")
            ready = sorted(cycle)
    return order


def _cycle(net: NetSpec, left: set[int], position: dict[str, int]) -> list[int]:
    """Return one cycle among the layers that are `left`, each followed by a child of it."""
    seen: dict[int, int] = {}
    path: list[int] = []
    i = min(left)
    while i not in seen:
        seen[i] = len(path)
        path.append(i)
        i = next(position[p] for p in net.layers[i].parents if position.get(p) in left)
    cycle = path[seen[i] :][::-1]
    first = cycle.index(min(cycle))
    return cycle[first:] + cycle[:first]


def unpriced(graph: Graph) -> tuple[Unpriced, ...]:
    """Return the operations that stand for what an importer did not understand."""
    return tuple(
        operation
        for node in graph.nodes
        for operation in graph.operations(node, Pass.FORWARD)
        if isinstance(operation, Unpriced)
    )


def longest_path(graph: Graph, seconds: list[Quantity]) -> Quantity:
    """Return the largest sum of `seconds` (one for each node) along any path."""
    longest: Quantity = 0.0
    until: list[Quantity] = []
    for node, own in zip(graph.nodes, seconds, strict=True):
        before: Quantity = 0.0
        for parent in node.parents:
            before = maximum(before, until[parent])
        until.append(before + own)
        longest = maximum(longest, until[-1])
    return longest
