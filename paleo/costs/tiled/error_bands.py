"""The error bands of the model `tiled`: `errors.toml`, which benchmarks/accuracy.py writes."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Set
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from paleo.costs.error_bands import ON_MESH, UNKNOWN, WHOLE, Band, Like

#: An end that is not known.
_FAR = float("inf")
_FILE = Path(__file__).parent / "errors.toml"


@cache
def _entries() -> tuple[float, Mapping[str, str]]:
    """Return the coverage, and by what cases have in common the rest of each entry, as texts.

    Few of them are asked for, and to read all takes as long as to start.
    """
    head, *entries = _FILE.read_text("utf-8").split("[[band]]\n")
    parts = (entry.partition("low = ") for entry in entries)
    return tomllib.loads(head)["coverage"], {like: low + rest for like, low, rest in parts}


def _values(text: str) -> dict[str, Any]:
    """Return what a text says that has a key on each line, and values as JSON has them."""
    pairs = (line.split(" = ") for line in text.splitlines() if line)
    return {name: _FAR if value == "inf" else json.loads(value) for name, value in pairs}


def known_bands() -> Mapping[Like, Band]:
    """Return every band of the file, by what its cases have in common."""
    likes = (Like(**_values(text)) for text in _entries()[1])
    return {like: band for like in likes if (band := _known(like))}


@cache
def _known(like: Like) -> Band | None:
    """Return the band of exactly such cases, if there is one."""
    coverage, entries = _entries()
    pairs = ((field.name, getattr(like, field.name)) for field in fields(like))
    written = "".join(f"{key} = {json.dumps(value)}\n" for key, value in pairs if value is not None)
    text = entries.get(written)
    return Band(**_values(text), coverage=coverage) if text else None


@cache
def _architectures() -> Set[str | None]:
    """Return the architectures that there are bands of, and None."""
    parts = (like.partition('architecture = "')[2] for like in _entries()[1])
    return {None, *(part.partition('"')[0] for part in parts)}


@cache
def find_band(asked: Like, *, pooled: bool = True) -> Band | None:
    """Return the band of the cases most like these, None if there is none.

    It is of what has all of this in common or, in the order of paleo.costs.error_bands.LEVELS, ever
    less of it; what is None is not asked for. An architecture without constants of its own is
    UNKNOWN. Only if `pooled` may a band be of other architectures.
    """
    if asked.architecture not in _architectures():
        asked = replace(asked, architecture=UNKNOWN)
    if asked.kind not in WHOLE:
        asked = replace(asked, software=asked.software or "")
    for like in asked.wider:
        if not (pooled or like.architecture):
            continue
        if band := _known(like):
            return replace(band, source=like.said(asked), whole=asked.kind == ON_MESH)
    return None
