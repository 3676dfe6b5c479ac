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
    copies = {id(t) for t in schedule.tensors if cast and t.is_copy and _in_forward(step, t)}
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


def _in_forward(step: Step, tensor: Tensor) -> bool:
    """Tell whether it is made in a forward pass, or in one that is done again."""
    return step.schedule.points[tensor.born][1] != "backward"


def gathered_moments(step: Step, how: Gathering) -> list[Moment]:
    """Return the moments of a step whose devices gather parameters and deal out gradients."""
    walk = _Gathered(step, how)
    for i, (node, direction) in enumerate(step.schedule.points):
        if direction == "update":
            walk.finish(i)
        elif direction == "forward":
            walk.forward(i, node)
        else:
            walk.backward(i, node)
    return walk.found


def with_gradients(found: Sequence[Moment]) -> list[Moment]:
    """Return the moments where shares of gradients are there already, and those that come added."""
    return [moment._replace(gradients=found[-1].gradients) for moment in found]


def held_moments(step: Step, how: Gathering, *, there: bool) -> list[Moment]:
    """Return the moments of a step whose gathered parameters and whole gradients stay.

    So they do to the end of the last of several micro-batches of a stage: then gradients are dealt
    out unit by unit (torch.distributed.pipelining, stage.py, backward_maybe_with_nosync).
    """
    sizes = _Gathered(step, how).sizes
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


class _Gathered:
    """A step as it is followed from point to point."""

    def __init__(self, step: Step, how: Gathering) -> None:
        self._how = how
        points = step.schedule.points
        self._nodes = step.graph.nodes
        self._alive = step.alive(
            t for t in step.schedule.tensors if not (t.is_copy or is_gradient(step, t))
        )
        #: The unit of each node, of which the last is what is in no block.
        self._rest = len(how.blocks)
        self._unit = [self._rest] * len(self._nodes)
        for unit, block in enumerate(how.blocks):
            for node in block:
                self._unit[node] = unit
        #: How many parameters each unit has.
        self.sizes = [0] * (self._rest + 1)
        for node, count in enumerate(step.schedule.num_params):
            self.sizes[self._unit[node]] += count
        #: The parameters whose gradients come at each point, and where a unit has its last.
        self._made = gradients_made(step)
        self._until: dict[int, int] = {}
        for i, (node, direction) in enumerate(points):
            if direction == "backward":
                self._until[self._unit[node]] = i
        self.found: list[Moment] = []
        #: The units that are gathered besides the rest, and the bytes of the last one's buffer.
        self._gathered: set[int] = set()
        self._buffer = how.read * self.sizes[self._rest]
        #: Parameters of each unit with whole gradients, bytes of the buffer in which the last
        #: unit's were summed, and parameters whose gradients are dealt out.
        self._whole = [0] * (self._rest + 1)
        self._sent = 0
        self._done = 0
        self._is_back = False

    def _add(self, i: int, more: int) -> None:
        """Note a moment at a point, with so many bytes of buffers besides what is gathered."""
        read = self._how.read
        there = read * (self.sizes[self._rest] + sum(self.sizes[unit] for unit in self._gathered))
        buffers = there + more + read * sum(self._whole)
        self.found.append(Moment(self._alive[i], buffers, self._done, i))

    def forward(self, i: int, node: int) -> None:
        unit, read, layer = self._unit[node], self._how.read, self._nodes[node].layer
        if unit != self._rest and unit not in self._gathered and self._nodes[node].num_params:
            if not self._how.stays:
                self._gathered.clear()
            own = read * self.sizes[unit]
            self._add(i, self._buffer + own)  # while it is gathered the one before stays
            self._gathered.add(unit)
            self._buffer = own
        elif unit == self._rest and self._nodes[node].num_params and not self._how.stays:
            self._gathered.clear()
        # What judges results stands behind the net, whose last buffer is given back.
        self._add(i, 0 if layer.is_judge else self._buffer)

    def backward(self, i: int, node: int) -> None:
        unit, how = self._unit[node], self._how
        if not self._is_back:
            self._is_back = True
            if not how.stays:
                self._gathered.clear()
        if unit != self._rest and not how.stays:
            self._gathered = {unit}
        ahead = how.read * self._size_ahead(i, node)
        self._whole[unit] += self._made[i]
        self._add(i, ahead + self._sent)
        if unit != self._rest and self._until[unit] == i:
            self._gathered.discard(unit)
            self._sent = how.summed * self.sizes[unit]
            self._add(i, ahead + self._sent)
            self._whole[unit] = 0
            self._done += self.sizes[unit]

    def _size_ahead(self, i: int, node: int) -> int:
        """Return the parameters of the unit that is gathered while this node's is computed.

        Behind the blocks that is the last of them, once the net's own gradient is there.
        """
        unit = self._unit[node]
        if self._how.stays or self._nodes[node].layer.is_judge:
            return 0
        if unit != self._rest:
            return self.sizes[unit - 1] if unit else 0
        to_come = [each for each in range(self._rest) if self._until.get(each, -1) > i]
        return self.sizes[to_come[-1]] if to_come else 0

    def finish(self, i: int) -> None:
        """Deal out what is left, behind the backward pass; then comes the update."""
        rest, how = self.sizes[self._rest], self._how
        self.found.append(Moment(self._alive[i], (how.read + how.summed) * rest, self._done, i))
        self.found.append(Moment(self._alive[i], 0, sum(self.sizes), i))
