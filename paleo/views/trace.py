"""Timelines as files of the Trace Event Format, which Perfetto and chrome://tracing open.

The format is "Trace Event Format" by N. Duca and D. Sinclair (linked from the page "Trace event
format" of the Catapult project), in its JSON object form: complete events ("X") with times in
microseconds, flows from one to another ("s" and "f"), and the names of processes and threads in
metadata events ("M"). The step is a process; its first thread shows the parts, then each lane of
each worker is a thread. (Perfetto shows threads by their numbers, but processes by how many events
they have, which would mix up workers.)

Times in the file are whole nanoseconds, in microseconds with three decimals, since viewers take
them as such: events that touch would else overlap by a rounding. What is shorter than half of one
is left out. The seconds among the arguments are not rounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from paleo.core.texts import json_text
from paleo.step.timeline.values import Event, StepPart, Timeline

#: The process, and its first thread: in viewers, 0 is the idle one of the system.
_STEP = 1
_NANO = 1e9


def dumps(timeline: Timeline) -> bytes:
    """Return the trace file of a timeline, in UTF-8.

    Perfetto does not understand escaped characters above U+FFFF, so they stand as they are. Half a
    pair that a name may have in it becomes an escape.
    """
    head = {
        "displayTimeUnit": "ms",
        "otherData": {
            "net": timeline.net,
            **timeline.settings,
            "predicted_s": timeline.seconds,
            "notes": list(timeline.notes),
        },
    }
    events = ",\n".join(_events(timeline))
    return f'{_json(head)[:-1]},"traceEvents":[\n{events}\n]}}\n'.encode(
        "utf-8", "backslashreplace"
    )


def _events(timeline: Timeline) -> Iterator[str]:
    """Yield all events of the file as JSON."""
    yield from _named("process", _STEP, f"{timeline.net}, predicted step")
    yield from _named("thread", _STEP, "parts of the step")
    threads: dict[tuple[int, int], int] = {}
    lanes = sorted({(event.worker, event.lane) for event in timeline.events})
    others = {
        (event.worker, event.lane) for event in timeline.events if "scheme" not in event.arguments
    }
    for thread, (worker, lane) in enumerate(lanes, _STEP + 1):
        threads[worker, lane] = thread
        what = "at the same time" if (worker, lane) in others else "exchange of gradients"
        beside = f", {what}" + f" ({lane})" * (lane > 1) if lane else ""
        yield from _named("thread", thread, timeline.workers[worker] + beside)
    for part in timeline.parts:
        span = (_nanoseconds(part.start), _nanoseconds(part.start + part.seconds))
        yield _complete(_start(part), span, _STEP, _json({"seconds": part.seconds}))
    spans = _spans(timeline.events)
    written: dict[tuple[str, str, int], tuple[str, str]] = {}
    for event, span in zip(timeline.events, spans, strict=True):
        if span[0] == span[1]:  # a viewer would take it for a part of the next
            continue
        key = (event.name, event.category, id(event.arguments))
        if key not in written:  # many workers share their arguments
            written[key] = _start(event), _json(dict(event.arguments))
        start, arguments = written[key]
        yield _complete(start, span, threads[event.worker, event.lane], arguments)
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
        start = max(_nanoseconds(event.start), ends.get(lane, 0))
        ends[lane] = max(_nanoseconds(event.end), start)
        found[index] = (start, ends[lane])
    return found


def _nanoseconds(seconds: float) -> int:
    return round(seconds * _NANO)


def _named(what: str, thread: int, name: str) -> Iterator[str]:
    """Yield what gives the process or a thread its name and its place."""
    for key, value in (("name", name), ("sort_index", thread)):
        event = {"name": f"{what}_{key}", "ph": "M", "pid": _STEP, "tid": thread}
        yield _json({**event, "args": {key: value}})


def _start(event: Event | StepPart) -> str:
    return _json({"name": event.name, "cat": event.category})[1:-1]


def _complete(start: str, span: tuple[int, int], thread: int, arguments: str) -> str:
    begin, end = span
    return (
        f'{{{start},"ph":"X","ts":{_micro(begin)},"dur":{_micro(end - begin)},'
        f'"pid":{_STEP},"tid":{thread},"args":{arguments}}}'
    )


def _flow(phase: str, number: int, at: int, thread: int) -> str:
    binding = ',"bp":"e"' if phase == "f" else ""
    return (
        f'{{"name":"data","cat":"flow","ph":"{phase}","id":{number},"ts":{_micro(at)},'
        f'"pid":{_STEP},"tid":{thread}{binding}}}'
    )


def _micro(nanoseconds: int) -> str:
    """Return nanoseconds as microseconds, exactly."""
    whole, rest = divmod(nanoseconds, 1000)
    return f"{whole}.{rest:03}"


def _json(value: Any) -> str:
    return json_text(value, separators=(",", ":"), allow_nan=False)
