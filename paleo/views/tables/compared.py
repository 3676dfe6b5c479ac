"""Configurations beside each other: what a step, the memory and a training take on each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from paleo.core.attributes import at_ends
from paleo.studies.overview import Overview
from paleo.views.answers.base import amounts, band_said, duration, rounded, spread
from paleo.views.charts.numbers import counted
from paleo.views.charts.settings import places
from paleo.views.table import Column, Table, in_unit, plain
from paleo.views.tables.metrics import money
from paleo.views.tables.overview import largest_batch
from paleo.views.tables.stages import fullest_said

#: In what configurations differ, and how that is named.
_NAMED = ("net", "dtype", "batch_size")
#: The keys of it for programs.
_PLACED = ("net", "device", "network", "cluster", "dtype")
_COLUMNS = (
    Column("name", "configuration"),
    *plain(*_PLACED),
    Column("workers", "workers"),
    Column("batch_size", "batch"),
    Column("memory", "memory", for_people=True),
    *plain("fits", "largest_batch_size"),
    Column("step", "step", for_people=True, right=True),
    Column("throughput", "samples/s", for_people=True, right=True),
    Column("rates", "80 % of cases", for_people=True, right=True),
    Column("efficiency", "efficiency", "share"),
    Column("time", "training time", for_people=True, right=True),
    Column("price", "price of a device for 1 h", for_people=True, right=True),
    Column("cost", "training cost", for_people=True, right=True),
    *plain("step_s", "throughput_per_s", "training_time_s", "training_cost", "price_currency"),
)


def configuration_names(overviews: Sequence[Overview]) -> list[str]:
    """Return what tells overviews apart, in a few words each, or the device where nothing does."""
    where = places([each.run.plan for each in overviews])
    settings = [
        {**{key: each.run.settings()[key] for key in _NAMED}, **place}
        for each, place in zip(overviews, where, strict=True)
    ]
    named = ("net", *where[0], *_NAMED[1:])
    differing = [key for key in named if len({each[key] for each in settings}) > 1]
    names = [
        ", ".join(
            f"batch {each[key]:,}" if key == "batch_size" else str(each[key])
            for key in differing or [next(iter(where[0]))]
        )
        for each in settings
    ]
    return [name if name not in names[:i] else f"{name}, once more" for i, name in enumerate(names)]


def compared_table(configurations: Mapping[str, Overview], *, upright: bool = False) -> Table:
    """Return a row for each configuration by its name; `upright`, a column for each."""
    overviews = configurations.values()
    said = list(dict.fromkeys(_band(each) for each in overviews))
    return Table(
        "Configurations beside each other",
        _COLUMNS,
        [{"name": name, **_row(each)} for name, each in configurations.items()],
        footnotes=list(filter(None, said)),
        upright=upright,
    )


def _band(found: Overview) -> str:
    return f"{found.run.device}: {band_said('computation', found.run.band)}"


def _row(found: Overview) -> dict[str, Any]:
    row, most, digits = found.row, largest_batch(found), found.run.plan.digits
    step = row.whole_step(found.scheme_of(row))
    training, has_times = found.trained(step), bool(step.seconds)
    price, cost, seconds = training.price, training.cost, training.seconds
    slow, quick = amounts(at_ends(step.ends, lambda end: end.throughput), digits)[::-1]
    return {
        **{key: found.run.settings()[key] for key in _PLACED},
        "workers": row.workers,
        "batch_size": int(row.batch_size),
        "memory": _memory(found),
        "fits": found.fits(row),
        "largest_batch_size": most,
        "step": duration(step.seconds, digits),
        "throughput": rounded(step.throughput, digits) if has_times else None,
        "rates": spread((slow, quick)).strip(" ()") or None,
        "efficiency": step.efficiency if has_times and not found.is_mesh else None,
        "time": None if seconds is None else duration(seconds, digits),
        "price": price and f"{money(price.amount)} {price.currency}",
        "cost": cost if cost is None or not price else f"{rounded(cost, digits)} {price.currency}",
        "step_s": step.seconds,
        "throughput_per_s": step.throughput if has_times else None,
        "training_time_s": training.seconds,
        "training_cost": cost,
        "price_currency": price and price.currency,
    }


def _memory(found: Overview) -> str:
    fits = found.fits(found.row)
    if fits is None:
        return "not known"
    capacity = in_unit(found.study.device.memory_capacity, "bytes")
    does = "fits" if fits else "does not fit"
    return f"{does} in {capacity}"


def compared_said(configurations: Mapping[str, Overview]) -> list[str]:
    """Return in a sentence what does not fit, and in another how the others compare."""
    fitting, said = {}, []
    for name, each in configurations.items():
        most = largest_batch(each)
        if each.is_mesh and each.fits(each.row) is False:
            needed, _ = fullest_said(each.stages)
            said.append(f"{name}: the fullest stage needs {needed}, which does not fit.")
        elif most is not None and each.worker_batch_size > most:
            batch = counted(each.worker_batch_size, "sample")
            said.append(f"{name}: a batch of {batch} does not fit, the largest has {most:,}.")
        else:
            fitting[name] = each
    return [*said, *_rates(fitting)]


def _rates(configurations: Mapping[str, Overview]) -> Iterable[str]:
    """Return how quick the second is beside the first, and of more which is the quickest."""
    rates, said = {}, {}
    for name, each in configurations.items():
        step = each.row.whole_step(each.scheme_of(each.row))
        if step.seconds:
            rates[name] = step.throughput
            said[name] = rounded(step.throughput, each.run.plan.digits)
    if len(rates) > 2:
        best = max(rates, key=lambda name: rates[name])
        yield f"{best} is the quickest, with about {said[best]} samples/s."
    elif len(rates) == 2:
        (first, base), (other, rate) = rates.items()
        yield (
            f"{other} trains about {said[other]} samples/s, {rounded(rate / base, 2)} times the "
            f"{said[first]} of {first}."
        )
