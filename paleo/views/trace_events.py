"""Files of the Trace Event Format, which Perfetto and chrome://tracing open: what all have.

The format is "Trace Event Format" by N. Duca and D. Sinclair (linked from the page "Trace event
format" of the Catapult project), in its JSON object form: complete events ("X") with times in
microseconds, flows from one to another ("s" and "f"), counters ("C"), events that overlap ("b" and
"e"), and the names of processes and threads in metadata events ("M"). There is one process:
Perfetto shows threads by their numbers, but processes by how many events they have.

Times in the file are whole nanoseconds, in microseconds with three decimals, since viewers take
them as such: events that touch would else overlap by a rounding. Seconds among the arguments are
not rounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from paleo.core.texts import json_text

#: The process, and its first thread: in viewers, 0 is the idle one of the system.
PROCESS = 1
_NANO = 1e9


def trace_file(about: Mapping[str, Any], events: Iterable[str]) -> bytes:
    """Return a trace file of these events, in UTF-8, with what there is to know `about` it.

    Perfetto does not understand escaped characters above U+FFFF, so they stand as they are. Half a
    pair that a name may have in it becomes an escape.
    """
    head = as_json({"displayTimeUnit": "ms", "otherData": about})
    lines = ",\n".join(events)
    text = f'{head[:-1]},"traceEvents":[\n{lines}\n]}}\n'
    return text.encode("utf-8", "backslashreplace")


def in_nanoseconds(seconds: float) -> int:
    """Return seconds as whole nanoseconds."""
    return round(seconds * _NANO)


def named(what: str, thread: int, name: str) -> Iterator[str]:
    """Yield what gives the "process" or a "thread" its name and its place."""
    for key, value in (("name", name), ("sort_index", thread)):
        event = {"name": f"{what}_{key}", "ph": "M", "pid": PROCESS, "tid": thread}
        yield as_json({**event, "args": {key: value}})


def complete(start: str, span: tuple[int, int], thread: int, arguments: str) -> str:
    """Return an event of a thread from one nanosecond to another.

    `start` has its name and category, and `arguments` what more there is, as texts of JSON.
    """
    begin, end = span
    return (
        f'{{{start},"ph":"X","ts":{micro(begin)},"dur":{micro(end - begin)},'
        f'"pid":{PROCESS},"tid":{thread},"args":{arguments}}}'
    )


def counter(name: str, at: int, of: str, value: float) -> str:
    """Return the value that a counter has from a nanosecond on; `of` is what it counts."""
    return (
        f'{{"name":{as_json(name)},"ph":"C","ts":{micro(at)},"pid":{PROCESS},'
        f'"args":{as_json({of: value})}}}'
    )


def overlapping(
    name: str, category: str, number: int, span: tuple[int, int], arguments: Mapping[str, Any]
) -> tuple[str, str]:
    """Return the beginning and the end of an event that others may overlap.

    Those of one category and `number` are in each other, in the order in which they begin.
    """
    # An "id" alone would be of all processes.
    known = (
        f'"cat":{as_json(category)},"id2":{{"local":"{number}"}},"pid":{PROCESS},"tid":{PROCESS}'
    )
    head = f'{{"name":{as_json(name)},{known}'
    return (
        f'{head},"ph":"b","ts":{micro(span[0])},"args":{as_json(arguments)}}}',
        f'{head},"ph":"e","ts":{micro(span[1])}}}',
    )


def micro(nanoseconds: int) -> str:
    """Return nanoseconds as microseconds, exactly."""
    whole, rest = divmod(nanoseconds, 1000)
    return f"{whole}.{rest:03}"


def as_json(value: Any) -> str:
    """Return a value as JSON without spaces."""
    return json_text(value, separators=(",", ":"), allow_nan=False)
