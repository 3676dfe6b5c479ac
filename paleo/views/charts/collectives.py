"""What collectives take over the bytes of their messages: time and bus bandwidth."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from operator import attrgetter

from paleo.studies.collectives import CollectiveTime
from paleo.views.charts.base import Chart, Series, in_one_unit, is_wide
from paleo.views.charts.numbers import counted
from paleo.views.charts.settings import joined
from paleo.views.tables.collectives import unfilled_notes

#: What is drawn: the key, the title, the label, the dimension, and the value.
_DRAWN: tuple[tuple[str, str, str, str, Callable[[CollectiveTime], float | None]], ...] = (
    ("time", "Time", "time", "s", lambda one: one.seconds or None),
    ("bus_bandwidth", "Bus bandwidth", "bus bandwidth", "bytes/s", attrgetter("bus_bandwidth")),
)


def collectives_charts(found: Sequence[CollectiveTime]) -> tuple[Chart, ...]:
    """Return time and bus bandwidth of each collective over bytes.

    There is a line for each cluster, scheme and number of workers.
    """
    charts: list[Chart] = []
    for operation in dict.fromkeys(each.operation for each in found):
        own = [each for each in found if each.operation is operation]
        charts += (_chart(own, *drawn) for drawn in _DRAWN)
    return tuple(charts)


def _chart(
    found: Sequence[CollectiveTime],
    key: str,
    title: str,
    label: str,
    dimension: str,
    value: Callable[[CollectiveTime], float | None],
) -> Chart:
    names = [
        name
        for name in ("cluster", "scheme", "workers")
        if name == "workers" or len({getattr(each, name) for each in found}) > 1
    ]
    by_line = attrgetter("cluster", "scheme", "workers")
    lines = [list(line) for _, line in itertools.groupby(sorted(found, key=by_line), by_line)]
    lines.sort(key=lambda line: found.index(line[0]))  # in the order in which they were asked for
    for line in lines:
        line.sort(key=attrgetter("num_bytes"))
    # The unit of the smallest: sizes that double again and again are whole numbers of it.
    sizes, _ = in_one_unit([[min(one.num_bytes for one in found)]], "bytes")
    columns = [tuple(one.num_bytes / sizes.factor for one in line) for line in lines]
    scale, values = in_one_unit([[value(one) for one in line] for line in lines], dimension)
    series = tuple(
        Series(joined(_said(line[0], name) for name in names), x, y)
        for line, x, y in zip(lines, columns, values, strict=True)
    )
    first = found[0]
    several = f"{first.stride} groups at the same time" if first.stride > 1 else ""
    same = [getattr(first, name) for name in ("cluster", "scheme") if name not in names]
    return Chart(
        f"{first.operation.value}_{key}",
        "lines",
        f"{title} of {first.operation.value}",
        joined([*same, several]),
        f"message ({sizes.unit})",
        f"{label} ({scale.unit})",
        series,
        log_x=is_wide(columns),
        log_y=is_wide(values),
        notes=unfilled_notes(found),
    )


def _said(one: CollectiveTime, name: str) -> str:
    """Return what tells a line from others under this name."""
    return counted(one.workers, "worker") if name == "workers" else str(getattr(one, name))
