"""The memory of a device that has a stage of a net, with the micro-batches that are on their way.

Besides what one micro-batch takes at its peak there are the activations of the others that the
stage has taken forward and not yet back. What shares of the data divide counts once for all of
them (S. Rajbhandari et al., "ZeRO: memory optimizations toward training trillion parameter models",
arXiv:1910.02054, section 3: the optimizer's state, gradients too, parameters too).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from paleo.core.attributes import attributes
from paleo.core.frozen import dataclass
from paleo.core.quantity import Quantity
from paleo.net.graph import Graph
from paleo.net.layers.reshape import Input
from paleo.net.spec import LayerSpec, NetSpec
from paleo.step.memory.footprint import Footprint


@dataclass(frozen=True)
class StageMemory:
    """The bytes of one device of a stage, by part; `activations` of all micro-batches in flight.

    `passing` are what a micro-batch takes on the way besides: gradients of activations, scratch.
    `slack` is what an allocator holds besides, in pieces that no tensor fits.
    `host` are its bytes in the memory of its host, which are not in the total.
    """

    stage: int
    weights: Quantity
    gradients: Quantity
    optimizer_state: Quantity
    activations: Quantity
    passing: Quantity
    slack: Quantity = 0
    host: Quantity = 0

    @property
    def allocated(self) -> Quantity:
        """What tensors take at the peak."""
        return (
            self.weights + self.gradients + self.optimizer_state + self.activations + self.passing
        )

    @property
    def total(self) -> Quantity:
        """What tensors take at the peak, and the allocator's slack."""
        return self.allocated + self.slack

    def with_slack(self, share: float) -> StageMemory:
        """Return the same where so much of what the allocator holds is slack."""
        return replace(self, slack=int(self.allocated * share / (1 - share)))

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        parts = (
            *("weights", "gradients", "optimizer_state", "activations", "passing", "slack"),
            *("total", "host"),
        )
        return {"stage": self.stage, **attributes(self, *parts, unit="bytes")}


def stage_net(net: NetSpec, graph: Graph, nodes: Sequence[int]) -> NetSpec:
    """Return the nodes of a stage as a net: what comes from other stages comes in."""
    own = set(nodes)
    by_name = {spec.name: spec for spec in net.layers}
    layers: dict[str, LayerSpec] = {}
    for i in nodes:
        node = graph.nodes[i]
        for parent in node.parents:
            other = graph.nodes[parent]
            if parent not in own and other.name not in layers:
                layers[other.name] = LayerSpec(
                    other.name, Input(tensor=tuple(map(int, other.output))), ()
                )
        spec = by_name[node.name]
        if spec.shares is not None and spec.shares not in layers:
            spec = replace(spec, shares=None)  # its owner is on another stage: a copy of it is here
        layers[node.name] = spec
    return NetSpec(net.name, tuple(layers.values()), net.file)


def together(stage: int, parts: Sequence[StageMemory]) -> StageMemory:
    """Return the memory of a device that has several stages of a net."""
    names = ("weights", "gradients", "optimizer_state", "activations", "passing", "host")
    sums = {name: sum(getattr(part, name) for part in parts) for name in names}
    return StageMemory(stage, **sums)


def stage_memory(
    stage: int, one: Footprint, in_flight: Quantity, zero: int, own: Callable[[int], int]
) -> StageMemory:
    """Return the memory of a device of a stage that takes `one` for a single micro-batch.

    `own` gives the bytes of its share of what is divided among shares of the data. In mixed
    precision that is with the optimizer's state also the fp32 parameters, which the update alone
    needs (arXiv:1910.02054, section 3.1): each device has the halves that layers read.
    """
    copies = one.copies
    whole = one.weights + one.gradients + one.optimizer_state
    return StageMemory(
        stage,
        own(one.weights)
        if zero >= 3
        else own(one.weights - copies) + copies
        if zero and copies
        else one.weights,
        own(one.gradients) if zero >= 2 else one.gradients,
        own(one.optimizer_state) if zero >= 1 else one.optimizer_state,
        int(in_flight * one.kept),
        max(one.peak - whole - one.kept, 0),
    )
