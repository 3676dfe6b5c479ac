"""Values as they come from files: showing them in messages, reading and checking numbers."""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from typing import Any, TypeGuard, cast

from paleo.core.errors import SettingError
from paleo.core.quantity import is_array
from paleo.core.units import parse

#: No dimension, count or window may be larger: it is 2**31 - 1, as in most frameworks.
MAX_SIZE = 2**31 - 1
#: Counts of samples, elements, bytes and FLOPs above this are mistakes, and would overflow arrays.
MAX_COUNT = 2**60


def shown(value: Any) -> str:
    """Return a value as short text for a message."""
    import json

    try:
        text = json.dumps(value, ensure_ascii=False)
    except ValueError:  # an integer of thousands of digits
        return "a number of very many digits"
    except TypeError:  # no JSON: it was given in a program
        text = " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:57] + "..."


def whole_number(value: Any, minimum: int = 1) -> int:
    """Return `value` if it is a whole number from `minimum` up to MAX_SIZE, or an array of such."""
    if is_array(value) and value.ndim and value.size and value.dtype.kind == "i":
        for end in (value.min(), value.max()):
            whole_number(int(end), minimum)
        return cast(int, value)  # as other quantities that are declared as numbers
    if not is_whole(value):
        raise ValueError(f"expected a whole number, got {shown(value)}")
    if value < minimum:
        raise ValueError(f"expected {minimum} or more, got {shown(value)}")
    if value > MAX_SIZE:
        raise ValueError(f"{shown(value)} is too large to mean anything (at most {MAX_SIZE})")
    return value


def listed(name: str, values: Any, single: Any) -> list[Any]:
    """Return one value of the type `single`, or several, as a list.

    `name` is the setting that they are of. Raises SettingError if there are none.
    """
    if isinstance(values, single) or (is_array(values) and not values.shape):
        return [values]
    try:
        found = list(values)
    except TypeError:
        raise SettingError(f"{name}: expected one or several, got {shown(values)}") from None
    if not found:
        raise SettingError(f"{name}: expected one or more, got none")
    return found


def check_choice(name: str, value: Any, choices: Sequence[str]) -> Any:
    """Return the value of a setting of this name; raises SettingError if it is no choice of it."""
    if value in choices:
        return value
    raise SettingError(f"{name}: expected {' or '.join(choices)}, got {value!r}")


def is_number(value: Any) -> TypeGuard[int | float]:
    """Tell whether a value is a Python number, and no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_whole(value: Any) -> TypeGuard[int]:
    """Tell whether a value is a whole Python number, and no truth value."""
    return isinstance(value, int) and not isinstance(value, bool)


_WHOLE = r"-?[0-9]{1,40}"
_NUMBER = r"-?([0-9]{1,20}\.?|[0-9]{0,20}\.[0-9]{1,20})([eE][-+]?[0-9]{1,3})?"


def number(entry: str) -> Any:
    """Return a text as a number; one that is none as it is."""
    if re.fullmatch(_WHOLE, entry):
        return int(entry)
    return float(entry) if re.fullmatch(_NUMBER, entry) else entry


def python_int(value: Any) -> Any:
    """Return a NumPy integer as a Python one; anything else as it is, to be checked."""
    kind = value.dtype.kind if is_array(value) and not value.shape else ""
    return operator.index(value) if kind in ("i", "u") else value


def checked_bytes(value: Any, name: str) -> int:
    """Return a number of bytes, also of a text such as "4GiB"; raises SettingError."""
    number = python_int(value)
    if is_whole(number) and 0 <= number <= MAX_COUNT:
        return int(number)
    try:
        if not isinstance(number, str):
            raise ValueError(
                f"expected bytes, a whole number from 0 to {MAX_COUNT}, or a text such as "
                f'"4 GiB", got {shown(number)}'
            )
        return min(int(parse(number, "bytes")), MAX_COUNT)
    except ValueError as error:
        raise SettingError(f"{name}: {error}") from None
