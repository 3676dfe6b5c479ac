"""From when to when each tensor of a step is alive, which no batch size changes.

A step is a row of points: one for each part of each layer forward, the same backward from
the last, and the update. A tensor is alive from the point where it is made to that of its
last use, both included: while a layer runs it has what it reads and what it writes.

What PyTorch does is the model. The gradient of a tensor that several layers read is added up
as it comes: into the first one's memory if nobody else holds that, else into a new tensor.
Of a sum's inputs, all have the gradient of the output, the same tensor. Permutations are views, of
tensors and of their gradients; what needs the elements in order copies them (paleo.net.views), and
keeps the copy.

What is computed again (paleo.step.recompute) keeps nothing in the forward pass but what comes into
it from elsewhere. Before its backward pass there are points of a forward pass again, whose tensors
are new ones.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from paleo.core.frozen import NamedTuple, dataclass
from paleo.core.quantity import Quantity, largest
from paleo.core.strides import Strides, contiguous, dense
from paleo.core.tensor import Shapes, num_elements
from paleo.net import views
from paleo.net.graph import Graph, Node
from paleo.net.layers import Layer
from paleo.net.layers.base import MemoryNeeds
from paleo.step.recompute import NOTHING, RECOMPUTATION, Recompute, Region

#: The sizes of a kind, in this order: its output, what it keeps for its backward pass, and what
#: it takes for a moment in each pass.
_SIZES = _OUTPUT, _OWN, _FORWARD, _BACKWARD = range(4)


@dataclass(frozen=True, eq=False)
class _Kind:
    """What runs alike: the layers, or parts of layers, that are equal and have equal inputs."""

    #: The first node of it, and which of the node's parts it is.
    node: int
    number: int
    layer: Layer
    #: Of which inputs it computes the gradient.
    needed: tuple[bool, ...]
    training: bool
    #: Which inputs are copied into order before; None where nothing is known.
    copied: tuple[int, ...] | None
    num_params: int
    #: What it needs in memory, at the batch size of the schedule.
    kept: MemoryNeeds
    #: The position of its first size.
    first: int

    @functools.cached_property
    def has_gradient(self) -> bool:
        """Whether the backward pass comes through here."""
        learns = self.num_params > 0 or any(self.needed) or self.layer.wants_gradient
        return self.training and not self.kept.ends and learns

    @functools.cached_property
    def is_source(self) -> bool:
        """Whether its output is there from the start."""
        return self.layer.is_source()

    @functools.cached_property
    def has(self) -> tuple[bool, ...]:
        """Which of its sizes are more than nothing."""
        return (True, *map(_is_there, self._sizes(self.kept)))

    def sizes(self, graph: Graph) -> tuple[Quantity, ...] | None:
        """Return its sizes in a graph, None if it has other tensors at that batch size."""
        how = self.number, self.layer, self.needed, self.training, self.copied
        kept = _kept_by(graph, self.node, *how)
        if _pattern(kept) != _pattern(self.kept):
            return None
        output = graph.element_size * num_elements(graph.nodes[self.node].output)
        return (output, *self._sizes(kept))

    def _sizes(self, kept: MemoryNeeds) -> tuple[Quantity, ...]:
        """Return those but the output's."""
        own = kept.own + kept.saved if self.has_gradient else kept.own
        return own, kept.forward, kept.backward


def _kept_by(
    graph: Graph,
    node: int,
    number: int,
    layer: Layer,
    needed: tuple[bool, ...],
    training: bool,
    copied: tuple[int, ...] | None,
) -> MemoryNeeds:
    """Return what a part of a node needs in memory that copies these inputs into order."""
    if layer.is_training_only and not training:
        return MemoryNeeds(view=True)
    whole = graph.nodes[node]
    inputs = (whole.output,) if number else whole.inputs
    if copied is not None and views.is_view(layer, inputs):
        return layer.keeps(inputs, graph.element_size, needed)._replace(view=not copied)
    kept = layer.keeps(inputs, graph.element_size, needed)
    if whole.scaled is not None and not number:
        from paleo.net import fp8  # here: most nets have none

        kept = fp8.kept(kept, whole.scaled, inputs, whole.output)
    if copied:
        sizes = {k: graph.element_size * num_elements(inputs[k]) for k in copied}
        stay = sum(size for k, size in sizes.items() if k in kept.inputs)
        kept = kept._replace(
            inputs=tuple(k for k in kept.inputs if k not in sizes),
            own=kept.own + stay,
            forward=kept.forward + sum(sizes.values()) - stay,
        )
    if number and layer.keeps_shape:
        # It works in the memory of the part before, unless that is kept as it was.
        return kept._replace(view=not kept.inputs)
    return kept


def _pattern(kept: MemoryNeeds) -> tuple[Any, ...]:
    """Return what decides which tensors a layer has, and for how long."""
    sizes = kept.own, kept.saved, kept.forward, kept.backward
    decides = kept.inputs, kept.output, kept.view, kept.aliased, kept.pieces, kept.ends
    return (*decides, *map(_is_there, sizes))


def _is_there(size: Quantity) -> bool:
    return bool(largest(size))


@dataclass(slots=True)
class Tensor:
    """A tensor of a node, and the points from which to which it is alive."""

    node: int
    #: The position of its size; None for parameters, their gradients and their copies.
    size: int | None
    born: int
    dies: int
    is_activation: bool = False
    num_params: int = 0
    is_copy: bool = False
    #: Gradients that wait to be used and are this tensor, or pieces of it.
    waiting: int = 0
    #: Whether nobody needs it but who called.
    is_result: bool = False


@dataclass(frozen=True, eq=False)
class Schedule:
    """The tensors of a step: of inference, or of training without those of an optimizer."""

    #: The node that runs at each point, and the pass.
    points: tuple[tuple[int, str], ...]
    #: The last point of the forward pass.
    last_forward: int
    tensors: tuple[Tensor, ...]
    #: The parameters of each node, which are there from the start to the end.
    num_params: tuple[int, ...]
    kinds: tuple[_Kind, ...]

    def sizes(self, graph: Graph) -> list[Quantity] | None:
        """Return the sizes in a graph of this net, None if it has other tensors.

        So it may be at a batch of 1, whose dimensions are not repeated.
        """
        found: list[Quantity] = []
        for kind in self.kinds:
            sizes = kind.sizes(graph)
            if sizes is None:
                return None
            found += sizes
        return found


def scheduled(graph: Graph, *, training: bool, recompute: Recompute = NOTHING) -> Schedule:
    """Return when the tensors of a step are alive at the batch size of a graph, and most others.

    It is the same in all element types, but another in mixed precision. In training things are
    computed again as `recompute` says. Raises SettingError for a block of it that there is not.
    """
    found = _Scheduling(graph, training, recompute.regions(graph) if training else ())
    return Schedule(
        tuple(found.points),
        found.last_forward,
        tuple(found.tensors),
        tuple(node.num_params for node in graph.nodes),
        tuple(dict.fromkeys(part.kind for part in found.parts)),
    )


class _Part(NamedTuple):
    """A node, or a part of it: one of the layers that its layer is made of."""

    node: Node
    kind: _Kind
    #: The parts that it reads.
    parents: tuple[int, ...]
    #: How the elements of its output lie.
    strides: Strides

    @property
    def inputs(self) -> Shapes:
        """What it reads."""
        return (self.node.output,) if self.kind.number else self.node.inputs


class _Gradient(NamedTuple):
    """The gradient of a part's output: a tensor, or pieces of one, and how its elements lie."""

    tensor: Tensor
    strides: Strides
    in_pieces: bool = False


def _parts(graph: Graph, training: bool) -> list[_Part]:
    """Return the parts of a graph in the order in which they run."""
    parts: list[_Part] = []
    last: list[int] = []  # of each node
    kinds: dict[Any, _Kind] = {}
    made: dict[int, tuple[Layer, ...]] = {}
    lie: dict[Any, tuple[Strides, tuple[int, ...] | None]] = {}
    for node in graph.nodes:
        like, parents = node.like, tuple([last[parent] for parent in node.parents])
        if like not in made:
            made[like] = node.layer.parts
        read = tuple([parts[parent].strides for parent in parents])
        if (like, read) not in lie:
            lie[like, read] = views.found(node.layer, node.inputs, node.output, read)
        strides, copied = lie[like, read]
        for i, layer in enumerate(made[like]):
            needed = tuple([training and parts[parent].kind.has_gradient for parent in parents])
            how = i, layer, needed, training, copied if i == 0 else ()
            known = (like, i, needed, how[-1])  # which say what the layer is, of arrays too
            kind = kinds.get(known)
            if kind is None:
                params = layer.num_params((node.output,) if i else node.inputs)
                kept = _kept_by(graph, like, *how)
                kind = _Kind(like, *how, params, kept, len(kinds) * len(_SIZES))
                kinds[known] = kind
            parts.append(_Part(node, kind, parents, strides))
            parents = (len(parts) - 1,)
        last.append(len(parts) - 1)
    return parts


def _again(parts: Sequence[_Part], regions: Sequence[Region]) -> dict[int, list[int]]:
    """Return by the index of a part those that are computed again together with it, in order."""
    region_of = {node: number for number, region in enumerate(regions) for node in region}
    together: dict[int, list[int]] = {}
    found = {}
    for i, part in enumerate(parts):
        number = region_of.get(part.node.index)
        if number is not None and not part.kind.is_source:  # which is there
            found[i] = together.setdefault(number, [])
            found[i].append(i)
    return found


class _Scheduling:
    """A step as it is followed: a forward pass and, in training, backward pass and update."""

    def __init__(self, graph: Graph, training: bool, regions: Sequence[Region]) -> None:
        #: Whether layers read copies of the parameters: they are there from the layer's forward
        #: pass to its backward pass.
        self._copies = training and graph.precision.is_mixed
        #: The node that runs at each point, and the pass.
        self.points: list[tuple[int, str]] = []
        self.tensors: list[Tensor] = []
        #: How gradients lie, by what decides it.
        self._known_orders: dict[Any, tuple[tuple[Strides | None, ...], bool]] = {}
        self._viewed_back: dict[Any, Strides | None] = {}
        #: Those that are there at the end.
        self._lasting: list[Tensor] = []
        self.parts = _parts(graph, training)
        #: By the index of a part, those that are computed again together with it.
        self._again = _again(self.parts, regions)
        #: What each part keeps for its backward pass.
        self._kept: list[list[Tensor]] = []
        self._outputs: list[Tensor] = []
        #: Copies of parameters that are there to the end of the forward pass.
        self._cached: list[Tensor] = []
        self._forward()
        #: The last point of the forward pass.
        self.last_forward = len(self.points) - 1
        for tensor in self._cached:
            self._use(tensor)
        if training:
            self._backward()
            self._at(max(graph.nodes, key=lambda node: node.num_params), "update")
        for tensor in self._lasting:
            self._use(tensor)

    # Points and tensors

    def _at(self, node: Node, direction: str) -> None:
        """Begin a new point."""
        self.points.append((node.index, direction))

    def _make(self, node: Node, size: int | None, is_activation: bool = False) -> Tensor:
        """Return a new tensor, made at this point and, so far, used at this one alone."""
        now = len(self.points) - 1
        tensor = Tensor(node.index, size, now, now, is_activation)
        self.tensors.append(tensor)
        return tensor

    def _make_params(self, node: Node, num_params: int, is_copy: bool = False) -> Tensor:
        """Return a new tensor of so many parameters, their gradients, or their copies."""
        tensor = self._make(node, None)
        tensor.num_params, tensor.is_copy = num_params, is_copy
        return tensor

    def _take(self, part: _Part, which: int) -> None:
        """Take memory of one of a part's sizes at this point alone."""
        if part.kind.has[which]:
            self._make(part.node, part.kind.first + which)

    def _use(self, tensor: Tensor) -> None:
        """Note that a tensor is in use at this point."""
        tensor.dies = len(self.points) - 1

    # The passes

    def _forward(self) -> None:
        read = {
            parent for part in self.parts if not part.kind.layer.is_judge for parent in part.parents
        }
        for i, part in enumerate(self.parts):
            self._at(part.node, "forward")
            output = self._output(part, self._outputs)
            self._outputs.append(output)
            is_again = i in self._again and part.kind.has_gradient
            kept = self._keep(part, output, self._outputs, is_again)
            self._kept.append([] if is_again else kept)
            if i not in read:  # a result, which who called has to the end
                self._lasting.append(output)
                output.is_result = not any(output is each for each in kept)

    def _keep(
        self, part: _Part, output: Tensor, outputs: Sequence[Tensor], is_again: bool = False
    ) -> list[Tensor]:
        """Return what a part that runs keeps for its backward pass; nothing if it has none.

        Of what `is_again` computed later it is there for this point alone, but for the copy of its
        parameters: autocast has that as long as it is in force (torch.autocast, cache_enabled).
        """
        node, kind = part.node, part.kind
        self._take(part, _FORWARD)
        kept = [outputs[part.parents[k]] for k in kind.kept.inputs]
        if kind.has[_OWN]:
            kept.append(self._make(node, kind.first + _OWN, True))
        if kind.kept.output:
            kept.append(output)
        if self._copies:
            own_params = max(0, kind.num_params - node.shared_params)
            kept.append(self._make_params(node, own_params, is_copy=True))
            self._cached += kept[-1:] * is_again
        return kept if kind.has_gradient else []

    def _recompute(self, which: Sequence[int]) -> None:
        """Run these parts forward again, of which the backward pass comes next."""
        outputs = list(self._outputs)
        for i in which:
            part = self.parts[i]
            self._at(part.node, RECOMPUTATION)
            outputs[i] = self._output(part, outputs)
            self._kept[i] = self._keep(part, outputs[i], outputs)
            del self._again[i]

    def _output(self, part: _Part, outputs: Sequence[Tensor]) -> Tensor:
        """Return the tensor that a part writes to; `outputs` are those of parts before."""
        node, kind = part.node, part.kind
        for parent in part.parents:
            self._use(outputs[parent])
        if kind.kept.view:
            output = outputs[part.parents[0]]
            self._use(output)
            return output
        # What is trained is counted as weights.
        size = None if kind.is_source and kind.num_params else kind.first + _OUTPUT
        output = self._make(node, size, True)
        if kind.is_source:  # it is there from the start, and stays
            output.born = 0
            self._lasting.append(output)
        return output

    def _backward(self) -> None:
        gradients = self._first_gradients()
        # How many parameters have a gradient already, by their owner and the part of it.
        there: dict[tuple[int, int], int] = {}
        for i in reversed(range(len(self.parts))):
            part, gradient = self.parts[i], gradients.pop(i, None)
            if gradient is None:
                self._lasting += self._kept[i]
                continue
            if i in self._again:
                self._recompute(self._again[i])
            node, kind = part.node, part.kind
            self._at(node, "backward")
            for tensor in self._kept[i]:
                self._use(tensor)
            self._use(gradient.tensor)
            gradient.tensor.waiting -= 1
            self._take(part, _BACKWARD)
            is_cast = self._copies and kind.num_params
            if is_cast:
                half = self._make_params(node, kind.num_params, is_copy=True)
            else:
                self._weight_gradient(part, there)
            orders = self._orders(part, gradient)
            made = [
                (parent, self._input_gradient(part, k, gradient, orders[k]))
                for k, parent in enumerate(part.parents)
                if kind.needed[k]
            ]
            if is_cast:  # what the layer made in halves
                self._at(node, "backward")
                self._use(half)
                self._weight_gradient(part, there)
            for parent, new in made:
                before = gradients.get(parent)
                gradients[parent] = self._added(part, parent, before, new) if before else new

    def _first_gradients(self) -> dict[int, _Gradient]:
        """Return the gradients that the backward pass begins with: of losses, or of all results.

        Beside losses, results of what no loss follows from have them too: of a stage in several
        chunks, such as go to other stages.
        """
        learning = [i for i, part in enumerate(self.parts) if part.kind.has_gradient]
        read = {parent for i in learning for parent in self.parts[i].parents}
        ends = [i for i in learning if i not in read]
        losses = [i for i in ends if self.parts[i].kind.layer.is_loss]
        if not ends:
            return {}
        if losses and len(losses) < len(ends):
            judged = self._learning_before(losses)
            others = set(ends).difference(losses)
            losses += [i for i in others if judged.isdisjoint(self._learning_before([i]))]
        firsts = sorted(losses or ends)
        self._at(self.parts[firsts[-1]].node, "backward")
        return {i: self._gradient(self.parts[i].node, i) for i in firsts}

    def _learning_before(self, ends: Sequence[int]) -> set[int]:
        """Return the parts from which these follow, and that the backward pass comes through."""
        found = set(ends)
        for i in reversed(range(len(self.parts))):
            if i in found:
                found.update(j for j in self.parts[i].parents if self.parts[j].kind.has_gradient)
        return found

    def _gradient(self, node: Node, of: int, like: Strides | None = None) -> _Gradient:
        """Return a new gradient of a part's output, which waits to be used.

        Its elements lie in the order that these strides have, else in that of their dimensions.
        """
        part = self.parts[of]
        tensor = self._make(node, part.kind.first + _OUTPUT)
        tensor.waiting = 1
        if part.kind.copied is None:
            return _Gradient(tensor, part.strides)
        shape = part.node.output
        return _Gradient(tensor, dense(shape, like) if like else contiguous(shape))

    def _weight_gradient(self, part: _Part, there: dict[tuple[int, int], int]) -> None:
        """Make the gradient of a part's parameters; for those that have one it is added."""
        node, num_params = part.node, part.kind.num_params
        if not num_params:
            return
        place = node.index if node.owner is None else node.owner, part.kind.number
        common = num_params if node.owner is None else min(num_params, node.shared_params)
        twice = min(common, there.get(place, 0))
        there[place] = max(common, there.get(place, 0))
        self._lasting.append(self._make_params(node, num_params - twice))
        if twice:
            self._make_params(node, twice)

    def _orders(self, part: _Part, gradient: _Gradient) -> tuple[Strides | None, ...]:
        """Return how gradients of a part's inputs lie; it copies that of its output if it has to.

        They are None for those in the order of their dimensions.
        """
        kind = part.kind
        if kind.copied is None:
            return (None,) * len(part.inputs)
        read = [self.parts[parent].strides for parent in part.parents]
        key = id(kind), *read, gradient.strides
        if key not in self._known_orders:  # blocks repeat
            inputs, output = part.inputs, part.node.output
            if views.is_view(kind.layer, inputs):
                self._known_orders[key] = (None,) * len(inputs), False
            else:
                how = (kind.layer, inputs, output, read, gradient.strides)
                self._known_orders[key] = views.of_gradient(*how)
        orders, is_copied = self._known_orders[key]
        if is_copied:
            self._make(part.node, kind.first + _OUTPUT)
        return orders

    def _input_gradient(
        self, part: _Part, k: int, gradient: _Gradient, order: Strides | None
    ) -> _Gradient:
        node, kind = part.node, part.kind
        back = None
        if kind.copied is not None:
            key = id(kind), k, gradient.strides
            if key not in self._viewed_back:
                self._viewed_back[key] = kind.layer.viewed_back(part.inputs[k], gradient.strides)
            back = self._viewed_back[key]
        if back is None and k not in kind.kept.aliased:
            return self._gradient(node, part.parents[k], order)
        gradient.tensor.waiting += 1
        in_pieces = gradient.in_pieces or kind.kept.pieces
        return _Gradient(gradient.tensor, back or gradient.strides, in_pieces)

    def _added(self, part: _Part, of: int, before: _Gradient, new: _Gradient) -> _Gradient:
        """Return the sum of a gradient of a part's output and what has come of it before."""
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
