"""Files of operator tables: where they lie, their columns, and rows that are left out."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from paleo.core.checks import MAX_SIZE
from paleo.core.errors import MeasurementError, Mistakes
from paleo.core.frozen import dataclass
from paleo.core.optional import extra
from paleo.core.quantity import Array, np
from paleo.measure.validate.cases import Cases, Unpredicted, join

#: Columns of numbers that may be 0.
_FROM_ZERO = ("step", "window_size")


@dataclass(frozen=True)
class Table:
    """One file: where it lies says what it is of."""

    path: Path
    system: str
    framework: str
    version: str

    @property
    def operator(self) -> str:
        return self.path.stem.removesuffix("_perf")

    @property
    def where(self) -> str:
        return "/".join(part for part in (self.system, self.framework, self.version) if part)


class Rows:
    """Which rows of a table are predicted, and why the others are not."""

    def __init__(self, count: int, system: str) -> None:
        self.system = system
        self.left: Array = np.ones(count, bool)
        self.reasons: list[Unpredicted] = []

    def leave_out(self, reason: str, rows: Array) -> None:
        count = int((rows & self.left).sum())
        if count:
            self.reasons.append(Unpredicted(reason, self.system, count))
            self.left = self.left & ~rows


def check(
    table: Table,
    texts: Sequence[str],
    numbers: Sequence[str],
    columns: Mapping[str, Array],
    rows: Array,
) -> None:
    """Raise MeasurementError for times and sizes that nothing can have.

    `rows` has the numbers that these rows have in the file.
    """
    mistakes = Mistakes(os.fspath(table.path))
    for name in (*numbers, "latency"):
        if name not in columns:
            continue
        values = columns[name]
        if values.dtype.kind not in "iuf":
            mistakes.add(f"column {name}: expected numbers")
            continue
        least = 0 if name in _FROM_ZERO else np.nextafter(0, 1)
        wrong = ~((values >= least) & np.isfinite(values))
        if name != "latency":
            wrong |= (values > MAX_SIZE) | (values != np.floor(values))
        if wrong.any():
            place = int(wrong.nonzero()[0][0])
            what = "a number above 0" if name == "latency" else "a whole number above 0"
            what = "a whole number" if name in _FROM_ZERO else what
            mistakes.add(
                f"column {name}: expected {what} in {int(wrong.sum())} rows, the first of them "
                f"row {rows[place]}: {values[place]}"
            )
    for name in texts:
        if columns[name].dtype.kind != "O":
            mistakes.add(f"column {name}: expected texts")
    mistakes.raise_as(MeasurementError)


class TableFile:
    """A Parquet file: the names of its columns, and those of its rows that are read.

    Of more than `sample` rows, if that is not 0, as many are read, spread evenly over the file;
    `rows` has their numbers.
    """

    def __init__(self, path: Path, sample: int = 0) -> None:
        self._file = extra("pyarrow.parquet", "reading operator tables", "pyarrow").ParquetFile(
            path
        )
        self.names: list[str] = self._file.schema_arrow.names
        count = self._file.metadata.num_rows
        taken = min(sample or count, count)
        self.rows: Array = np.arange(taken) * count // max(taken, 1)
        self._is_whole = taken == count

    def columns(self, names: Sequence[str]) -> dict[str, Array]:
        """Return those of these columns that it has, as arrays: of objects where it has texts."""
        read = self._file.read([name for name in dict.fromkeys(names) if name in self.names])
        if not self._is_whole:
            read = read.take(self.rows)
        return {name: _column(read.column(name)) for name in read.column_names}


def _column(column: Any) -> Array:
    values: Array = column.to_numpy()
    if values.dtype.kind == "O":
        texts = (each if type(each) is str else _text(each) for each in values.tolist())
        return np.fromiter(texts, object, len(values))
    return values


def _text(value: object) -> str:
    return "" if value is None else str(value)


def of_each(words: Array, what: Callable[[str], object]) -> Array:
    """Return what is found of each of an array's texts, once of equal ones."""
    each = words.tolist()
    found = {word: what(word) for word in set(each)}
    return np.array([found[word] for word in each], object)


def none_of(reasons: Sequence[Unpredicted]) -> Cases:
    """Return no cases, and why there are none."""
    return replace(join([]), unpredicted=tuple(reasons))
