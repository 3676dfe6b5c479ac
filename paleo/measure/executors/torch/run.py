"""Layers and nets as PyTorch runs them, again and again: what the executor returns."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from paleo.core.operations import Pass
from paleo.measure.executors.executor import LayerRun, NetRun
from paleo.measure.executors.framework import LEARNING_RATE, ends
from paleo.measure.executors.torch.runtime import FAULTS, TorchRuntime
from paleo.net.graph import Graph, Node
from paleo.step.memory.usage import peak


class RunningLayer:
    """One layer: its inputs, what it holds, and what its backward passes need of a forward pass.

    Of a convolution with an activation, the gradient of the input begins at the convolution, and
    what comes behind belongs to the parameters' gradient, as the layers of Paleo count.
    """

    def __init__(
        self, executor: TorchRuntime, planned: Any, parents: Sequence[Any], needed: tuple[bool, ...]
    ) -> None:
        self.executor, self.torch = executor, executor.torch
        self.node: Node = planned.node
        self.stages = planned.stages
        self.value = planned.value
        self.parents = parents
        #: Whether it draws random numbers in a run.
        self.draws = any(held.is_generator for stage in self.stages for held in stage.held)
        with executor.telling(self.node.name):
            self.inputs = [executor.tensor(parent) for parent in parents]
            self.held = [executor.held(stage) for stage in self.stages]
            self.parameters = executor.learnt(self.held)
            if not self.stages and self.node.is_trained:
                self.parameters = [executor.tensor(self.value, executor.learning)]
        self.wanted = [
            x.requires_grad_()
            for x, need in zip(self.inputs, needed, strict=True)
            if need and x.is_floating_point()
        ]
        self._kept: tuple[Pass, Any, Any] | None = None
        self._gradients: list[Any] | None = None

    def ready(self) -> LayerRun:
        """Return the passes that there are."""
        update = self._guarded(self._update) if self.parameters else None
        if not self.stages:
            return LayerRun({}, update)
        joins = any(stage.joins for stage in self.stages)
        count = len(self.stages)
        forward: Callable[[], object] = partial(self._run, count)
        if count == 1 and not self.executor.precision.is_mixed:
            # Small layers take microseconds: nothing stands around them.
            forward = partial(self.stages[0].run, self.inputs, self.held[0], True)
        passes = {Pass.FORWARD: self._guarded(forward)}
        if self.wanted and not joins and self._reaches():
            passes[Pass.INPUT_GRADIENT] = self._gradient(Pass.INPUT_GRADIENT, 1, self.wanted)
        if self.parameters:
            wanted = [*self.parameters, *self.wanted] if joins else self.parameters
            passes[Pass.WEIGHT_GRADIENT] = self._gradient(Pass.WEIGHT_GRADIENT, count, wanted)
        return LayerRun(passes, update, joins=joins)

    def _reaches(self) -> bool:
        """Tell whether a gradient comes back to the inputs, on tensors without data."""
        tensors = [
            parent.tensor.detach().requires_grad_(x.requires_grad)
            for parent, x in zip(self.parents, self.inputs, strict=True)
        ]
        held = [
            each.detach().to("meta") if isinstance(each, self.torch.Tensor) else None
            for each in self.held[0]
        ]
        with self.torch.enable_grad():
            return bool(self.stages[0].run(tensors, held, False).requires_grad)

    def _guarded(self, run: Callable[[], object]) -> Callable[[], object]:
        return self.executor.guarded(run, self.node.name, self.draws, self._forget)

    def _forget(self) -> None:
        self._kept = None

    def _run(self, stages: int) -> Any:
        """Run the first stages, with a graph for the backward pass."""
        tensors = self.inputs
        with self.torch.enable_grad(), self.executor.autocast():
            for stage, held in zip(self.stages[:stages], self.held, strict=False):
                tensors = [stage.run(tensors, held, True)]
        return tensors[0]

    def _graph(self, direction: Pass, stages: int) -> tuple[Any, Any]:
        """Return the output of the first stages and a gradient of it; kept for the next run."""
        if self._kept is None or self._kept[0] is not direction:
            self._kept = None
            output = self._run(stages)
            gradient = self.executor.normal(output.numel(), output.dtype)
            self._kept = (direction, output, gradient.view(output.shape))
        return self._kept[1:]

    def _gradient(
        self, direction: Pass, stages: int, wanted: Sequence[Any]
    ) -> Callable[[], object]:
        """Return what computes the gradients of tensors from the output of the first stages."""

        def run() -> object:
            output, gradient = self._graph(direction, stages)
            return self.torch.autograd.grad(
                output, wanted, gradient, retain_graph=True, allow_unused=True
            )

        return self._guarded(run)

    def _update(self) -> None:
        torch = self.torch
        if self._gradients is None:
            self._kept = None
            self._gradients = [
                self.executor.normal(each.numel(), each.dtype).view(each.shape)
                for each in self.parameters
            ]
        with torch.no_grad():
            if self.executor.place == "cpu":  # as torch.optim.SGD does by default
                for each, gradient in zip(self.parameters, self._gradients, strict=True):
                    each.add_(gradient, alpha=-LEARNING_RATE)
            else:
                torch._foreach_add_(self.parameters, self._gradients, alpha=-LEARNING_RATE)


class RunningNet(NetRun):
    """A whole net: its layers' stages one after the other, tensors dropped after their last use."""

    def __init__(self, executor: TorchRuntime, graph: Graph, planned: Sequence[Any]) -> None:
        self.executor, self.torch, self.graph = executor, executor.torch, graph
        executor.check_memory(peak(graph, training=False))
        last = {parent: each.node.index for each in planned for parent in each.node.parents}
        #: The layers that nobody reads.
        self.ends = ends(graph)
        self.parameters: list[Any] = []
        #: The tensors of sources, by node.
        self.values: list[Any] = [None] * len(planned)
        #: For each stage: node, what it runs and holds, which nodes it reads, which are done with.
        self.calls: list[tuple[int, Any, list[Any], tuple[int, ...], tuple[int, ...]]] = []
        #: Whether it draws random numbers in a run.
        self.draws = any(
            held.is_generator for each in planned for stage in each.stages for held in stage.held
        )
        #: The node that is made, or that runs, for errors.
        self.at: int | None = None
        with self._running():
            self._make(planned, last)
        self.at = None
        self._optimizer: Any = None
        self._weights: dict[int, Any] = {}

    def _make(self, planned: Sequence[Any], last: Mapping[int, int]) -> None:
        """Make every tensor that the net holds, and the calls in order."""
        executor = self.executor
        held: dict[int, list[list[Any]]] = {}
        for each in planned:
            self.at = each.node.index
            if not each.stages:
                value = executor.tensor(each.value, executor.learning)
                if each.node.is_trained:
                    self.parameters.append(value.requires_grad_())
                self.values[self.at] = value
            elif each.node.owner is None:
                held[self.at] = [executor.held(stage) for stage in each.stages]
                self.parameters += executor.learnt(held[self.at])
        for each in planned:
            self.at = each.node.index
            if each.node.owner is not None:
                held[self.at] = [self._sharing(stage, held) for stage in each.stages]
            reads = each.node.parents
            drops = tuple(k for k in dict.fromkeys(reads) if last[k] == self.at)
            for stage, tensors in zip(each.stages, held.get(self.at, []), strict=True):
                self.calls.append((self.at, stage.run, tensors, reads, drops))
                reads, drops = (self.at,), ()

    def _sharing(self, stage: Any, held: Mapping[int, list[list[Any]]]) -> list[Any]:
        """Return what a stage holds where some of it is another layer's, maybe in another shape."""
        made = []
        for each in stage.held:
            if each.shared is None:
                made.append(self.executor.made(each))
                self.parameters += self.executor.learnt([made[-1:]])
            else:
                node, part, place = each.shared
                tensor = self.values[node] if part < 0 else held[node][part][place]
                made.append(tensor if tensor.shape == each.shape else tensor.view(each.shape))
        return made

    @contextlib.contextmanager
    def _running(self) -> Iterator[None]:
        """Turn what PyTorch raises into an error that names the layer, if one runs."""
        try:
            with self.executor.computing_as_asked(self.draws):
                yield
        except FAULTS as error:
            name = None if self.at is None else self.graph.nodes[self.at].name
            raise self.executor.error(error, name) from None

    def forward(self, training: bool) -> dict[int, Any]:
        """Return what the net's last layers give, by node."""
        values = self.values.copy()
        for at, run, held, reads, drops in self.calls:
            self.at = at
            values[at] = run([values[k] for k in reads], held, training)
            for k in drops:
                values[k] = None
        self.at = None
        return {k: values[k] for k in self.ends}

    def infer(self) -> None:
        with self._running(), self.torch.inference_mode(), self.executor.autocast():
            self.forward(False)

    def step(self, mark: Callable[[str], object] = lambda part: None) -> None:
        if self._optimizer is None:
            self._prepare()
        with self._running(), self.torch.enable_grad():
            with self.executor.autocast():
                results = self.forward(True)
                mark("forward")
                loss = self._loss(results)
                mark("loss")
            del results
            if loss is not None:
                loss.backward()
            mark("backward")
            if self.parameters:
                self._optimizer.step()
                self._optimizer.zero_grad(set_to_none=True)
            mark("update")

    def _prepare(self) -> None:
        sources = [value for value in self.values if value is not None]
        have = sum(each.nbytes for each in (*self.parameters, *sources))
        self.executor.check_memory(peak(self.graph, training=True), have=have)
        if self.parameters:
            self._optimizer = self.torch.optim.SGD(self.parameters, lr=LEARNING_RATE)
        else:
            self._optimizer = True

    def _loss(self, results: Mapping[int, Any]) -> Any:
        """Return the sum of all results with a gradient, each element times a fixed weight."""
        found = None
        for k, result in results.items():
            if result.requires_grad:
                flat = result.reshape(-1)
                if k not in self._weights:
                    self._weights[k] = self.executor.normal(flat.numel(), flat.dtype)
                part = self.torch.dot(flat, self._weights[k])
                found = part if found is None else found + part
        return found
