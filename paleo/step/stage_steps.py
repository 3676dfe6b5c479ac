"""A micro-batch in each stage of a net: its step in memory, and what it receives and sends."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable
from typing import Any

from paleo.core.quantity import Quantity, total
from paleo.core.tensor import num_elements
from paleo.net.graph import Graph
from paleo.net.spec import NetSpec
from paleo.step.loss import NONE
from paleo.step.memory.footprint import Footprint, footprint, step_for, step_once
from paleo.step.memory.stage import Sharing, StageMemory, Taken, stage_memory, stage_net, taken
from paleo.step.memory.usage import Step
from paleo.step.offload import OPTIMIZER, kernels_on_host
from paleo.step.plan import Plan
from paleo.step.recompute import repeated_blocks
from paleo.step.stages import Cut, found_likes


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
        self._likes = graph.once(found_likes)
        self._are_inputs = graph.by_node(lambda node: node.layer.is_input)
        self._steps: dict[Hashable, tuple[Step, list[list[int]]]] = {}
        self._footprints: dict[Hashable, Footprint] = {}
        self._taken: dict[Hashable, Taken] = {}

    def of(self, stage: int) -> tuple[Step, list[list[int]]]:
        """Return the step of a micro-batch in a stage, and the nodes of each block in it."""
        alike = self._alike(stage)
        if alike not in self._steps:
            net, settings = self._stage_net(stage)
            # The whole net is asked for again, of other micro-batches.
            make = step_for if net is self._net else step_once
            step = make(net, self._micro_batch, **settings)
            by_name = {node.name: node.index for node in step.graph.nodes}
            nodes = self._graph.nodes
            there = {i for own in self._cut.nodes(stage) for i in (own, *nodes[own].parents)}
            places = {i: by_name[nodes[i].name] for i in there}
            blocks = repeated_blocks(self._graph)
            found = ([places[i] for i in block if i in places] for block in blocks)
            self._steps[alike] = step, [block for block in found if block]
        return self._steps[alike]

    def memory(
        self,
        stage: int,
        sharing: Sharing,
        changed: Callable[[StageMemory], StageMemory] | None = None,
    ) -> StageMemory:
        """Return the memory of a device of a stage; those alike share what is divided alike."""
        key = self._alike(stage), sharing.how
        if key not in self._taken:
            self._taken[key] = taken(*self.of(stage), sharing)
        return stage_memory(stage, self._taken[key], sharing, changed)

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
        inputs = size_of(i for i in self._cut.nodes(stage) if self._are_inputs[i])
        return passed(own) + inputs, passed(chunk + 1 for chunk in own)

    def _alike(self, stage: int) -> Hashable:
        """Return what equal stages have in common: what they do, and of that do again."""
        regions = self._settings["recompute"].regions(self._graph)
        again = set(itertools.chain(*regions))
        return tuple((self._likes[i], i in again) for i in self._cut.nodes(stage))

    def _stage_net(self, stage: int) -> tuple[NetSpec, dict[str, Any]]:
        """Return the net of a stage, and the settings of its memory."""
        nodes = self._cut.nodes(stage)
        whole = self._graph.net_of(self._net, nodes)
        if whole is self._net and len(nodes) == len(self._graph.nodes):
            return whole, self._settings
        recompute = self._settings["recompute"].within(self._graph, set(nodes))
        net = stage_net(whole, self._graph, nodes)
        return net, self._settings | {"recompute": recompute}
