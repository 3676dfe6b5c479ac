"""What the keys of a net-spec may hold: each kind parses a JSON value and has a schema.

A layer declares its keys once, as class attributes made by `key`; the reader of net files,
the JSON Schema and the documentation all follow from that declaration.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from paleo.errors import near
from paleo.values import MAX_SIZE, shown, whole

__all__ = [
    "FilterShape",
    "Ignored",
    "Key",
    "Kind",
    "Name",
    "PaddingKind",
    "Probability",
    "Sizes",
    "Whole",
    "Window",
    "key",
]


class Kind(ABC):
    """A kind of value: how to read it from JSON, and its JSON Schema."""

    @abstractmethod
    def parse(self, value: Any) -> Any:
        """Return the value as the layer holds it; raises ValueError saying what is expected."""

    @property
    @abstractmethod
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the values that `parse` takes."""


class Key:
    """One key of a layer: its kind, what it is for, and its default, if it has one.

    `written_default` is the default as a file would have it, `default` as the layer holds it.
    """

    def __init__(self, kind: Kind, doc: str, written_default: Any) -> None:
        self.kind = kind
        self.doc = doc
        self.written_default = written_default
        self.default = None if self.required else kind.parse(written_default)

    @property
    def required(self) -> bool:
        """Whether a net file must give it."""
        return self.written_default is _MISSING


_MISSING = object()


def key(kind: Kind, doc: str, default: Any = _MISSING) -> Any:
    """Declare a key of a layer; required if it has no default (given as in a file)."""
    return Key(kind, doc, default)


def _whole_schema(minimum: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": minimum, "maximum": MAX_SIZE}


def _listed(value: Any, expected: str, length: int | None = None) -> list[Any]:
    if not isinstance(value, list) or (length is not None and len(value) != length):
        raise ValueError(f"expected {expected}, got {shown(value)}")
    return value


class Whole(Kind):
    """A whole number of at least `minimum`; null too, if `optional`."""

    def __init__(self, minimum: int = 1, optional: bool = False) -> None:
        self.minimum = minimum
        self.optional = optional

    def parse(self, value: Any) -> int | None:
        return None if value is None and self.optional else whole(value, self.minimum)

    @property
    def schema(self) -> dict[str, Any]:
        schema = _whole_schema(self.minimum)
        return schema | {"type": ["integer", "null"]} if self.optional else schema


class Sizes(Kind):
    """A tensor's shape, such as [N, H, W, C]; -1 is taken at the positions in `derived`."""

    def __init__(
        self, rank: int | None = None, min_rank: int = 2, derived: tuple[int, ...] = ()
    ) -> None:
        self.rank = rank
        self.min_rank = min_rank
        self.derived = derived

    def parse(self, value: Any) -> tuple[int, ...]:
        expected = f"a list of {self.rank or f'{self.min_rank} or more'} whole numbers"
        entries = _listed(value, expected, self.rank)
        if not self.min_rank <= len(entries) <= 8:
            raise ValueError(f"expected {expected} (8 at most), got {shown(value)}")
        derived = {position % len(entries) for position in self.derived}
        return tuple(
            -1 if i in derived and entry == -1 else whole(entry) for i, entry in enumerate(entries)
        )

    @property
    def schema(self) -> dict[str, Any]:
        items: dict[str, Any] = _whole_schema(1)
        if self.derived:
            items = {"anyOf": [items, {"const": -1}]}
        low, high = (self.rank, self.rank) if self.rank else (self.min_rank, 8)
        return {"type": "array", "items": items, "minItems": low, "maxItems": high}


class FilterShape(Kind):
    """A filter [R, S, channels, channels]; -1 at the positions in `derived`."""

    def __init__(self, letters: str, derived: tuple[int, ...]) -> None:
        self.letters = letters
        self.derived = derived

    def parse(self, value: Any) -> tuple[int, ...]:
        entries = _listed(value, f"[{self.letters}]", 4)
        return tuple(
            -1 if i in self.derived and entry == -1 else whole(entry)
            for i, entry in enumerate(entries)
        )

    @property
    def schema(self) -> dict[str, Any]:
        size: dict[str, Any] = _whole_schema(1)
        prefix = [{"anyOf": [size, {"const": -1}]} if i in self.derived else size for i in range(4)]
        return {"type": "array", "prefixItems": prefix, "minItems": 4, "maxItems": 4}


class Window(Kind):
    """[1, height, width, 1], of a window or of strides; held as (height, width)."""

    def parse(self, value: Any) -> tuple[int, int]:
        one, height, width, last = _listed(value, "[1, height, width, 1]", 4)
        if whole(one) != 1 or whole(last) != 1:
            raise ValueError(
                f"expected [1, height, width, 1] (whole in batch and channels), got {shown(value)}"
            )
        return whole(height), whole(width)

    @property
    def schema(self) -> dict[str, Any]:
        prefix = [{"const": 1}, _whole_schema(1), _whole_schema(1), {"const": 1}]
        return {"type": "array", "prefixItems": prefix, "minItems": 4, "maxItems": 4}


class PaddingKind(Kind):
    """One of "VALID", "SAME", [p_h, p_w] and [[top, bottom], [left, right]].

    Numbers are held as (before, after) of each dimension.
    """

    def parse(self, value: Any) -> str | tuple[tuple[int, int], ...]:
        expected = '"VALID", "SAME", [p_h, p_w] or [[top, bottom], [left, right]]'
        if isinstance(value, str):
            if value not in ("VALID", "SAME"):
                raise ValueError(f"expected {expected}, got {shown(value)}")
            return value
        entries = _listed(value, expected, 2)
        if any(isinstance(entry, list) for entry in entries):
            pairs = [_listed(entry, "[before, after]", 2) for entry in entries]
        else:
            pairs = [[entry, entry] for entry in entries]
        return tuple((whole(before, 0), whole(after, 0)) for before, after in pairs)

    @property
    def schema(self) -> dict[str, Any]:
        def two(items: dict[str, Any]) -> dict[str, Any]:
            return {"type": "array", "items": items, "minItems": 2, "maxItems": 2}

        sizes = _whole_schema(0)
        return {"anyOf": [{"enum": ["VALID", "SAME"]}, two(sizes), two(two(sizes))]}


class Name(Kind):
    """A name: one of `choices`, or any if there are none; null if `optional`."""

    def __init__(self, choices: Sequence[str] = (), optional: bool = False) -> None:
        self.choices = choices
        self.optional = optional

    def parse(self, value: Any) -> str | None:
        if value is None and self.optional:
            return None
        if not isinstance(value, str) or not value:
            raise ValueError(f"expected a name{' or null' * self.optional}, got {shown(value)}")
        if self.choices and value not in self.choices:
            guess = near(value, self.choices)
            raise ValueError(f"unknown {shown(value)}{guess}; there are: {', '.join(self.choices)}")
        return value

    @property
    def schema(self) -> dict[str, Any]:
        if self.choices:
            return {"enum": [*self.choices, *([None] * self.optional)]}
        return {"type": ["string", "null"] if self.optional else "string", "minLength": 1}


class Probability(Kind):
    """A number above 0, up to 1."""

    def parse(self, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"expected a number above 0, up to 1, got {shown(value)}")
        if not 0 < value <= 1:
            raise ValueError(f"expected a number above 0, up to 1, got {shown(value)}")
        return value

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "number", "exclusiveMinimum": 0, "maximum": 1}


class Flag(Kind):
    """true or false."""

    def parse(self, value: Any) -> bool:
        if not isinstance(value, bool):
            raise ValueError(f"expected true or false, got {shown(value)}")
        return value

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


class Ignored(Kind):
    """A list of whole numbers, true, false or null, that changes nothing."""

    def parse(self, value: Any) -> None:
        if value is None or isinstance(value, bool):
            return
        for entry in _listed(value, "a list such as [K]"):
            whole(entry)

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": ["array", "boolean", "null"], "items": _whole_schema(1)}
