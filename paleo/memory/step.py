"""The tensors of a step, and from when to when each is alive.

A step is a row of points: one for each part of each layer forward, the same backward from
the last, and the update. A tensor is alive from the point where it is made to that of its
last use, both included: while a layer runs it has what it reads and what it writes.

What PyTorch does is the model. The gradient of a tensor that several layers read is added up
as it comes: into the first one's memory if nobody else holds that, else into a new tensor.
Of a sum's inputs, all have the gradient of the output, the same tensor.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from paleo.graph import Graph, Node
from paleo.layers import Layer
from paleo.layers.base import Kept
from paleo.layers.convolution import Filtered
from paleo.layers.objectives import Accuracy, Loss
from paleo.layers.parts import made_of
from paleo.layers.pointwise import Dropout
from paleo.layers.shaping import Input, Parameter
from paleo.memory.optimizers import Optimizer
from paleo.netspec import NetSpec
from paleo.quantity import Quantity
from paleo.tensor import Shape, num_elements

__all__ = ["Step"]


@dataclass
class _Tensor:
    """Bytes that are alive from one point to another."""

    node: int
    size: Quantity
    born: int
    dies: int
    is_activation: bool
    #: Gradients that wait to be used and are this tensor, or pieces of it.
    waiting: int = 0


@dataclass(frozen=True)
class _Part:
    """A node, or a part of it: one of the layers that its layer is made of."""

    node: Node
    layer: Layer
    #: Which of the node's parts it is.
    number: int
    num_params: int
    #: The parts that it reads.
    parents: tuple[int, ...]
    #: Of which of them it computes the gradient.
    needed: tuple[bool, ...]
    kept: Kept
    #: Whether the backward pass comes through here.
    has_gradient: bool


@dataclass(frozen=True)
class _Gradient:
    """The gradient of a part's output: a tensor, or pieces of one."""

    tensor: _Tensor
    in_pieces: bool = False


def _parts(graph: Graph, training: bool) -> list[_Part]:
    """Return the parts of a graph in the order in which they run."""
    parts: list[_Part] = []
    last: list[int] = []  # of each node
    for node in graph.nodes:
        parents, inputs = tuple(last[parent] for parent in node.parents), node.inputs
        for i, layer in enumerate(made_of(node.layer)):
            needed = tuple(training and parts[parent].has_gradient for parent in parents)
            kept = layer.keeps(inputs, graph.element_size, needed)
            if i > 0 and isinstance(node.layer, Filtered):
                # It works in the memory of the part before, unless that is kept as it was.
                kept = replace(kept, view=not kept.inputs)
            if isinstance(layer, Dropout) and not training:
                kept = Kept(view=True)
            params = layer.num_params(inputs)
            learns = training and not kept.ends and (params > 0 or any(needed))
            parts.append(_Part(node, layer, i, params, parents, needed, kept, learns))
            parents, inputs = (len(parts) - 1,), (node.output,)
        last.append(len(parts) - 1)
    return parts


class Step:
    """One step: a forward pass and, with an `optimizer`, backward pass and update."""

    def __init__(self, net: NetSpec, graph: Graph, optimizer: Optimizer | None) -> None:
        self.graph = graph
        precision = graph.precision
        #: Bytes of a parameter, and of the copy that layers read in mixed precision: it is there
        #: from the layer's forward pass to its backward pass.
        self.weight_size, self.copy_size = precision.element_size, 0
        if optimizer and precision.is_mixed:
            self.weight_size, self.copy_size = precision.parameter_size, precision.element_size
        #: The node that runs at each point, and the pass.
        self.points: list[tuple[Node, str]] = []
        self._tensors: list[_Tensor] = []
        self._lasting: list[_Tensor] = []
        self._parts = _parts(graph, optimizer is not None)
        #: What each part keeps for its backward pass.
        self._kept: list[list[_Tensor]] = []
        self._outputs: list[_Tensor] = []
        self._forward()
        #: The last point of the forward pass.
        self.last_forward = len(self.points) - 1
        if optimizer:
            self._backward({spec.name: spec.shares or spec.name for spec in net.layers})
            self._update(optimizer)
        for tensor in self._lasting:
            self._use(tensor)

    def sums(self, *, activations_only: bool = False) -> list[Any]:
        """Return the bytes that are alive at each point."""
        changes: list[Any] = [0] * (len(self.points) + 1)
        for tensor in self._tensors:
            if tensor.is_activation or not activations_only:
                changes[tensor.born] = changes[tensor.born] + tensor.size
                changes[tensor.dies + 1] = changes[tensor.dies + 1] - tensor.size
        for i in range(1, len(changes)):
            changes[i] = changes[i] + changes[i - 1]
        return changes[:-1]

    def activations(self, point: Any) -> list[Quantity]:
        """Return the bytes of each node's activations at a point, or at each of an array."""
        found: list[Quantity] = [0] * len(self.graph.nodes)
        for tensor in self._tensors:
            if tensor.is_activation:
                alive = (tensor.born <= point) & (point <= tensor.dies)
                found[tensor.node] = found[tensor.node] + tensor.size * alive
        return found

    # Points and tensors

    def _at(self, node: Node, direction: str) -> None:
        """Begin a new point."""
        self.points.append((node, direction))

    def _make(
        self, node: Node, size: Quantity, *, is_activation: bool = False, lasts: bool = False
    ) -> _Tensor:
        """Return a new tensor, made at this point and, so far, used at this one alone."""
        now = len(self.points) - 1
        tensor = _Tensor(node.index, size, now, now, is_activation)
        self._tensors.append(tensor)
        if lasts:
            self._lasting.append(tensor)
        return tensor

    def _use(self, tensor: _Tensor) -> None:
        """Note that a tensor is in use at this point."""
        tensor.dies = len(self.points) - 1

    def _num_bytes(self, shape: Shape) -> Quantity:
        return self.graph.element_size * num_elements(shape)

    # The passes

    def _forward(self) -> None:
        read = {
            parent
            for part in self._parts
            if not isinstance(part.layer, Loss | Accuracy)
            for parent in part.parents
        }
        for i, part in enumerate(self._parts):
            self._at(part.node, "forward")
            for parent in part.parents:
                self._use(self._outputs[parent])
            output = self._output(part)
            self._outputs.append(output)
            self._make(part.node, part.kept.forward)
            saved = part.kept.saved * part.has_gradient
            own = self._make(part.node, part.kept.own + saved, is_activation=True)
            kept = [own, *(self._outputs[part.parents[k]] for k in part.kept.inputs)]
            kept += [output] if part.kept.output else []
            if self.copy_size:
                own_params = max(0, part.num_params - part.node.shared_params)
                kept.append(self._make(part.node, self.copy_size * own_params))
            self._kept.append(kept if part.has_gradient else [])
            if i not in read:  # a result, which who called has to the end
                self._lasting.append(output)
        for node in self.graph.nodes:
            weights = self._make(node, self.weight_size * node.num_params, lasts=True)
            weights.born = 0

    def _output(self, part: _Part) -> _Tensor:
        """Return the tensor that a part writes to."""
        if part.kept.view:
            output = self._outputs[part.parents[0]]
            self._use(output)
            return output
        if not isinstance(part.layer, Input | Parameter):
            return self._make(part.node, self._num_bytes(part.node.output), is_activation=True)
        # It is there from the start, and stays. What is trained is counted as weights.
        size = 0 if part.num_params else self._num_bytes(part.node.output)
        output = self._make(part.node, size, is_activation=True, lasts=True)
        output.born = 0
        return output

    def _backward(self, owners: dict[str, str]) -> None:
        gradients = self._first_gradients()
        # How many parameters have a gradient already, by their owner and the part of it.
        there: dict[tuple[str, int], int] = {}
        for i in reversed(range(len(self._parts))):
            part, gradient = self._parts[i], gradients.pop(i, None)
            if gradient is None:
                self._lasting += self._kept[i]
                continue
            self._at(part.node, "backward")
            for tensor in (*self._kept[i], gradient.tensor):
                self._use(tensor)
            gradient.tensor.waiting -= 1
            self._make(part.node, part.kept.backward)
            if not self.copy_size:
                self._weight_gradient(part, owners[part.node.name], there)
            half = self._make(part.node, self.copy_size * part.num_params)
            made = [
                (parent, self._input_gradient(part, k, gradient))
                for k, parent in enumerate(part.parents)
                if part.needed[k]
            ]
            if self.copy_size and part.num_params:  # what the layer made in halves is cast
                self._at(part.node, "backward")
                self._use(half)
                self._weight_gradient(part, owners[part.node.name], there)
            for parent, new in made:
                gradients[parent] = self._added(part, parent, gradients.get(parent), new)

    def _first_gradients(self) -> dict[int, _Gradient]:
        """Return the gradients that the backward pass begins with: of losses, or of all results."""
        learning = [i for i, part in enumerate(self._parts) if part.has_gradient]
        read = {parent for i in learning for parent in self._parts[i].parents}
        ends = [i for i in learning if i not in read]
        losses = [i for i in ends if isinstance(self._parts[i].layer, Loss)]
        if not ends:
            return {}
        self._at(self._parts[(losses or ends)[-1]].node, "backward")
        return {i: self._gradient(self._parts[i].node, i) for i in losses or ends}

    def _gradient(self, node: Node, of: int) -> _Gradient:
        """Return a new gradient of a part's output, which waits to be used."""
        tensor = self._make(node, self._num_bytes(self._parts[of].node.output))
        tensor.waiting = 1
        return _Gradient(tensor)

    def _weight_gradient(self, part: _Part, owner: str, there: dict[tuple[str, int], int]) -> None:
        """Make the gradient of a part's parameters; for those that have one it is added."""
        size, node, place = self.weight_size, part.node, (owner, part.number)
        common = min(part.num_params, part.num_params if node.name == owner else node.shared_params)
        twice = min(common, there.get(place, 0))
        there[place] = max(common, there.get(place, 0))
        self._make(node, size * (part.num_params - twice), lasts=True)
        self._make(node, size * twice)

    def _input_gradient(self, part: _Part, k: int, gradient: _Gradient) -> _Gradient:
        if k not in part.kept.handed:
            return self._gradient(part.node, part.parents[k])
        gradient.tensor.waiting += 1
        return _Gradient(gradient.tensor, gradient.in_pieces or part.kept.pieces)

    def _added(self, part: _Part, of: int, before: _Gradient | None, new: _Gradient) -> _Gradient:
        """Return the sum of a gradient of a part's output and what has come of it before."""
        if before is None:
            return new
        is_held = before.tensor.waiting > 1
        new.tensor.waiting -= 1
        if not is_held and not before.in_pieces:
            self._use(before.tensor)
            return before
        before.tensor.waiting -= 1
        self._at(part.node, "backward")
        for each in (before, new):
            self._use(each.tensor)
        return self._gradient(part.node, of)

    def _update(self, optimizer: Optimizer) -> None:
        size = self.weight_size
        largest = max(self.graph.nodes, key=lambda node: node.num_params)
        self._at(largest, "update")
        self._make(largest, optimizer.temporaries * size * largest.num_params)
        for node in self.graph.nodes:
            states = self._make(node, optimizer.states * size * node.num_params, lasts=True)
            states.born = 0
