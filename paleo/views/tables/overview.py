"""The figures of an overview that stand at its head, and its tables."""

from __future__ import annotations

from typing import Any

from paleo.core.units import scale_for
from paleo.step.pieces import Step
from paleo.studies.overview import Overview
from paleo.views.charts.base import unit_shown
from paleo.views.charts.settings import best_said
from paleo.views.table import Table, in_unit
from paleo.views.tables.metrics import money
from paleo.views.tables.simulation import simulation_table


def overview_table(found: Overview) -> Table:
    """Return the table of the steps, as `paleo simulate` prints it with this scheme."""
    run = found.run if found.scheme is None else found.run.only(found.scheme)
    return simulation_table(run)


def headlines(found: Overview) -> list[dict[str, Any]]:
    """Return for each number of workers its figures as texts: items of key, label and value."""
    return [{"workers": row.workers, "items": _items(found, row)} for row in found.rows]


def _items(found: Overview, row: Step) -> list[dict[str, str]]:
    scheme = found.scheme_of(row)
    training, step = found.training(row, scheme), row.whole_step(scheme)
    texts = {"step": ("training step", _in_unit(step.seconds, "s"))}
    if step.seconds:
        texts |= {
            "throughput": ("samples a second", _rate(step.throughput)),
            "speedup": ("speedup over one worker", f"{step.speedup:,.3f}"),
            "efficiency": ("efficiency", f"{100 * step.efficiency:.1f} %"),
        }
    if row.workers > 1:
        label = "scheme" if found.scheme else f"{best_said(row)} scheme"
        texts["scheme"] = (label, scheme)
    if training.seconds is not None:
        texts["time"] = ("training time", _in_unit(training.seconds, "duration"))
    if training.cost is not None and training.price:
        price = f"{training.price.amount:g} {training.price.currency}"
        texts["cost"] = ("training cost", f"{money(training.cost)} {training.price.currency}")
        texts["price"] = ("price of a device-hour", price)
    return [{"key": key, "label": label, "value": value} for key, (label, value) in texts.items()]


def _in_unit(value: float, dimension: str) -> str:
    """Return a figure that stands alone in the largest unit of which it is one or more."""
    scale = scale_for([[value / 10]], dimension)  # a tenth of a unit suits it, too
    return f"{_rate(value / scale.factor)} {unit_shown(scale.unit)}"


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def memory_headline(found: Overview) -> list[dict[str, Any]]:
    """Return the memory of training on one device as items of key, label and value.

    `is_warning` of an item tells whether it is to stand out: what does not fit cannot be trained.
    """
    fit = found.fit
    peak = _in_unit(float(fit.footprint.peak), "bytes")
    capacity = fit.device.memory_capacity if fit.device else None
    items = {"memory": ("memory in training", peak)}
    if capacity is not None:
        fits = "fits in" if fit.fits else "does not fit in"
        items["fits"] = ("memory of the device", f"{fits} {in_unit(capacity, 'bytes')}")
        items["largest_batch"] = ("largest batch that fits", f"{fit.largest_batch:,}")
    return [
        {"key": key, "label": label, "value": value, "is_warning": key == "fits" and not fit.fits}
        for key, (label, value) in items.items()
    ]


def hints(found: Overview) -> list[str]:
    """Return what to give for the figures that are missing."""
    training = found.training(found.row, found.scheme_of(found.row))
    if training.seconds is None:
        return ["for time and cost of a training give the epochs, and a dataset or its size"]
    if training.price is None:
        return [f"for a cost give a price: none of {found.run.device} is known"]
    return []
