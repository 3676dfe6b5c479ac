"""Figures of hardware, each with its source, and the reader of the files that hold them.

A figure in a file is text with a unit, `"288 GB/s"`, or a table with that text as `value`,
a `source` (a key of the file's `[sources]`) and a `note`.
"""

from __future__ import annotations

import codecs
import math
import os
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from paleo.core.checks import is_number, shown, whole_number
from paleo.core.errors import HardwareError, Mistakes, SettingError, near_or_known
from paleo.core.files import read_bytes
from paleo.core.frozen import dataclass
from paleo.core.quantity import Quantity, largest, smallest
from paleo.core.units import parse

#: Where a figure of a user's own file comes from when the file does not say.
OWN = "the file itself"


@dataclass(frozen=True)
class Figure:
    """A number, its SI unit (bytes, bytes/s, FLOP/s, Hz, W, or a count), and its source."""

    value: Quantity
    unit: str
    source: str
    note: str = ""


def given(value: Quantity, unit: str, name: str) -> Figure:
    """Return a figure of hardware that a program describes; raises SettingError.

    The value, or all of an array, has to be above 0 and finite.
    """
    if smallest(value) > 0 and largest(value) < math.inf:  # false for NaN
        return Figure(value, unit, "given in the program")
    raise SettingError(f"{name}: expected a number above 0, got {value}")


class Table:
    """A table of a TOML file, `where` it stands, and what the texts of `[sources]` are.

    What it holds is read by name; what is wrong is noted, and something of the type returned.
    """

    def __init__(
        self, values: dict[str, Any], where: str, mistakes: Mistakes, sources: Mapping[str, str]
    ) -> None:
        self.values = values
        self.where = where
        self.mistakes = mistakes
        self.sources = sources

    def note(self, name: str, message: str) -> None:
        """Note a mistake in what has this name."""
        self.mistakes.add(message, key=self.where + name)

    def only(self, known: Collection[str]) -> Table:
        """Return the table; every key that is not `known` is noted."""
        for name in self.values:
            if name not in known:
                self.note(name, f"unknown key{near_or_known(name, known)}")
        return self

    def table(self, name: str) -> Table:
        """Return a table, empty if it is missing."""
        values = self.values.get(name, {})
        if not isinstance(values, dict):
            self.note(name, "expected a table")
            values = {}
        return self._inside(name, values)

    def tables(self, name: str, expected: str) -> list[Table]:
        """Return a list of tables, which is what is `expected`."""
        entries = self.values.get(name, [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            self.note(name, f"expected {expected}")
            return []
        return [self._inside(f"{name}[{i}]", entry) for i, entry in enumerate(entries)]

    def _inside(self, name: str, values: dict[str, Any]) -> Table:
        return Table(values, f"{self.where}{name}.", self.mistakes, self.sources)

    def text(self, name: str, default: str = "") -> str:
        """Return a text."""
        text = self.values.get(name, default)
        if isinstance(text, str):
            return text
        self.note(name, f"expected a text, got {shown(text)}")
        return default

    def texts(self) -> dict[str, str]:
        """Return all that it holds, which are texts."""
        return {name: self.text(name) for name in self.values}

    def names(self, name: str) -> tuple[str, ...]:
        """Return a list of texts."""
        texts = self.values.get(name, [])
        if isinstance(texts, list) and all(isinstance(text, str) for text in texts):
            return tuple(texts)
        self.note(name, "expected a list of texts")
        return ()

    def flag(self, name: str) -> bool:
        """Return true or false, which it is if it is missing."""
        value = self.values.get(name, False)
        if not isinstance(value, bool):
            self.note(name, f"expected true or false, got {shown(value)}")
        return value is True

    def share(self, name: str) -> float | None:
        """Return a number of 0 or more; None if it is missing."""
        value = self.values.get(name)
        if value is None:
            return None
        if is_number(value) and 0 <= value < math.inf:
            return float(value)
        self.note(name, f"expected a number of 0 or more, got {shown(value)}")
        return None

    def quantity(self, name: str, dimension: str) -> float:
        """Return a number: "count" is a whole one without a unit, "" any without a unit."""
        return self._number(name, self.values.get(name), dimension)

    def _number(self, name: str, value: Any, dimension: str) -> float:
        try:
            if dimension == "count":
                return whole_number(value)
            if not dimension:
                if is_number(value):
                    return float(value)
                raise ValueError(f"expected a number, got {shown(value)}")
            if not isinstance(value, str):
                raise ValueError(
                    f'expected a text with a unit, such as "10 GB/s", got {shown(value)}'
                )
            return parse(value, dimension)
        except ValueError as error:
            self.note(name, str(error))
            return 1.0

    def figure(self, name: str, dimension: str) -> Figure:
        """Return a figure with its source: a number, or a table with it as `value`."""
        entry = self.values[name]
        table = self._inside(name, entry if isinstance(entry, dict) else {"value": entry})
        table.only(("value", "source", "note"))
        number = 1.0
        if dimension and "value" not in table.values:
            self.note(name, "a figure needs a value")
        else:
            number = self._number(name, table.values.get("value"), dimension)
        return Figure(number, dimension, table.source, table.text("note"))

    @property
    def source(self) -> str:
        """The text of its `source`, a key of `[sources]`; that it is of this file without one."""
        source = self.text("source")
        if source and source not in self.sources:
            self.mistakes.add(
                f"no such source: {source!r} is not in [sources]", key=self.where.removesuffix(".")
            )
        return self.sources.get(source, source) or OWN

    def figures(self, dimensions: Mapping[str, str], required: str) -> dict[str, Figure]:
        """Return its entries, which may have these names; one is `required`."""
        self.only(dimensions)
        if required not in self.values:
            self.note(required, "missing")
        return {
            name: self.figure(name, dimension)
            for name, dimension in dimensions.items()
            if name in self.values
        }

    def constants(self) -> dict[str, Figure]:
        """Return a cost model's constants: SI numbers, or tables with a `value`.

        Which there are, and what values they may have, is the cost model's to say.
        """
        return {name: self.figure(name, "") for name in self.values}


class FileReader(Table):
    """Reads one TOML file, whose tables have these names, collecting every mistake in it.

    Raises HardwareError at once if there is no such file or it is not TOML.
    """

    def __init__(self, path: Path, known: Collection[str]) -> None:
        name = os.fspath(path)
        try:
            data = read_bytes(path)
        except OSError as error:
            raise HardwareError(f"{name}: {error.strerror or error}") from None
        try:
            values = tomllib.loads(data.removeprefix(codecs.BOM_UTF8).decode())
        except UnicodeDecodeError:
            raise HardwareError(f"{name}: not a TOML file: not text in UTF-8") from None
        except tomllib.TOMLDecodeError as error:
            raise HardwareError(f"{name}: not a TOML file: {error}") from None
        except RecursionError:
            raise HardwareError(f"{name}: not a TOML file: nested too deeply") from None
        except ValueError:  # the interpreter's limit on the digits of an integer
            raise HardwareError(f"{name}: a number is too large to mean anything") from None
        super().__init__(values, "", Mistakes(name), {})
        self.sources = self.table("sources").texts()
        self.only(known)

    def finish(self) -> None:
        """Raise what was found wrong."""
        self.mistakes.raise_as(HardwareError)
