"""Putting events on workers and lanes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from paleo.errors import SettingError
from paleo.timeline.values import WAIT, Event, Flow, Part

__all__ = ["MAX_EVENTS", "Drawing", "Piece", "chain", "check_room"]

#: More events would be a file that no viewer opens.
MAX_EVENTS = 500_000
#: Gaps of less than this share of the timeline are of rounding.
_ROUNDING = 1e-12


class Piece(NamedTuple):
    """An event that is not yet on a worker."""

    name: str
    category: str
    start: float
    seconds: float
    arguments: Mapping[str, Any]

    @property
    def end(self) -> float:
        return self.start + self.seconds


def chain(pieces: Iterable[Piece], start: float) -> list[Piece]:
    """Return the pieces that take any time, one after the other from `start` on."""
    found = []
    for piece in pieces:
        if piece.seconds > 0:
            found.append(piece._replace(start=start))
            start += piece.seconds
    return found


def check_room(num_events: int, num_workers: int) -> None:
    """Raise SettingError if a timeline of so many workers would have too many events."""
    if num_events > MAX_EVENTS:
        raise SettingError(
            f"a timeline of {num_workers:,} workers would have more than {MAX_EVENTS:,} events: "
            "ask for fewer workers"
        )


class Drawing:
    """The events of a timeline as it grows; `seconds` is how long it will be."""

    def __init__(self, num_workers: int, seconds: float) -> None:
        if not seconds > 0:
            raise SettingError("no layer takes any time: there is no timeline to draw")
        self.seconds = seconds
        self.num_workers = num_workers
        self.events: list[Event] = []
        self.flows: list[Flow] = []
        self.parts: list[Part] = []
        self._ends: dict[int, list[float]] = {}

    def add(self, worker: int, pieces: Sequence[Piece], *, beside: bool = False) -> list[int]:
        """Put pieces that follow one another on one lane of a worker that is free for them.

        It is lane 0 if that is free, and a further one if they run `beside` what is there. Return
        the indices of the events. On each lane, pieces are to be added by when they start.
        """
        if not pieces:
            return []
        self._make_room(len(pieces))
        ends = self._ends.setdefault(worker, [0.0])
        latest = pieces[0].start + _ROUNDING * self.seconds
        lane = next((i for i in range(beside, len(ends)) if ends[i] <= latest), len(ends))
        if lane == len(ends):
            ends.append(0.0)
        ends[lane] = pieces[-1].end
        first = len(self.events)
        self.events += [Event(worker, lane, *piece) for piece in pieces]
        return list(range(first, len(self.events)))

    def add_to_all(self, workers: Sequence[int], pieces: Sequence[Piece]) -> None:
        """Put the same pieces on all these workers."""
        self._make_room(len(workers) * len(pieces))
        for worker in workers:
            self.add(worker, pieces)

    def part(self, name: str, category: str, start: float, seconds: float) -> float:
        """Note a part, unless it takes no time, and return when it ends."""
        if seconds > 0:
            self.parts.append(Part(name, category, start, seconds))
        return start + seconds

    def finish(self) -> tuple[Event, ...]:
        """Return the events, with waits wherever lane 0 of a worker has none."""
        waits: list[Event] = []
        busy: list[list[tuple[float, float]]] = [[] for _ in range(self.num_workers)]
        for event in self.events:
            if event.lane == 0:
                busy[event.worker].append((event.start, event.end))
        least = _ROUNDING * self.seconds
        for worker, spans in enumerate(busy):
            until = 0.0
            for start, end in [*sorted(spans), (self.seconds, self.seconds)]:
                if (idle := start - until) > least:
                    waits.append(Event(worker, 0, "wait", WAIT, until, idle, {"seconds": idle}))
                until = max(until, end)
        self._make_room(len(waits))
        return (*self.events, *waits)

    def _make_room(self, count: int) -> None:
        check_room(len(self.events) + count, self.num_workers)
