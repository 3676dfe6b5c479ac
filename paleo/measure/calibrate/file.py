"""A device, or links, as the text of a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from paleo.cluster import Device, Figure, Network
from paleo.cluster.calibration_record import CalibrationRecord
from paleo.cluster.figures import OWN
from paleo.core.attributes import attributes
from paleo.core.texts import json_text

#: The units that figures are written in.
_UNITS = {
    "Hz": (1e6, "MHz"),
    "bytes/s": (1e9, "GB/s"),
    "FLOP/s": (1e9, "GFLOP/s"),
    "W": (1, "W"),
    "s": (1e-6, "us"),
}
_MIB = 2**20


def to_toml(device: Device) -> str:
    """Return the text of a file that reads to this device, as `paleo.find_device` does."""
    sources = dict(device.sources)
    keys = {text: key for key, text in sources.items()}
    entries = list(_entries(device, keys))
    lines = [*_given(device, "name", "title", "kind", "architecture", "aliases")]
    if sources:
        lines += ["", "[sources]", *_lines(sources)]
    return "\n".join([*lines, *entries]) + "\n"


def network_toml(network: Network) -> str:
    """Return the text of a file that reads to these links, as `paleo.find_network` does."""
    keys = {text: key for key, text in network.sources.items()}
    lines = [*_given(network, "name", "title")]
    if network.sources:
        lines += ["", "[sources]", *_lines(network.sources)]
    written = {name: _figure(figure, keys) for name, figure in network.figures.items()}
    lines += ["", "[figures]", *_lines(written)]
    if network.nccl:
        own = {name: _figure(figure, keys) for name, figure in network.nccl.figures.items()}
        told = {"kind": network.nccl.kind} | ({"ll128": True} if network.nccl.ll128 else {})
        lines += ["", "[nccl]", *_lines(told | own)]
    return "\n".join(lines) + "\n"


def _lines(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each key and its value."""
    yield from (f"{_key(name)} = {_value(value)}" for name, value in values.items())


def _given(thing: Any, *names: str) -> Iterator[str]:
    """Yield a line for each of these attributes that is not empty."""
    yield from _lines({name: value for name in names if (value := getattr(thing, name))})


def _entries(device: Device, keys: Mapping[str, str]) -> Iterator[str]:
    tables = {"figures": device.figures}
    tables |= {f"peak.{dtype}": units for dtype, units in device.peaks.items()}
    if device.constants:
        tables["tiled"] = device.constants
    for head, figures in tables.items():
        yield from ("", f"[{head}]")
        yield from _lines({name: _figure(figure, keys) for name, figure in figures.items()})
    old = device.own_rates_2017
    if old is not None:
        yield from ("", "[paleo2017]")
        known = {"clock": "Hz", "peak": "FLOP/s", "memory_bandwidth": "bytes/s"}
        yield from _lines({name: _amount(getattr(old, name), unit) for name, unit in known.items()})
        yield from _given(old, "note")
    for price in device.own_prices:
        yield from ("", "[[price]]", f"amount = {_value(f'{price.amount!r} {price.currency}/h')}")
        yield from _given(price, "provider", "what", "kind", "date", "note")
        if price.source in keys:
            yield f"source = {_value(keys[price.source])}"
    if device.calibration is not None:
        yield from _record(device.calibration)


def _figure(figure: Figure, keys: Mapping[str, str]) -> Any:
    """Return a figure as a table of value, source and note; the value where it has neither."""
    parts = {"value": _amount(figure.value, figure.unit)}
    note = figure.note
    if figure.source in keys:
        parts["source"] = keys[figure.source]
    elif figure.source != OWN:
        note = f"{note}; {figure.source}" if note else figure.source
    if note:
        parts["note"] = note
    return parts if len(parts) > 1 else parts["value"]


def _amount(value: Any, unit: str) -> Any:
    """Return a number in SI units as a file has it: with a unit, a count, or a constant."""
    if unit == "count":
        return int(value)
    if unit == "bytes":
        whole = value / _MIB
        return f"{whole:.0f} MiB" if whole == int(whole) else f"{value:.0f} B"
    if unit not in _UNITS:
        return float(value)
    factor, text = _UNITS[unit]
    return f"{value / factor:.12g} {text}"


def _record(record: CalibrationRecord) -> Iterator[str]:
    yield from ("", "[calibration]", f"date = {_value(record.date)}")
    yield from _given(record, "source", "hardware", "base")
    yield from _lines(_known(_seconds, record, "seconds"))
    yield from _lines(_known(_share, record, "spread", "busy"))
    if record.forced:
        yield "forced = true"
    yield from _lines({"fitted": record.fitted, "on_bound": record.on_bound})
    yield from _list("notes", record.notes)
    yield "# Medians of |predicted / measured - 1|: before the fit, after it, on shapes left out."
    yield from _list(
        "errors",
        (
            attributes(errors, "kind", "points")
            | _known(_share, errors, "before", "in_sample", "held_out")
            for errors in record.errors
        ),
    )
    yield from _list(
        "points",
        (
            attributes(point, "kind", "what", "part", "dtype")
            | _known(_share, point, "spread")
            | _known(_seconds, point, "seconds", "predicted", "held_out")
            for point in record.points
        ),
    )
    if record.versions:
        yield from ("", "[calibration.versions]", *_lines(record.versions))


def _list(name: str, values: Iterable[Any]) -> Iterator[str]:
    """Yield a list with a line for each value; nothing if there are none."""
    if lines := [f"  {_value(value)}," for value in values]:
        yield from (f"{name} = [", *lines, "]")


def _seconds(value: float) -> str:
    factor, unit = next(
        (each for each in ((1.0, "s"), (1e-3, "ms")) if value >= each[0]), (1e-6, "us")
    )
    return f"{value / factor:.5g} {unit}"


def _share(value: float) -> float:
    return float(f"{value:.3g}")


def _known(written: Callable[[float], Any], thing: Any, *names: str) -> dict[str, Any]:
    """Return those of these attributes that are known, as they are `written`."""
    values = attributes(thing, *names)
    return {name: written(value) for name, value in values.items() if value is not None}


def _key(name: str) -> str:
    """Return a key as TOML has it, in quotes unless it is a plain word."""
    plain = name.replace("_", "").replace("-", "")
    return name if plain.isascii() and plain.isalnum() else _value(name)


def _value(value: Any) -> str:
    """Return a text, a number, a list or a table of them in TOML, in one line."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(_lines(value)) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        return repr(value)
    # Strings of JSON are strings of TOML, which also refuses a delete character as it is.
    return json_text(value)
