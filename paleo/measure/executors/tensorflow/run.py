"""Layers and nets as TensorFlow runs them, again and again.

A gradient is what TensorFlow derives, run by itself on what the forward pass kept. Of the
gradients of inputs and parameters, operators that both need belong to that of the parameters, as
in Paleo's layers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from paleo.executors.base import PARTS, LayerRun, NetRun
from paleo.executors.pytorch_run import peak
from paleo.executors.tensorflow_blocks import Block, Scene, Sizes, UnbuildableError
from paleo.executors.tensorflow_elements import index_limit
from paleo.executors.tensorflow_graph import Traced, before, by_name, computes, without
from paleo.graph import Graph, Node
from paleo.tensor import format_shape
from paleo.work import Pass

if TYPE_CHECKING:
    from paleo.executors.tensorflow import TensorFlow

__all__ = ["RunningLayer", "RunningNet", "running_parameter"]

#: So small that parameters stay what they are, however many steps are run.
_LEARNING_RATE = 1e-6
#: Layers that hand whole numbers on.
_PASS_ON = ("Reshape", "Flatten", "Slice", "Transpose", "Expand", "Concatenate", "Gather", "Pad")


def _checked(made: Any, node: Node) -> Any:
    """Return a tensor; raises UnbuildableError if it has not the shape that the graph says."""
    if tuple(made.shape) != tuple(node.output):
        gives, wanted = format_shape(tuple(made.shape)), format_shape(node.output)
        raise UnbuildableError(f"TensorFlow gives {gives}, the net format {wanted}")
    return made


def _gradients(tf: Any, of: Any, by: Sequence[Any], start: Any = None) -> list[Any]:
    """Add the operators of gradients, None where there is none.

    That of a table of which rows were read is a tensor of the table's shape.
    """
    if not by or not of.dtype.is_floating:
        return [None] * len(by)
    return [
        tf.math.unsorted_segment_sum(each.values, each.indices, x.shape[0])
        if isinstance(each, tf.IndexedSlices)
        else each
        for each, x in zip(tf.gradients(of, list(by), start), by, strict=True)
    ]


def _descend(tf: Any, variable: Any, gradient: Any) -> Any:
    """Add the operator that updates a variable, and return it."""
    return tf.raw_ops.ResourceApplyGradientDescent(
        var=variable.handle, alpha=tf.constant(_LEARNING_RATE, variable.dtype), delta=gradient
    )


def _own(shapes: Sequence[Sizes], shared: int) -> list[int]:
    """Return which parameters are a layer's own, where so many elements are another's.

    The first that are no larger than what is left of those are the other's.
    """
    own = []
    for i, shape in enumerate(shapes):
        if 0 < (size := math.prod(shape)) <= shared:
            shared -= size
        else:
            own.append(i)
    return own


class _Call:
    """What is run again and again, and what has to stay: of variables a graph has only handles."""

    def __init__(
        self,
        executor: TensorFlow,
        node: Node,
        run: Callable[..., object],
        values: Sequence[Any],
        held: Sequence[Any],
    ) -> None:
        self._executor, self._node = executor, node
        self._run, self._values, self._held = run, values, held

    def __call__(self) -> object:
        # What telling() does, without the microseconds of a context.
        try:
            with self._executor.on_device():
                return self._run(*self._values)
        except (self._executor.tf.errors.OpError, MemoryError) as error:
            with self._executor.telling(self._node):
                raise error from None


def running_parameter(executor: TensorFlow, node: Node) -> LayerRun:
    """Return a Parameter by itself, of which there is nothing but the update."""
    return LayerRun({}, _update(executor, node, [node.output] * node.is_trained))


def _update(
    executor: TensorFlow, node: Node, shapes: Sequence[Sizes]
) -> Callable[[], object] | None:
    """Return what adds gradients to parameters of these shapes; None if there are none."""
    if not shapes:
        return None
    tf = executor.tf
    gradients = [tf.cast(executor.random(shape, 0), executor.learning) for shape in shapes]
    variables = [tf.Variable(tf.zeros_like(each)) for each in gradients]
    added: list[Any] = []

    def function(*tensors: Any) -> None:
        added.extend(
            _descend(tf, variable, each) for variable, each in zip(variables, tensors, strict=True)
        )

    traced = Traced(tf, function, gradients)
    there, operators = dict(zip(by_name(traced.arguments), gradients, strict=True)), before(added)
    values = [there[name] for name in traced.fed(operators)]
    return _Call(executor, node, traced.part(operators, []), values, variables)


class RunningLayer:
    """One layer, traced with its gradients, and the values of all that its parts are fed."""

    def __init__(
        self, executor: TensorFlow, node: Node, block: Block, needed: tuple[bool, ...]
    ) -> None:
        self.executor, self.node, self.tf = executor, node, executor.tf
        tf, count = self.tf, len(node.inputs)
        inputs = [
            executor.random(shape, 1 + k, index_limit(node.layer, k, node.inputs))
            for k, shape in enumerate(node.inputs)
        ]
        values = [*inputs, *executor.values(block.parameters), executor.random(node.output, 0)]
        self._states = [
            tf.Variable(each, trainable=False) for each in executor.values(block.statistics)
        ]
        self._shapes = [each.shape for each in block.parameters]
        #: What is fetched: the output, with statistics, and the gradients.
        self._output: list[Any] = []
        self._of_inputs: list[Any] = []
        self._of_parameters: list[Any] = []

        def function(*tensors: Any) -> None:
            scene = Scene(tf, executor.computing, training=True)
            xs, ws, start = tensors[:count], tensors[count:-1], tensors[-1]
            output = _checked(block.run(scene, xs, ws, self._states), node)
            self._output += [output, *scene.updates]
            wanted = [x for x, need in zip(xs, needed, strict=True) if need and x.dtype.is_floating]
            found = _gradients(tf, output, [*wanted, *ws], start)
            self._of_inputs += [each for each in found[: len(wanted)] if each is not None]
            self._of_parameters += [each for each in found[len(wanted) :] if each is not None]

        self._traced = Traced(tf, function, values)
        self._there = dict(zip(by_name(self._traced.arguments), values, strict=True))

    def ready(self) -> LayerRun:
        """Run each part once, and return them."""
        forward = before(self._output)
        to_parameters = without(before(self._of_parameters), forward)
        to_inputs = without(before(self._of_inputs), forward, to_parameters)
        joins = bool(self._of_inputs and self._of_parameters) and not computes(to_inputs)
        #: What a part makes and a later one is fed.
        kept = [
            each
            for part in (to_parameters, to_inputs)
            for name, each in self._traced.fed(part).items()
            if name not in self._there
        ]
        passes = {
            Pass.FORWARD: self._part(forward, self._output, kept),
            Pass.WEIGHT_GRADIENT: self._part(
                to_parameters, [*self._of_parameters, *self._of_inputs], kept
            ),
            Pass.INPUT_GRADIENT: self._part(to_inputs, self._of_inputs, kept),
        }
        own = [self._shapes[i] for i in _own(self._shapes, self.node.shared_params)]
        return LayerRun(
            {direction: call for direction, call in passes.items() if call},
            _update(self.executor, self.node, own),
            joins=joins,
        )

    def _part(
        self, operators: Mapping[str, Any], targets: Sequence[Any], kept: Sequence[Any]
    ) -> Callable[[], object] | None:
        """Run operators for their targets and for what later parts are fed, and return them.

        None if they compute nothing.
        """
        if not operators:
            return None
        made = by_name(each for each in kept if each.op.name in operators)
        own = by_name(each for each in targets if hasattr(each, "op") and each.op.name in operators)
        run = self._traced.part(operators, list({**made, **own}.values()))
        values = [self._there[name] for name in self._traced.fed(operators)]
        self._there |= zip(made, run(*values), strict=False)
        if not computes(operators):
            return None
        return _Call(self.executor, self.node, run, values, self._states)


class _Training(NamedTuple):
    """The graph of a training step, what comes in by name, and what each part fetches."""

    traced: Traced
    there: dict[str, Any]
    ends: list[Any]
    statistics: list[Any]
    loss: Any
    gradients: list[Any]
    updates: list[Any]


class RunningNet(NetRun):
    """A whole net. `blocks` are what its nodes are, None those of sources.

    Its graphs are traced, and optimized by TensorFlow, when they are first run.
    """

    def __init__(self, executor: TensorFlow, graph: Graph, blocks: Sequence[Block | None]) -> None:
        self.executor, self.graph, self.tf, self._blocks = executor, graph, executor.tf, blocks
        executor.check_memory(peak(graph, training=False))
        limits = _limits(graph)
        inner = {parent for node in graph.nodes for parent in node.parents}
        self._ends = [node.index for node in graph.nodes if node.index not in inner]
        self._states: list[list[Any]] = []
        self._weights: list[list[Any]] = []
        with executor.telling(), executor.on_device():
            #: What comes in, by node.
            self._inputs = {
                node.index: executor.random(node.output, node.index, limits.get(node.index))
                for node in graph.nodes
                if node.layer.is_input
            }
            for node, block in zip(graph.nodes, blocks, strict=True):
                self._hold(node, block)

    def _hold(self, node: Node, block: Block | None) -> None:
        """Make the variables of a node, but for parameters that are another's."""
        tf, executor = self.tf, self.executor
        weights: list[Any] = []
        states: list[Any] = []
        if block is not None:
            own = _own([each.shape for each in block.parameters], node.shared_params)
            weights = executor.values([block.parameters[i] for i in own])
            states = executor.values(block.statistics)
        elif not node.layer.is_input:
            value = tf.cast(executor.random(node.output, node.index), executor.learning)
            (weights if node.is_trained else states).append(value)
        self._weights.append([tf.Variable(each) for each in weights])
        self._states.append([tf.Variable(each, trainable=False) for each in states])

    def infer(self) -> None:
        with self.executor.telling(), self.executor.on_device():
            self._inference()

    def step(self, mark: Callable[[str], object] | None = None) -> None:
        """Run one training step: in one graph, if nobody wants to know of its parts.

        With a `mark` the same operators run in four, one for each part; what the backward pass
        needs then stays until that is done, where one graph drops each tensor on the way.
        """
        executor = self.executor
        if mark is None:
            with executor.telling(), executor.on_device():
                self._step()
            return
        with executor.telling(), executor.on_device():
            parts, values = self._parts
        for name, run in zip(PARTS, parts, strict=True):
            with executor.telling(), executor.on_device():
                values = run(values)
            mark(name)

    @cached_property
    def _inference(self) -> Callable[[], object]:
        found: list[Any] = []

        def function(*inputs: Any) -> None:
            scene = Scene(self.tf, self.executor.computing, training=False)
            found.extend(self._forward(scene, inputs, self._read()))

        traced = Traced(self.tf, function, list(self._inputs.values()))
        operators = before(found)
        run = traced.part(operators, list(by_name(found).values()))
        there = dict(zip(by_name(traced.arguments), self._inputs.values(), strict=True))
        return partial(run, *(there[name] for name in traced.fed(operators)))

    @cached_property
    def _training(self) -> _Training:
        """The graph of a training step."""
        executor, tf = self.executor, self.tf
        have = sum(
            each.shape.num_elements() * each.dtype.size
            for each in (*self._inputs.values(), *(w for ws in self._weights for w in ws))
        )
        executor.check_memory(peak(self.graph, training=True), have=have)
        #: What each element of the results counts in the loss.
        counts = [executor.random(self.graph.nodes[i].output, i) for i in self._ends]
        values = [*self._inputs.values(), *counts]
        made: list[Any] = []

        def function(*tensors: Any) -> None:
            scene = Scene(tf, executor.computing, training=True)
            number = len(self._inputs)
            read = self._read()
            ends = self._forward(scene, tensors[:number], read)
            loss = tf.add_n(
                [
                    tf.reduce_sum(tf.cast(end * count, executor.learning))
                    for end, count in zip(ends, tensors[number:], strict=True)
                ]
            )
            pairs = [
                pair
                for variables, tensors in zip(self._weights, read, strict=True)
                for pair in zip(variables, tensors, strict=True)
            ]
            found = _gradients(tf, loss, [tensor for _, tensor in pairs])
            known = [
                (variable, gradient)
                for (variable, _), gradient in zip(pairs, found, strict=True)
                if gradient is not None
            ]
            updates = [_descend(tf, variable, gradient) for variable, gradient in known]
            made.extend((ends, scene.updates, loss, [each for _, each in known], updates))

        traced = Traced(tf, function, values)
        there = dict(zip(by_name(traced.arguments), values, strict=True))
        return _Training(traced, there, *made)

    @cached_property
    def _step(self) -> Callable[[], object]:
        of = self._training
        operators = before([of.loss, *of.statistics, *of.updates])
        run = of.traced.part(operators, [of.loss])
        return partial(run, *(of.there[name] for name in of.traced.fed(operators)))

    @cached_property
    def _parts(self) -> tuple[list[Callable[[dict[str, Any]], dict[str, Any]]], dict[str, Any]]:
        """What runs each part of a step on tensors by name, and the tensors of the first."""
        of = self._training
        traced = of.traced
        forward = before([*of.ends, *of.statistics])
        loss = without(before([of.loss]), forward)
        backward = without(before(of.gradients), forward, loss)
        update = without(before(of.updates), forward, loss, backward)
        operators = (forward, loss, backward, update)
        parts = []
        for i, own in enumerate(operators):
            later = {
                name: each for part in operators[i + 1 :] for name, each in traced.fed(part).items()
            }
            parts.append(_part(traced, own, later))
        return parts, of.there

    def _read(self) -> list[list[Any]]:
        """Add operators that read the parameters of all nodes, each once."""
        return [[each.read_value() for each in weights] for weights in self._weights]

    def _used(self, node: Node, block: Block, read: list[list[Any]]) -> list[Any]:
        """Return the parameters that a node uses, its own and those of another.

        These are as large, but may have another shape: a table of V x D is a matrix of D x V.
        """
        own = read[node.index]
        if node.owner is None:
            return own
        shapes = [each.shape for each in block.parameters]
        places = _own(shapes, node.shared_params)
        theirs = list(read[node.owner])
        used = []
        for i, shape in enumerate(shapes):
            if i in places:
                used.append(own[places.index(i)])
                continue
            size = math.prod(shape)
            fits = [each for each in theirs if each.shape.num_elements() == size]
            if not fits:
                raise UnbuildableError(f"no parameters of {format_shape(shape)} to share")
            theirs.remove(fits[0])
            used.append(self.tf.reshape(fits[0], shape))
        return used

    def _forward(self, scene: Scene, inputs: Sequence[Any], read: list[list[Any]]) -> list[Any]:
        """Add the operators of all nodes, and return what the last ones give."""
        there = dict(zip(self._inputs, inputs, strict=True))
        made: list[Any] = []
        for node, block in zip(self.graph.nodes, self._blocks, strict=True):
            with self.executor.telling(node):
                if block is not None:
                    xs = [made[parent] for parent in node.parents]
                    used = self._used(node, block, read)
                    y = block.run(scene, xs, used, self._states[node.index])
                elif node.layer.is_input:
                    y = there[node.index]
                else:
                    y = scene.cast([*read[node.index], *self._states[node.index]][0])
                made.append(_checked(y, node))
        return [made[i] for i in self._ends]


def _part(
    traced: Traced, operators: Mapping[str, Any], later: Mapping[str, Any]
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return what runs operators on tensors by name, and gives those that `later` ones are fed."""
    fed = traced.fed(operators)
    made = {name: each for name, each in later.items() if each.op.name in operators}
    run = traced.part(operators, list(made.values()))

    def part(values: dict[str, Any]) -> dict[str, Any]:
        new = dict(zip(made, run(*(values[name] for name in fed)), strict=True))
        return {name: value for name, value in (values | new).items() if name in later}

    return part


def _limits(graph: Graph) -> dict[int, int]:
    """Return below what the whole numbers of nodes are, of those that nobody reads otherwise."""
    found: dict[int, int] = {}
    others: set[int] = set()
    for node in reversed(graph.nodes):
        for k, parent in enumerate(node.parents):
            limit = index_limit(node.layer, k, node.inputs)
            if limit is None and node.type_name in _PASS_ON and k == 0:
                limit = found.get(node.index)
            if limit is None or parent in others:
                others.add(parent)
                found.pop(parent, None)
            else:
                found[parent] = min(limit, found.get(parent, limit))
    return found
