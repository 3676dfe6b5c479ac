"""Timelines of steps as trace files, for Perfetto and chrome://tracing.

The step is a process; its first thread shows the parts, then each lane of each worker is a thread.
What is shorter than half a nanosecond is left out.
"""

from __future__ import annotations

from collections.abc import Iterator

from paleo.step.timeline.values import Event, StepPart, Timeline
from paleo.views.trace_events import (
    PROCESS,
    as_json,
    complete,
    in_nanoseconds,
    micro,
    named,
    trace_file,
)


def dumps(timeline: Timeline) -> bytes:
    """Return the trace file of a timeline, in UTF-8."""
    about = {
        "net": timeline.net,
        **timeline.settings,
        "predicted_s": timeline.seconds,
        "notes": list(timeline.notes),
    }
    return trace_file(about, _events(timeline))


def _events(timeline: Timeline) -> Iterator[str]:
    """Yield all events of the file as JSON."""
    yield from named("process", PROCESS, f"{timeline.net}, predicted step")
    yield from named("thread", PROCESS, "parts of the step")
    threads: dict[tuple[int, int], int] = {}
    lanes = sorted({(event.worker, event.lane) for event in timeline.events})
    others = {
        (event.worker, event.lane) for event in timeline.events if "scheme" not in event.arguments
    }
    for thread, (worker, lane) in enumerate(lanes, PROCESS + 1):
        threads[worker, lane] = thread
        what = "at the same time" if (worker, lane) in others else "exchange of gradients"
        beside = f", {what}" + f" ({lane})" * (lane > 1) if lane else ""
        yield from named("thread", thread, timeline.workers[worker] + beside)
    for part in timeline.parts:
        span = (in_nanoseconds(part.start), in_nanoseconds(part.start + part.seconds))
        yield complete(_start(part), span, PROCESS, as_json({"seconds": part.seconds}))
    spans = _spans(timeline.events)
    written: dict[tuple[str, str, int], tuple[str, str]] = {}
    for event, span in zip(timeline.events, spans, strict=True):
        if span[0] == span[1]:  # a viewer would take it for a part of the next
            continue
        key = (event.name, event.category, id(event.arguments))
        if key not in written:  # many workers share their arguments
            written[key] = _start(event), as_json(dict(event.arguments))
        start, arguments = written[key]
        yield complete(start, span, threads[event.worker, event.lane], arguments)
    for number, flow in enumerate(timeline.flows, 1):
        ends = [(timeline.events[index], spans[index]) for index in flow]
        if all(end > start for _, (start, end) in ends):  # else there is nothing to bind it to
            for phase, (event, span) in zip("sf", ends, strict=True):
                yield _flow(phase, number, span[0], threads[event.worker, event.lane])


def _spans(events: tuple[Event, ...]) -> list[tuple[int, int]]:
    """Return when events start and end in nanoseconds, those of a lane without an overlap."""
    found = [(0, 0)] * len(events)
    ends: dict[tuple[int, int], int] = {}
    for index in sorted(range(len(events)), key=lambda i: events[i].start):
        event = events[index]
        lane = (event.worker, event.lane)
        start = max(in_nanoseconds(event.start), ends.get(lane, 0))
        ends[lane] = max(in_nanoseconds(event.end), start)
        found[index] = (start, ends[lane])
    return found


def _start(event: Event | StepPart) -> str:
    return as_json({"name": event.name, "cat": event.category})[1:-1]


def _flow(phase: str, number: int, at: int, thread: int) -> str:
    binding = ',"bp":"e"' if phase == "f" else ""
    return (
        f'{{"name":"data","cat":"flow","ph":"{phase}","id":{number},"ts":{micro(at)},'
        f'"pid":{PROCESS},"tid":{thread}{binding}}}'
    )
