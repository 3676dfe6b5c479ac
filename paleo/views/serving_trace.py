"""Some seconds of serving as a trace file: steps, queues, caches and requests.

Each server is a thread with its steps, and has counters of the requests that wait and of what is
taken of its cache. Each request is an event from when it comes to its last token, in which it
waits, has its prompt computed until the first token is shown, and is decoded. What goes on after
the end is cut there.
"""

from __future__ import annotations

from collections.abc import Iterator

from paleo.studies.serving.server import Steps
from paleo.studies.serving.timeline import ServingTimeline
from paleo.views.charts.numbers import counted
from paleo.views.trace_events import (
    PROCESS,
    as_json,
    complete,
    counter,
    in_nanoseconds,
    named,
    overlapping,
    trace_file,
)

_PERCENT = 100.0


def dumps(timeline: ServingTimeline) -> bytes:
    """Return the trace file of a timeline, in UTF-8."""
    about = {
        "net": timeline.net,
        **timeline.settings,
        "seconds": timeline.seconds,
        "requests": len(timeline.requests),
    }
    return trace_file(about, _events(timeline))


def _events(timeline: ServingTimeline) -> Iterator[str]:
    yield from named("process", PROCESS, f"{timeline.net}, served")
    for thread, server in enumerate(timeline.servers, PROCESS):
        yield from named("thread", thread, server.name)
    end = in_nanoseconds(timeline.seconds)
    by_server: list[list[Steps]] = [[] for _ in timeline.servers]
    for steps in timeline.steps:
        by_server[steps.server].append(steps)
    for number, own in enumerate(by_server):
        yield from _steps(own, number + PROCESS, end)
        yield from _counters(timeline, number, own, end)
    for request in timeline.requests:
        yield from _request(timeline, request, end)


def _span(start: float, end: float, most: int) -> tuple[int, int]:
    """Return when something begins and ends, at most so many nanoseconds."""
    return min(in_nanoseconds(start), most), min(in_nanoseconds(end), most)


def _steps(own: list[Steps], thread: int, end: int) -> Iterator[str]:
    last = 0
    for steps in own:
        begin, until = _span(steps.start, steps.start + steps.seconds, end)
        begin = max(begin, last)
        last = max(begin, until)
        if begin == last:
            continue
        start = as_json({"name": _said(steps), "cat": _kind(steps)})[1:-1]
        arguments = {
            "steps": steps.count,
            "prompts": steps.prompts,
            "prompt_tokens": steps.prompt_tokens,
            "decodes": steps.decodes,
            "context_tokens": steps.context,
            "waiting": steps.waiting,
            "seconds": steps.seconds,
        }
        yield complete(start, (begin, last), thread, as_json(arguments))


def _kind(steps: Steps) -> str:
    kinds = [name for name, many in (("prompts", steps.prompts), ("decode", steps.decodes)) if many]
    return " and ".join(kinds)


def _said(steps: Steps) -> str:
    """Return what steps compute: viewers give names that differ in numbers alone one colour."""
    said = []
    if steps.prompts:
        said.append(f"prompts: {steps.prompts:,} ({counted(steps.prompt_tokens, 'token')})")
    if steps.decodes:
        said.append(f"decode: {steps.decodes:,}")
    if steps.count > 1:
        said.append(f"{steps.count:,} steps")
    return ", ".join(said)


def _counters(timeline: ServingTimeline, number: int, own: list[Steps], end: int) -> Iterator[str]:
    """Yield how many requests wait and what is taken of the cache, whenever that changes.

    After the last step before a server is idle nothing waits, and the cache is empty, unless it
    keeps what it hands over.
    """
    server = timeline.servers[number]
    values: list[tuple[int, int, int | None]] = []
    for steps in own:
        begin, until = _span(steps.start, steps.start + steps.seconds, end)
        if values and values[-1][0] > begin:  # by a rounding
            begin = values[-1][0]
        if values and values[-1][0] == begin:
            values.pop()
        values.append((begin, steps.waiting, steps.cached))
        if until < end:
            values.append((until, 0, None if server.hands_over else 0))
    for which, of, scale in ((1, "requests", 1.0), (2, "percent", _PERCENT / server.capacity)):
        name = f"{server.name}: {'waiting' if which == 1 else 'cache'}"
        before = None
        for value in values:
            now = value[which]
            if now is not None and now != before:
                yield counter(name, value[0], of, now * scale if which == 2 else now)
                before = now


def _request(timeline: ServingTimeline, number: int, end: int) -> Iterator[str]:
    served = timeline.served
    times = [
        float(of[number]) for of in (served.arrival, served.start, served.first, served.finish)
    ]
    load = served.load
    arguments = {
        "request": number,
        "prompt": int(load.prompt[number]),
        "output": int(load.output[number]),
        "cached": int(load.cached[number]),
        "ttft_s": times[2] - times[0],
        "latency_s": times[3] - times[0],
    }
    begun, ended = overlapping(
        "request", "request", number, _span(times[0], times[3], end), arguments
    )
    yield begun
    names = ("waiting", "first token", "decoding")
    for name, begin, until in zip(names, times[:-1], times[1:], strict=True):
        span = _span(begin, until, end)
        if span[0] < span[1]:
            yield from overlapping(name, "request", number, span, {"seconds": until - begin})
    yield ended
