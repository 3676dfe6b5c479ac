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


class Pipeline(ABC):
    """An order in which stages take micro-batches."""

    name: ClassVar[str]
    #: One line for lists and help.
    summary: ClassVar[str]
    #: Whether a stage may have several chunks of the net.
    interleaves: ClassVar[bool] = False

    @abstractmethod
    def seconds(self, stages: Sequence[Work], batches: Quantity, chunks: int = 1) -> Quantity:
        """Return the seconds from the first forward pass to the last backward pass."""

    @abstractmethod
    def in_flight(self, stage: int, stages: int, batches: Quantity, chunks: int = 1) -> Quantity:
        """Return of how many micro-batches a stage keeps activations at most.

        Of a stage of several chunks it counts those of all together: a share for each chunk.
        """


def slowest(values: Sequence[Quantity]) -> Quantity:
    """Return the largest of several numbers, element by element."""
    return functools.reduce(maximum, values)


def filled(ahead: Quantity, batches: Quantity) -> Quantity:
    """Return how many micro-batches are in flight where so many may be, of those that there are."""
    return minimum(ahead, batches)


def summed(values: Sequence[Quantity]) -> Quantity:
    """Return the sum of several numbers."""
    return total(values)


PIPELINES: Registry[Pipeline] = Registry("pipeline schedule", "paleo.pipelines")
