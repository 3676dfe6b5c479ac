"""Predicted beside measured: layers of nets, whole steps, and the points of a calibration."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from paleo.calibrate import Calibration
from paleo.charts.base import Chart, Series, in_one_unit
from paleo.charts.numbers import NOTHING, counted, left_out, shown
from paleo.charts.settings import joined
from paleo.errors import SettingError
from paleo.hardware.calibration import TimedPoint
from paleo.profile import UPDATE, Case, FullPass, LayerPass, Part, Profile, Setting
from paleo.units import Scale

__all__ = ["of_calibration", "of_fullpasses", "of_profiles"]

#: So many groups of points are told apart: the rest are one, if there are more.
_GROUPS = 10
#: How far the reference goes on beyond the points.
_MARGIN = 1.5
_PREDICTED = "predicted"
_AGAINST = "Predicted against measured"


class _Point(NamedTuple):
    """A point: seconds measured and predicted, its group, and its name."""

    measured: float
    predicted: float
    group: str
    name: str

    @property
    def apart(self) -> float:
        """How many seconds are between the two."""
        return abs(self.measured - self.predicted)


# Layer by layer.


def of_profiles(runs: Iterable[Profile]) -> tuple[Chart, ...]:
    """Return the charts of nets layer by layer, all of a net in one unit.

    There is one of bars by layer and, for each executor that measured something, one of points,
    predicted over measured. Raises SettingError if nothing takes any time.
    """
    return _drawable(chart for run in runs for chart in _profile_charts(run))


def _profile_charts(run: Profile) -> list[Chart]:
    names = [name for name in run.setting.executors if run.sums(name).rows]
    layers = run.by_layer
    drawn = [each for each in layers if each.predicted or any(each.measured.values())]
    columns: list[list[float | None]] = [[each.predicted for each in drawn]]
    columns += [[each.measured[name] for each in drawn] for name in names]
    scale, scaled = in_one_unit(columns, "s", by_largest=True)
    what, setting = _passes(run.passes), _setting_of(run.setting, run.case, names)
    notes = list(run.notes)
    if number := len(layers) - len(drawn):
        notes.append(left_out(number, len(layers), *NOTHING["s"]))
    charts = [
        Chart(
            "layers",
            "grouped",
            f"Time by layer, predicted{' and measured' * bool(names)}",
            setting,
            "layer",
            f"time of {what} ({scale.unit})",
            _beside([each.layer for each in drawn], names, scaled),
            notes=tuple(notes),
        )
    ]
    for name in names:
        rows = sorted(
            (row for row in run.rows if row.seconds(name)),
            key=lambda row: run.passes.index(row.direction),
        )
        points = [_point_of(row, name, by_pass=len(run.passes) > 1) for row in rows]
        if not any(point.predicted for point in points):
            continue
        title, ratio = f"{_AGAINST} by {name}", run.sums(name).ratio
        notes = [f"{title}: the layers that are most seconds apart are named"]
        if ratio is not None:
            notes.append(f"{name} / predicted: {shown(ratio)}, of all that {name} measured")
        if number := sum(not point.predicted for point in points):
            said = f"{counted(number, 'time')} that {name} measured {_has(number)} no point"
            notes.append(f"{said}: nothing is predicted there")
        model = run.setting.cost_model.name
        charts.append(
            _against(f"points {name}", title, setting, points, scale, f" by {model}", notes)
        )
    return charts


def _passes(names: Sequence[str]) -> str:
    """Return what the time of a layer is of."""
    if UPDATE in names:
        return "a training step"
    if len(names) > 1:
        return "the backward pass"
    return f"the {names[0].replace('_', ' ')}{' pass' * (names[0] == 'forward')}"


def _point_of(row: LayerPass, executor: str, *, by_pass: bool) -> _Point:
    group = row.direction.replace("_", " ") if by_pass else row.type_name
    return _Point(row.seconds(executor) or 0.0, row.compared(executor), group, row.layer)


def _has(number: int) -> str:
    return "has" if number == 1 else "have"


# In one piece.


def of_fullpasses(runs: Sequence[FullPass]) -> tuple[Chart, ...]:
    """Return the whole steps of several nets beside each other, then the parts of each.

    Of inference, which has no parts, the first alone. Raises SettingError if nothing takes any
    time.
    """
    is_inference = all(len(run.parts) == 1 for run in runs)
    found = [_wholes(runs)] if len(runs) > 1 or (runs and is_inference) else []
    return _drawable([*found, *([] if is_inference else map(_parts, runs))])


def _wholes(runs: Sequence[FullPass]) -> Chart:
    """Return a group of bars for each net: its step, or inference."""
    wholes = [run.parts[-1] for run in runs]
    names = [f"{run.net}, batch {run.case.graph.batch_size}" for run in runs]
    is_inference = all(len(run.parts) == 1 for run in runs)
    what = "inference" if is_inference else "a training step"
    # What is of one net alone stands below the chart of its parts.
    notes = [note for run in runs for note in (run.notes if is_inference else run.setting.notes)]
    title = "Inference" if is_inference else "Training steps"
    return _bars(runs, "whole", title, None, "net", f"time of {what}", names, wholes, notes)


def _parts(run: FullPass) -> Chart:
    """Return a group of bars for each part of a net's step, the whole as the last one."""
    names = [part.name for part in run.parts]
    notes = [*run.notes]
    if unpriced := [part.name for part in run.parts if part.predicted is None]:
        notes.append(f"not predicted: {', '.join(unpriced)}")
    title = "Parts of a training step, and the whole"
    return _bars([run], "parts", title, run.case, "part", "time", names, run.parts, notes)


def _bars(
    runs: Sequence[FullPass],
    key: str,
    title: str,
    case: Case | None,
    x_label: str,
    label: str,
    names: Sequence[str],
    parts: Sequence[Part],
    notes: Sequence[str],
) -> Chart:
    """Return bars of parts, with a note on the error band of their predictions."""
    setting = runs[0].setting
    executors = [n for n in setting.executors if any(part.seconds(n) for part in parts)]
    columns: list[list[float | None]] = [[part.predicted for part in parts]]
    columns += [[part.seconds(name) for part in parts] for name in executors]
    scale, scaled = in_one_unit(columns, "s", by_largest=True)
    band = next((run.band for run in runs if run.band), None)
    return Chart(
        key,
        "grouped",
        title,
        _setting_of(setting, case, executors, complete=not any(run.interrupted for run in runs)),
        x_label,
        f"{label} ({scale.unit})",
        _beside(names, executors, scaled),
        notes=(*dict.fromkeys(notes), *([f"predicted times {band.said}"] if band else [])),
    )


# A calibration.


def of_calibration(found: Calibration) -> tuple[Chart, ...]:
    """Return the points of a calibration, predicted over measured, a series for each kind.

    They are predicted by the fitted constants and, in a second chart, by constants that were
    fitted to other shapes, where there are any; the titles have the median errors.
    """
    record = found.record
    hardware = f"{record.hardware}, " if record.hardware else ""
    types = list(dict.fromkeys(point.dtype for point in record.points))
    setting = joined(
        [
            f"{found.device.name}: {hardware}{record.source}",
            record.date,
            " and ".join(types),
            f"{counted(len(record.fitted), 'constant')} of cost model tiled fitted",
        ]
    )
    errors = record.errors[-1]
    own = [_timed(point, point.predicted) for point in record.points]
    others = [
        _timed(point, point.held_out) for point in record.points if point.held_out is not None
    ]
    scale, _ = in_one_unit([[point.measured for point in own]], "s")
    charts = [
        _against(
            "fitted", _titled("By the fitted constants", errors.in_sample), setting, own, scale,
            "", [],
        )
    ]  # fmt: skip
    if others:
        charts.append(
            _against(
                "others", _titled("By constants fitted to other shapes", errors.held_out), setting,
                others, scale, "", [],
            )
        )  # fmt: skip
    return _drawable(charts)


def _timed(point: TimedPoint, predicted: float) -> _Point:
    return _Point(point.seconds, predicted, point.kind, "")


def _titled(text: str, error: float | None) -> str:
    return text if error is None else f"{text}: median error {100 * error:.1f} %"


# What they share.


def _drawable(charts: Iterable[Chart]) -> tuple[Chart, ...]:
    """Return the charts that have something to draw; raises SettingError if there is none."""
    found = tuple(chart for chart in charts if not chart.is_empty)
    if not found:
        raise SettingError("plot: there is nothing to draw")
    return found


def _setting_of(
    setting: Setting, case: Case | None, executors: Sequence[str], *, complete: bool = True
) -> str:
    """Return what is predicted, of this net if there is one, and by what it is measured on what."""
    net = [case.spec.name, f"batch {case.graph.batch_size}"] if case else []
    measured = [
        f"measured by {each.executor} on {each.hardware} ({each.place})"
        for each in setting.processors
        if each.executor in executors
    ]
    if measured:
        runs = counted(setting.num_iter, "run")
        measured.append(f"medians of {'' if complete else 'up to '}{runs}")
    return joined(
        [
            *net,
            setting.dtype,
            f"on {setting.device.name}",
            f"cost model {setting.cost_model.name}",
            f"ppp_comp {setting.target.ppp_comp:g}",
            str(setting.target.convolutions),
            *measured,
        ]
    )


def _beside(
    names: Sequence[str], executors: Sequence[str], columns: Sequence[tuple[float | None, ...]]
) -> tuple[Series, ...]:
    """Return the series of what is predicted and of what each executor measured."""
    titles = [_PREDICTED, *(f"measured by {name}" for name in executors)]
    return tuple(
        Series(title, tuple(names), own) for title, own in zip(titles, columns, strict=True)
    )


def _against(
    key: str,
    title: str,
    setting: str,
    points: Sequence[_Point],
    scale: Scale,
    by: str,
    notes: Sequence[str],
) -> Chart:
    """Return points in this unit, those that are most seconds apart first in their series.

    What is predicted to take no time has no point. The reference is where both are the same.
    """
    drawn = [point for point in points if point.measured > 0 and point.predicted > 0]
    groups: dict[str, list[_Point]] = {}
    for point in drawn:
        groups.setdefault(point.group, []).append(point)
    if len(groups) > _GROUPS:
        long = sorted(groups, key=lambda name: -sum(each.measured for each in groups[name]))
        rest = long[_GROUPS - 1 :]
        groups[f"{len(rest)} others"] = [each for name in rest for each in groups.pop(name)]
    for own in groups.values():
        own.sort(key=lambda point: -point.apart)
    every = [time / scale.factor for point in drawn for time in (point.measured, point.predicted)]
    ends = (min(every) / _MARGIN, max(every) * _MARGIN) if every else ()
    return Chart(
        key,
        "points",
        title,
        setting,
        f"measured ({scale.unit})",
        f"predicted{by} ({scale.unit})",
        (
            *(
                Series(
                    f"{name} ({len(own):,})",
                    tuple(point.measured / scale.factor for point in own),
                    tuple(point.predicted / scale.factor for point in own),
                    tuple(point.name for point in own) if any(each.name for each in own) else (),
                )
                for name, own in groups.items()
            ),
            Series("predicted as measured", ends, ends, is_reference=True),
        ),
        log_x=True,
        log_y=True,
        notes=tuple(notes),
    )
