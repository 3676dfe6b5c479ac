"""Predicted against measured times, as points."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from paleo.core.errors import SettingError
from paleo.core.quantity import Array
from paleo.core.units import scale_for
from paleo.views.charts.base import Chart, Series, against, unit_shown

if TYPE_CHECKING:  # other commands draw without what validates
    from paleo.measure.validate.report import Report

#: So many groups are told apart: the smallest are one, if there are more.
_GROUPS = 10


def validation_chart(report: Report) -> Chart:
    """Return the times predicted over those measured, a series for each cost model or group.

    Series are cost models, where there are several, else the groups of the report; their names say
    how many points they have. What was not predicted has no point. The reference is where both
    times, which are in one unit, are the same. Raises SettingError if no row could be predicted.
    """
    models, measured = report.cost_models, report.cases.measured
    if len(models) > 1:
        found = [(name, measured, report.predicted[name]) for name in models]
    else:
        predicted = report.predicted[models[0]]
        found = [(name, measured[own], predicted[own]) for name, own in _places(report)]
    drawn = [(name, x[known], y[known]) for name, x, y in found if (known := y > 0).any()]  # no NaN
    if not drawn:
        raise SettingError("plot: no row could be predicted")
    # The unit of the middle of the axis, so that both its ends are read easily.
    low = float(min(min(x.min(), y.min()) for _, x, y in drawn))
    high = float(max(max(x.max(), y.max()) for _, x, y in drawn))
    scale = scale_for([[math.sqrt(low * high)]], "s")
    series = [
        Series(name, tuple((x / scale.factor).tolist()), tuple((y / scale.factor).tolist()))
        for name, x, y in drawn
    ]
    return against(
        series,
        unit_shown(scale.unit),
        f" by {models[0]}" if len(models) == 1 else "",
        key="validation",
        title="Predicted against measured times",
        setting=f"cost model{'s' * (len(models) > 1)} {', '.join(models)}",
    )


def _places(report: Report) -> list[tuple[str, Array]]:
    """Return the groups of a report with the places of their cases, small ones as one."""
    import numpy as np

    columns = [report.cases.labels[key].tolist() for key in report.by]
    named = [", ".join(filter(None, texts)) for texts in zip(*columns, strict=True)]
    names = np.array(named or ["all"] * len(report.cases), object).astype(str)
    kinds, counts = np.unique(names, return_counts=True)
    own = kinds.tolist()
    if len(kinds) > _GROUPS:
        own = sorted(kinds[np.argsort(-counts, kind="stable")][: _GROUPS - 1].tolist())
    found = [(name or "all", (names == name).nonzero()[0]) for name in own]
    rest = (~np.isin(names, own)).nonzero()[0]
    return [*found, (f"{len(kinds) - len(own)} others", rest)] if len(rest) else found
