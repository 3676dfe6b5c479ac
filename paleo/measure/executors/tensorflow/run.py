"""Layers and nets as TensorFlow runs them, again and again.

A gradient is what TensorFlow derives, run by itself on what the forward pass kept. Of the
gradients of inputs and parameters, operators that both need belong to that of the parameters, as
in Paleo's layers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

from paleo.core.frozen import NamedTuple
from paleo.core.operations import Pass
from paleo.core.tensor import format_shape
from paleo.measure.executors.executor import PARTS, LayerRun, NetRun
from paleo.measure.executors.framework import LEARNING_RATE, ends
from paleo.measure.executors.shapes import Sizes
from paleo.measure.executors.tensorflow.builders import Block, Scene, UnbuildableError
from paleo.measure.executors.tensorflow.runtime import TensorFlowRuntime
from paleo.measure.executors.tensorflow.trace import Traced, before, by_name, computes, one_by_one
from paleo.net.graph import Graph, Node
from paleo.step.memory.usage import peak


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
        var=variable.handle, alpha=tf.constant(LEARNING_RATE, variable.dtype), delta=gradient
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


def _guarded(
    executor: TensorFlowRuntime, node: Node, run: Callable[[], object], held: Sequence[Any]
) -> Callable[[], object]:
    """Return what is run again and again; `held` stays: of variables a graph has only handles."""

    def call(held: Sequence[Any] = held) -> object:
        # What telling() does, without the microseconds of a context.
        try:
            with executor.on_device():
                return run()
        except (executor.tf.errors.OpError, MemoryError) as error:
            with executor.telling(node):
                raise error from None

    return call


def running_parameter(executor: TensorFlowRuntime, node: Node) -> LayerRun:
    """Return a Parameter by itself, of which there is nothing but the update."""
    return LayerRun({}, _update(executor, node, [node.output] * node.is_trained))


def _update(
    executor: TensorFlowRuntime, node: Node, shapes: Sequence[Sizes]
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
    return _guarded(executor, node, traced.call(before(added), []), variables)


class RunningLayer:
    """One layer, traced with its gradients, and the values of all that its parts are fed."""

    def __init__(
        self, executor: TensorFlowRuntime, node: Node, block: Block, needed: tuple[bool, ...]
    ) -> None:
        self.executor, self.node, self.tf = executor, node, executor.tf
        tf, count = self.tf, len(node.inputs)
        inputs = [
            executor.random(shape, 1 + k, node.layer.index_limit(k, node.inputs))
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
            output = block.run(scene, xs, ws, self._states)
            self._output += [output, *scene.updates]
            wanted = [x for x, need in zip(xs, needed, strict=True) if need and x.dtype.is_floating]
            found = _gradients(tf, output, [*wanted, *ws], start)
            self._of_inputs += [each for each in found[: len(wanted)] if each is not None]
            self._of_parameters += [each for each in found[len(wanted) :] if each is not None]

        self._traced = Traced(tf, function, values)

    def ready(self) -> LayerRun:
        """Run each part once, and return them."""
        forward, to_parameters, to_inputs = one_by_one(
            self._output, self._of_parameters, self._of_inputs
        )
        joins = bool(self._of_inputs and self._of_parameters) and not computes(to_inputs)
        #: What a part makes and a later one is fed.
        kept = [
            each
            for part in (to_parameters, to_inputs)
            for name, each in self._traced.fed(part).items()
            if name not in self._traced.given
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
        run = self._traced.call(operators, list({**made, **own}.values()))
        self._traced.given |= zip(made, run(), strict=False)
        return (
            _guarded(self.executor, self.node, run, self._states) if computes(operators) else None
        )


class _Training(NamedTuple):
    """The graph of a training step, and what each part fetches."""

    traced: Traced
    ends: list[Any]
    statistics: list[Any]
    loss: Any
    gradients: list[Any]
    updates: list[Any]


class RunningNet(NetRun):
    """A whole net. `blocks` are what its nodes are, None those of sources.

    Its graphs are traced, and optimized by TensorFlow, when they are first run.
    """

    def __init__(
        self, executor: TensorFlowRuntime, graph: Graph, blocks: Sequence[Block | None]
    ) -> None:
        self.executor, self.graph, self.tf, self._blocks = executor, graph, executor.tf, blocks
        executor.check_memory(peak(graph, training=False))
        limits = _limits(graph)
        self._ends = ends(graph)
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
        return traced.call(before(found), list(by_name(found).values()))

    @cached_property
    def _training(self) -> _Training:
        """The graph of a training step."""
        executor, tf = self.executor, self.tf
        have = sum(
            each.shape.num_elements() * each.dtype.size
            for each in chain(self._inputs.values(), *self._weights)
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
            gradients = _gradients(tf, loss, [*chain(*read)])
            known = [
                (variable, gradient)
                for variable, gradient in zip(chain(*self._weights), gradients, strict=True)
                if gradient is not None
            ]
            updates = [_descend(tf, variable, gradient) for variable, gradient in known]
            made.extend((ends, scene.updates, loss, [each for _, each in known], updates))

        return _Training(Traced(tf, function, values), *made)

    @cached_property
    def _step(self) -> Callable[[], object]:
        of = self._training
        return of.traced.call(before([of.loss, *of.statistics, *of.updates]), [of.loss])

    @cached_property
    def _parts(self) -> tuple[list[Callable[[dict[str, Any]], dict[str, Any]]], dict[str, Any]]:
        """What runs each part of a step on tensors by name, and the tensors of the first."""
        of = self._training
        traced = of.traced
        operators = one_by_one([*of.ends, *of.statistics], [of.loss], of.gradients, of.updates)
        parts = []
        for i, own in enumerate(operators):
            later = {
                name: each for part in operators[i + 1 :] for name, each in traced.fed(part).items()
            }
            parts.append(_part(traced, own, later))
        return parts, traced.given

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
                made.append(y)
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
            limit = node.layer.index_limit(k, node.inputs)
            if limit is None and node.layer.only_moves:
                limit = found.get(node.index)
            if limit is None or parent in others:
                others.add(parent)
                found.pop(parent, None)
            else:
                found[parent] = min(limit, found.get(parent, limit))
    return found
