"""The roofline of a device, with the layers of a net as points."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from paleo.core.errors import SettingError
from paleo.studies.summary import NetSummary, Reached
from paleo.views.charts.base import Chart, Series, in_one_unit
from paleo.views.charts.layers import summary_setting
from paleo.views.charts.numbers import NOTHING, left_out
from paleo.views.table import in_unit

#: How far the roof goes on beyond the points and the ridge.
_MARGIN = 2.0
#: What is above the roof by more than rounding.
_ABOVE = 1 + 1e-9
#: So many layers above the roof are named in the note.
_NAMED = 3


def roofline(summary: NetSummary) -> Chart:
    """Return each layer's passes at their FLOP per byte, against the FLOP/s that they reach.

    The points of a pass stand in the order of their time, the longest first, so that whoever has
    no room for all names can show the first ones. The reference is the roof of the device. Layers
    that only pass over memory count no FLOPs and have no point. Raises SettingError without a
    device, and for an array of batch sizes.
    """
    on = summary.timed_on
    if on is None:
        raise SettingError("plot: a roofline needs a device")
    found = {name: _points(summary.reached, name) for name in ("forward", "backward")}
    points = [each for own in found.values() for each in own]
    places: list[Any] = [each.intensity for each in points]
    roof, ridge = on.roof, float(on.roof.ridge)
    # From where to where the roof goes, over its ridge.
    corners = (min([ridge, *places]) / _MARGIN, ridge, max([ridge, *places]) * _MARGIN)
    rates: list[list[Any]] = [[each.flops_per_s for each in own] for own in found.values()]
    edges: list[Any] = [roof.at(x) for x in corners]
    scale, (*reached, edge) = in_one_unit([*rates, edges], "FLOP/s")
    series = [
        Series(
            name,
            tuple(each.intensity for each in own),
            rates_shown,
            labels=tuple(each.layer for each in own),
        )
        for (name, own), rates_shown in zip(found.items(), reached, strict=True)
        if own
    ]
    peak = in_unit(float(roof.peak), "FLOP/s")
    bandwidth = in_unit(float(roof.memory_bandwidth), "bytes/s")
    series.append(Series(f"roof: {peak}, {bandwidth}", corners, edge, is_reference=True))
    notes = ["Roofline: the layers that take longest are named"]
    every = len(summary.layers)
    if number := every - len({each.layer for each in points}):
        notes.append(left_out(number, every, *NOTHING["FLOP"], "no points"))
    over = [rate / roof.at(x) for rate, x in zip(chain(*rates), places, strict=True)]
    if above := sorted((-by, i) for i, by in enumerate(over) if by > _ABOVE):
        names = list(dict.fromkeys(points[i].layer for _, i in above))
        more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
        notes.append(
            f"above the roof ({', '.join(names[:_NAMED])}{more}): operands were in a cache, or an "
            "algorithm computes less than is counted"
        )
    return Chart(
        "roofline",
        "points",
        "Roofline",
        summary_setting(summary),
        "computation for each byte moved (FLOP/B)",
        f"reached ({scale.unit})",
        tuple(series),
        log_x=True,
        log_y=True,
        notes=tuple(notes),
    )


def _points(reached: Sequence[Reached], name: str) -> list[Reached]:
    """Return what is a point of a pass, the longest first."""
    own = [each for each in reached if each.pass_name == name]
    drawn = [each for each in own if each.flops and each.num_bytes and each.seconds]
    return sorted(drawn, key=lambda each: -each.seconds)
