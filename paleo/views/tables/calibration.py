"""The tables of a calibration: what it is worth, the constants, and the points it was fitted to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from paleo.cluster import Figure
from paleo.cluster.calibration_record import CalibrationRecord
from paleo.measure.validate.link_constants import FITTED
from paleo.views.table import Column, Table, in_unit, plain

if TYPE_CHECKING:  # what commands print without measuring is here, too
    from paleo.measure.calibrate import Calibration

#: The errors of a calibration, by kind of operation.
_ERRORS = (
    Column("kind", "kind"),
    Column("points", "points"),
    Column("before_error", "before\nthe fit", "percent"),
    Column("in_sample_error", "fitted", "percent"),
    Column("cross_validated_error", "on others", "percent"),
)
_CONSTANTS = (
    Column("name", "constant"),
    Column("value", "value", right=True),
    Column("folds", "in folds", right=True),
    Column("before", "before", right=True),
    Column("on_bound", "on bound"),
    Column("meaning", "meaning"),
)
_POINTS = plain(
    *("device", "kind", "layer", "pass", "dtype"),
    *("measured_s", "spread", "predicted_s", "held_out_s"),
)
_UNPREDICTED = (
    Column("count", "rows"),
    Column("reason", "reason"),
    Column("first", "first rows"),
)


def errors_table(
    title: str,
    record: CalibrationRecord,
    footnotes: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> Table:
    """Return what the constants of a calibration are worth."""
    rows = [errors.to_dict() for errors in record.errors]
    return Table(title, _ERRORS, rows, footnotes=footnotes, notes=notes)


def calibration_tables(result: Calibration, file: str, *, for_people: bool = True) -> list[Table]:
    """Return the errors and constants of a calibration that is in a file, or its points."""
    record = result.record
    notes = [*record.notes]
    if record.on_bound:
        bounds = ", ".join(record.on_bound)
        notes.append(f"constants that ended at a bound of the fit, and may be wrong: {bounds}")
    notes.append(f"written: {file}")
    if not for_people:
        rows = [{"device": result.device.name} | point.to_dict() for point in record.points]
        return [Table("", _POINTS, rows, notes=notes)]
    what = f"{result.device.name}: {record.hardware}, {record.source}"
    if record.seconds is not None:
        what += f", {record.seconds:.0f} s"
    return [
        errors_table(what, record),
        *([_not_used(result)] if result.unpredicted else []),
        Table(
            "Constants of the cost model tiled, fitted",
            _CONSTANTS,
            [_constant(fitted) for fitted in result.constants],
            footnotes=[*_figures(result), *_steadiness(record)],
            notes=notes,
        ),
    ]


def _constant(fitted: Any) -> dict[str, Any]:
    unit = FITTED[fitted.name].unit

    def text(value: float | None) -> str:
        if not value:
            return "" if value is None else "0"
        return in_unit(float(f"{value:.3g}"), "" if unit == "1" else unit)

    folds = text(fitted.least)
    if fitted.least != fitted.most:
        folds = f"{folds} to {text(fitted.most)}"
    return {
        "name": fitted.name,
        "value": text(fitted.value),
        "folds": folds,
        "before": text(fitted.before),
        "on_bound": fitted.bound,
        "meaning": FITTED[fitted.name].meaning,
    }


def _figures(result: Calibration) -> Iterable[str]:
    """Yield the figures that were measured, or whose they are."""
    if result.record.base:
        yield f"figures: those of {result.record.base}"
        return
    for dtype, units in result.device.peaks.items():
        for figure in units.values():
            yield f"{dtype} peak: {_text(figure)}"
    yield f"memory bandwidth: {_text(result.device.figures['memory_bandwidth'])}"


def _text(figure: Figure) -> str:
    return f"{in_unit(figure.value, figure.unit)} ({figure.note})"


def _steadiness(record: CalibrationRecord) -> Iterable[str]:
    if record.spread is not None:
        yield f"repeated runs differed by up to {100 * record.spread:.1f} %"
    if record.busy is not None:
        yield f"other programs used {100 * record.busy:.0f} % of the CPUs before the start"


def _not_used(result: Calibration) -> Table:
    rows = [
        {"count": left.count, "reason": left.reason, "first": ", ".join(left.ids[:3])}
        for left in result.unpredicted
    ]
    return Table("Rows that could not be predicted", _UNPREDICTED, rows)
