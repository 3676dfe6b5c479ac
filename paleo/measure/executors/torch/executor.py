"""PyTorch: nets and layers run by its own operators, on a CPU, a CUDA device or Apple's GPU.

How tensors lie in memory, and what each layer is, is in `memory_order` and `layers`.
"""

from __future__ import annotations

import importlib
from typing import Any, ClassVar

from paleo.core.errors import ExecutorError, PaleoError
from paleo.measure.executors.executor import LayerRun, NetRun
from paleo.measure.executors.torch.run import RunningLayer, RunningNet
from paleo.measure.executors.torch.runtime import TorchRuntime
from paleo.net.graph import Graph, Node


class PyTorch(TorchRuntime):
    """PyTorch's eager mode, as a program has it that sets no option.

    In mixed precision layers run under autocast, with fp32 parameters; gradients are not scaled.
    In tf32 and fp32 the settings of CUDA's libraries are what the type says while something runs.
    """

    name: ClassVar[str] = "torch"
    summary: ClassVar[str] = "PyTorch 2.7 or newer, on a CPU, a CUDA device or Apple's GPU"

    def __init__(self, place: str | None = None, dtype: str = "fp32") -> None:
        super().__init__(place, dtype)
        self._planner: Any = importlib.import_module("paleo.measure.executors.torch.memory_order")
        self._plan: tuple[Graph, list[Any]] | None = None

    def layer(self, graph: Graph, node: Node, needed: tuple[bool, ...]) -> LayerRun:
        plan = self._planned(graph)
        planned = plan[node.index]
        if isinstance(planned, PaleoError):
            raise planned
        self.check_memory(self.layer_bytes(graph, node), node.name)
        value_of, dtype = self._planner.value_of, self.learning
        parents = [value_of(plan[k], graph.nodes[k], dtype) for k in node.parents]
        return RunningLayer(self, planned, parents, needed).ready()

    def net(self, graph: Graph) -> NetRun:
        planned = self._planned(graph)
        errors = [error for error in planned if isinstance(error, PaleoError)]
        if errors:
            raise ExecutorError([mistake for error in errors for mistake in error.mistakes])
        return RunningNet(self, graph, planned)

    def _planned(self, graph: Graph) -> list[Any]:
        """Return what each node runs; that of the last graph is kept."""
        self.check_batch(graph)
        if self._plan is None or self._plan[0] is not graph:
            self._plan = (graph, self._planner.plan(graph, self.learning))
        return self._plan[1]
