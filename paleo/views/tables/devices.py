"""`paleo devices`: the predefined devices, with their figures and sources."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click

from paleo.cli.hardware import describe, errors_table, figures_json, find_all
from paleo.cli.options import DEVICE, Output, cite, output_options
from paleo.costs.tiled.constants import CONSTANTS, constants_of
from paleo.hardware import ARCHITECTURES, Device, Figure, device_names, find_device
from paleo.report import Column, Table
from paleo.tensor import DTYPES
from paleo.units import scale_for

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
    Column("base_clock_hz"),
    Column("boost_clock_hz"),
    Column("cache_bytes"),
    Column("power_w"),
    Column("paleo2017_peak_flop_per_s"),
    Column("paleo2017_memory_bandwidth_bytes_per_s"),
    Column("paleo2017_clock_hz"),
    Column("price_per_device_hour"),
    Column("price_currency"),
    Column("price_date"),
    Column("aliases"),
    Column("sources"),
)
_LIST_NOTES = (
    "Peaks are dense, of the fastest unit for the type; 16-bit: fp16, bf16 where there is none.",
    "Every figure with its unit, source and note: paleo devices NAME, or --format=json.",
)

#: One device: a line for each figure, and one for each constant of a cost model.
_ONE = (
    Column("name", "figure"),
    Column("value", "value", right=True),
    Column("cited", "source"),
)
_CONSTANTS = (
    Column("name", "constant"),
    Column("value", "value", right=True),
    Column("cited", "source"),
    Column("meaning", "meaning"),
)
_UNITS = {"vector": "lanes", "matrix": "matrix units"}


@click.command("devices", short_help="The predefined devices, their figures and sources.")
@click.argument("names", nargs=-1, type=DEVICE, metavar="[NAME]...")
@output_options
def command(names: tuple[str, ...], output: Output) -> None:
    """List all predefined devices, or show everything known of each NAME.

    A NAME is that of a device, an alias or a TOML file. Its figures are the data sheets',
    each with its source and what other sources say; those headed 2017 are what the cost
    model paleo2017 uses, the constants what the cost model tiled does. Separated values
    have a row for each device.

    \b
    Examples:
      paleo devices
      paleo devices A100_SXM_80GB
      paleo devices H100_SXM H200_SXM --format=csv
    """  # noqa: D301 (click takes the control character, not the escape)
    devices = find_all(names or device_names(), find_device)
    for_people = output.format in ("table", "markdown")
    if for_people and names:
        tables = [table for device in devices for table in _details(device)]
    else:
        shown = sorted(devices, key=_rank) if for_people else devices
        tables = [Table("", _LIST, [_row(device) for device in shown], footnotes=_LIST_NOTES)]
    output.write(tables, lambda: {"devices": [_json(device) for device in devices]})


def _rank(device: Device) -> tuple[Any, ...]:
    """Return what a list for people is sorted by: kind, maker, age of the architecture, name."""
    known = device.architecture in ARCHITECTURES
    age = ARCHITECTURES.index(device.architecture) if known else len(ARCHITECTURES)
    maker = device.title.split()[0] if device.title else ""
    return device.kind == "cpu", maker, age, device.architecture, device.name


def _row(device: Device) -> dict[str, Any]:
    """Return a device as a row of the list."""
    figures = {name: figure.value for name, figure in device.figures.items()}
    peaks = {dtype: device.peak(dtype) for dtype, units in device.peaks.items() if units}
    old, price = device.own_rates_2017, device.newest_price
    return {
        "name": device.name,
        "title": device.title,
        "architecture": device.architecture,
        "kind": device.kind,
        **{f"{dtype}_peak_flop_per_s": peak for dtype, peak in peaks.items()},
        "half_peak_flop_per_s": peaks.get("fp16", peaks.get("bf16")),
        "memory_bandwidth_bytes_per_s": figures.get("memory_bandwidth"),
        "memory_capacity_bytes": figures.get("memory_capacity"),
        "multiprocessors": figures.get("multiprocessors"),
        "base_clock_hz": figures.get("base_clock"),
        "boost_clock_hz": figures.get("boost_clock"),
        "cache_bytes": figures.get("cache"),
        "power_w": figures.get("power"),
        "paleo2017_peak_flop_per_s": old and old.peak,
        "paleo2017_memory_bandwidth_bytes_per_s": old and old.memory_bandwidth,
        "paleo2017_clock_hz": old and old.clock,
        "price_per_device_hour": price and price.amount,
        "price_currency": price and price.currency,
        "price_date": price and price.date,
        "aliases": "; ".join(device.aliases),
        "sources": "; ".join(device.sources.values()),
    }


def _details(device: Device) -> list[Table]:
    """Return everything known of a device: its figures, and the constants of `tiled`."""
    lines = [_Line("architecture", device.architecture or "not stated"), *_figures(device)]
    constants = constants_of(device)
    lines += [
        _Line(name, _text(figure.value, CONSTANTS[name].unit), figure.source, figure.note)
        for name, figure in constants.items()
    ]
    rows, numbered = cite(
        [{"name": line.name, "value": line.value} for line in lines],
        [[line.source] if line.source else [] for line in lines],
    )
    own, of_tiled = rows[: -len(constants)], rows[-len(constants) :]
    for row in of_tiled:
        row["meaning"] = CONSTANTS[row["name"]].meaning
    title = f"{device.name}: {device.title}" if device.title != device.name else device.name
    also = [f"also called: {', '.join(device.aliases)}"] if device.aliases else []
    notes = [f"{line.name}: {line.note}" for line in lines if line.note]
    old = [f"2017: {device.own_rates_2017.note}"] if device.own_rates_2017 else []
    said = [*also, *notes, *(note for note in old if note != "2017: ")]
    calibrated = [_calibrated(device)] if device.calibration else []
    return [
        Table(title, _ONE, own),
        Table(
            f"Constants of the cost model tiled for {device.name}",
            _CONSTANTS,
            of_tiled,
            footnotes=[*said, *([""] if said else []), *numbered],
        ),
        *calibrated,
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
        said.append(f"the same points took times up to {100 * record.spread:.1f} % apart")
    if record.on_bound:
        said.append(f"on a bound: {', '.join(record.on_bound)}")
    said.append("errors: medians of |predicted / measured - 1|; on others, of shapes not fitted to")
    title = f"Errors of the constants of {device.name}, calibrated {record.date}"
    return errors_table(title, record, footnotes=said, notes=record.notes)


@dataclass(frozen=True)
class _Line:
    """What is said of one figure: its value with the unit, the source and a note."""

    name: str
    value: str
    source: str = ""
    note: str = ""


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
        yield _Line(f"price, {price.date}", amount, price.source, note)


def _line(name: str, figure: Figure) -> _Line:
    return _Line(name, _text(figure.value, figure.unit), figure.source, figure.note)


def _text(value: Any, unit: str) -> str:
    """Return a number in SI units as text with a unit that suits it."""
    if unit in ("count", "1") or not value:
        return f"{value:,.6g}"
    scale = scale_for([[value]], unit)
    return f"{value / scale.factor:,.6g} {scale.unit}"


def _json(device: Device) -> dict[str, Any]:
    """Return a device as JSON has it: SI units, and the source of every figure."""
    old = device.own_rates_2017
    return {
        **describe(device.name, device.title, device.aliases, device.figures),
        "kind": device.kind,
        "architecture": device.architecture,
        "peak_flop_per_s": {dtype: figures_json(units) for dtype, units in device.peaks.items()},
        "paleo2017": old
        and {
            "clock_hz": old.clock,
            "peak_flop_per_s": old.peak,
            "memory_bandwidth_bytes_per_s": old.memory_bandwidth,
            "note": old.note,
        },
        "prices": [price.to_dict() for price in device.prices],
        "tiled": _constants_json(device),
        "calibration": device.calibration and device.calibration.to_dict(),
    }


def _constants_json(device: Device) -> dict[str, Any]:
    return {
        name: {"meaning": CONSTANTS[name].meaning, **entry, "unit": CONSTANTS[name].unit}
        for name, entry in figures_json(constants_of(device)).items()
    }
