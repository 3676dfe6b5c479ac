"""What a load needs to know of a server's engine: the seconds of a step, and the cache's room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Engine(Protocol):
    """One copy of a model on its devices, which does one step after the other.

    A step computes parts of prompts and one more token of each request that decodes, together. A
    request's first token comes from the step that computes the last part of its prompt.
    """

    @property
    def capacity(self) -> int | None:
        """Tokens that the cache of keys and values has room for, None where nothing limits it."""

    def seconds(self, chunks: Sequence[tuple[int, int]], decodes: int, context: int) -> float:
        """Return the seconds of a step of the server, with all that its host does besides.

        `chunks` are parts of prompts, each (tokens to compute, tokens before them that the cache
        has already). `decodes` requests get one token each; before the step, their caches hold
        `context` tokens together. No step has neither.
        """
