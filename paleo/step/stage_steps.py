"""A micro-batch in each stage of a net: its step in memory, and what it receives and sends."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable
from typing import Any

from paleo.core.quantity import Quantity, total
from paleo.core.tensor import num_elements
from paleo.net.graph import Graph
from paleo.net.spec import NetSpec
from paleo.step.loss import NONE
from paleo.step.memory.footprint import Footprint, footprint, step_for
from paleo.step.memory.stage import stage_net
from paleo.step.memory.usage import Step
from paleo.step.offload import OPTIMIZER, kernels_on_host
from paleo.step.plan import Plan
from paleo.step.recompute import repeated_blocks
from paleo.step.stages import Cut


def in_memory(plan: Plan) -> dict[str, Any]:
    """Return the settings of memory of a stage's net, which has its loss."""
    settings = plan.in_memory | {"loss": NONE}
    if OPTIMIZER in plan.offload:  # no list of it is made on the device
        settings["optimizer_kernels"] = kernels_on_host(plan)
    return settings


class StageSteps:
    """What a micro-batch of so many samples is in each stage of a net that is dealt out."""

    def __init__(
        self, net: NetSpec, graph: Graph, found: Cut, micro_batch: int, settings: dict[str, Any]
    ) -> None:
        self._net, self._graph, self._cut = net, graph, found
        self._micro_batch, self._settings = micro_batch, settings
        self._blocks = [[graph.nodes[i].name for i in block] for block in repeated_blocks(graph)]
        self._steps: dict[Hashable, tuple[Step, list[list[int]]]] = {}
        self._footprints: dict[Hashable, Footprint] = {}

    def of(self, stage: int) -> tuple[Step, list[list[int]]]:
        """Return the step of a micro-batch in a stage, and the nodes of each block in it."""
        alike = self._alike(stage)
        if alike not in self._steps:
            net, settings = self._stage_net(stage)
            step = step_for(net, self._micro_batch, **settings)
            places = {node.name: node.index for node in step.graph.nodes}
            found = ([places[each] for each in block if each in places] for block in self._blocks)
            self._steps[alike] = step, [block for block in found if block]
        return self._steps[alike]

    def footprint(self, stage: int) -> Footprint:
        """Return what a micro-batch takes of memory in a stage."""
        alike = self._alike(stage)
        if alike not in self._footprints:
            net, settings = self._stage_net(stage)
            self._footprints[alike] = footprint(net, self._micro_batch, **settings)
        return self._footprints[alike]

    def passed(self, stage: int) -> tuple[Quantity, Quantity]:
        """Return the bytes that a stage's chunks receive of a micro-batch, and send.

        What comes into the net is received, too.
        """
        graph, chunks = self._graph, range(len(self._cut.bounds) - 1)
        passing = self._cut.passed(graph)

        def size_of(nodes: Iterable[int]) -> Quantity:
            return graph.element_size * total(num_elements(graph.nodes[i].output) for i in nodes)

        def passed(boundaries: Iterable[int]) -> Quantity:
            inner = (each for each in boundaries if 0 < each < len(chunks))
            return total(size_of(passing[each]) for each in inner)

        own = chunks[stage :: self._cut.stages]
        inputs = size_of(i for i in self._cut.nodes(stage) if graph.nodes[i].layer.is_input)
        return passed(own) + inputs, passed(chunk + 1 for chunk in own)

    def _alike(self, stage: int) -> Hashable:
        """Return what equal stages have in common: what they do, and of that do again."""
        regions = self._settings["recompute"].regions(self._graph)
        again = set(itertools.chain(*regions))
        return tuple((self._graph.nodes[i].like, i in again) for i in self._cut.nodes(stage))

    def _stage_net(self, stage: int) -> tuple[NetSpec, dict[str, Any]]:
        """Return the net of a stage, and the settings of its memory."""
        nodes = self._cut.nodes(stage)
        recompute = self._settings["recompute"].within(self._graph, set(nodes))
        net = stage_net(self._net, self._graph, nodes)
        return net, self._settings | {"recompute": recompute}
