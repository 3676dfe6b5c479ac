"""Protobuf's text format as dictionaries of lists, without a word of what a field may be."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

Fields = dict[str, list[Any]]

_TOKENS = re.compile(
    r"""#[^\n]*|"((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)'|([{}<>\[\]:,;])|([^\s{}<>\[\]:,;"'#]+)"""
)


def parsed(text: str) -> Fields:
    """Return what a text in protobuf's format has: the values of each field, in order."""
    tokens: list[tuple[str, str]] = []
    for match in _TOKENS.finditer(text):
        if match[3]:
            tokens.append(("mark", match[3]))
        elif match[4]:
            tokens.append(("word", match[4]))
        elif not match[0].startswith("#"):
            kind, value = "text", match[1] if match[1] is not None else match[2]
            if tokens and tokens[-1][0] == "text":  # texts beside each other are one
                tokens[-1] = ("text", tokens[-1][1] + value)
            else:
                tokens.append((kind, value))
    return _message(iter(tokens))


def _message(tokens: Iterator[tuple[str, str]]) -> Fields:
    found: Fields = {}
    for kind, name in tokens:
        if kind == "mark":
            if name in "}>":
                return found
            continue
        kind, value = next(tokens)
        if (kind, value) == ("mark", ":"):
            kind, value = next(tokens)
        values = found.setdefault(name, [])
        if kind != "mark":
            values.append(_plain(kind, value))
        elif value == "[":
            values.extend(_listed(tokens))
        else:
            values.append(_message(tokens))
    return found


def _listed(tokens: Iterator[tuple[str, str]]) -> Iterator[Any]:
    for kind, value in tokens:
        if (kind, value) == ("mark", "]"):
            return
        if kind == "mark" and value in "{<":
            yield _message(tokens)
        elif kind != "mark":
            yield _plain(kind, value)


def _plain(kind: str, value: str) -> Any:
    if kind == "text" or not re.fullmatch(r"[-+]?\.?\d.*", value):
        return {"true": True, "false": False}.get(value, value) if kind == "word" else value
    try:
        return (
            int(value, 0)
            if re.fullmatch(r"[-+]?(0[xX].*|[1-9]\d*|0)", value)
            else float(value.rstrip("fF"))
        )
    except ValueError:
        return value
