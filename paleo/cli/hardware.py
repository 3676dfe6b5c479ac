"""What `paleo devices` and `paleo networks` share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from paleo.cli.options import cite
from paleo.errors import Mistakes, PaleoError
from paleo.hardware import Figure
from paleo.hardware.calibration import CalibrationRecord
from paleo.report import Column, Table

__all__ = ["describe", "errors_table", "figures_json", "find_all", "sourced_table"]

_T = TypeVar("_T")


def find_all(names: Iterable[str], find: Callable[[str], _T]) -> list[_T]:
    """Return what each name stands for; raises one PaleoError with all mistakes."""
    mistakes = Mistakes()
    found = [mistakes.check(find, name) for name in names]
    mistakes.raise_as(PaleoError)
    return [each for each in found if each is not None]


def sourced_table(
    columns: Sequence[Column],
    rows: Sequence[dict[str, Any]],
    sources: Sequence[list[str]],
    notes: Sequence[str],
) -> Table:
    """Return a table with the sources and a note of each row, for people as footnotes."""
    rows = [{**row, "sources": "; ".join(texts)} for row, texts in zip(rows, sources, strict=True)]
    lines = [f"{row['name']}: {note}" for row, note in zip(rows, notes, strict=True) if note]
    cited, numbered = cite(rows, sources)
    blank = [""] if lines and numbered else []
    return Table("", columns, cited, footnotes=[*lines, *blank, *numbered])


#: The errors of a calibration, by kind of operation.
_ERRORS = (
    Column("kind", "kind"),
    Column("points", "points"),
    Column("before_error", "before\nthe fit", "percent"),
    Column("in_sample_error", "fitted", "percent"),
    Column("cross_validated_error", "on others", "percent"),
)


def errors_table(
    title: str,
    record: CalibrationRecord,
    footnotes: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> Table:
    """Return what the constants of a calibration are worth."""
    rows = [each.to_dict() for each in record.errors]
    return Table(title, _ERRORS, rows, footnotes=footnotes, notes=notes)


def figures_json(figures: Mapping[str, Figure]) -> dict[str, Any]:
    """Return figures with value, unit, source and note."""
    return {
        name: {"value": figure.value, "unit": figure.unit, "source": figure.source}
        | ({"note": figure.note} if figure.note else {})
        for name, figure in figures.items()
    }


def describe(
    name: str, title: str, aliases: Sequence[str], figures: Mapping[str, Figure]
) -> dict[str, Any]:
    """Return what the JSON of a device and of a network have in common; figures are SI."""
    return {
        "name": name,
        "title": title,
        "aliases": list(aliases),
        "figures": figures_json(figures),
    }
