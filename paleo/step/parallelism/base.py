"""The contract of a kind of parallelism: what is asked becomes steps, and a step a timeline.

To add one: a subclass of Parallelism in a file of this folder, registered by
`PARALLELISMS.add(name, instance)`.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import field
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar

from paleo.core.frozen import NamedTuple, dataclass
from paleo.core.registry import Registry
from paleo.net.spec import NetSpec
from paleo.step.parallelism.computations import Computations
from paleo.step.pieces import USED, Field, Step, WholeStep
from paleo.step.plan import Plan
from paleo.step.recompute import RECOMPUTATION

if TYPE_CHECKING:  # few ask for a timeline
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
    #: Whether gradients are accumulated, sent and waited for as a plan says.
    synchronizes: ClassVar[bool] = False
    #: The scaling that it always has, one of SCALINGS, where it does not scale in both ways.
    scaling: ClassVar[str | None] = None
    #: Whether workers share a batch in weak or strong scaling.
    divides: ClassVar[bool] = False
    #: Whether a step waits for a data loader that is slower.
    loads: ClassVar[bool] = False
    #: Whether devices of other kinds take part.
    has_others: ClassVar[bool] = False
    #: Whether it predicts training steps, not passes alone.
    trains: ClassVar[bool] = True
    #: Whether devices share layers or stages, so that each has a part of the net.
    shares_net: ClassVar[bool] = False
    #: Whether split layers are on devices of their own.
    splits: ClassVar[bool] = False
    #: Key and value that head the sum of the rows of a table, if they are to be added up.
    total_label: ClassVar[tuple[str, str] | None] = None

    @property
    def title(self) -> str:
        """What output calls it, before or after a net."""
        return f"{self.name}-parallel"

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


#: What computation consists of, of which some steps have no recomputation.
COMPUTING = (
    _computing("forward"),
    Field(
        f"{RECOMPUTATION}_s", lambda step: step.seconds_of(RECOMPUTATION), "", "s", banded="time"
    ),
    _computing("backward"),
    _computing("update"),
)
#: The title that people see of that.
OF_RECOMPUTATION = {"recomputation_s": "recom-\nputation"}
#: How many workers there are, and the batch of all of them.
WORKERS = Field("workers", lambda step: step.workers, "workers")
BATCH_SIZE = Field("batch_size", lambda step: step.batch_size, "batch")


def _by_scheme(
    key: str,
    value: Callable[[WholeStep], float],
    title: str,
    dimension: str = "",
    banded: str = "",
) -> Field:
    return Field(key, lambda step: step.by_scheme(value), title, dimension, 1, banded=banded)


def _used(key: str) -> Field:
    """Return a field of how well a step uses devices: None where that is not known."""

    def value(step: Step) -> dict[str, float] | None:
        found = step.by_scheme(attrgetter(key))
        return None if any(each is None for each in found.values()) else found

    dimension = "" if key == "tokens_per_s" else "percent"
    return Field(key, value, "", dimension, place=1, banded="rate")


#: How quick a step is, and how it scales, by scheme.
SCALED = (
    _by_scheme("step_s", lambda whole: whole.seconds, "step", "s", "time"),
    _by_scheme("throughput_per_s", lambda whole: whole.throughput, "samples\n/s", banded="rate"),
    *(_used(key) for key in USED),
    _by_scheme("speedup", lambda whole: whole.speedup, "speedup"),
    _by_scheme("efficiency", lambda whole: whole.efficiency, "efficiency", "percent"),
)

#: How long the step waits for the data loader, by scheme.
LOADING = Field(
    "data_loader_s",
    lambda step: {scheme: step.loading(scheme) for scheme in step.exchanges},
    "loader",
    "s",
)

#: The titles that people see of them where a net has tokens.
OF_TOKENS = {"tokens_per_s": "tokens\n/s", "mfu": "MFU"}


@functools.cache
def with_titles(fields: tuple[Field, ...], **titles: str) -> tuple[Field, ...]:
    """Return fields, of which those of some keys have titles."""
    return tuple(
        entry._replace(title=titles[entry.key]) if entry.key in titles else entry
        for entry in fields
    )


PARALLELISMS: Registry[Parallelism] = Registry("parallelism")
