"""The memory of a device that has a stage of a net, with the micro-batches that are on their way.

Besides what one micro-batch takes at its peak there are the activations of the others that the
stage has taken forward and not yet back. What shares of the data divide counts once for all of
them (S. Rajbhandari et al., "ZeRO: memory optimizations toward training trillion parameter models",
arXiv:1910.02054, section 3: the optimizer's state, gradients too, parameters too).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from paleo.core.attributes import attributes
from paleo.core.frozen import dataclass
from paleo.core.quantity import Quantity, total
from paleo.net.graph import Graph
from paleo.net.layers.reshape import Input
from paleo.net.spec import LayerSpec, NetSpec
from paleo.step.memory.moments import Gathering, Moment, gathered_moments, held_moments, moments
from paleo.step.memory.usage import Step


@dataclass(frozen=True)
class StageMemory:
    """The bytes of one device of a stage, by part; `activations` of all micro-batches in flight.

    `passing` are what a micro-batch takes on the way besides: gradients of activations, scratch.
    `buffers` are what is gathered, summed, received and sent. `absent` is what of all these is not
    there at the peak, such as gradients that are made behind it.
    `slack` is what an allocator holds besides, in pieces that no tensor fits.
    `host` are its bytes in the memory of its host, which are not in the total.
    """

    stage: int
    weights: Quantity
    gradients: Quantity
    optimizer_state: Quantity
    activations: Quantity
    passing: Quantity
    buffers: Quantity = 0
    absent: Quantity = 0
    slack: Quantity = 0
    host: Quantity = 0

    @property
    def allocated(self) -> Quantity:
        """What tensors take at the peak."""
        return total(getattr(self, part) for part in PARTS) - self.absent

    @property
    def total(self) -> Quantity:
        """What tensors take at the peak, and the allocator's slack."""
        return self.allocated + self.slack

    def with_slack(self, share: float) -> StageMemory:
        """Return the same where so much of what the allocator holds is slack."""
        return replace(self, slack=int(self.allocated * share / (1 - share)))

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        parts = (*PARTS, "slack", "total", "host")
        return {"stage": self.stage, **attributes(self, *parts, unit="bytes")}


#: What a stage's memory consists of.
PARTS = ("weights", "gradients", "optimizer_state", "activations", "passing", "buffers")


@dataclass(frozen=True)
class Sharing:
    """How devices share a stage's parameters, and pass micro-batches.

    Of those with the same layers `zero` says what they divide, and `own` gives the bytes of a share
    of what is divided; `is_shared` if there are several. Of `batches` micro-batches so many at most
    are `in_flight`; each receives and sends so many bytes. Of those `waiting` more, gradients of
    parameters are still to be computed. If `receives_all`, there are buffers for all of them at
    once, and what was sent is kept, as are gradients that others wait to be computed from; if
    `buckets_apart`, gradients are copied into buckets that stay.
    """

    zero: int
    own: Callable[[Quantity], Quantity]
    is_shared: bool
    batches: int
    in_flight: Quantity
    received: int = 0
    sent: int = 0
    receives_all: bool = False
    buckets_apart: bool = False
    waiting: Quantity = 0


class Received(Input):
    """What a stage before made: its gradient goes back there."""

    wants_gradient: ClassVar[bool] = True


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
                shape = tuple(map(int, other.output))
                learns = other.layer.is_input or other.layer.is_source()
                coming = Input(tensor=shape) if learns else Received(tensor=shape)
                layers[other.name] = LayerSpec(other.name, coming, ())
        spec = by_name[node.name]
        if spec.shares is not None and spec.shares not in layers:
            spec = replace(spec, shares=None)  # its owner is on another stage: a copy of it is here
        layers[node.name] = spec
    return NetSpec(net.name, tuple(layers.values()), net.file)


def together(stage: int, parts: Sequence[StageMemory]) -> StageMemory:
    """Return the memory of a device that has several stages of a net."""
    names = (*PARTS, "absent", "host")
    sums = {name: total(getattr(part, name) for part in parts) for name in names}
    return StageMemory(stage, **sums)


def stage_memory(
    stage: int, step: Step, blocks: Sequence[Sequence[int]], sharing: Sharing
) -> StageMemory:
    """Return the memory of a device of a stage, of which `step` is that of a single micro-batch.

    `blocks` are the nodes of the step's graph whose parameters are gathered together.
    In mixed precision, devices that divide the optimizer's state have the parameters that layers
    read in halves, whole, and divide those in fp32 as state (arXiv:1910.02054, section 3.1).
    """
    optimizer = step.optimizer
    assert optimizer is not None
    zero, own = sharing.zero * sharing.is_shared, sharing.own
    params = sum(step.schedule.num_params)
    # What products read in fp8: devices that gather parameters cast them anew.
    scaled = (step.copies - step.copy_size * params) * (zero < 3)
    learned, is_mixed = step.weight_size, step.copy_size > 0
    read = step.graph.element_size
    state, update = optimizer.at_update(step.schedule.num_params, learned, step.matrices)
    is_read_whole = zero == 2 or (zero == 1 and is_mixed)
    whole = params * (read if is_read_whole else learned + step.copy_size)
    # Beside what is read in halves, or gathered whole, there is the share that is updated.
    beside = own(learned * params) if is_read_whole else 0
    parts = {
        "weights": own(learned * params) if zero == 3 else whole + beside + scaled,
        "gradients": own(learned * params) if zero >= 2 else learned * params,
        "optimizer_state": own(state) if zero else state,
    }
    buffers = 0
    stays = parts["optimizer_state"] + beside + scaled
    if zero >= 2:
        gathering = Gathering(blocks, zero == 2, read, learned)
        is_late = sharing.receives_all and sharing.batches > 1
        follow = held_moments if is_late else gathered_moments
        first, later = (follow(step, gathering, there=there) for there in (False, True))
        stays += parts["weights"] * (zero == 3)
    else:
        # Buckets that gradients are views of are there from the start.
        in_buckets = sharing.is_shared and not sharing.buckets_apart
        cast = bool(zero) and is_mixed
        later = moments(step, there=True, cast=cast)
        first = later if in_buckets else moments(step, there=False, cast=cast)
        buffers = learned * params * (sharing.is_shared and sharing.buckets_apart)
        stays += (read if cast else learned) * params + buffers
    ahead = sharing.in_flight - 1
    kept = step.kept
    if sharing.receives_all:
        # What those in flight received is kept, and one's gradient is in its backward pass.
        waiting = sharing.batches - sharing.in_flight
        passed = waiting * sharing.received + (sharing.batches - 1) * sharing.sent
        passed += ahead * step.given + sharing.waiting * step.gradients_for_weights
        buffers, stays = buffers + int(passed), stays + int(passed)

    late = int(sharing.waiting * step.kept_for_weights)

    def gradients(moment: Moment) -> Quantity:
        size = learned * moment.gradients
        return own(size) if zero >= 2 else size

    def taken(moment: Moment) -> Quantity:
        return moment.passing + moment.buffers + gradients(moment)

    # The first micro-batch that comes back finds as many others in flight as there may be. Of the
    # others gradients are there, and where all were in flight at once, one less is.
    at_first = max(first, key=taken)
    peak, top = int(taken(at_first) + ahead * kept), at_first
    if sharing.batches > 1:
        at_later = max(later, key=taken)
        again = min(sharing.in_flight, sharing.batches - 1) - 1
        more = int(taken(at_later) + again * kept) + late
        if more > peak:
            peak, top = more, at_later
    updating = taken(later[-1]) + (own(update) if zero >= 2 else update)
    found = StageMemory(
        stage,
        **parts,
        activations=int(sharing.in_flight * kept) + late,
        # Copies that layers read of weights count as weights.
        passing=int(max(top.passing - kept - step.copy_size * params * (zero == 0), 0)),
        buffers=int(buffers + max(top.buffers - (whole if zero == 2 else 0), 0)),
    )
    return replace(found, absent=found.allocated - int(stays + max(peak, updating)))
