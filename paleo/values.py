"""Values as they come from files: showing them in messages, and checking counts."""

from __future__ import annotations

from typing import Any

__all__ = ["MAX_COUNT", "MAX_SIZE", "shown", "whole"]

#: No dimension, count or window may be larger: it is 2**31 - 1, as in most frameworks.
MAX_SIZE = 2**31 - 1
#: Counts of samples, elements, bytes and FLOPs above this are mistakes, and would overflow arrays.
MAX_COUNT = 2**60


def shown(value: Any) -> str:
    """Return a value as short text for a message."""
    import json

    try:
        text = json.dumps(value, ensure_ascii=False)
    except ValueError:  # an integer of thousands of digits
        return "a number of very many digits"
    except TypeError:  # no JSON: it was given in a program
        text = " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:57] + "..."


def whole(value: Any, minimum: int = 1) -> int:
    """Return `value` if it is a whole number from `minimum` up to MAX_SIZE."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"expected a whole number, got {shown(value)}")
    if value < minimum:
        raise ValueError(f"expected {minimum} or more, got {shown(value)}")
    if value > MAX_SIZE:
        raise ValueError(f"{shown(value)} is too large to mean anything (at most {MAX_SIZE})")
    return value
