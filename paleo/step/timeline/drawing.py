"""Putting events on workers and lanes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from paleo.core.errors import SettingError
from paleo.core.frozen import NamedTuple
from paleo.step.pieces import WAIT, Piece
from paleo.step.timeline.values import Event, Flow, StepPart

#: More events would be a file that no viewer opens.
MAX_EVENTS = 500_000
#: Gaps of less than this share of the timeline are of rounding.
_ROUNDING = 1e-12


class Span(NamedTuple):
    """Pieces of a step: `draw` puts what they consist of on a drawing, from their start on."""

    pieces: Sequence[Piece]
    draw: Callable[[Drawing, float], None]


class Schedule(NamedTuple):
    """What a timeline is made of: the names of workers, and spans, one after the other.

    `settings` are those of the step alone.
    """

    workers: Sequence[str]
    spans: Sequence[Span]
    settings: dict[str, Any]

    def drawn(self, seconds: float) -> Drawing:
        """Return the drawing of a step that is so long, which is more than none."""
        drawing = Drawing(len(self.workers), seconds)
        start = 0.0
        for span in self.spans:
            span.draw(drawing, start)
            for piece in span.pieces:
                part = StepPart(piece.name, piece.category, start, float(piece.seconds))
                drawing.parts += [part] * (part.seconds > 0)
                start += part.seconds
        return drawing


def chain(pieces: Iterable[Piece], start: Any) -> list[Piece]:
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
        self.seconds = seconds
        self.num_workers = num_workers
        self.events: list[Event] = []
        self.flows: list[Flow] = []
        self.parts: list[StepPart] = []
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
        latest = float(pieces[0].start) + _ROUNDING * self.seconds
        lane = next((i for i in range(beside, len(ends)) if ends[i] <= latest), len(ends))
        if lane == len(ends):
            ends.append(0.0)
        ends[lane] = float(pieces[-1].end)
        first = len(self.events)
        for piece in pieces:
            span = float(piece.start), float(piece.seconds)
            event = Event(worker, lane, piece.name, piece.category, *span, piece.arguments)
            self.events.append(event)
        return list(range(first, len(self.events)))

    def add_to_all(self, workers: Sequence[int], pieces: Sequence[Piece]) -> None:
        """Put the same pieces on all these workers."""
        self._make_room(len(workers) * len(pieces))
        for worker in workers:
            self.add(worker, pieces)

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
