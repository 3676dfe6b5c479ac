"""Attributes of values as dictionaries, as JSON and the rows of tables have them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

_E = TypeVar("_E")
_V = TypeVar("_V")
#: What is at the low and at the high end of an error band; None for an end that is not known.
Ends = tuple[_E | None, _E | None]


def attributes(value: Any, *names: str, unit: str = "") -> dict[str, Any]:
    """Return these attributes of a value by their names, with the `unit` behind; None of None.

    Several things are a list, and what has a `to_dict` is what that says.
    """
    keys = {name: f"{name}_{unit}" if unit else name for name in names}
    if value is None:
        return dict.fromkeys(keys.values())
    return {key: _plain(getattr(value, name)) for name, key in keys.items()}


def at_ends(ends: Ends[_E], value: Callable[[_E], _V]) -> Ends[_V]:
    """Return a value of what is at each end."""
    low, high = ends
    return None if low is None else value(low), None if high is None else value(high)


def with_ends(
    values: Mapping[str, Any],
    ends_of_times: Ends[Mapping[str, Any]],
    *,
    times: Iterable[str],
    rates: Iterable[str] = (),
) -> dict[str, Any]:
    """Return values with NAME_low and NAME_high behind each of these that has an error band.

    `ends_of_times` are the values where all times are at the low end of their band, and at the high
    end. A rate is low where times are high.
    """
    least, most = ends_of_times
    ends = dict.fromkeys(times, (least, most)) | dict.fromkeys(rates, (most, least))
    found: dict[str, Any] = {}
    for key, value in values.items():
        found[key] = value
        if value is None or key not in ends:
            continue
        for name, end in zip(("low", "high"), ends[key], strict=True):
            found[f"{key}_{name}"] = None if end is None else end[key]
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    if isinstance(value, Mapping):
        return dict(value)
    return value.to_dict() if hasattr(value, "to_dict") else value
