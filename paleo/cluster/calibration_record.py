"""The record in a device file of how its figures and constants were measured.

`paleo calibrate` writes it as `[calibration]`; nothing is computed from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, fields
from typing import Any, TypeVar

from paleo.cluster.figures import Table
from paleo.cluster.prices import read_date
from paleo.core.attributes import attributes
from paleo.core.frozen import dataclass

_T = TypeVar("_T", bound="_Record")


class _Record:
    """A dataclass whose fields say how a file and JSON have them."""

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        declared: Any = self
        keys = {one.name: one.metadata["key"] or one.name for one in fields(declared)}
        return {keys[name]: value for name, value in attributes(self, *keys).items()}


def _kept(read: Callable[[Table, str], Any], key: str = "", **declared: Any) -> Any:
    """Declare a field: how a table is read for it, and its key in JSON if that is not its name."""
    return field(metadata={"read": read, "key": key}, **declared)


def _read(kind: type[_T], table: Table) -> _T:
    """Return a table with the fields of a record, noting mistakes in it."""
    declared: Any = fields(kind)  # type: ignore[arg-type]
    table.only([one.name for one in declared])
    return kind(**{one.name: one.metadata["read"](table, one.name) for one in declared})


def _seconds(table: Table, name: str) -> float:
    return table.quantity(name, "s")


def _known_seconds(table: Table, name: str) -> float | None:
    return _seconds(table, name) if name in table.values else None


@dataclass(frozen=True)
class TimedPoint(_Record):
    """One measured point: the pass `part` of `what`, a layer and its shapes, or a row of a file.

    `seconds` is the median of its runs, `spread` the distance between their quartiles as a share
    of it; `predicted` are seconds by the fitted constants, `held_out` by constants that were
    fitted without this shape.
    """

    kind: str = _kept(Table.text)
    what: str = _kept(Table.text, "layer")
    part: str = _kept(Table.text, "pass")
    dtype: str = _kept(Table.text)
    seconds: float = _kept(_seconds, "measured_s")
    predicted: float = _kept(_seconds, "predicted_s")
    spread: float | None = _kept(Table.share, default=None)
    held_out: float | None = _kept(_known_seconds, "held_out_s", default=None)


@dataclass(frozen=True)
class KindErrors(_Record):
    """The errors on the points of one kind: medians of |predicted / measured - 1|.

    `before` is that of the constants before the fit, `in_sample` that of the fitted ones,
    `held_out` that of constants fitted to other shapes, None where there were none.
    """

    kind: str = _kept(Table.text)
    points: int = _kept(lambda table, name: int(table.quantity(name, "count")))
    before: float = _kept(lambda table, name: table.share(name) or 0.0, "before_error")
    in_sample: float = _kept(lambda table, name: table.share(name) or 0.0, "in_sample_error")
    held_out: float | None = _kept(Table.share, "cross_validated_error", default=None)


def _each(kind: type[_Record]) -> Callable[[Table, str], tuple[_Record, ...]]:
    """Return what reads a list of such records."""
    return lambda table, name: tuple(
        _read(kind, one) for one in table.tables(name, "a list of tables")
    )


@dataclass(frozen=True)
class CalibrationRecord(_Record):
    """How a device file was measured, and what its constants are worth.

    `source` says by what (an executor, or a file of measurements), `base` names the device whose
    figures it has, if any. `spread` is how far the same points were apart in the course of the
    measurement, `busy` the share of the CPUs that others had before it; both are shares, None
    where not known. `forced` tells that these were too large. `fitted` and `on_bound` name
    constants.
    """

    date: str = _kept(lambda table, _: read_date(table))
    source: str = _kept(Table.text)
    hardware: str = _kept(Table.text, default="")
    base: str = _kept(Table.text, default="")
    versions: Mapping[str, str] = _kept(
        lambda table, name: table.table(name).texts(), default_factory=dict
    )
    seconds: float | None = _kept(_known_seconds, "calibration_s", default=None)
    spread: float | None = _kept(Table.share, default=None)
    busy: float | None = _kept(Table.share, default=None)
    forced: bool = _kept(Table.flag, default=False)
    fitted: tuple[str, ...] = _kept(Table.names, default=())
    on_bound: tuple[str, ...] = _kept(Table.names, default=())
    notes: tuple[str, ...] = _kept(Table.names, default=())
    errors: tuple[KindErrors, ...] = _kept(_each(KindErrors), default=())
    points: tuple[TimedPoint, ...] = _kept(_each(TimedPoint), default=())

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | {"base": self.base or None}


def read_calibration(table: Table) -> CalibrationRecord:
    """Return the table `[calibration]`, noting mistakes in it."""
    return _read(CalibrationRecord, table)
