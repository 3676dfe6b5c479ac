"""Attributes of values as dictionaries, as JSON and the rows of tables have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def attributes(value: Any, *names: str, unit: str = "") -> dict[str, Any]:
    """Return these attributes of a value by their names, with the `unit` behind; None of None.

    Several things are a list, and what has a `to_dict` is what that says.
    """
    keys = {name: f"{name}_{unit}" if unit else name for name in names}
    if value is None:
        return dict.fromkeys(keys.values())
    return {key: _plain(getattr(value, name)) for name, key in keys.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    if isinstance(value, Mapping):
        return dict(value)
    return value.to_dict() if hasattr(value, "to_dict") else value
