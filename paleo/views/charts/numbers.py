"""Numbers of charts as texts."""

from __future__ import annotations

import functools
import math

#: What is said of layers that have nothing of a dimension, of paleo.core.units or "count".
NOTHING = {
    "s": ("take", "no time"),
    "bytes": ("take", "no memory"),
    "FLOP": ("count", "no FLOPs"),
    "count": ("have", "no parameters"),
}


def counted(number: int, what: str) -> str:
    """Return how many there are of what, which has an s in the plural."""
    return f"{number:,} {what}{'s' * (number != 1)}"


def left_out(number: int, every: int, verb: str, what: str, but: str = "left out") -> str:
    """Return the note that so many layers `verb` (in the plural) what they are left out for."""
    one = number == 1
    said = {"have": "has"}.get(verb, f"{verb}s") if one else verb
    return f"{number:,} of {every:,} layers {said} {what} and {'is' if one else 'are'} {but}"


def plain(value: float) -> str:
    """Return a round number, such as one beside an axis, without an exponent."""
    text = f"{value:,.12f}".rstrip("0").rstrip(".")
    return "0" if text in ("", "-0") else text


def shown(value: float) -> str:
    """Return a number in three digits or, from 100 on, as a whole one."""
    if not value or not math.isfinite(value):
        return f"{value:g}"
    return _in_digits(value)


@functools.lru_cache(maxsize=4096)  # equal layers have equal numbers
def _in_digits(value: float) -> str:
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(decimals, 9)}f}" if decimals <= 9 else f"{value:.2e}"
