"""What is alive of a micro-batch from moment to moment on a device that shares its parameters.

Beside what is there all the time (weights, the optimizer's state, what other micro-batches keep) a
moment has the bytes of activations, their gradients and scratch, those of buffers, and how many
parameters have gradients that stay: a share of their bytes, where devices divide them.

Parameters that devices share are gathered as PyTorch's FSDP2 does (torch.distributed.fsdp,
_fully_shard/_fsdp_param_group.py and _fsdp_collectives.py; Y. Zhao et al., arXiv:2304.11277): those
of a block, its unit, are gathered into one buffer and copied out of it. The buffer stays until the
next unit's are there, so that the next gathering need not wait. In the backward pass the unit
before is gathered while one is computed. A unit's gradients, once whole, are copied into a buffer
that devices sum and deal out; it stays until the next unit's are. All that is in no block is a unit
which stays gathered from the start to the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from paleo.core.frozen import NamedTuple
from paleo.core.quantity import Quantity
from paleo.step.memory.liveness import Tensor
from paleo.step.memory.usage import Step


class Moment(NamedTuple):
    """The bytes of a micro-batch that pass, those of buffers, and parameters with gradients.

    It is at a `point` of the step, of which there may be several moments.
    """

    passing: Quantity
    buffers: int
    gradients: int
    point: int


class Gathering(NamedTuple):
    """How parameters are gathered: block by block, or so that they stay until they are read last.

    They have `read` bytes each, and gradients that are summed `summed` bytes.
    """

    blocks: Sequence[Sequence[int]]
    stays: bool
    read: int
    summed: int


def moments(step: Step, *, there: bool, cast: bool = False) -> list[Moment]:
    """Return the moments of a step whose devices have all parameters.

    If gradients are `there` already, of micro-batches before or in buckets that stay, those that a
    layer makes are added to them. Parameters that are `cast` once and for all need no copies.
    """
    schedule = step.schedule
    copies = set(map(id, copies_of(step) if cast else ()))
    alive = step.alive(
        t for t in schedule.tensors if not is_gradient(step, t) and id(t) not in copies
    )
    made = gradients_made(step)
    if there:
        whole = sum(schedule.num_params)
        return [
            Moment(now + step.weight_size * new, 0, whole, i)
            for i, (now, new) in enumerate(zip(alive, made, strict=True))
        ]
    counts = accumulate(made)
    return [
        Moment(now, 0, count, i) for i, (now, count) in enumerate(zip(alive, counts, strict=True))
    ]


def is_gradient(step: Step, tensor: Tensor) -> bool:
    """Tell whether it is the gradient of parameters that stays to the update."""
    is_of_params = tensor.size is None and not tensor.is_copy
    return is_of_params and tensor.dies == len(step.schedule.points) - 1


def gradients_made(step: Step) -> list[int]:
    """Return of how many parameters gradients that stay are made at each point."""
    made = [0] * len(step.schedule.points)
    for tensor in step.schedule.tensors:
        if is_gradient(step, tensor):
            made[tensor.born] += tensor.num_params
    return made


def copies_of(step: Step) -> list[Tensor]:
    """Return the copies of parameters that layers read: those made in a forward pass.

    In one that is done again they are, too.
    """
    points = step.schedule.points
    return [t for t in step.schedule.tensors if t.is_copy and points[t.born][1] != "backward"]


def gathered_moments(step: Step, how: Gathering) -> list[Moment]:
    """Return the moments of a step whose devices gather parameters and deal out gradients."""
    alive = step.alive(t for t in step.schedule.tensors if not (t.is_copy or is_gradient(step, t)))
    walk = Gathered(step, how)
    last = len(step.schedule.points) - 1
    found = [*walk.found, *walk.finished(sum(walk.sizes), walk.sizes[-1], walk.done, last)]
    return [Moment(alive[each.point], *each) for each in found]


def with_gradients(found: Sequence[Moment]) -> list[Moment]:
    """Return the moments where shares of gradients are there already, and those that come added."""
    return [moment._replace(gradients=found[-1].gradients) for moment in found]


def held_moments(step: Step, how: Gathering, *, there: bool) -> list[Moment]:
    """Return the moments of a step whose gathered parameters and whole gradients stay.

    So they do to the end of the last of several micro-batches of a stage: then gradients are dealt
    out unit by unit (torch.distributed.pipelining, stage.py, backward_maybe_with_nosync).
    """
    sizes = unit_sizes(step, how.blocks)
    params = sum(sizes)
    found = [
        each._replace(buffers=how.read * params + how.summed * each.gradients, gradients=0)
        for each in moments(step, there=there, cast=True)
    ]
    last = found[-1]
    dealt = (how.read + how.summed) * params + how.summed * max(sizes)
    return [
        *found[:-1],
        last._replace(buffers=dealt, gradients=max(sizes)),
        last._replace(buffers=0, gradients=params),
    ]


def units_of(step: Step, blocks: Sequence[Sequence[int]]) -> list[int]:
    """Return the unit of each node: its block, or the last, which is what is in no block."""
    units = [len(blocks)] * len(step.graph.nodes)
    for unit, block in enumerate(blocks):
        for node in block:
            units[node] = unit
    return units


def unit_sizes(step: Step, blocks: Sequence[Sequence[int]]) -> list[int]:
    """Return how many parameters each unit has."""
    sizes = [0] * (len(blocks) + 1)
    for unit, count in zip(units_of(step, blocks), step.schedule.num_params, strict=True):
        sizes[unit] += count
    return sizes


class Beside(NamedTuple):
    """What of a stage is beside one of its chunks that is followed by itself, in parameters.

    Forward, `gathered` are those of the unit that was gathered last, `buffer` those in its buffer
    (None: those in no block, which are gathered first); backward, `before` those of the unit that
    is gathered ahead, `sent` those of the unit that was summed last. The stage has `rest` in no
    block; None: as many as the chunk.
    """

    gathered: int = 0
    buffer: int | None = None
    before: int = 0
    sent: int = 0
    rest: int | None = None


#: A chunk that is all of a stage.
_ALONE = Beside()


class Held(NamedTuple):
    """The bytes of buffers at a moment, parameters with gradients that are dealt out, its point."""

    buffers: int
    gradients: int
    point: int


class Gathered:
    """A step, or that of a chunk, as it is followed from point to point up to the update.

    `done` are the parameters whose gradients are dealt out then, `left` those of the unit that was
    gathered last forward and those in its buffer, `whole` those in no block that have gradients.
    """

    def __init__(self, step: Step, how: Gathering, beside: Beside = _ALONE) -> None:
        self._how, self._beside = how, beside
        points = step.schedule.points
        self._nodes = step.graph.nodes
        #: The unit of each node, of which the last is what is in no block.
        self._rest = len(how.blocks)
        self._unit = units_of(step, how.blocks)
        #: How many parameters each unit has.
        self.sizes = unit_sizes(step, how.blocks)
        #: The parameters whose gradients come at each point, and where a unit has its last.
        self._made = gradients_made(step)
        self._until: dict[int, int] = {}
        for i, (node, direction) in enumerate(points):
            if direction == "backward":
                self._until[self._unit[node]] = i
        self.found: list[Held] = []
        #: The bytes that are gathered all the time, and of the last buffer.
        rest = self.sizes[self._rest] if beside.rest is None else beside.rest
        self._always = how.read * rest
        self._buffer = how.read * (rest if beside.buffer is None else beside.buffer)
        #: The units that are gathered besides the rest, and all their parameters.
        self._gathered: set[int] = set()
        self._params = beside.gathered
        #: Parameters of each unit with whole gradients, and of all; bytes of the buffer in which
        #: the last unit's were summed; and parameters whose gradients are dealt out.
        self._whole = [0] * (self._rest + 1)
        self._all_whole = 0
        self._sent = how.summed * beside.sent
        self.done = 0
        self._is_back = False
        self.left = 0, 0
        for i, (node, direction) in enumerate(points):
            if direction == "forward":
                self._forward(i, node)
            elif direction != "update":
                self._backward(i, node)
        self.whole = self._whole[self._rest]

    def _add(self, i: int, more: int) -> None:
        """Note a moment at a point, with so many bytes of buffers besides what is gathered."""
        there = self._always + self._how.read * (self._params + self._all_whole)
        self.found.append(Held(there + more, self.done, i))

    def _give_back(self) -> None:
        self._gathered.clear()
        self._params = 0

    def _gather(self, unit: int) -> None:
        self._gathered.add(unit)
        self._params += self.sizes[unit]

    def _forward(self, i: int, node: int) -> None:
        unit, read, layer = self._unit[node], self._how.read, self._nodes[node].layer
        if unit != self._rest and unit not in self._gathered and self._nodes[node].num_params:
            if not self._how.stays:
                self._give_back()
            own = read * self.sizes[unit]
            self._add(i, self._buffer + own)  # while it is gathered the one before stays
            self._gather(unit)
            self._buffer = own
        elif unit == self._rest and self._nodes[node].num_params and not self._how.stays:
            self._give_back()
        # What judges results stands behind the net, whose last buffer is given back.
        self._add(i, 0 if layer.is_judge else self._buffer)
        self.left = self._params, self._buffer // read

    def _backward(self, i: int, node: int) -> None:
        unit, how = self._unit[node], self._how
        if not self._is_back:
            self._is_back = True
            if not how.stays:
                self._give_back()
        if unit != self._rest and not how.stays:
            self._give_back()
            self._gather(unit)
        ahead = how.read * self._size_ahead(i, node)
        self._whole[unit] += self._made[i]
        self._all_whole += self._made[i]
        self._add(i, ahead + self._sent)
        if unit != self._rest and self._until[unit] == i:
            if unit in self._gathered:
                self._gathered.discard(unit)
                self._params -= self.sizes[unit]
            self._sent = how.summed * self.sizes[unit]
            self._add(i, ahead + self._sent)
            self._all_whole -= self._whole[unit]
            self._whole[unit] = 0
            self.done += self.sizes[unit]

    def _size_ahead(self, i: int, node: int) -> int:
        """Return the parameters of the unit that is gathered while this node's is computed.

        Behind the blocks that is the last of them, once the net's own gradient is there.
        """
        unit = self._unit[node]
        if self._how.stays or self._nodes[node].layer.is_judge:
            return 0
        if unit != self._rest:
            return self.sizes[unit - 1] if unit else self._beside.before
        to_come = [each for each in range(self._rest) if self._until.get(each, -1) > i]
        return self.sizes[to_come[-1]] if to_come else self._beside.before

    def finished(self, params: int, rest: int, done: int, point: int) -> tuple[Held, Held]:
        """Return the moments behind the backward pass, and at the update, of so many parameters.

        Of those the `rest` are in no block, and gradients of them are left to be dealt out.
        """
        how = self._how
        return Held((how.read + how.summed) * rest, done, point), Held(0, params, point)
