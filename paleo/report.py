"""Tables for people, separated values and JSON for programs.

This is the place where numbers are rounded.

A table for people picks one unit for all its times, one for all its bytes and so on, and
puts it in the headers; separated values and JSON keep SI units, with the unit in the key.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paleo.errors import printable
from paleo.units import Scale, scale_for

__all__ = [
    "FORMATS",
    "Column",
    "Table",
    "in_unit",
    "to_json",
    "to_markdown",
    "to_separated",
    "to_text",
]

#: The ways to print a result.
FORMATS = ("table", "tsv", "csv", "markdown", "json")


@dataclass(frozen=True)
class Column:
    """One column. `key` is its name in rows and for programs; `title` that for people.

    `dimension`, one of paleo.units such as "s" or "bytes", is for numbers that are shown in
    a unit which the columns of this dimension share, so that they compare; "percent" for
    ratios. A column without a title is for programs alone, one `for_people` for them alone.
    Line breaks in the title are kept where the table is text. Numbers align at the right; so
    do the texts of a column that is to be `right`, such as figures with marks. Numbers of a
    column have as many decimals as the typical one needs, unless each is to have so many
    significant `digits`, where the rows are of several quantities. In an upright table, columns
    of one `group` stand under its name.
    """

    key: str
    title: str = ""
    dimension: str = ""
    for_people: bool = False
    right: bool = False
    digits: int = 0
    group: str = ""


@dataclass(frozen=True)
class Table:
    """Rows under columns. A row maps keys to values.

    `marked` are (row index, column key) of cells to mark with an asterisk. `notes` are what
    a reader of the numbers must know, in any format; `footnotes` explain the table.

    An `upright` table has few rows of many figures. For people the rows stand beside each
    other, headed by the first column, whose values may be lists of lines. Every other column is
    a line, in a unit of its own, and left out if no row has a value there.
    """

    title: str
    columns: Sequence[Column]
    rows: Sequence[Mapping[str, Any]]
    total: Mapping[str, Any] | None = None
    footnotes: Sequence[str] = ()
    notes: Sequence[str] = ()
    marked: frozenset[tuple[int, str]] = frozenset()
    upright: bool = False


def in_unit(value: Any, unit: str) -> str:
    """Return a number of an SI unit for people, in the multiple that suits it."""
    try:
        scale = scale_for([[value]], unit)
    except KeyError:  # a count, a share, or what stands in no table
        text = f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
        return f"{text} {unit}".rstrip()
    return f"{value / scale.factor:.4g} {scale.unit}"


def to_json(value: Any) -> str:
    """Return a value as JSON text of several lines."""
    import json

    # ASCII, so that it stays JSON in any encoding of the output.
    return json.dumps(value, indent=2, allow_nan=False) + "\n"


def to_separated(tables: Sequence[Table], separator: str) -> str:
    """Return all rows of tables that share columns under one header, unrounded."""
    import csv
    import io

    columns = [column for column in tables[0].columns if not column.for_people] if tables else []
    text = io.StringIO()
    writer = csv.writer(text, delimiter=separator, lineterminator="\n")
    writer.writerow(column.key for column in columns)
    for table in tables:
        for row in table.rows:
            writer.writerow(_plain(row.get(column.key)) for column in columns)
    return text.getvalue()


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else value


def to_markdown(tables: Iterable[Table]) -> str:
    """Return tables as Markdown."""
    blocks = []
    for table in tables:
        grid = _grid(table)
        lines = [f"**{_escaped(table.title)}**", ""] if table.title else []
        lines.append(_markdown_row(" ".join(head) for head in grid.heads))
        lines.append(_markdown_row("---:" if right else "---" for right in grid.right))
        lines += [_markdown_row(row) for row in grid.cells]
        lines += [f"\n{_escaped(note)}" for note in _notes(table)]
        blocks.append("\n".join(lines) + "\n")
    return "\n".join(blocks)


def _markdown_row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(_escaped(cell.strip()) for cell in cells) + " |"


def _escaped(text: str) -> str:
    return re.sub(r"([\\`*\[\]|<])", r"\\\1", printable(text))


def to_text(tables: Iterable[Table], width: int | None = None) -> str:
    """Return tables aligned for a terminal of `width` columns; None does not fold them.

    A table that is too wide is folded into blocks, each beginning with the first column.
    """
    return "\n".join(_text(table, width) for table in tables)


def _text(table: Table, width: int | None) -> str:
    grid = _grid(table)
    right, cells = grid.right, grid.cells
    depth = max((len(head) for head in grid.heads), default=0)
    padded = [[""] * (depth - len(head)) + head for head in grid.heads]
    sizes = [
        max(_columns_of(line) for line in [*head, *(row[i] for row in cells)])
        for i, head in enumerate(padded)
    ]

    def line(texts: Sequence[str], block: Sequence[int]) -> str:
        parts = []
        for i in block:
            text = _cut(texts[i], sizes[i])
            blank = " " * (sizes[i] - _columns_of(text))
            parts.append(blank + text if right[i] else text + blank)
        return "  ".join(parts).rstrip()

    lines = [*_wrapped(table.title, width), ""] if table.title else []
    if width and len(sizes) > 1:
        sizes[0] = min(sizes[0], width // 2)  # or it would fill every block
        sizes[1:] = [min(size, max(3, width - sizes[0] - 2)) for size in sizes[1:]]
    blocks = _folded(sizes, width)
    for number, block in enumerate(blocks):
        lines += [""] if number else []
        heading = [line([head[level] for head in padded], block) for level in range(depth)]
        lines += [text for text in heading if text]
        lines.append("  ".join("-" * sizes[i] for i in block))
        body = cells[:-1] if table.total else cells
        lines += [line(row, block) for row in body]
        if table.total:
            lines += ["  ".join("-" * sizes[i] for i in block), line(cells[-1], block)]
    notes = _notes(table)
    lines += ["", *(line for note in notes for line in _wrapped(note, width))] if notes else []
    return "\n".join(lines) + "\n"


def _columns_of(text: str) -> int:
    """Return the terminal columns that a text takes: East Asian wide characters take two."""
    if text.isascii():
        return len(text)
    import unicodedata

    return sum(
        0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF")
        for c in text
    )


def _cut(text: str, columns: int) -> str:
    """Return a text that takes no more columns than these, with "..." where it is cut.

    Names of layers in blocks begin alike: more is kept of the end.
    """
    if _columns_of(text) <= columns:
        return text
    front, back = text, text
    while _columns_of(front) > (columns - 3) // 3:
        front = front[:-1]
    while _columns_of(back) > columns - 3 - _columns_of(front):
        back = back[1:]
    return f"{front}...{back}"


def _wrapped(text: str, width: int | None) -> list[str]:
    """Return a text as one line, or as several where the terminal has no more columns."""
    text = printable(text)
    if not width or len(text) <= width:
        return [text]
    import textwrap

    return textwrap.wrap(text, width, subsequent_indent="  ", break_on_hyphens=False)


def _notes(table: Table) -> list[str]:
    return [*table.footnotes, *(f"note: {note}" for note in table.notes)]


def _folded(sizes: Sequence[int], width: int | None) -> list[list[int]]:
    """Return the columns of each block; the first column begins every one."""
    blocks = [[0]] if sizes else []
    used = sizes[0] if sizes else 0
    for i in range(1, len(sizes)):
        if width and used + 2 + sizes[i] > width and len(blocks[-1]) > 1:
            blocks.append([0])
            used = sizes[0]
        blocks[-1].append(i)
        used += 2 + sizes[i]
    return blocks


def _values(table: Table, column: Column) -> list[Any]:
    return [row.get(column.key) for row in table.rows]


def _typical(table: Table, column: Column) -> list[Any]:
    """Return the values that decide on unit and decimals: the total's where rows have none."""
    values = _values(table, column)
    if table.total and not any(_numbers(values)):
        return [table.total.get(column.key)]
    return values


def _right_aligned(table: Table, columns: Sequence[Column]) -> list[bool]:
    return [
        column.right
        or all(isinstance(value, int | float | None) for value in _values(table, column))
        for column in columns
    ]


def _head(table: Table, column: Column) -> list[str]:
    """Return the title's lines, with the unit if there is one."""
    head = column.title.split("\n")
    return [*head, f"({_scale(table, column).unit})"] if column.dimension else head


def _scale(table: Table, column: Column) -> Scale:
    """Return the unit of a column: the same for all columns of its dimension, if not upright."""
    if column.dimension == "percent":
        return Scale(0.01, "%")
    if table.upright:  # the values that compare are those of this column
        return scale_for([[value] for value in _numbers(_values(table, column))], column.dimension)
    alike = (each for each in table.columns if each.dimension == column.dimension and each.title)
    return scale_for([_numbers(_typical(table, each)) for each in alike], column.dimension)


def _numbers(values: Iterable[Any]) -> list[float]:
    return [value for value in values if isinstance(value, int | float)]


@dataclass(frozen=True)
class _Grid:
    """A table as texts: for each column its head, line by line, and whether it is right-aligned.

    The cells are row by row, the total last.
    """

    heads: list[list[str]]
    right: list[bool]
    cells: list[list[str]]


def _grid(table: Table) -> _Grid:
    columns = [column for column in table.columns if column.title]
    rows = [*table.rows, table.total] if table.total else list(table.rows)
    shown = [_texts(table, column, rows) for column in columns]
    if not table.upright:
        heads = [_head(table, column) for column in columns]
        return _Grid(heads, _right_aligned(table, columns), _turned(shown))
    first = columns[0]
    heads = [
        [printable(line) for line in value] if isinstance(value, list | tuple) else [text]
        for value, text in zip(_values(table, first), shown[0], strict=True)
    ]
    lines: list[list[str]] = []
    group = ""
    for column, texts in zip(columns[1:], shown[1:], strict=True):
        if any(value is not None for value in _values(table, column)):
            if column.group not in ("", group):
                lines.append([column.group, *[""] * len(heads)])
            group = column.group
            lines.append([" " * 2 * bool(group) + " ".join(_head(table, column)), *texts])
    return _Grid([[first.title], *heads], [False] + [True] * len(heads), lines)


def _turned(columns: list[list[str]]) -> list[list[str]]:
    """Return rows of what stands in columns."""
    return [list(row) for row in zip(*columns, strict=True)]


def _texts(table: Table, column: Column, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the cells of a column."""
    factor = _scale(table, column).factor if column.dimension else 1.0
    values = [row.get(column.key) for row in rows]
    texts = _column_texts(
        _typical(table, column), values, factor, column.digits, least=table.upright
    )
    if not any((i, column.key) in table.marked for i in range(len(rows))):
        return texts
    return [
        text + ("*" if (i, column.key) in table.marked else " ") for i, text in enumerate(texts)
    ]


def _column_texts(
    typical: list[Any], values: list[Any], factor: float, digits: int = 0, *, least: bool = False
) -> list[str]:
    """Return the texts of `values`, with `digits`, or as many decimals as the `typical` need.

    That is their median, or the `least` of them.
    """
    scaled = sorted(abs(number / factor) for number in _numbers(typical) if number)
    middle = scaled[0 if least else len(scaled) // 2] if scaled else 1.0
    decimals = min(3, max(0, 3 - math.floor(math.log10(middle))))
    if all(abs(number - round(number)) < 1e-9 * number for number in scaled):
        decimals = 0

    def show(value: Any) -> str:
        if value is None:
            return ""
        if isinstance(value, list | tuple):
            return printable(", ".join(map(str, value)))
        if not isinstance(value, int | float) or isinstance(value, bool):
            return printable(value)
        if factor == 1.0 and isinstance(value, int):
            return f"{value:,}"
        number = value / factor
        if digits and number:
            places = digits - 1 - math.floor(math.log10(abs(number)))
            return f"{number:,.{max(0, places)}f}"
        text = f"{number:,.{decimals}f}"
        return f"{number:.1g}" if number and not float(text.replace(",", "")) else text

    return [show(value) for value in values]
