"""Figures of hardware, each with its source, and the reader of the files that hold them.

A figure in a file is text with a unit, `"288 GB/s"`, or a table with that text as `value`,
a `source` (a key of the file's `[sources]`) and a `note`.
"""

from __future__ import annotations

import math
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paleo.errors import HardwareError, Mistakes, SettingError, near
from paleo.quantity import Quantity, largest, smallest
from paleo.units import parse
from paleo.values import is_number, shown, whole

__all__ = ["Figure", "FileReader", "given"]

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


class FileReader:
    """Reads one TOML file, collecting every mistake in it.

    Raises HardwareError at once if there is no such file or it is not TOML.
    """

    def __init__(self, path: Path) -> None:
        name = os.fspath(path)
        self.mistakes = Mistakes(name)
        try:
            self.root: dict[str, Any] = tomllib.loads(path.read_bytes().decode("utf-8-sig"))
        except OSError as error:
            raise HardwareError(f"{name}: {error.strerror or error}") from None
        except UnicodeDecodeError:
            raise HardwareError(f"{name}: not a TOML file: not text in UTF-8") from None
        except tomllib.TOMLDecodeError as error:
            raise HardwareError(f"{name}: not a TOML file: {error}") from None
        except RecursionError:
            raise HardwareError(f"{name}: not a TOML file: nested too deeply") from None
        except ValueError:  # the interpreter's limit on the digits of an integer
            raise HardwareError(f"{name}: a number is too large to mean anything") from None
        self.sources = self.texts(self.table(self.root, "sources"), "sources")

    def only(self, table: Mapping[str, Any], known: tuple[str, ...], where: str = "") -> None:
        """Note every key of `table` that is not `known`."""
        for name in table:
            if name not in known:
                guess = near(name, known) or f"; there are: {', '.join(known)}"
                self.mistakes.add(f"unknown key{guess}", key=where + name)

    def table(self, parent: Mapping[str, Any], name: str, where: str = "") -> dict[str, Any]:
        """Return a table, empty if it is missing."""
        found = parent.get(name, {})
        if isinstance(found, dict):
            return found
        self.mistakes.add("expected a table", key=where + name)
        return {}

    def text(self, parent: Mapping[str, Any], name: str, default: str, where: str = "") -> str:
        """Return a text."""
        found = parent.get(name, default)
        if isinstance(found, str):
            return found
        self.mistakes.add(f"expected a text, got {shown(found)}", key=where + name)
        return default

    def texts(self, table: Mapping[str, Any], where: str) -> dict[str, str]:
        """Return a table of texts."""
        return {name: self.text(table, name, "", where + ".") for name in table}

    def names(self, parent: Mapping[str, Any], name: str, where: str = "") -> tuple[str, ...]:
        """Return a list of texts."""
        found = parent.get(name, [])
        if isinstance(found, list) and all(isinstance(entry, str) for entry in found):
            return tuple(found)
        self.mistakes.add("expected a list of texts", key=where + name)
        return ()

    def share(self, parent: Mapping[str, Any], name: str, where: str = "") -> float | None:
        """Return a number of 0 or more; None if it is missing."""
        found = parent.get(name)
        if found is None:
            return None
        if is_number(found) and 0 <= found < math.inf:
            return float(found)
        self.mistakes.add(f"expected a number of 0 or more, got {shown(found)}", key=where + name)
        return None

    def quantity(self, value: Any, dimension: str, where: str) -> float:
        """Return a number of this dimension ("count" is a whole number without a unit)."""
        try:
            if dimension == "count":
                return whole(value)
            if not isinstance(value, str):
                raise ValueError(
                    f'expected a text with a unit, such as "10 GB/s", got {shown(value)}'
                )
            return parse(value, dimension)
        except ValueError as error:
            self.mistakes.add(str(error), key=where)
            return 1.0

    def figure(self, value: Any, dimension: str, where: str) -> Figure:
        """Return a figure with its source."""
        if not isinstance(value, dict):
            return Figure(self.quantity(value, dimension, where), dimension, OWN)
        self.only(value, ("value", "source", "note"), where + ".")
        number = 1.0
        if "value" in value:
            number = self.quantity(value["value"], dimension, where)
        else:
            self.mistakes.add("a figure needs a value", key=where)
        source = self.cited(self.text(value, "source", "", where + "."), where)
        return Figure(number, dimension, source or OWN, self.text(value, "note", "", where + "."))

    def cited(self, source: str, where: str) -> str:
        """Return the text of a source, named by its key of `[sources]`."""
        if source and source not in self.sources:
            self.mistakes.add(f"no such source: {source!r} is not in [sources]", key=where)
        return self.sources.get(source, source)

    def figures(self, dimensions: Mapping[str, str], required: str) -> dict[str, Figure]:
        """Return the entries of `[figures]`, which may have these names; one is `required`."""
        table = self.table(self.root, "figures")
        self.only(table, tuple(dimensions), "figures.")
        if required not in table:
            self.mistakes.add("missing", key=f"figures.{required}")
        return {
            key: self.figure(table[key], dimension, f"figures.{key}")
            for key, dimension in dimensions.items()
            if key in table
        }

    def constants(self, name: str) -> dict[str, Figure]:
        """Return a table of a cost model's constants: SI numbers, or tables with a `value`.

        Which there are, and what values they may have, is the cost model's to say.
        """
        found = {}
        for key, entry in self.table(self.root, name).items():
            where = f"{name}.{key}"
            table = entry if isinstance(entry, dict) else {"value": entry}
            self.only(table, ("value", "source", "note"), where + ".")
            value = table.get("value")
            if value is None or not is_number(value):
                self.mistakes.add(f"expected a number, got {shown(value)}", key=where)
                continue
            source = self.cited(self.text(table, "source", "", where + "."), where)
            note = self.text(table, "note", "", where + ".")
            found[key] = Figure(float(value), "", source or OWN, note)
        return found

    def finish(self) -> None:
        """Raise what was found wrong."""
        self.mistakes.raise_as(HardwareError)
