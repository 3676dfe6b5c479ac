"""Tables for people, separated values and JSON for programs.

This is the place where numbers are rounded.

A table for people picks one unit for all its times, one for all its bytes and so on, and
puts it in the headers; separated values and JSON keep SI units, with the unit in the key.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from paleo.core.errors import printable
from paleo.core.frozen import dataclass
from paleo.core.texts import to_cell
from paleo.core.units import Scale, scale_for

#: The scales of dimensions that have but one: of what has no unit, and of ratios.
_FIXED = {"": Scale(1.0, ""), "percent": Scale(0.01, "%"), "share": Scale(0.01, "%")}
_NUMBER = (int, float)
#: A unit suits a total that is ten of it or more; a unit suits a typical number from a tenth on.
_PLACES_OF_TOTAL = 100

#: The ways to print a result.
FORMATS = ("table", "tsv", "csv", "markdown", "json")


@dataclass(frozen=True)
class Column:
    """One column. `key` is its name in rows and for programs; `title` that for people.

    `dimension`, one of paleo.core.units such as "s" or "bytes", is for numbers that are shown in
    a unit which the columns of this dimension share, so that they compare; "percent" for
    ratios, "share" for those of a whole, to a tenth of a percent. A column without a title is for
    programs alone, one `for_people` for them alone.
    Line breaks in the title are kept where the table is text. Numbers align at the right; so
    do the texts of a column that is to be `right`, such as figures with marks. Numbers of a
    column have as many decimals as the typical one needs, unless each is to have so many
    significant `digits`, where the rows are of several quantities or have an error band. In an
    upright table, columns of one `group` stand under its name. A `wide` column is for whoever asks
    for all; where rows are put in order, the least of some values is best. Of a table with
    headings, see paleo.views.headings, columns that are more `spare` give way sooner.
    """

    key: str
    title: str = ""
    dimension: str = ""
    for_people: bool = False
    right: bool = False
    digits: int = 0
    group: str = ""
    wide: bool = False
    least_is_best: bool = False
    spare: int = 0


def plain(*keys: str) -> tuple[Column, ...]:
    """Return columns for programs alone."""
    return tuple(map(Column, keys))


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


def in_unit(value: Any, unit: str, digits: int = 4) -> str:
    """Return a number of an SI unit for people, in the multiple that suits it."""
    try:
        scale = scale_for([[value]], unit)
    except KeyError:  # a count, a share, or what stands in no table
        text = f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
        return f"{text} {unit}".rstrip()
    number = value / scale.factor
    # Of three digits the last is seen even if it is a 0.
    exact = digits < 4 and math.isfinite(number) and number
    text = significant(number, digits) if exact else f"{number:.{digits}g}"
    return f"{text} {scale.unit}"


def to_json(value: Any) -> str:
    """Return a value as JSON text of several lines."""
    import json

    # ASCII, so that it stays JSON in any encoding of the output. Delete is escaped beside.
    return json.dumps(value, indent=2, allow_nan=False).replace("\x7f", "\\u007f") + "\n"


def to_separated(tables: Sequence[Table], separator: str) -> str:
    """Return all rows of tables that share columns under one header, unrounded.

    Texts are as `to_cell` makes them: no program takes them for more than text.
    """
    import csv
    import io

    columns = [column for column in tables[0].columns if not column.for_people] if tables else []
    text = io.StringIO()
    writer = csv.writer(text, delimiter=separator, lineterminator="\n")
    writer.writerow(to_cell(column.key) for column in columns)
    for table in tables:
        for row in table.rows:
            writer.writerow(_plain(row.get(column.key)) for column in columns)
    return text.getvalue()


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        text = " ".join(map(str, value))
        return to_cell(text) if any(isinstance(each, str) for each in value) else text
    if isinstance(value, str):
        return to_cell(value)
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else value


def to_cells(table: Table) -> dict[str, Any]:
    """Return a table for a page: its columns, each with its unit, and its rows as texts."""
    grid = _grid(table)
    body = grid.cells[:-1] if table.total else grid.cells
    return {
        "title": printable(table.title),
        "columns": [
            {"title": " ".join(title).replace("- ", ""), "unit": unit, "right": right}
            for title, unit, right in zip(grid.titles, grid.units, grid.right, strict=True)
        ],
        "rows": body,
        "total": grid.cells[-1] if table.total else None,
        "footnotes": [printable(note) for note in table.footnotes],
        "notes": [printable(note) for note in table.notes],
    }


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


def to_paragraph(sentences: Sequence[str], width: int | None = None) -> str:
    """Return sentences as a paragraph, with an empty line below it; "" for none."""
    if not sentences:
        return ""
    import textwrap

    text = printable(" ".join(sentences))
    if width:
        # A number stays with its unit.
        kept = re.sub(r"(?<=\d) (?=%|[A-Za-z/]{1,6}\b)", "\xa0", text)
        text = textwrap.fill(kept, width, break_on_hyphens=False).replace("\xa0", " ")
    return f"{text}\n\n"


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
        max(columns_of(line) for line in [*head, *(row[i] for row in cells)])
        for i, head in enumerate(padded)
    ]

    def line(texts: Sequence[str], block: Sequence[int]) -> str:
        parts = []
        for i in block:
            text = cut(texts[i], sizes[i])
            blank = " " * (sizes[i] - columns_of(text))
            parts.append(blank + text if right[i] else text + blank)
        return "  ".join(parts).rstrip()

    lines = [*wrapped(table.title, width), ""] if table.title else []
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
    lines += ["", *(line for note in notes for line in wrapped(note, width))] if notes else []
    return "\n".join(lines) + "\n"


def columns_of(text: str) -> int:
    """Return the terminal columns that a text takes: East Asian wide characters take two."""
    if text.isascii():
        return len(text)
    import unicodedata

    return sum(
        0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF")
        for c in text
    )


def cut(text: str, columns: int) -> str:
    """Return a text that takes no more columns than these, with "..." where it is cut.

    Names of layers in blocks begin alike: more is kept of the end.
    """
    if columns_of(text) <= columns:
        return text
    front, back = text, text
    while front and columns_of(front) > (columns - 3) // 3:
        front = front[:-1]
    while back and columns_of(back) > columns - 3 - columns_of(front):
        back = back[1:]
    return f"{front}...{back}"


def wrapped(text: str, width: int | None) -> list[str]:
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


@dataclass(frozen=True)
class _Grid:
    """A table as texts: for each column its title, line by line, its unit, and how it aligns.

    The cells are row by row, the total last.
    """

    titles: list[list[str]]
    units: list[str]
    right: list[bool]
    cells: list[list[str]]

    @property
    def heads(self) -> list[list[str]]:
        """What stands above each column, line by line."""
        return list(map(_head, self.titles, self.units))


def _head(title: list[str], unit: str) -> list[str]:
    """Return the title's lines, with the unit if there is one."""
    return [*title, f"({unit})"] if unit else title


class _Shown:
    """A column for people: its values, and what of them decides how they are shown, found once."""

    def __init__(self, table: Table, column: Column) -> None:
        key = column.key
        self.column = column
        #: Those of the rows, and below them that of the total if there is one.
        self.values = [row.get(key) for row in table.rows]
        self.below = [table.total.get(key)] if table.total else []
        self.marked = {index for index, marked in table.marked if marked == key}

    @property
    def title(self) -> list[str]:
        """The title's lines."""
        return self.column.title.split("\n")

    @property
    def is_right(self) -> bool:
        """Whether it is aligned at the right."""
        return self.column.right or all(
            value is None or isinstance(value, _NUMBER) for value in self.values
        )

    @functools.cached_property
    def sizes(self) -> list[float]:
        """The sizes of the numbers that decide on unit and decimals, in order, without zeros.

        The total decides where the rows have none.
        """
        return _sizes(self.values) or _sizes(self.below)

    @property
    def median(self) -> float:
        """The typical one of `sizes`, of which there have to be some."""
        return self.sizes[len(self.sizes) // 2]

    def texts(self, factor: float, *, least: bool = False) -> list[str]:
        """Return the cells: values over `factor`, the total last.

        They have the decimals that their median needs, or the `least` of them.
        """
        decimals = self._decimals(factor, least)
        values = [*self.values, *self.below]
        texts = _column_texts(values, factor, decimals, self.column.digits)
        if not self.marked:
            return texts
        return [text + ("*" if i in self.marked else " ") for i, text in enumerate(texts)]

    def _decimals(self, factor: float, least: bool) -> int:
        if self.column.dimension == "share":
            return 1
        scaled = (size / factor for size in self.sizes)
        if all(abs(number - round(number)) < 1e-9 * number for number in scaled):
            return 0
        typical = (self.sizes[0] if least else self.median) / factor
        return min(3, max(0, 3 - math.floor(math.log10(typical))))


def _sizes(values: Iterable[Any]) -> list[float]:
    return sorted(abs(value) for value in values if isinstance(value, _NUMBER) and value)


def _grid(table: Table) -> _Grid:
    shown = [_Shown(table, column) for column in table.columns if column.title and not column.wide]
    return _upright(shown) if table.upright else _in_columns(shown)


def _in_columns(shown: Sequence[_Shown]) -> _Grid:
    """Return a table in which columns of one dimension share their unit.

    It suits their totals, where there are any: of the smallest rows nobody asks how much they are.
    """
    alike: dict[str, list[_Shown]] = {}
    for each in shown:
        alike.setdefault(each.column.dimension, []).append(each)
    scales = {
        dimension: _scale(
            dimension,
            [max(totals) / _PLACES_OF_TOTAL]
            if (totals := [size for each in own for size in _sizes(each.below)])
            else (each.median for each in own if each.sizes),
        )
        for dimension, own in alike.items()
    }
    own_scales = [scales[each.column.dimension] for each in shown]
    columns = [each.texts(scale.factor) for each, scale in zip(shown, own_scales, strict=True)]
    return _Grid(
        [each.title for each in shown],
        [scale.unit for scale in own_scales],
        [each.is_right for each in shown],
        [list(row) for row in zip(*columns, strict=True)],
    )


def _upright(shown: Sequence[_Shown]) -> _Grid:
    """Return a table in which columns are lines, each in a unit of its own, below the first."""
    first, *others = shown
    titles = [
        [printable(line) for line in value] if isinstance(value, list | tuple) else [text]
        for value, text in zip(first.values, first.texts(1.0, least=True), strict=True)
    ]
    lines: list[list[str]] = []
    group = ""
    for each in others:
        if all(value is None for value in each.values):
            continue
        if each.column.group not in ("", group):
            lines.append([each.column.group, *[""] * len(titles)])
        group = each.column.group
        scale = _scale(each.column.dimension, each.sizes)
        head = " ".join(_head(each.title, scale.unit))
        texts = each.texts(scale.factor, least=True)
        lines.append([" " * 2 * bool(group) + head, *texts])
    count = len(titles)
    return _Grid(
        [[first.column.title], *titles], [""] * (1 + count), [False] + [True] * count, lines
    )


def _scale(dimension: str, sizes: Iterable[float]) -> Scale:
    """Return the unit in which values of these sizes are shown, to be compared."""
    if dimension in _FIXED:
        return _FIXED[dimension]
    return scale_for([[size] for size in sizes], dimension)


def significant(number: float, digits: int) -> str:
    """Return a finite number other than 0 with so many significant digits, without an exponent."""
    for _ in range(2):  # 9.96 is 10 in two digits, which has none behind the point
        places = digits - 1 - math.floor(math.log10(abs(number)))
        number = round(number, places)
    return f"{number:,.{max(0, places)}f}"


def _column_texts(values: Iterable[Any], factor: float, decimals: int, digits: int) -> list[str]:
    """Return the texts of `values`, numbers with `digits` or, if that is 0, with `decimals`."""
    form = f",.{decimals}f"

    @functools.cache  # many layers take the same
    def scaled(number: float) -> str:
        if digits:
            return significant(number, digits)
        text = format(number, form)
        if text.strip("-0.,"):
            return text
        return f"{number:.1g}" if number < 0 else f"<{10.0**-decimals:g}"

    def show(value: Any) -> str:
        if isinstance(value, str):
            return printable(value)
        if isinstance(value, _NUMBER) and not isinstance(value, bool):
            if factor == 1.0 and isinstance(value, int):
                return f"{value:,}"
            number = value / factor
            return scaled(number) if number else format(number, form)
        if isinstance(value, list | tuple):
            return printable(", ".join(map(str, value)))
        return "" if value is None else printable(value)

    return [show(value) for value in values]
