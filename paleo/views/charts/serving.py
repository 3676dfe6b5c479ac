"""Models under loads: tokens a second of a device against those of a user, and first tokens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from paleo.core.frozen import NamedTuple
from paleo.core.quantity import np
from paleo.costs.error_bands import Band
from paleo.studies.fronts import undominated
from paleo.studies.serving.answers import Asked, Serving
from paleo.views.answers.base import band_said, device_named
from paleo.views.charts.base import Chart, Series, in_one_unit, is_wide
from paleo.views.charts.numbers import counted, plain
from paleo.views.charts.settings import joined

#: What no other point is ahead of.
FRONT = "Pareto front"


class _Point(NamedTuple):
    """A load: where it stands, and how its number is written there."""

    x: float
    y: float
    label: str


def serving_charts(found: Sequence[Serving]) -> tuple[Chart, ...]:
    """Return the throughput-latency curve, and the mean time to first token against requests/s.

    Each has a line for each place, from the smallest load to the largest, and the Pareto front of
    all. Loads of which the queue grows without end are no points: their times depend on how many
    requests are simulated. Answers of one token have no time of another one.
    """
    places = list(dict.fromkeys(each.asked for each in found))
    names, common = _names(places)
    notes = [*_left_out(found, dict(zip(places, names, strict=True))), *_said(found)]
    rates: list[list[_Point]] = []
    firsts: list[list[_Point]] = []
    for one in places:
        own = sorted((each for each in found if each.asked is one and _is_drawn(each)), key=_load)
        rows = [(each.to_dict(), _label(each)) for each in own]
        rates.append(
            [
                _Point(row["tokens_per_s_per_user"], row["tokens_per_s_per_gpu"], label)
                for row, label in rows
                if row["tokens_per_s_per_user"]
            ]
        )
        firsts.append([_Point(row["requests_per_s"], row["ttft_s"], label) for row, label in rows])
    nets = ", ".join(dict.fromkeys(one.net.name for one in places))
    chart: dict[str, Any] = {"setting": common}
    bands = [one.band for one in places]
    curve = _curves(
        rates, names, bands, key="serving", title=f"Throughput and latency of {nets}",
        x_label="tokens/s of a user", y_label="tokens/s of a device", are_rates=True,
        what="each token", notes=notes, **chart,
    )  # fmt: skip
    scale, seconds = in_one_unit([[point.y for point in line] for line in firsts], "s")
    firsts = [
        [point._replace(y=y or 0.0) for point, y in zip(line, own, strict=True)]
        for line, own in zip(firsts, seconds, strict=True)
    ]
    bands = [one.first_band for one in places]
    first = _curves(
        firsts, names, bands, key="first_token", title=f"First token of {nets}",
        x_label="requests/s", y_label=f"mean time to first token ({scale.unit})", are_rates=False,
        what="first tokens", notes=notes, **chart,
    )  # fmt: skip
    return curve, first


def _curves(
    lines: Sequence[Sequence[_Point]],
    names: Sequence[str],
    bands: Sequence[Band | None],
    *,
    are_rates: bool,
    what: str,
    notes: Sequence[str],
    **chart: Any,
) -> Chart:
    """Return lines of points with their front: both axes are rates, or `y` are times.

    The band of a rate moves it along both axes: both are one over the time of a token. `what` has
    such bands, which are said where they are drawn.
    """
    series = []
    for name, points, band in zip(names, lines, bands, strict=True):
        x, y, labels = zip(*points, strict=True) if points else ((), (), ())
        low, high = band.ends if band else (None, None)
        ends: dict[str, Any] = {}
        if low and high:
            if are_rates:
                low, high = 1 / high, 1 / low
                ends = {"low_x": _times(x, low), "high_x": _times(x, high)}
            ends |= {"low": _times(y, low), "high": _times(y, high)}
        series.append(Series(name, x, y, labels, **ends))
    every = [point for points in lines for point in points]
    if every:
        sign = -1 if are_rates else 1
        ranks = [
            np.array([-point.x for point in every]),
            np.array([sign * point.y for point in every]),
        ]
        front = sorted((every[i] for i in undominated(ranks)), key=lambda point: point.x)
        places = [tuple(point[axis] for point in front) for axis in (0, 1)]
        series.append(Series(FRONT, places[0], places[1], is_reference=True))
    drawn = Chart(
        kind="curves", series=tuple(series), log_x=is_wide([one.x for one in series]),
        log_y=is_wide([one.y for one in series]), **chart,
    )  # fmt: skip
    return replace(drawn, notes=(*notes, *(_bands(what, bands) if drawn.shaded else ())))


def _times(values: Iterable[float], factor: float) -> tuple[float, ...]:
    return tuple(value * factor for value in values)


def _is_drawn(each: Serving) -> bool:
    return each.served is not None and each.is_stable


def _load(each: Serving) -> float:
    return each.concurrency or each.rate or 0.0


def _label(each: Serving) -> str:
    """Return the number of a load, as it stands beside its point."""
    if each.concurrency is not None:
        return f"{each.concurrency:,}"
    return f"{plain(float(f'{each.rate:.4g}'))}/s"


def _names(places: Sequence[Asked]) -> tuple[list[str], str]:
    """Return what tells places apart, by place, and what is the same of all."""
    parts = [list(_parts(one)) for one in places]
    columns = list(zip(*parts, strict=True))
    varied = [len(set(column)) > 1 for column in columns]
    if not any(varied):
        return [one.net.name for one in places], joined(parts[0][1:])
    names = [
        joined(part for part, is_own in zip(row, varied, strict=True) if is_own) for row in parts
    ]
    return names, joined(
        column[0] for column, is_own in zip(columns, varied, strict=True) if not is_own
    )


def _parts(one: Asked) -> Iterator[str]:
    said, plan = one.settings, one.plan
    yield one.net.name
    yield plan.cluster.name if plan.cluster else device_named(plan.device.name)
    yield counted(one.devices, "device")
    yield f"tp {said['tp']}" if said["tp"] > 1 else ""
    yield str(said["dtype"])
    yield one.server.title


def _said(found: Sequence[Serving]) -> Iterator[str]:
    """Yield what the numbers at points are."""
    closed = {each.concurrency is not None for each in found}
    if True in closed:
        yield "numbers at points: requests at a time"
    if False in closed:
        yield "numbers at points: requests that come in a second"


def _left_out(found: Sequence[Serving], names: dict[Asked, str]) -> Iterator[str]:
    """Yield which loads are no points, and why."""
    for one, name in names.items():
        own = [each for each in found if each.asked is one]
        if any(each.served is None for each in own):
            yield f"{name}: what does not fit is not drawn"
        rates = [_label(each) for each in own if each.served is not None and not each.is_stable]
        if rates:
            yield f"{name}: the queue grows without end at {', '.join(rates)}, which is not drawn"


def _bands(what: str, bands: Iterable[Band | None]) -> Iterator[str]:
    yield from dict.fromkeys(band_said(what, band) for band in bands if band)
