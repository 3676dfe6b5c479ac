"""The tables of devices: a list, and all that is known of one; and the same for JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from paleo.cluster import ARCHITECTURES, Device, Figure
from paleo.core.attributes import attributes
from paleo.core.frozen import NamedTuple
from paleo.core.tensor import DTYPES
from paleo.core.units import scale_for
from paleo.costs.tiled.constants import CONSTANTS, constants_of
from paleo.views.table import Column, Table, plain
from paleo.views.tables.base import cite, described, figures_json
from paleo.views.tables.calibration import errors_table

#: A list: for people what one chooses a device by, for programs everything in one row.
_LIST = (
    Column("name", "device"),
    Column("title"),
    Column("architecture", "architecture"),
    Column("kind"),
    Column("fp32_peak_flop_per_s", "fp32", "FLOP/s"),
    Column("half_peak_flop_per_s", "16-bit", "FLOP/s", for_people=True),
    Column("fp8_peak_flop_per_s", "fp8", "FLOP/s"),
    *(Column(f"{dtype}_peak_flop_per_s") for dtype in DTYPES if dtype not in ("fp32", "fp8")),
    Column("memory_bandwidth_bytes_per_s", "bandwidth", "bytes/s"),
    Column("memory_capacity_bytes", "memory", "bytes"),
    Column("multiprocessors", "multi-\nprocessors"),
    *plain("base_clock_hz", "boost_clock_hz", "cache_bytes", "power_w"),
    *plain("paleo2017_peak_flop_per_s", "paleo2017_memory_bandwidth_bytes_per_s"),
    *plain("paleo2017_clock_hz", "price_per_device_hour", "price_currency", "price_date"),
    *plain("aliases", "sources"),
)
_LIST_NOTES = (
    "Peaks are dense, of the fastest unit for the type; 16-bit: fp16, bf16 where there is none.",
    "Every figure with its unit, source and note: paleo devices NAME, or --format=json.",
)

#: One device: a line for each figure, and one for each constant of a cost model.
_CITED = (Column("value", "value", right=True), Column("cited", "source"))
_FIGURES = (Column("name", "figure"), *_CITED)
_CONSTANTS = (Column("name", "constant"), *_CITED, Column("meaning", "meaning"))
#: How the keys of programs name the units of figures.
_SUFFIXES = {"Hz": "_hz", "count": "", "bytes/s": "_bytes_per_s", "bytes": "_bytes", "W": "_w"}
_UNITS = {"vector": "lanes", "matrix": "matrix units"}


def device_list(devices: Sequence[Device], *, for_people: bool = True) -> Table:
    """Return a row for each device; for people they are sorted as one looks for them."""
    shown = sorted(devices, key=_rank) if for_people else devices
    return Table("", _LIST, [_row(device) for device in shown], footnotes=_LIST_NOTES)


def _rank(device: Device) -> tuple[Any, ...]:
    """Return what a list for people is sorted by: kind, maker, age of the architecture, name."""
    known = device.architecture in ARCHITECTURES
    age = ARCHITECTURES.index(device.architecture) if known else len(ARCHITECTURES)
    maker = device.title.split()[0] if device.title else ""
    return device.kind == "cpu", maker, age, device.architecture, device.name


def _row(device: Device) -> dict[str, Any]:
    """Return a device as a row of the list."""
    figures = {
        f"{name}{_SUFFIXES.get(figure.unit, '')}": figure.value
        for name, figure in device.figures.items()
    }
    peaks = {dtype: device.peak(dtype) for dtype, units in device.peaks.items() if units}
    old, price = device.own_rates_2017, device.newest_price
    return {
        **attributes(device, "name", "title", "architecture", "kind"),
        **{f"{dtype}_peak_flop_per_s": peak for dtype, peak in peaks.items()},
        "half_peak_flop_per_s": peaks.get("fp16", peaks.get("bf16")),
        **figures,
        "paleo2017_peak_flop_per_s": old and old.peak,
        "paleo2017_memory_bandwidth_bytes_per_s": old and old.memory_bandwidth,
        "paleo2017_clock_hz": old and old.clock,
        "price_per_device_hour": price and price.amount,
        "price_currency": price and price.currency,
        "price_date": price and price.date,
        "aliases": "; ".join(device.aliases),
        "sources": "; ".join(device.sources.values()),
    }


class _Line(NamedTuple):
    """What is said of one figure: its value with the unit, the source and a note."""

    name: str
    value: str
    source: str = ""
    note: str = ""


def device_tables(device: Device) -> list[Table]:
    """Return everything known of a device: its figures, the constants of `tiled`, their errors."""
    constants = constants_of(device)
    lines = [
        _Line("architecture", device.architecture or "not stated"),
        *_figures(device),
        *(
            _Line(name, _text(figure.value, CONSTANTS[name].unit), figure.source, figure.note)
            for name, figure in constants.items()
        ),
    ]
    rows, numbered = cite(
        [{"name": line.name, "value": line.value} for line in lines],
        [[line.source] if line.source else [] for line in lines],
    )
    for name, row in zip(constants, rows[-len(constants) :], strict=True):
        row["meaning"] = CONSTANTS[name].meaning
    said = [f"also called: {', '.join(device.aliases)}"] if device.aliases else []
    said += [f"{line.name}: {line.note}" for line in lines if line.note]
    if device.own_rates_2017 and device.own_rates_2017.note:
        said.append(f"2017: {device.own_rates_2017.note}")
    return [
        Table(
            f"{device.name}: {device.title}" if device.title != device.name else device.name,
            _FIGURES,
            rows[: -len(constants)],
        ),
        Table(
            f"Constants of the cost model tiled for {device.name}",
            _CONSTANTS,
            rows[-len(constants) :],
            footnotes=[*said, *([""] if said else []), *numbered],
        ),
        *([_calibrated(device)] if device.calibration else []),
    ]


def _calibrated(device: Device) -> Table:
    """Return what a calibration is worth: errors by kind of operation, and how it was measured."""
    record = device.calibration
    assert record is not None
    said = [f"measured by {record.source}: {record.hardware}".rstrip(": ")]
    if record.base:
        said.append(f"figures: those of {record.base}")
    if record.versions:
        said.append("with " + ", ".join(f"{name} {text}" for name, text in record.versions.items()))
    if record.spread is not None:
        said.append(f"repeated runs differed by up to {100 * record.spread:.1f} %")
    if record.on_bound:
        said.append(f"on a bound: {', '.join(record.on_bound)}")
    said.append("errors: medians of |predicted / measured - 1|; on others: on shapes not fitted to")
    title = f"Errors of the constants of {device.name}, calibrated {record.date}"
    return errors_table(title, record, footnotes=said, notes=record.notes)


def _figures(device: Device) -> Iterator[_Line]:
    """Yield a line for each figure, peak and price of a device."""
    for name, figure in device.figures.items():
        yield _line(name.replace("_", " "), figure)
    for dtype in DTYPES:
        for unit, figure in device.peaks.get(dtype, {}).items():
            yield _line(f"{dtype} peak, {_UNITS[unit]}", figure)
    old = device.own_rates_2017
    if old is not None:
        yield _Line("2017 clock", _text(old.clock, "Hz"))
        yield _Line("2017 peak", _text(old.peak, "FLOP/s"))
        yield _Line("2017 memory bandwidth", _text(old.memory_bandwidth, "bytes/s"))
    for price in device.prices:
        note = "; ".join(filter(None, (price.provider, price.what, price.note)))
        amount = f"{price.amount:g} {price.currency}/h"
        yield _Line(f"price {price.kind}, {price.date}", amount, price.source, note)


def _line(name: str, figure: Figure) -> _Line:
    return _Line(name, _text(figure.value, figure.unit), figure.source, figure.note)


def _text(value: Any, unit: str) -> str:
    """Return a number in SI units as text with a unit that suits it."""
    if unit in ("count", "1") or not value:
        return f"{value:,.6g}"
    scale = scale_for([[value]], unit)
    return f"{value / scale.factor:,.6g} {scale.unit}"


def device_json(device: Device) -> dict[str, Any]:
    """Return a device as JSON has it: SI units, and the source of every figure."""
    old = device.own_rates_2017
    return {
        **described(device),
        **attributes(device, "kind", "architecture"),
        "peak_flop_per_s": {dtype: figures_json(units) for dtype, units in device.peaks.items()},
        "paleo2017": old
        and {
            "clock_hz": old.clock,
            "peak_flop_per_s": old.peak,
            "memory_bandwidth_bytes_per_s": old.memory_bandwidth,
            "note": old.note,
        },
        **attributes(device, "prices"),
        "tiled": {
            name: {"meaning": CONSTANTS[name].meaning, **entry, "unit": CONSTANTS[name].unit}
            for name, entry in figures_json(constants_of(device)).items()
        },
        **attributes(device, "calibration"),
    }
