"""What a timeline is: events of workers, one after another or at the same time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from paleo.core.frozen import NamedTuple, dataclass
from paleo.step.pieces import WAIT


@dataclass(frozen=True, slots=True)
class Event:
    """What a worker does from `start` on, for so many `seconds`.

    `worker` is an index of `Timeline.workers`. Events of one `lane` of a worker do not overlap.
    `category` is "forward", "backward", "update", "transfer" or "wait". `arguments` say more of it,
    in SI units, with the unit in the key; they are not to be changed.
    """

    worker: int
    lane: int
    name: str
    category: str
    start: float
    seconds: float
    arguments: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def end(self) -> float:
        """When it ends, in seconds."""
        return self.start + self.seconds


class Flow(NamedTuple):
    """That one event hands on to another what it has made, as indices of `Timeline.events`."""

    source: int
    target: int


class StepPart(NamedTuple):
    """A part of the step as the tables of `paleo simulate` have it; `category` as an Event's."""

    name: str
    category: str
    start: float
    seconds: float


@dataclass(frozen=True)
class Timeline:
    """One simulated step, or both passes of model parallelism.

    `seconds` is what `paleo.simulate` says that it takes: the step under the scheme in `settings`,
    both parts of a hybrid step, or the lower bounds of both passes. What adds up to it:

    - the `parts`, one after the other;
    - on each worker the events of lane 0, one after the other and without a gap: in the time in
      which a worker has nothing to do there it has an event "wait".

    What happens at the same time as lane 0 is on further lanes. They are empty under data
    parallelism. Under hybrid parallelism they have the fetches of a batch during which another one
    is computed, and whatever is computed at the same time; under model parallelism, branches of one
    device. There, `busy` is the upper bound: everything one after the other.

    `settings` are those of the prediction, under the keys of its JSON output; `notes` say what a
    reader of the events should know. Layers that take no time have no events.
    """

    net: str
    settings: Mapping[str, Any] = field(hash=False)
    seconds: float
    workers: tuple[str, ...]
    parts: tuple[StepPart, ...]
    events: tuple[Event, ...]
    flows: tuple[Flow, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def busy(self) -> float:
        """The seconds of all events in which a worker does something."""
        return sum(event.seconds for event in self.events if event.category != WAIT)

    def of(self, worker: int, lane: int | None = None) -> tuple[Event, ...]:
        """Return the events of a worker, or of one of its lanes, by when they start."""
        found = [
            event for event in self.events if event.worker == worker and lane in (None, event.lane)
        ]
        return tuple(sorted(found, key=lambda event: event.start))
