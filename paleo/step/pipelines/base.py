"""The contract of a pipeline: seconds of stages and micro-batches become the seconds of all.

Letters: p stages, m micro-batches, v chunks of the net that each stage has. To add one: a subclass
of Pipeline in a file of this folder, registered by `PIPELINES.add(name, instance)`.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from paleo.core.frozen import NamedTuple
from paleo.core.quantity import Quantity, maximum, minimum, total
from paleo.core.registry import Registry


class Work(NamedTuple):
    """What a stage does for each micro-batch, in seconds; numbers or arrays.

    Of a backward pass `weights` are those of the gradients of parameters, which nobody waits for.
    What it computes again is in `backward`, what it sends to other stages in both.
    """

    forward: Quantity
    backward: Quantity
    weights: Quantity = 0.0

    @property
    def seconds(self) -> Quantity:
        """Seconds of both passes."""
        return self.forward + self.backward


class Turn(NamedTuple):
    """What a stage does in turn: a pass of a micro-batch through one of its chunks.

    `kind` is "forward", "backward" or "weights"; the last are gradients of parameters, where they
    are not in the backward pass.
    """

    kind: str
    batch: int
    chunk: int = 0


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

    @abstractmethod
    def seconds(self, stages: Sequence[Work], batches: Quantity, chunks: int = 1) -> Quantity:
        """Return the seconds from the first forward pass to the last backward pass."""

    @abstractmethod
    def turns(self, stage: int, stages: int, batches: int, chunks: int = 1) -> list[Turn]:
        """Return what a stage does, in order."""

    def seconds_of(self, turn: Turn, work: Work, chunks: int) -> float:
        """Return the seconds of a turn of a stage with this work."""
        return float(work.forward if turn.kind == "forward" else work.backward) / chunks

    def play(self, stages: Sequence[Work], batches: int, chunks: int = 1) -> list[Played]:
        """Return when stages do what, each turn as soon as what it waits for is done."""
        last = len(stages) - 1
        turns = [self.turns(i, len(stages), batches, chunks) for i in range(len(stages))]
        ends: dict[tuple[int, Turn], float] = {}
        free, places = [0.0] * len(stages), [0] * len(stages)
        played: list[Played] = []
        while len(played) < sum(map(len, turns)):
            before = len(played)
            for stage, work in enumerate(stages):
                for turn in turns[stage][places[stage] :]:
                    awaited = _awaited(stage, turn, last, chunks)
                    if awaited is not None and awaited not in ends:
                        break
                    start = max(free[stage], ends[awaited] if awaited else 0.0)
                    end = start + self.seconds_of(turn, work, chunks)
                    free[stage] = ends[stage, turn] = end
                    played.append(Played(stage, turn, start, end))
                    places[stage] += 1
            if len(played) == before:
                raise AssertionError(f"{self.name}: stages wait for each other")
        return played

    @abstractmethod
    def in_flight(self, stage: int, stages: int, batches: Quantity, chunks: int = 1) -> Quantity:
        """Return of how many micro-batches a stage keeps activations at most.

        Of a stage of several chunks it counts those of all together: a share for each chunk.
        """

    def waiting(self, stage: int, stages: int, batches: Quantity) -> Quantity:
        """Return of how many more, back already, gradients of parameters wait to be computed."""
        return 0


def _awaited(stage: int, turn: Turn, last: int, chunks: int) -> tuple[int, Turn] | None:
    """Return what a turn has to wait for, of this stage or another: None for nothing."""
    kind, batch, chunk = turn
    if kind == "weights":
        return stage, Turn("backward", batch, chunk)
    if kind == "forward":
        if stage:
            return stage - 1, turn
        return (last, Turn(kind, batch, chunk - 1)) if chunk else None
    if stage < last:
        return stage + 1, turn
    return (
        (0, Turn(kind, batch, chunk + 1))
        if chunk + 1 < chunks
        else (stage, Turn("forward", batch, chunk))
    )


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


PIPELINES: Registry[Pipeline] = Registry("pipeline schedule", "paleo.pipelines")
