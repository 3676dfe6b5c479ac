"""The record in a device file of how its figures and constants were measured.

`paleo calibrate` writes it as `[calibration]`; nothing is computed from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from paleo.hardware.figures import FileReader
from paleo.hardware.prices import read_date
from paleo.values import shown

__all__ = ["CalibrationRecord", "KindErrors", "TimedPoint", "read_calibration"]

_T = TypeVar("_T")


@dataclass(frozen=True)
class TimedPoint:
    """One measured point: the pass `part` of `what`, a layer and its shapes, or a row of a file.

    `seconds` is the median of its runs, `spread` the distance between their quartiles as a share
    of it; `predicted` are seconds by the fitted constants, `held_out` by constants that were
    fitted without this shape.
    """

    kind: str
    what: str
    part: str
    dtype: str
    seconds: float
    predicted: float
    spread: float | None = None
    held_out: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        return {
            "kind": self.kind,
            "layer": self.what,
            "pass": self.part,
            "dtype": self.dtype,
            "measured_s": self.seconds,
            "spread": self.spread,
            "predicted_s": self.predicted,
            "held_out_s": self.held_out,
        }


@dataclass(frozen=True)
class KindErrors:
    """The errors on the points of one kind: medians of |predicted / measured - 1|.

    `before` is that of the constants before the fit, `in_sample` that of the fitted ones,
    `held_out` that of constants fitted to other shapes, None where there were none.
    """

    kind: str
    points: int
    before: float
    in_sample: float
    held_out: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        return {
            "kind": self.kind,
            "points": self.points,
            "before_error": self.before,
            "in_sample_error": self.in_sample,
            "cross_validated_error": self.held_out,
        }


@dataclass(frozen=True)
class CalibrationRecord:
    """How a device file was measured, and what its constants are worth.

    `source` says by what (an executor, or a file of measurements), `base` names the device whose
    figures it has, if any. `spread` is how far the same points were apart in the course of the
    measurement, `busy` the share of the CPUs that others had before it; both are shares, None
    where not known. `forced` tells that these were too large. `fitted` and `on_bound` name
    constants.
    """

    date: str
    source: str
    hardware: str = ""
    base: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    seconds: float | None = None
    spread: float | None = None
    busy: float | None = None
    forced: bool = False
    fitted: tuple[str, ...] = ()
    on_bound: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    errors: tuple[KindErrors, ...] = ()
    points: tuple[TimedPoint, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        return {
            "date": self.date,
            "source": self.source,
            "hardware": self.hardware,
            "base": self.base or None,
            "versions": dict(self.versions),
            "calibration_s": self.seconds,
            "spread": self.spread,
            "busy": self.busy,
            "forced": self.forced,
            "fitted": list(self.fitted),
            "on_bound": list(self.on_bound),
            "notes": list(self.notes),
            "errors": [each.to_dict() for each in self.errors],
            "points": [each.to_dict() for each in self.points],
        }


def read_calibration(reader: FileReader) -> CalibrationRecord:
    """Return the table `[calibration]`, noting mistakes in it."""
    table = reader.table(reader.root, "calibration")
    where = "calibration."
    reader.only(table, tuple(each.name for each in fields(CalibrationRecord)), where)
    forced = table.get("forced", False)
    if not isinstance(forced, bool):
        reader.mistakes.add(
            f"expected true or false, got {shown(forced)}", key="calibration.forced"
        )
    source, hardware, base = (
        reader.text(table, key, "", where) for key in ("source", "hardware", "base")
    )
    fitted, on_bound, notes = (
        reader.names(table, key, where) for key in ("fitted", "on_bound", "notes")
    )
    return CalibrationRecord(
        date=read_date(reader, table.get("date"), "calibration.date"),
        source=source,
        hardware=hardware,
        base=base,
        versions=reader.texts(reader.table(table, "versions", where), "calibration.versions"),
        seconds=_time(reader, table, "seconds", where),
        spread=reader.share(table, "spread", where),
        busy=reader.share(table, "busy", where),
        forced=forced is True,
        fitted=fitted,
        on_bound=on_bound,
        notes=notes,
        errors=_entries(reader, table, "errors", _errors),
        points=_entries(reader, table, "points", _point),
    )


def _time(reader: FileReader, table: Mapping[str, Any], key: str, where: str) -> float | None:
    return reader.quantity(table[key], "s", where + key) if key in table else None


def _entries(
    reader: FileReader,
    table: Mapping[str, Any],
    key: str,
    read: Callable[[FileReader, dict[str, Any], str], _T],
) -> tuple[_T, ...]:
    entries = table.get(key, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        reader.mistakes.add("expected a list of tables", key=f"calibration.{key}")
        return ()
    return tuple(read(reader, entry, f"calibration.{key}[{i}].") for i, entry in enumerate(entries))


def _errors(reader: FileReader, entry: dict[str, Any], where: str) -> KindErrors:
    reader.only(entry, tuple(each.name for each in fields(KindErrors)), where)
    return KindErrors(
        reader.text(entry, "kind", "", where),
        int(reader.quantity(entry.get("points"), "count", f"{where}points")),
        reader.share(entry, "before", where) or 0.0,
        reader.share(entry, "in_sample", where) or 0.0,
        reader.share(entry, "held_out", where),
    )


def _point(reader: FileReader, entry: dict[str, Any], where: str) -> TimedPoint:
    reader.only(entry, tuple(each.name for each in fields(TimedPoint)), where)
    kind, what, part, dtype = (
        reader.text(entry, key, "", where) for key in ("kind", "what", "part", "dtype")
    )
    return TimedPoint(
        kind=kind,
        what=what,
        part=part,
        dtype=dtype,
        seconds=reader.quantity(entry.get("seconds"), "s", where + "seconds"),
        predicted=reader.quantity(entry.get("predicted"), "s", where + "predicted"),
        spread=reader.share(entry, "spread", where),
        held_out=_time(reader, entry, "held_out", where),
    )
