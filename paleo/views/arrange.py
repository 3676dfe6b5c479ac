"""What of a table is shown: which columns, in which order of rows, and how many of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from paleo.core.errors import Mistakes, SettingError, near_or_known
from paleo.core.frozen import dataclass
from paleo.views.table import Column, Table

#: What keys of columns end with that names of them may leave out.
_UNITS = r"(_s|_per_s|_bytes|_j|_w|_flops)$"


@dataclass(frozen=True)
class Arrangement:
    """What a user asks of tables; nothing by default.

    `columns` are names of columns to show, and of those alone; with `wide` all columns are. `sort`
    names the column by which rows are ordered, the best first where one value is better than
    another, else the largest; a "-" before it turns that round. `top` rows are shown.
    """

    columns: tuple[str, ...] = ()
    wide: bool = False
    sort: str = ""
    top: int | None = None

    def __bool__(self) -> bool:
        return self != Arrangement()

    def applied(self, tables: Sequence[Table]) -> list[Table]:
        """Return the tables so arranged; raises a PaleoError for names that no table has."""
        mistakes = Mistakes()
        for name in self.columns:
            mistakes.check(self._check, tables, "columns", name)
        if self.sort:
            mistakes.check(self._check, tables, "sort", self.sort.removeprefix("-"))
        mistakes.raise_as(SettingError)
        return [self._applied(table) for table in tables]

    @staticmethod
    def _check(tables: Sequence[Table], option: str, name: str) -> None:
        if not any(_named(table.columns, name) for table in tables):
            known = dict.fromkeys(
                short
                for table in tables
                for column in table.columns
                if (short := _short(column)) and column.title
            )
            hint = near_or_known(name, known)
            raise SettingError(f"--{option}: there is no column {name!r}{hint}")

    def _applied(self, table: Table) -> Table:
        rows = list(range(len(table.rows)))
        if self.sort and (by := _named(table.columns, self.sort.removeprefix("-"))):
            rows = _ordered(by[0], table.rows, is_turned=self.sort.startswith("-"))
        left = rows[self.top :] if self.top is not None else []
        rows = rows[: len(rows) - len(left)]
        footnotes = list(table.footnotes)
        if left:
            footnotes.insert(0, f"{len(rows):,} of {len(table.rows):,} rows (--top)")
        places = {old: new for new, old in enumerate(rows)}
        return replace(
            table,
            columns=self._columns(table),
            rows=[table.rows[i] for i in rows],
            footnotes=footnotes,
            marked=frozenset((places[i], key) for i, key in table.marked if i in places),
        )

    def _columns(self, table: Table) -> tuple[Column, ...]:
        if self.columns:
            first = [column for column in table.columns if column.title][:1]
            asked = [column for name in self.columns for column in _named(table.columns, name)]
            return tuple(
                replace(column, wide=False, title=column.title or _short(column).replace("_", " "))
                for column in dict.fromkeys([*first, *asked])
            )
        if self.wide:
            return tuple(replace(column, wide=False) for column in table.columns)
        return tuple(table.columns)


def _short(column: Column) -> str:
    return re.sub(_UNITS, "", column.key)


def _named(columns: Iterable[Column], name: str) -> list[Column]:
    """Return the columns that a name means: by key, by key without its unit, or by title."""
    word = name.strip().replace("-", "_").lower()
    ways: list[Any] = [
        lambda column: column.key,
        _short,
        lambda column: re.sub(r"\W+", "_", column.title.lower()).strip("_"),
    ]
    listed = list(columns)
    for way in ways:
        found = [column for column in listed if word and way(column).lower() == word]
        if found:
            # One for people stands for what programs get in another form.
            return [column for column in found if column.title] or found
    return []


def _ordered(column: Column, rows: Sequence[Any], *, is_turned: bool) -> list[int]:
    """Return the rows' indices: the best first, else the largest; texts by letters.

    Those without a value are last either way.
    """

    def key(i: int) -> tuple[bool, Any]:
        value = rows[i][column.key]
        if isinstance(value, int | float):
            return False, value if column.least_is_best else -value
        return True, str(value)

    has_value = [rows[i].get(column.key) not in (None, "") for i in range(len(rows))]
    known = [i for i, has in enumerate(has_value) if has]
    return [
        *sorted(known, key=key, reverse=is_turned),
        *(i for i, has in enumerate(has_value) if not has),
    ]
