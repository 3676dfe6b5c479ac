"""The contract of a kind of parallelism: what is asked becomes steps, and a step a timeline.

To add one: a subclass of Parallelism in a file of this folder, registered by
`PARALLELISMS.add(name, instance)`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import field
from typing import ClassVar, NamedTuple

from paleo.core.frozen import dataclass
from paleo.core.registry import Registry
from paleo.net.spec import NetSpec
from paleo.step.parallelism.computations import Computations
from paleo.step.pieces import Field, Step, WholeStep
from paleo.step.plan import Plan
from paleo.step.timeline.drawing import Schedule


@dataclass(frozen=True)
class Asked:
    """A net under a plan, and the steps of it that somebody asks for."""

    net: NetSpec
    plan: Plan
    batch_size: int
    workers: Sequence[int] = ()
    scaling: str | None = None
    computations: Computations = field(kw_only=True)


class Prediction(NamedTuple):
    """Steps, what a reader of them should know, and the whole that they are parts of, if any."""

    steps: tuple[Step, ...]
    notes: tuple[str, ...] = ()
    whole: WholeStep | None = None


class Parallelism(ABC):
    """A way to divide a step among devices."""

    name: ClassVar[str]
    #: The setting that has the numbers of workers, "" where there is none.
    workers_setting: ClassVar[str] = ""
    #: Whether weak and strong scaling differ, and what is worth it can be told.
    scales: ClassVar[bool] = False
    #: Whether it predicts training steps, not passes alone.
    trains: ClassVar[bool] = True
    #: Whether split layers are on devices of their own.
    splits: ClassVar[bool] = False
    #: Key and value that head the sum of the rows of a table, if they are to be added up.
    total_label: ClassVar[tuple[str, str] | None] = None

    @abstractmethod
    def predict(self, asked: Asked) -> Prediction:
        """Return the steps that are asked for; raises SettingError or NetSpecError."""

    @abstractmethod
    def schedule(
        self, net: NetSpec, plan: Plan, steps: Sequence[Step], scheme: str | None
    ) -> Schedule:
        """Return what the timeline is made of that shows these steps, one after the other.

        They are one of those predicted, or all that are parts of a whole.
        """


def _computing(name: str) -> Field:
    """Return the field with the seconds of the piece of this name, which is computation."""
    return Field(f"{name}_s", lambda step: step[name], name, "s", banded="time")


#: What computation consists of.
COMPUTING = tuple(map(_computing, ("forward", "backward", "update")))
#: How many workers there are, and the batch of all of them.
WORKERS = Field("workers", lambda step: step.workers, "workers")
BATCH_SIZE = Field("batch_size", lambda step: step.batch_size, "batch")

PARALLELISMS: Registry[Parallelism] = Registry("parallelism")
