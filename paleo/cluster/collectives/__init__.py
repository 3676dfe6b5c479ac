"""Collectives, in the files of this folder. Importing this registers all of them."""

from __future__ import annotations

from paleo.cluster.collectives.base import (
    COLLECTIVES,
    Carried,
    Choice,
    Collective,
    Operation,
    Round,
)
from paleo.cluster.collectives.rounds import SWITCH, of_parts

__all__ = [
    "AUTO",
    "COLLECTIVES",
    "SWITCH",
    "Carried",
    "Choice",
    "Collective",
    "Operation",
    "Round",
    "of_parts",
]

#: The scheme that a library chooses by itself.
AUTO = "auto"

# Output shows first what sends most.
COLLECTIVES.discover(__name__, order=lambda collective: -collective.transfers(64))
