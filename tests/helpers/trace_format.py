"""A strict reader of trace files.

After "Trace Event Format" (N. Duca, D. Sinclair), as the pages of the Catapult project link it: the
JSON object form, complete events, flow events and metadata events. It takes nothing else, though
the format has more. What viewers ask for besides: events of a thread nest (here: do not overlap),
and the ends of a flow stand in events.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

METADATA = {
    "process_name": ("name", str),
    "process_sort_index": ("sort_index", int),
    "thread_name": ("name", str),
    "thread_sort_index": ("sort_index", int),
}
KEYS = {
    "M": {"name", "ph", "pid", "tid", "args"},
    "X": {"name", "cat", "ph", "ts", "dur", "pid", "tid", "args"},
    "s": {"name", "cat", "ph", "id", "ts", "pid", "tid"},
    "f": {"name", "cat", "ph", "id", "ts", "pid", "tid", "bp"},
}


class Read:
    """What is in a trace file. Numbers with a point are exact."""

    def __init__(self, text: bytes) -> None:
        self.file = json.loads(text, parse_float=Decimal, parse_constant=_refuse)
        self.events: list[dict[str, Any]] = self.file["traceEvents"]
        self.names: dict[tuple[int, int], str] = {}
        self.processes: dict[int, str] = {}
        self.complete: dict[tuple[int, int], list[dict[str, Any]]] = {}
        self.flows: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._check()

    def total(self, thread: str) -> Decimal:
        """Return the microseconds of all events of a thread."""
        (key,) = (key for key, name in self.names.items() if name == thread)
        return sum((event["dur"] for event in self.complete[key]), Decimal(0))

    def _check(self) -> None:
        assert self.file.get("displayTimeUnit") in ("ms", "ns")
        assert isinstance(self.events, list)
        begun: dict[int, dict[str, Any]] = {}
        for event in self.events:
            assert set(event) == KEYS[event["ph"]], event
            assert isinstance(event["name"], str)
            for key in ("pid", "tid"):
                assert isinstance(event[key], int)
                assert event[key] > 0
            if event["ph"] == "M":
                self._metadata(event)
                continue
            assert isinstance(event["cat"], str)
            assert isinstance(event["ts"], Decimal)
            assert event["ts"] >= 0
            if event["ph"] == "X":
                assert event["dur"] >= 0
                assert isinstance(event["args"], dict)
                self.complete.setdefault((event["pid"], event["tid"]), []).append(event)
            elif event["ph"] == "s":
                assert event["id"] not in begun
                begun[event["id"]] = event
            else:
                start = begun.pop(event["id"])
                assert (start["name"], start["cat"]) == (event["name"], event["cat"])
                assert event["bp"] == "e"
                assert start["ts"] <= event["ts"]
                self.flows.append((self._around(start), self._around(event)))
        assert not begun
        assert set(self.complete) == set(self.names)
        assert {process for process, _ in self.complete} == set(self.processes)
        for events in self.complete.values():
            end = Decimal(0)
            for event in sorted(events, key=lambda event: event["ts"]):
                assert event["ts"] >= end, event
                end = event["ts"] + event["dur"]

    def _metadata(self, event: dict[str, Any]) -> None:
        key, kind = METADATA[event["name"]]
        assert set(event["args"]) == {key}
        assert isinstance(event["args"][key], kind)
        if event["name"] == "thread_name":
            assert (event["pid"], event["tid"]) not in self.names
            self.names[event["pid"], event["tid"]] = event["args"]["name"]
        elif event["name"] == "process_name":
            assert event["pid"] not in self.processes
            self.processes[event["pid"]] = event["args"]["name"]

    def _around(self, end: dict[str, Any]) -> dict[str, Any]:
        """Return the event in which an end of a flow stands; it is to be written before it."""
        (found,) = (
            event
            for event in self.complete[end["pid"], end["tid"]]
            if event["ts"] <= end["ts"] < event["ts"] + event["dur"]
        )
        return found


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")
