"""The error bands of the model `tiled`: `errors.toml`, which benchmarks/accuracy.py writes."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from paleo.costs.error_bands import ON_MESH, UNKNOWN, WHOLE, Band, Like

_FILE = Path(__file__).parent / "errors.toml"


@cache
def known_bands() -> Mapping[Like, Band]:
    """Return every band of the file, by what its cases have in common."""
    root = tomllib.loads(_FILE.read_text("utf-8"))
    found = {}
    for entry in root["band"]:
        own = {name: entry.pop(name) for name in ("low", "high", "count", "sources")}
        found[Like(**entry)] = Band(
            own["low"], own["high"], own["count"], root["coverage"], sources=own["sources"]
        )
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
