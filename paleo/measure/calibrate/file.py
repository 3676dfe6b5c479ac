"""A device as the text of a device file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from paleo.hardware import Device, Figure
from paleo.hardware.calibration import CalibrationRecord
from paleo.hardware.figures import OWN

__all__ = ["to_toml"]

#: The units that figures are written in.
_UNITS = {
    "Hz": (1e6, "MHz"),
    "bytes/s": (1e9, "GB/s"),
    "FLOP/s": (1e9, "GFLOP/s"),
    "W": (1, "W"),
}
_MIB = 2**20


def to_toml(device: Device) -> str:
    """Return the text of a file that reads to this device, as `paleo.find_device` does."""
    sources = dict(device.sources)
    keys = {text: key for key, text in sources.items()}
    entries = list(_entries(device, keys))
    lines = [f"{name} = {_value(getattr(device, name))}" for name in ("name", "title", "kind")]
    if device.architecture:
        lines.append(f"architecture = {_value(device.architecture)}")
    if device.aliases:
        lines.append(f"aliases = {_value(list(device.aliases))}")
    if sources:
        lines += [
            "",
            "[sources]",
            *(f"{_key(key)} = {_value(text)}" for key, text in sources.items()),
        ]
    return "\n".join([*lines, *entries]) + "\n"


def _entries(device: Device, keys: Mapping[str, str]) -> Iterator[str]:
    def table(head: str, figures: Mapping[str, Figure]) -> Iterator[str]:
        yield from ("", f"[{head}]")
        for name, figure in figures.items():
            yield f"{_key(name)} = {_figure(figure, keys)}"

    yield from table("figures", device.figures)
    for dtype, units in device.peaks.items():
        yield from table(f"peak.{dtype}", units)
    if device.constants:
        yield from table("tiled", device.constants)
    old = device.own_rates_2017
    if old is not None:
        yield from ("", "[paleo2017]")
        for name, value, unit in (
            ("clock", old.clock, "Hz"),
            ("peak", old.peak, "FLOP/s"),
            ("memory_bandwidth", old.memory_bandwidth, "bytes/s"),
        ):
            yield f"{name} = {_value(_amount(value, unit))}"
        if old.note:
            yield f"note = {_value(old.note)}"
    for price in device.prices:
        yield from ("", "[[price]]", f"amount = {_value(f'{price.amount!r} {price.currency}/h')}")
        for name in ("provider", "what", "date", "note"):
            if text := getattr(price, name):
                yield f"{name} = {_value(text)}"
        if price.source in keys:
            yield f"source = {_value(keys[price.source])}"
    if device.calibration is not None:
        yield from _record(device.calibration)


def _figure(figure: Figure, keys: Mapping[str, str]) -> str:
    parts = {"value": _amount(figure.value, figure.unit)}
    if figure.source in keys:
        parts["source"] = keys[figure.source]
    elif figure.source != OWN:
        figure_note = f"{figure.note}; {figure.source}" if figure.note else figure.source
        return _inline({**parts, "note": figure_note})
    if figure.note:
        parts["note"] = figure.note
    return _inline(parts) if len(parts) > 1 else _value(parts["value"])


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
    for name in ("source", "hardware", "base"):
        if text := getattr(record, name):
            yield f"{name} = {_value(text)}"
    if record.seconds is not None:
        yield f"seconds = {_value(_seconds(record.seconds))}"
    for name in ("spread", "busy"):
        if (share := getattr(record, name)) is not None:
            yield f"{name} = {_share(share)}"
    if record.forced:
        yield "forced = true"
    for name in ("fitted", "on_bound"):
        yield f"{name} = {_value(list(getattr(record, name)))}"
    yield from _list("notes", map(_value, record.notes))
    yield "# Medians of |predicted / measured - 1|: before the fit, after it, on shapes left out."
    yield from _list(
        "errors",
        (
            _inline(
                {"kind": each.kind, "points": each.points}
                | _shares(before=each.before, in_sample=each.in_sample, held_out=each.held_out)
            )
            for each in record.errors
        ),
    )
    yield from _list(
        "points",
        (
            _inline(
                {"kind": each.kind, "what": each.what, "part": each.part, "dtype": each.dtype}
                | _shares(spread=each.spread)
                | {"seconds": _seconds(each.seconds), "predicted": _seconds(each.predicted)}
                | ({} if each.held_out is None else {"held_out": _seconds(each.held_out)})
            )
            for each in record.points
        ),
    )
    if record.versions:
        yield from ("", "[calibration.versions]")
        yield from (f"{_key(name)} = {_value(text)}" for name, text in record.versions.items())


def _list(name: str, texts: Iterable[str]) -> Iterator[str]:
    """Yield a list with a line for each entry; nothing if there are none."""
    lines = list(texts)
    if lines:
        yield from (f"{name} = [", *(f"  {line}," for line in lines), "]")


def _seconds(value: float) -> str:
    factor, unit = next(
        (each for each in ((1.0, "s"), (1e-3, "ms")) if value >= each[0]), (1e-6, "us")
    )
    return f"{value / factor:.5g} {unit}"


def _share(value: float) -> str:
    return repr(float(f"{value:.3g}"))


def _shares(**values: float | None) -> dict[str, Any]:
    return {name: float(_share(value)) for name, value in values.items() if value is not None}


def _inline(parts: Mapping[str, Any]) -> str:
    return "{ " + ", ".join(f"{name} = {_value(value)}" for name, value in parts.items()) + " }"


def _key(name: str) -> str:
    """Return a key as TOML has it, in quotes unless it is a plain word."""
    plain = name.replace("_", "").replace("-", "")
    return name if plain.isascii() and plain.isalnum() else _value(name)


def _value(value: Any) -> str:
    """Return a text, a number or a list of them in TOML."""
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    if not isinstance(value, str):
        return repr(value)
    # Strings of JSON are strings of TOML, which also refuses a delete character as it is.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
