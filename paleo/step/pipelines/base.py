"""The contract of a pipeline: seconds of stages and micro-batches become the seconds of all.

Letters: p stages, m micro-batches, v chunks of the net that each stage has. Each stage has a device
of its own, or a device several stages (`cuts`), or several devices each (`copies`). To add one: a
subclass of Pipeline in a file of this folder, registered by `PIPELINES.add(name, instance)`.
"""

from __future__ import annotations

import functools
import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar

from paleo.core.frozen import NamedTuple
from paleo.core.quantity import Quantity, maximum, minimum, total
from paleo.core.registry import Registry


class Work(NamedTuple):
    """What a stage does for each micro-batch, in seconds; numbers or arrays.

    Of a backward pass `weights` are those of the gradients of parameters, which nobody waits for.
    What it computes again is in `backward`, what it sends to other stages in both. Of both passes
    `messages` are those that may go on while another micro-batch is computed.
    """

    forward: Quantity
    backward: Quantity
    weights: Quantity = 0.0
    messages: Quantity = 0.0

    @property
    def seconds(self) -> Quantity:
        """Seconds of both passes."""
        return self.forward + self.backward

    @property
    def together(self) -> Quantity:
        """Seconds of the forward pass of a micro-batch beside the backward pass of another.

        Messages of one go on while the other is computed: the longer of both counts.
        """
        return maximum(self.seconds - self.messages, self.messages)


class Turn(NamedTuple):
    """What a stage does in turn: a pass of a micro-batch through one of its chunks.

    `kind` is "forward", "backward" or "weights"; the last are gradients of parameters, where they
    are not in the backward pass, which is `apart` from them then. With `beside` the next turn goes
    on at the same time.
    """

    kind: str
    batch: int
    chunk: int = 0
    apart: bool = False
    beside: bool = False

    @property
    def known(self) -> tuple[str, int, int]:
        """What others wait for, however it is done."""
        return self.kind, self.batch, self.chunk


class Played(NamedTuple):
    """A turn of a stage, from when to when, in seconds."""

    stage: int
    turn: Turn
    start: float
    end: float


class Pipeline(ABC):
    """An order in which stages take micro-batches."""

    name: ClassVar[str]
    #: One line for lists and help.
    summary: ClassVar[str]
    #: Whether a stage may have several chunks of the net.
    interleaves: ClassVar[bool] = False
    #: Whether gradients of parameters are turns of their own.
    weights_apart: ClassVar[bool] = False
    #: How many stages of the net there are for each device.
    cuts: ClassVar[int] = 1
    #: How many devices have each stage.
    copies: ClassVar[int] = 1

    @abstractmethod
    def seconds(self, stages: Sequence[Work], batches: Quantity, chunks: int = 1) -> Quantity:
        """Return the seconds from the first forward pass to the last backward pass."""

    def least(
        self,
        forward: Quantity,
        backward: Quantity,
        longest: Quantity,
        stages: int,
        batches: Quantity,
        chunks: int = 1,
    ) -> Quantity:
        """Return no more than `seconds` gives for stages that take so long together.

        The longest of them takes no less than `longest`, which is no less than their mean. It takes
        every micro-batch.
        """
        return batches * longest

    @abstractmethod
    def turns(self, stage: int, stages: int, batches: int, chunks: int = 1) -> list[Turn]:
        """Return what a stage does, in order."""

    def check(self, stages: int, batches: int) -> None:  # noqa: B027
        """Raise SettingError for stages or micro-batches that this order is not for."""

    def held(self, device: int, stages: int) -> tuple[int, ...]:
        """Return the stages of the net that a device has: the one of its number.

        Where there are several, the chunk of a turn says which.
        """
        return (device,)

    def home(self, stage: int, stages: int) -> int:
        """Return the device that has a stage, the first if there are several."""
        return stage

    def pairs(self, device: int, stages: int, batches: Quantity) -> Quantity:
        """Return how many forward passes of a device go on beside a backward pass of another."""
        return 0

    def awaited(
        self, device: int, turn: Turn, stages: int, chunks: int
    ) -> tuple[int, str, int, int] | None:
        """Return what a turn has to wait for, of which device: None for nothing."""
        kind, batch, chunk = turn.known
        last = stages - 1
        if kind == "weights":
            return device, "backward", batch, chunk
        if kind == "forward":
            if device:
                return device - 1, kind, batch, chunk
            return (last, kind, batch, chunk - 1) if chunk else None
        if device < last:
            return device + 1, kind, batch, chunk
        if chunk + 1 < chunks:
            return 0, kind, batch, chunk + 1
        return device, "forward", batch, chunk

    def play(self, stages: Sequence[Work], batches: int, chunks: int = 1) -> list[Played]:
        """Return when devices do what, each turn as soon as what it waits for is done.

        Of two turns at the same time each has its share of that.
        """
        count = len(stages)
        devices = range(count // self.cuts)
        held = [[stages[i] for i in self.held(device, count)] for device in devices]
        slots = [_slots(self.turns(device, count, batches, chunks)) for device in devices]
        ends: dict[tuple[int, str, int, int], float] = {}
        free, places = [0.0] * len(devices), [0] * len(devices)
        played: list[Played] = []
        while any(place < len(own) for place, own in zip(places, slots, strict=True)):
            before = sum(places)
            for device, own in enumerate(held):
                for slot in slots[device][places[device] :]:
                    waits = [self.awaited(device, turn, count, chunks) for turn in slot]
                    if any(one is not None and one not in ends for one in waits):
                        break
                    start = max([free[device], *(ends[one] for one in waits if one is not None)])
                    seconds = [_seconds(turn, own, chunks) for turn in slot]
                    whole = sum(seconds) if len(slot) == 1 else float(mean(own).together)
                    free[device] = start + whole
                    for turn, share in zip(slot, seconds, strict=True):
                        ends[device, *turn.known] = free[device]
                        end = start + whole * (share / sum(seconds) if len(slot) > 1 else 1.0)
                        played.append(Played(device, turn, start, end))
                        start = end
                    places[device] += 1
            if sum(places) == before:
                raise AssertionError(f"{self.name}: stages wait for each other")
        return played

    @abstractmethod
    def in_flight(self, stage: int, stages: int, batches: Quantity, chunks: int = 1) -> Quantity:
        """Return of how many micro-batches a stage keeps activations at most.

        Of a stage of several chunks it counts those of all together: a share for each chunk. Of a
        stage that several devices have it is those of each.
        """

    def waiting(self, stage: int, stages: int, batches: Quantity) -> Quantity:
        """Return of how many more, back already, gradients of parameters wait to be computed."""
        return 0


def _slots(turns: Iterable[Turn]) -> list[list[Turn]]:
    """Return turns by what goes on at the same time."""
    found: list[list[Turn]] = []
    joins = False
    for turn in turns:
        if joins:
            found[-1].append(turn)
        else:
            found.append([turn])
        joins = turn.beside
    return found


def _seconds(turn: Turn, held: Sequence[Work], chunks: int) -> float:
    """Return the seconds of a turn by itself, of a device that has stages with this work."""
    work = held[turn.chunk % len(held)]
    if turn.kind == "weights":
        return float(work.weights)
    whole = float(work.forward if turn.kind == "forward" else work.backward) / chunks
    return whole - float(work.weights) if turn.apart else whole


def mean(works: Sequence[Work]) -> Work:
    """Return the mean of the work of several stages, which is that of one where there is one."""
    return Work(*(summed(values) / len(works) for values in zip(*works, strict=True)))


def alternating(ahead: Sequence[Turn], back: Sequence[Turn], warm: int) -> list[Turn]:
    """Return so many forward turns, then the others in turn with backward ones, then the rest."""
    warm = min(warm, len(ahead))
    steady = [turn for pair in zip(ahead[warm:], back, strict=False) for turn in pair]
    return [*ahead[:warm], *steady, *back[len(ahead) - warm :]]


def slowest(values: Sequence[Quantity]) -> Quantity:
    """Return the largest of several numbers, element by element."""
    return functools.reduce(maximum, values)


def filled(ahead: Quantity, batches: Quantity) -> Quantity:
    """Return how many micro-batches are in flight where so many may be, of those that there are."""
    return minimum(ahead, batches)


def summed(values: Sequence[Quantity]) -> Quantity:
    """Return the sum of several numbers, 0 of none."""
    return total((0.0, *values))


def sums(values: Sequence[Quantity]) -> list[Quantity]:
    """Return the sums of none of several numbers, of the first, of the first two, and so on."""
    return [*itertools.accumulate(values, initial=0.0)]


PIPELINES: Registry[Pipeline] = Registry("pipeline schedule", "paleo.pipelines")
