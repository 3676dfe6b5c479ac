"""Predicted beside measured: layers of nets, whole steps, and the points of a calibration."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from paleo.core.frozen import NamedTuple
from paleo.core.operations import Pass
from paleo.core.units import Scale
from paleo.views.charts.base import Chart, Series, against, bars, drawable, in_one_unit
from paleo.views.charts.numbers import NOTHING, counted, left_out, shown
from paleo.views.charts.settings import joined

if TYPE_CHECKING:  # other commands draw without what measures
    from paleo.measure.calibrate import Calibration
    from paleo.measure.profile import FullPass, LayerPass, NetGraphs, Profile, Setting, StepPart

#: So many groups of points are told apart: the rest are one, if there are more.
_GROUPS = 10
_PREDICTED = "predicted"


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
    return drawable(chart for run in runs for chart in _profile_charts(run))


def _profile_charts(run: Profile) -> list[Chart]:
    names = [name for name in run.setting.executors if run.sums(name).rows]
    layers = run.by_layer
    drawn = [each for each in layers if each.predicted or any(each.measured.values())]
    columns: dict[str, list[float | None]] = {
        _PREDICTED: [each.predicted for each in drawn],
        **{_by(name): [each.measured[name] for each in drawn] for name in names},
    }
    scale, _ = in_one_unit(columns.values(), "s", by_largest=True)
    what, setting = _passes(run.passes), _setting_of(run.setting, run.case, names)
    notes = list(run.notes)
    if number := len(layers) - len(drawn):
        notes.append(left_out(number, len(layers), *NOTHING["s"]))
    charts = [
        bars(
            [each.layer for each in drawn],
            columns,
            "s",
            f"time of {what}",
            kind="grouped",
            key="layers",
            title=f"Time by layer, predicted{' and measured' * bool(names)}",
            setting=setting,
            x_label="layer",
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
        title, ratio = f"Predicted against measured by {name}", run.sums(name).ratio
        notes = [f"{title}: the layers that are most seconds apart are named"]
        if ratio is not None:
            notes.append(f"{name} / predicted: {shown(ratio)}, of all that {name} measured")
        if number := sum(not point.predicted for point in points):
            has = "has" if number == 1 else "have"
            missing = f"{counted(number, 'time')} that {name} measured {has} no point"
            notes.append(f"{missing}: nothing is predicted there")
        said = {"key": f"points {name}", "title": title, "setting": setting}
        by = f" by {run.setting.plan.cost_model.name}"
        charts.append(_points(points, scale, by, **said, notes=tuple(notes)))
    return charts


def _passes(names: Sequence[str]) -> str:
    """Return what the time of a layer is of."""
    has_forward = Pass.FORWARD.value in names
    if len(names) > 1:
        return "a training step" if has_forward else "the backward pass"
    return f"the {names[0].replace('_', ' ')}{' pass' * has_forward}"


def _point_of(row: LayerPass, executor: str, *, by_pass: bool) -> _Point:
    group = row.direction.replace("_", " ") if by_pass else row.type_name
    return _Point(row.seconds(executor) or 0.0, row.compared(executor), group, row.layer)


# In one piece.


def of_fullpasses(runs: Sequence[FullPass]) -> tuple[Chart, ...]:
    """Return the whole steps of several nets beside each other, then the parts of each.

    Of inference, which has no parts, the first alone. Raises SettingError if nothing takes any
    time.
    """
    is_inference = all(len(run.parts) == 1 for run in runs)
    found = [_wholes(runs, is_inference)] if len(runs) > 1 or (runs and is_inference) else []
    return drawable([*found, *([] if is_inference else map(_parts, runs))])


def _wholes(runs: Sequence[FullPass], is_inference: bool) -> Chart:
    """Return a group of bars for each net: its step, or inference."""
    wholes = [run.parts[-1] for run in runs]
    names = [f"{run.net}, batch {run.case.graph.batch_size}" for run in runs]
    what = "inference" if is_inference else "a training step"
    # What is of one net alone stands below the chart of its parts.
    notes = [note for run in runs for note in (run.notes if is_inference else run.setting.notes)]
    label, title = f"time of {what}", "Inference" if is_inference else "Training steps"
    return _grouped(runs, wholes, names, label, notes, key="whole", title=title, x_label="net")


def _parts(run: FullPass) -> Chart:
    """Return a group of bars for each part of a net's step, the whole as the last one."""
    names = [part.name for part in run.parts]
    notes = [*run.notes]
    if unpriced := [part.name for part in run.parts if part.predicted is None]:
        notes.append(f"not predicted: {', '.join(unpriced)}")
    said = {"key": "parts", "title": "Parts of a training step, and the whole", "x_label": "part"}
    return _grouped([run], run.parts, names, "time", notes, run.case, **said)


def _grouped(
    runs: Sequence[FullPass],
    parts: Sequence[StepPart],
    names: Sequence[str],
    label: str,
    notes: Sequence[str],
    case: NetGraphs | None = None,
    **chart: Any,
) -> Chart:
    """Return bars of parts, with a note on the error band of their predictions."""
    setting = runs[0].setting
    executors = [n for n in setting.executors if any(part.seconds(n) for part in parts)]
    columns: dict[str, list[float | None]] = {
        _PREDICTED: [part.predicted for part in parts],
        **{_by(name): [part.seconds(name) for part in parts] for name in executors},
    }
    band = next((run.band for run in runs if run.band), None)
    complete = not any(run.interrupted for run in runs)
    said = [f"error band of predicted times: {band.said}"] if band else []
    return bars(
        names,
        columns,
        "s",
        label,
        kind="grouped",
        setting=_setting_of(setting, case, executors, complete=complete),
        notes=(*dict.fromkeys(notes), *said),
        **chart,
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
    own = [_Point(each.seconds, each.predicted, each.kind, "") for each in record.points]
    others = [
        _Point(each.seconds, each.held_out, each.kind, "")
        for each in record.points
        if each.held_out is not None
    ]
    scale, _ = in_one_unit([[point.measured for point in own]], "s")
    title = _titled("By the fitted constants", errors.in_sample)
    charts = [_points(own, scale, key="fitted", title=title, setting=setting)]
    if others:
        title = _titled("By constants fitted to other shapes", errors.held_out)
        charts.append(_points(others, scale, key="others", title=title, setting=setting))
    return drawable(charts)


def _titled(text: str, error: float | None) -> str:
    return text if error is None else f"{text}: median error {100 * error:.1f} %"


# What they share.


def _setting_of(
    setting: Setting, case: NetGraphs | None, executors: Sequence[str], *, complete: bool = True
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
            setting.plan.dtype,
            f"on {setting.plan.device.name}",
            *setting.plan.said(on_network=False).values(),
            *measured,
        ]
    )


def _by(executor: str) -> str:
    """Return the name of the series of what an executor measured."""
    return f"measured by {executor}"


def _points(points: Sequence[_Point], scale: Scale, by: str = "", **chart: Any) -> Chart:
    """Return points in this unit, those that are most seconds apart first in their series.

    What is predicted to take no time has no point.
    """
    groups: dict[str, list[_Point]] = {}
    for point in points:
        if point.measured > 0 and point.predicted > 0:
            groups.setdefault(point.group, []).append(point)
    if len(groups) > _GROUPS:
        long = sorted(groups, key=lambda name: -sum(each.measured for each in groups[name]))
        rest = long[_GROUPS - 1 :]
        groups[f"{len(rest)} others"] = [each for name in rest for each in groups.pop(name)]
    for own in groups.values():
        own.sort(key=lambda point: -point.apart)
    series = [
        Series(
            name,
            tuple(point.measured / scale.factor for point in own),
            tuple(point.predicted / scale.factor for point in own),
            tuple(point.name for point in own) if any(point.name for point in own) else (),
        )
        for name, own in groups.items()
    ]
    return against(series, scale.unit, by, **chart)
