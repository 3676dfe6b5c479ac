"""The error bands of the model `tiled`: `errors.toml`, which benchmarks/accuracy.py writes."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

from paleo.costs.error_bands import Band

_FILE = Path(__file__).parent / "errors.toml"
#: The architecture of bands for devices of an architecture without measurements.
_OTHER = ""


@cache
def _bands() -> dict[tuple[str, str], Band]:
    root = tomllib.loads(_FILE.read_text("utf-8"))
    return {
        (each["kind"], each["architecture"]): Band(
            each["low"],
            each["high"],
            each["count"],
            root["coverage"],
            f"{each['kind']} on " + (each["architecture"] or "architectures left out of the fit"),
        )
        for each in root["band"]
    }


def find_band(kind: str, architecture: str) -> Band | None:
    """Return the band of a kind of operation on an architecture, None if there is none."""
    found = _bands()
    return found.get((kind, architecture)) or found.get((kind, _OTHER))
