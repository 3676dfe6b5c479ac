"""The JSON of a net file, decoded."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from paleo.core.errors import Mistake, NetSpecError

_MAX_DIGITS = 30


class Body(dict[str, Any]):
    """A JSON object that remembers which of its keys came twice."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.repeated: list[str] = []
        if len(self) < len(pairs):
            counts = Counter(name for name, _ in pairs)
            self.repeated = [name for name, count in counts.items() if count > 1]

    def like(self, values: Mapping[str, Any]) -> Body:
        """Return an object of other values."""
        return Body(list(values.items()))

    def with_values(self, **values: Any) -> Body:
        """Return this object with other values for some of its names."""
        return Body(list({**self, **values}.items()))


def _whole_number(digits: str) -> int:
    """Return a number of a file; one of very many digits as another that is too large."""
    return int(digits) if len(digits) <= _MAX_DIGITS else 10**_MAX_DIGITS


def decode(text: str | bytes, file: str | None) -> Body:
    """Return the JSON object that a text is; raises NetSpecError if it is none."""
    try:
        value = json.loads(
            (text if isinstance(text, str) else text.decode("utf-8")).lstrip("\ufeff"),
            object_pairs_hook=Body,
            parse_int=_whole_number,
        )
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise NetSpecError(Mistake(f"not JSON: {error.msg} at {place}", file)) from None
    except UnicodeDecodeError:
        raise NetSpecError(Mistake("not JSON: not text in UTF-8", file)) from None
    except RecursionError:
        raise NetSpecError(Mistake("not a net: nested too deeply", file)) from None
    if not isinstance(value, Body):
        message = "not a net: expected a JSON object with name and layers"
        raise NetSpecError(Mistake(message, file))
    return value
