"""The memory of a device that has a stage of a net, with the micro-batches that are on their way.

Besides what one micro-batch takes at its peak there are the activations of the others that the
stage has taken forward and not yet back. What shares of the data divide counts once for all of
them (S. Rajbhandari et al., "ZeRO: memory optimizations toward training trillion parameter models",
arXiv:1910.02054, section 3: the optimizer's state, gradients too, parameters too).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar

from paleo.core.attributes import attributes
from paleo.core.frozen import NamedTuple, dataclass
from paleo.core.quantity import (
    Quantity,
    is_array,
    minimum,
    np,
    smallest,
    some,
    total,
    where,
)
from paleo.net.graph import Graph
from paleo.net.layers.reshape import Input
from paleo.net.spec import LayerSpec, NetSpec
from paleo.step.memory.moments import (
    Gathering,
    Moment,
    copies_of,
    gathered_moments,
    held_moments,
    moments,
    with_gradients,
)
from paleo.step.memory.usage import Step


@dataclass(frozen=True)
class StageMemory:
    """The bytes of one device of a stage at the peak, by part.

    `activations` are those of all micro-batches in flight, which the backward pass is to read.
    `passing` are what a micro-batch takes on the way besides: gradients of activations, scratch.
    `buffers` are what is gathered, summed, received and sent.
    `slack` is what an allocator holds besides, in pieces that no tensor fits.
    `host` are its bytes in the memory of its host, which are not in the total. `kept` are the most
    activations that there are of all in flight: at the peak some may be gone.
    """

    stage: int
    weights: Quantity
    gradients: Quantity
    optimizer_state: Quantity
    activations: Quantity
    passing: Quantity
    buffers: Quantity = 0
    slack: Quantity = 0
    host: Quantity = 0
    kept: Quantity = 0

    @property
    def allocated(self) -> Quantity:
        """What tensors take."""
        return total(getattr(self, part) for part in PARTS)

    @property
    def total(self) -> Quantity:
        """What tensors take, and the allocator's slack."""
        return self.allocated + self.slack

    def with_slack(self, share: float) -> StageMemory:
        """Return the same where so much of what the allocator holds is slack."""
        return replace(self, slack=slack_of(self.allocated, share))

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        parts = (*PARTS, "slack", "total", "host")
        return {"stage": self.stage, **attributes(self, *parts, unit="bytes")}


#: What a stage's memory consists of, besides slack.
PARTS = ("weights", "gradients", "optimizer_state", "activations", "passing", "buffers")


@dataclass(frozen=True)
class Sharing:
    """How devices share a stage's parameters, and pass micro-batches.

    Of those with the same layers `zero` says what they divide, and `own` gives the bytes of a share
    of what is divided; `is_shared` if there are several. Of `batches` micro-batches so many at most
    are `in_flight`; each receives and sends so many bytes. Of those `waiting` more, gradients of
    parameters are still to be computed. If `receives_all`, there are buffers for all of them at
    once, and what was sent is kept, as are gradients that others wait to be computed from; if
    `buckets_apart`, gradients are copied into buckets that stay. If `copies_stay`, what layers read
    in the place of parameters is there all the time, since these are on a host.
    """

    zero: int
    own: Callable[[Quantity], Quantity]
    is_shared: bool
    batches: Quantity
    in_flight: Quantity
    received: Quantity = 0
    sent: Quantity = 0
    receives_all: bool = False
    buckets_apart: bool = False
    waiting: Quantity = 0
    copies_stay: bool = False

    @property
    def how(self) -> Following:
        """What decides which moments there are; of arrays of batches all are 1, or none is."""
        zero = self.zero * self.is_shared
        # Buckets that gradients are views of are there from the start.
        in_buckets = zero < 2 and self.is_shared and not self.buckets_apart
        is_late = zero >= 2 and self.receives_all and some(self.batches > 1)
        return Following(zero, in_buckets, is_late)


class Following(NamedTuple):
    """How a micro-batch is followed: what devices divide, and when gradients are there, or go."""

    zero: int
    in_buckets: bool
    is_late: bool


class Sizes(NamedTuple):
    """What a stage has: parameters, bytes of each, and the bytes of a step of one micro-batch.

    `learned` are bytes of a parameter, `copied` of the copy that layers read in mixed precision,
    `read` of what they read; `scaled` those of all copies in fp8. `state` and `update` are the
    optimizer's. The last four are those of `Step`, numbers or arrays over micro-batches
    (`OF_MICRO_BATCHES`).
    """

    params: int
    learned: int
    copied: int
    read: int
    scaled: int
    state: int
    update: int
    kept: Quantity
    given: Quantity
    kept_for_weights: Quantity
    gradients_for_weights: Quantity


class Lasting(NamedTuple):
    """What is there of a stage, in bytes: parts of its memory, if all are there, and buffers.

    `whole` is what layers read of parameters. All the time there are `parameters`, the optimizer's
    state and the buffers: `stays` in all.
    """

    parts: dict[str, Quantity]
    whole: Quantity
    buffers: Quantity
    parameters: Quantity

    @property
    def stays(self) -> Quantity:
        """What is there all the time."""
        return self.parts["optimizer_state"] + self.parameters + self.buffers


class Received(Input):
    """What a stage before made: its gradient goes back there."""

    wants_gradient: ClassVar[bool] = True


def stage_net(
    net: NetSpec,
    graph: Graph,
    nodes: Sequence[int],
    moved: Mapping[int, int] = MappingProxyType({}),
) -> NetSpec:
    """Return the nodes of a stage as a net: what comes from other stages comes in.

    In the place of `moved` nodes, which are left out, others are read.
    """
    own = set(nodes)
    by_name = {spec.name: spec for spec in net.layers}
    layers: dict[str, LayerSpec] = {}
    for i in nodes:
        node = graph.nodes[i]
        read = [moved.get(parent, parent) for parent in node.parents]
        for parent in read:
            other = graph.nodes[parent]
            if parent not in own and other.name not in layers:
                shape = tuple(map(int, map(smallest, other.output)))
                learns = other.layer.is_input or other.layer.is_source()
                coming = Input(tensor=shape) if learns else Received(tensor=shape)
                layers[other.name] = LayerSpec(other.name, coming, ())
        spec = by_name[node.name]
        if spec.shares is not None and spec.shares not in layers:
            spec = replace(spec, shares=None)  # its owner is on another stage: a copy of it is here
        if moved and read != list(node.parents):
            spec = replace(spec, parents=tuple(graph.nodes[parent].name for parent in read))
        layers[node.name] = spec
    return NetSpec(net.name, tuple(layers.values()), net.file)


def together(stage: int, parts: Sequence[StageMemory]) -> StageMemory:
    """Return the memory of a device that has several stages of a net."""
    names = (*PARTS, "host", "kept")
    sums = {name: total(getattr(part, name) for part in parts) for name in names}
    return StageMemory(stage, **sums)


def whole_bytes(size: Quantity) -> Quantity:
    """Return bytes without what is left of one."""
    return np.floor(size).astype(np.int64) if is_array(size) else int(size)


def slack_of(allocated: Quantity, share: float) -> Quantity:
    """Return the bytes an allocator holds besides, if they are so much of what it holds."""
    return whole_bytes(allocated * share / (1 - share))


def sizes_of(step: Step) -> Sizes:
    """Return what a stage has whose micro-batch is this step."""
    assert step.optimizer is not None
    learned, params = step.weight_size, step.schedule.num_params
    return Sizes(
        sum(params),
        learned,
        step.copy_size,
        step.graph.element_size,
        step.copies - step.copy_size * sum(params),
        *step.optimizer.at_update(params, learned, step.matrices),
        *step.of_micro_batch,
    )


#: Those of them that go with micro-batches.
OF_MICRO_BATCHES = ("kept", "given", "kept_for_weights", "gradients_for_weights")


def followed(
    step: Step, blocks: Sequence[Sequence[int]], how: Following
) -> tuple[list[Moment], list[Moment]]:
    """Return the moments of the first micro-batch that comes back, and of those after it.

    `blocks` are the nodes of the step's graph whose parameters are gathered together.
    """
    if how.zero >= 2:
        gathering = Gathering(blocks, how.zero == 2, step.graph.element_size, step.weight_size)
        if how.is_late:
            late, later = (held_moments(step, gathering, there=there) for there in (False, True))
            return late, later
        first = gathered_moments(step, gathering)
        return first, with_gradients(first)
    cast = how.zero > 0 and step.copy_size > 0
    later = moments(step, there=True, cast=cast)
    return later if how.in_buckets else moments(step, there=False, cast=cast), later


def lasting(sizes: Sizes, sharing: Sharing) -> Lasting:
    """Return what is there all the time of a stage.

    In mixed precision, devices that divide the optimizer's state have the parameters that layers
    read in halves, whole, and divide those in fp32 as state (arXiv:1910.02054, section 3.1).
    """
    zero, own = sharing.how.zero, sharing.own
    params, learned, is_mixed = sizes.params, sizes.learned, sizes.copied > 0
    is_read_whole = zero == 2 or (zero == 1 and is_mixed)
    whole = params * (sizes.read if is_read_whole else learned + sizes.copied)
    # Beside what is read in halves, or gathered whole, there is the share that is updated.
    beside = own(learned * params) if is_read_whole else 0
    # Devices that gather parameters cast them anew.
    scaled = 0 if zero == 3 else sizes.scaled
    parts = {
        "weights": own(learned * params) if zero == 3 else whole + beside + scaled,
        "gradients": own(learned * params) if zero >= 2 else learned * params,
        "optimizer_state": own(sizes.state) if zero else sizes.state,
    }
    buffers: Quantity = 0
    if zero >= 2:
        parameters = beside + scaled or parts["weights"]
    else:
        there = sizes.read if zero and is_mixed else learned
        parameters = there * params + beside + scaled
        buffers = learned * params * (sharing.is_shared and sharing.buckets_apart)
    if sharing.receives_all:
        # What those in flight received is kept, and one's gradient is in its backward pass.
        waiting = sharing.batches - sharing.in_flight
        passed = waiting * sharing.received + (sharing.batches - 1) * sharing.sent
        passed = passed + (sharing.in_flight - 1) * sizes.given
        buffers = buffers + whole_bytes(passed + sharing.waiting * sizes.gradients_for_weights)
    return Lasting(parts, whole, buffers, parameters)


def peaks(
    sizes: Sizes, sharing: Sharing, first: Quantity, later: Quantity
) -> tuple[Quantity, Quantity]:
    """Return the most bytes beside what is there all the time, at the first and at later ones.

    They are those of micro-batches that come back, of which one takes so many bytes. The first
    finds as many others in flight as there may be. Of the others gradients are there, and where
    all were in flight at once, one less is.
    """
    at_first = whole_bytes(first + (sharing.in_flight - 1) * sizes.kept)
    again = minimum(sharing.in_flight, sharing.batches - 1) - 1
    at_later = whole_bytes(later + again * sizes.kept) + kept_late(sizes, sharing)
    return at_first, where(sharing.batches > 1, at_later, 0)


def kept_late(sizes: Sizes, sharing: Sharing) -> Quantity:
    """Return the bytes that are kept for gradients of parameters that wait to be computed."""
    return whole_bytes(sharing.waiting * sizes.kept_for_weights)


class Taken(NamedTuple):
    """What a stage has and takes of a micro-batch, the same for all stages that are alike.

    `kept` and `copies` are bytes at each point of its step. `first` are the moments of the first
    micro-batch that comes back, `later` those of others, and `tops` of both that of most bytes.
    """

    sizes: Sizes
    kept: Sequence[Quantity]
    copies: Sequence[Quantity]
    first: Sequence[Moment]
    later: Sequence[Moment]
    tops: tuple[Moment, Moment]


def taken(step: Step, blocks: Sequence[Sequence[int]], sharing: Sharing) -> Taken:
    """Return what a stage has and takes of a micro-batch, of which this is the step.

    `blocks` are the nodes of the step's graph whose parameters are gathered together.
    """
    sizes = sizes_of(step)
    kept, copies = step.kept_alive, step.alive(copies_of(step) if sharing.how.zero == 0 else ())
    first, later = followed(step, blocks, sharing.how)

    def top(moments: Sequence[Moment]) -> Moment:
        return max(moments, key=lambda moment: _bytes_at(moment, sizes, sharing))

    at_first = top(first)
    tops = at_first, at_first if later is first else top(later)
    return Taken(sizes, kept, copies, first, later, tops)


def _own(size: Quantity, sharing: Sharing) -> Quantity:
    return sharing.own(size) if sharing.how.zero >= 2 else size


def _bytes_at(moment: Moment, sizes: Sizes, sharing: Sharing) -> Quantity:
    return moment.passing + moment.buffers + _own(sizes.learned * moment.gradients, sharing)


def stage_memory(
    stage: int,
    taken: Taken,
    sharing: Sharing,
    changed: Callable[[StageMemory], StageMemory] | None = None,
) -> StageMemory:
    """Return the memory of a device of a stage.

    What is there at a moment may be `changed`, before it is looked when there is most.
    """
    sizes, zero = taken.sizes, sharing.how.zero
    there = lasting(sizes, sharing)
    state = int(there.parts["optimizer_state"])

    def at(moment: Moment, others: Quantity, scratch: Quantity) -> StageMemory:
        of_one = taken.kept[moment.point]
        # What layers read of weights counts as weights: copies, or what is gathered whole to stay.
        copied = taken.copies[moment.point]
        gathered = min(moment.buffers, there.whole) if zero == 2 else 0
        weights = there.parameters + copied + gathered
        return StageMemory(
            stage,
            weights=int(there.parts["weights"] if sharing.copies_stay else weights),
            gradients=int(_own(sizes.learned * moment.gradients, sharing)),
            optimizer_state=state,
            activations=int(of_one + others),
            passing=int(moment.passing - copied - of_one + scratch),
            buffers=int(there.buffers + moment.buffers - gathered),
            kept=int(sharing.in_flight * sizes.kept) + kept_late(sizes, sharing),
        )

    others = peaks(sizes, sharing, 0, 0)
    at_last = (taken.later[-1], 0, _own(sizes.update, sharing))

    def found(first: Sequence[Moment], later: Sequence[Moment]) -> list[Any]:
        both = [(moment, others[0], 0) for moment in first]
        if sharing.batches > 1:
            both += [(moment, others[1], 0) for moment in later]
        return [*both, at_last]

    if changed is None:
        first, later = taken.tops
        return at(
            *max(
                found([first], [later]),
                key=lambda each: _bytes_at(each[0], sizes, sharing) + each[1] + each[2],
            )
        )
    every = (changed(at(*each)) for each in found(taken.first, taken.later))
    return max(every, key=lambda each: each.allocated)
