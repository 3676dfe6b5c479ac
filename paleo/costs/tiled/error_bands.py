"""The error bands of the model `tiled`: `errors.toml`, which benchmarks/accuracy.py writes."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from paleo.costs.error_bands import ON_MESH, UNKNOWN, WHOLE, Band, Like

#: An end that is not known.
_FAR = float("inf")
_FILE = Path(__file__).parent / "errors.toml"


@cache
def known_bands() -> Mapping[Like, Band]:
    """Return every band of the file, by what its cases have in common."""
    head, *entries = _FILE.read_text("utf-8").split("[[band]]\n")
    coverage = tomllib.loads(head)["coverage"]
    found = {}
    for text in entries:
        # A key on each line, as JSON has it: to read all of it as TOML takes as long as to start.
        pairs = [line.split(" = ") for line in text.splitlines() if line]
        entry: dict[str, Any] = {
            name: _FAR if value == "inf" else json.loads(value) for name, value in pairs
        }
        low, high, count, sources = (
            entry.pop(name) for name in ("low", "high", "count", "sources")
        )
        found[Like(**entry)] = Band(low, high, count, coverage, sources=sources)
    return found


def find_band(asked: Like, *, pooled: bool = True) -> Band | None:
    """Return the band of the cases most like these, None if there is none.

    It is of what has all of this in common or, in the order of paleo.costs.error_bands.LEVELS, ever
    less of it; what is None is not asked for. An architecture without constants of its own is
    UNKNOWN. Only if `pooled` may a band be of other architectures.
    """
    known = known_bands()
    if asked.architecture not in {like.architecture for like in known}:
        asked = replace(asked, architecture=UNKNOWN)
    if asked.kind not in WHOLE:
        asked = replace(asked, software=asked.software or "")
    for like in asked.wider:
        if not (pooled or like.architecture):
            continue
        if band := known.get(like):
            return replace(band, source=like.said(asked), whole=asked.kind == ON_MESH)
    return None
