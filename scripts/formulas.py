"""Formulas over the JSON that `paleo` answers.

A formula is a sum of products and quotients of factors, with a space between any two signs:

    1.2e6 * 47 / 256 * batch_256:runs[0].rows[workers=1].step_s.TreeAllReduce / 3600

A factor is a number, a power such as `5^16`, or NAME:PATH, which is what PATH selects in NAME.json.
A path has keys, `[2]` for an element, and `[key=a,b]`, `[key!=a,b]` or `[*]` for some or all of the
elements of a list, every one of those named; of what it selects, it is the sum.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paleo.core.errors import PaleoError

_STEP = re.compile(r"\.?([\w/-]+)|\[([^\]]*)\]")


def select(value: Any, path: str) -> Any:
    """Return the sum of what a path selects in a JSON value, or the text that it selects."""
    found = [value]
    position = 0
    for match in _STEP.finditer(path):
        if match.start() != position:
            break
        position = match.end()
        key, choice = match.groups()
        try:
            found = [item[key] for item in found] if key else list(_chosen(found, choice))
        except (LookupError, TypeError, ValueError):
            raise PaleoError(f"{path}: nothing, or not all, is at {match[0]}") from None
    if position != len(path) or not path:
        raise PaleoError(f"{path}: not a path from {path[position:]!r} on")
    if not found:
        raise PaleoError(f"{path}: selects nothing")
    if len(found) == 1 and isinstance(found[0], str):
        return found[0]
    if any(isinstance(item, bool) or not isinstance(item, int | float) for item in found):
        raise PaleoError(f"{path}: selects what is no number")
    return sum(found)


def _chosen(values: list[Any], choice: str) -> Iterator[Any]:
    """Yield elements of lists, or those of dictionaries already chosen from one."""
    if re.fullmatch(r"-?\d+", choice):
        yield from (value[int(choice)] for value in values)
        return
    elements = [
        item for value in values for item in (value if isinstance(value, list) else [value])
    ]
    if choice == "*":
        yield from elements
        return
    key, sign, text = re.split(r"(!?=)", choice, maxsplit=1)
    wanted = text.split(",")
    if missing := set(wanted) - {str(item[key]) for item in elements}:
        raise KeyError(missing)
    yield from (item for item in elements if (str(item[key]) in wanted) == (sign == "="))


class Answers:
    """The JSON files of a folder, read on use, and formulas over them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._read:
            path = self.folder / f"{name}.json"
            if not path.exists():
                raise PaleoError(f"there is no {path}: was a command left out?")
            self._read[name] = json.loads(path.read_text("utf-8"))
        return self._read[name]

    def evaluate(self, formula: str) -> Any:
        """Return the value of a formula; of one that is a single path, also a text."""
        words = formula.split()
        signs = [word in ("+", "-", "*", "/") for word in words]
        if signs != [bool(i % 2) for i in range(len(words))] or not len(words) % 2:
            raise PaleoError(f"{formula!r}: expected factors, with a sign between any two")
        if len(words) == 1:
            return self._factor(formula)
        total, sign, product, operator = 0.0, 1, 1.0, "*"
        for word in words:
            if word in ("+", "-"):
                total, sign, product = total + sign * product, 1 if word == "+" else -1, 1.0
                operator = "*"
            elif word in ("*", "/"):
                operator = word
            else:
                factor = self._factor(word)
                if isinstance(factor, str):
                    raise PaleoError(f"{word}: expected a number, got {factor!r}")
                product = product / factor if operator == "/" else product * factor
        return total + sign * product

    def _factor(self, word: str) -> Any:
        name, colon, path = word.partition(":")
        if colon:
            return select(self[name], path)
        try:
            base, power, exponent = word.partition("^")
            return int(base) ** int(exponent) if power else float(base)
        except ValueError:
            raise PaleoError(f"{word}: neither a number nor NAME:PATH") from None
