"""What the keys of a net-spec may hold: each kind parses a JSON value and has a schema.

A layer declares its keys once, as class attributes made by `key`; the reader of net files,
the JSON Schema and the documentation all follow from that declaration.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from paleo.errors import near
from paleo.values import MAX_SIZE, shown, whole

__all__ = [
    "Dimension",
    "Dimensions",
    "FilterShape",
    "Ignored",
    "Key",
    "Kind",
    "Margins",
    "Name",
    "PaddingKind",
    "Permutation",
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

    def written(self, value: Any) -> Any:
        """Return what `parse` turns into this value, as in a file."""
        return list(value) if isinstance(value, tuple) else value

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
        self, min_rank: int = 2, derived: tuple[int, ...] = (), optional: bool = False
    ) -> None:
        self.min_rank = min_rank
        self.derived = derived
        self.optional = optional

    def parse(self, value: Any) -> tuple[int, ...] | None:
        if value is None and self.optional:
            return None
        expected = f"a list of {self.min_rank} or more whole numbers"
        entries = _listed(value, expected)
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
        kind: Any = ["array", "null"] if self.optional else "array"
        return {"type": kind, "items": items, "minItems": self.min_rank, "maxItems": 8}


#: The most spatial dimensions that a window has.
_MAX_SPATIAL = 3


def _each_rank(prefix: Callable[[int], list[Any]]) -> dict[str, Any]:
    """Return a schema of lists whose entries follow from the number of spatial dimensions."""
    choices = []
    for rank in range(1, _MAX_SPATIAL + 1):
        items = prefix(rank)
        choices.append({"prefixItems": items, "minItems": len(items), "maxItems": len(items)})
    return {"type": "array", "anyOf": choices}


class FilterShape(Kind):
    """A filter [R, S, channels, channels], or with 1 or 3 spatial sizes.

    -1 is taken at the positions in `derived`, counted from the end.
    """

    def __init__(self, letters: str, derived: tuple[int, ...]) -> None:
        self.letters = letters
        self.derived = derived

    def parse(self, value: Any) -> tuple[int, ...]:
        entries = _listed(value, f"[{self.letters}]")
        if not 3 <= len(entries) <= _MAX_SPATIAL + 2:
            raise ValueError(
                f"expected [{self.letters}], or 1 or 3 sizes in the place of R, S; "
                f"got {shown(value)}"
            )
        return tuple(
            -1 if i - len(entries) in self.derived and entry == -1 else whole(entry)
            for i, entry in enumerate(entries)
        )

    @property
    def schema(self) -> dict[str, Any]:
        size: dict[str, Any] = _whole_schema(1)
        either = {"anyOf": [size, {"const": -1}]}
        ends = [either if position in self.derived else size for position in (-2, -1)]
        return _each_rank(lambda rank: [size] * rank + ends)


class Window(Kind):
    """[1, height, width, 1], of a window or of strides; held as (height, width).

    With 1 or 3 spatial dimensions there are so many numbers between the ones.
    """

    def parse(self, value: Any) -> tuple[int, ...]:
        entries = _listed(value, "[1, height, width, 1]")
        if not 3 <= len(entries) <= _MAX_SPATIAL + 2:
            raise ValueError(
                "expected [1, height, width, 1], or 1 or 3 sizes between the ones; "
                f"got {shown(value)}"
            )
        one, *sizes, last = entries
        if whole(one) != 1 or whole(last) != 1:
            raise ValueError(
                f"expected [1, height, width, 1] (whole in batch and channels), got {shown(value)}"
            )
        return tuple(map(whole, sizes))

    def written(self, value: Any) -> Any:
        return [1, *value, 1]

    @property
    def schema(self) -> dict[str, Any]:
        one = {"const": 1}
        return _each_rank(lambda rank: [one, *[_whole_schema(1)] * rank, one])


class PaddingKind(Kind):
    """One of "VALID", "SAME", [p_h, p_w] and [[top, bottom], [left, right]].

    Numbers are held as (before, after) of each dimension, of which there are 1 to 3.
    """

    def parse(self, value: Any) -> str | tuple[tuple[int, int], ...]:
        expected = '"VALID", "SAME", [p_h, p_w] or [[top, bottom], [left, right]]'
        if isinstance(value, str):
            if value not in ("VALID", "SAME"):
                raise ValueError(f"expected {expected}, got {shown(value)}")
            return value
        entries = _listed(value, expected)
        if not 1 <= len(entries) <= _MAX_SPATIAL:
            raise ValueError(f"expected {expected}, got {shown(value)}")
        if any(isinstance(entry, list) for entry in entries):
            pairs = [_listed(entry, "[before, after]", 2) for entry in entries]
        else:
            pairs = [[entry, entry] for entry in entries]
        return tuple((whole(before, 0), whole(after, 0)) for before, after in pairs)

    def written(self, value: Any) -> Any:
        if isinstance(value, str):
            return value
        if all(before == after for before, after in value):
            return [before for before, _ in value]
        return [list(pair) for pair in value]

    @property
    def schema(self) -> dict[str, Any]:
        def some(items: dict[str, Any]) -> dict[str, Any]:
            return {"type": "array", "items": items, "minItems": 1, "maxItems": _MAX_SPATIAL}

        sizes = _whole_schema(0)
        pair = {"type": "array", "items": sizes, "minItems": 2, "maxItems": 2}
        return {"anyOf": [{"enum": ["VALID", "SAME"]}, some(sizes), some(pair)]}


#: Tensors have 8 dimensions at most, numbered from 0, the batch.
_MAX_DIMENSION = 7


class Dimension(Kind):
    """A dimension of the input but the batch: 1, 2, ... or -1, the last; null if `optional`."""

    def __init__(self, optional: bool = False) -> None:
        self.optional = optional

    def parse(self, value: Any) -> int | None:
        if (value is None and self.optional) or (type(value) is int and value == -1):
            return value
        number = whole(value)
        if number > _MAX_DIMENSION:
            raise ValueError(f"expected 1 to {_MAX_DIMENSION}, or -1, got {shown(value)}")
        return number

    @property
    def schema(self) -> dict[str, Any]:
        choices = [-1, *range(1, _MAX_DIMENSION + 1), *([None] * self.optional)]
        return {"enum": choices}


class Dimensions(Kind):
    """A list of different dimensions of the input, without the batch: 1, 2, ..."""

    def parse(self, value: Any) -> tuple[int, ...]:
        entries = tuple(map(whole, _listed(value, "a list of dimensions, such as [1, 2]")))
        if not entries or len(set(entries)) < len(entries) or max(entries) > _MAX_DIMENSION:
            raise ValueError(
                f"expected different dimensions from 1 to {_MAX_DIMENSION}, got {shown(value)}"
            )
        return entries

    @property
    def schema(self) -> dict[str, Any]:
        return {
            "type": "array",
            "items": {"type": "integer", "minimum": 1, "maximum": _MAX_DIMENSION},
            "minItems": 1,
            "uniqueItems": True,
        }


class Permutation(Kind):
    """The order of dimensions, such as [0, 2, 1]; the batch, 0, stays first."""

    def parse(self, value: Any) -> tuple[int, ...]:
        expected = "an order of dimensions in which 0 is first, such as [0, 2, 1]"
        entries = [whole(entry, 0) for entry in _listed(value, expected)]
        if len(entries) < 2 or entries[0] != 0 or sorted(entries) != list(range(len(entries))):
            raise ValueError(f"expected {expected}, got {shown(value)}")
        return tuple(entries)

    @property
    def schema(self) -> dict[str, Any]:
        items = {"type": "integer", "minimum": 0, "maximum": _MAX_DIMENSION}
        return {"type": "array", "items": items, "minItems": 2, "uniqueItems": True}


class Margins(Kind):
    """[before, after] of each dimension but the batch."""

    def parse(self, value: Any) -> tuple[tuple[int, int], ...]:
        entries = _listed(value, "a list of [before, after]")
        if not 1 <= len(entries) <= _MAX_DIMENSION:
            raise ValueError(f"expected a list of [before, after], got {shown(value)}")
        pairs = [_listed(entry, "[before, after]", 2) for entry in entries]
        return tuple((whole(before, 0), whole(after, 0)) for before, after in pairs)

    def written(self, value: Any) -> Any:
        return [list(pair) for pair in value]

    @property
    def schema(self) -> dict[str, Any]:
        pair = {"type": "array", "items": _whole_schema(0), "minItems": 2, "maxItems": 2}
        return {"type": "array", "items": pair, "minItems": 1, "maxItems": _MAX_DIMENSION}


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
    """true or false; null too, if `optional`."""

    def __init__(self, optional: bool = False) -> None:
        self.optional = optional

    def parse(self, value: Any) -> bool | None:
        if isinstance(value, bool) or (value is None and self.optional):
            return value
        raise ValueError(f"expected true or false{' or null' * self.optional}, got {shown(value)}")

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": ["boolean", "null"] if self.optional else "boolean"}


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
