"""Texts of files in JSON and separated values: no terminal and no spreadsheet acts upon them."""

from __future__ import annotations

from typing import Any

from paleo.core.errors import printable

#: With these, narrow or wide, a spreadsheet takes a cell for a formula.
_FORMULA = tuple("=+-@\uff1d\uff0b\uff0d\uff20")
#: In front of a cell, it says to spreadsheets that the rest is text.
_TEXT = "'"


def json_text(value: Any, **form: Any) -> str:
    r"""Return `value` as JSON in Unicode; what a terminal acts upon is escaped.

    `form` is passed to json.dumps. Characters above U+FFFF stand as they are.

    >>> json_text("a\x9b größe")
    '"a\\u009b größe"'
    """
    import json

    text = json.dumps(value, ensure_ascii=False, **form)
    return "\n".join(map(_escaped, text.split("\n")))


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c > "\uffff" or "\ud800" <= c <= "\udfff" else f"\\u{ord(c):04x}"
        for c in text
    )


def to_cell(text: str) -> str:
    """Return a text as a cell of separated values: on one line, and a formula to no spreadsheet.

    >>> to_cell("=1+1"), to_cell("conv1"), to_cell("-3")
    ("'=1+1", 'conv1', "'-3")
    """
    text = printable(text)
    return _TEXT + text if text.startswith(_FORMULA) and len(text) > 1 else text


def of_cell(cell: str) -> str:
    """Return the text that `to_cell` made a cell of, but for escaped characters."""
    text = cell.removeprefix(_TEXT)
    return text if text.startswith(_FORMULA) else cell
