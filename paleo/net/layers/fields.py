"""What the keys of a net-spec may hold: each kind parses a JSON value and has a schema.

A layer declares its keys once, as class attributes made by `key`; the reader of net files,
the JSON Schema and the documentation all follow from that declaration.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, TypeAlias

from paleo.core.checks import MAX_SIZE, is_number, is_whole, shown, whole_number
from paleo.core.errors import near
from paleo.net.dims import EXPRESSION, MAX_LENGTH

#: A JSON Schema.
Schema: TypeAlias = dict[str, Any]


class Kind(ABC):
    """A kind of value: how to read it from JSON, and its JSON Schema."""

    @abstractmethod
    def parse(self, value: Any) -> Any:
        """Return the value as the layer holds it; raises ValueError saying what is expected."""

    def evaluated(self, value: Any, evaluate: Callable[[str], int]) -> Any:
        """Return a file's value with numbers in the place of expressions, if it is of numbers."""
        return value

    def written(self, value: Any) -> Any:
        """Return what `parse` turns into this value, as in a file."""
        return list(value) if isinstance(value, tuple) else value

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """The JSON Schema of the values that `parse` takes."""


class Numbers(Kind):
    """A kind of lists of whole numbers, for each of which an expression may stand."""

    def evaluated(self, value: Any, evaluate: Callable[[str], int]) -> Any:
        if not isinstance(value, list):
            return value
        return [
            evaluate(entry) if isinstance(entry, str) else self.evaluated(entry, evaluate)
            for entry in value
        ]


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


def key(kind: Kind, doc: str, *, default: Any = _MISSING) -> Any:
    """Declare a key of a layer; required if it has no default (given as in a file)."""
    return Key(kind, doc, default)


def _whole_schema(minimum: int) -> Schema:
    """Return the schema of a whole number, or of an expression in its place."""
    expression = {"pattern": EXPRESSION, "maxLength": MAX_LENGTH}
    bounds = {"minimum": minimum, "maximum": MAX_SIZE}
    return {"type": ["integer", "string"], **bounds, **expression}


def _array_schema(items: Any, least: int, most: int | None = None, **more: Any) -> Schema:
    bounds = {"minItems": least} if most is None else {"minItems": least, "maxItems": most}
    return {"type": "array", "items": items, **bounds, **more}


def _listed(value: Any, expected: str, least: int = 0, most: float = math.inf) -> list[Any]:
    if not isinstance(value, list) or not least <= len(value) <= most:
        raise ValueError(f"expected {expected}, got {shown(value)}")
    return value


def _spatial(value: Any, expected: str, place: str) -> list[Any]:
    """Return a list of two numbers and, between or before them, 1 to 3 spatial ones."""
    entries = _listed(value, expected)
    if not 3 <= len(entries) <= _MAX_SPATIAL + 2:
        raise ValueError(f"expected {expected}, or 1 or 3 sizes {place}; got {shown(value)}")
    return entries


def _sizes(entries: list[Any], derived: Collection[int]) -> tuple[int, ...]:
    """Return sizes, of which those at the positions in `derived`, from 0 on, may be -1."""
    return tuple(
        -1 if i in derived and is_whole(entry) and entry == -1 else whole_number(entry)
        for i, entry in enumerate(entries)
    )


def _pairs(entries: list[Any]) -> tuple[tuple[int, int], ...]:
    pairs = [_listed(entry, "[before, after]", 2, 2) for entry in entries]
    return tuple((whole_number(before, 0), whole_number(after, 0)) for before, after in pairs)


_PAIR = _array_schema(_whole_schema(0), 2, 2)


class Whole(Kind):
    """A whole number of at least `minimum`; null too, if `optional`."""

    def __init__(self, minimum: int = 1, optional: bool = False) -> None:
        self.minimum = minimum
        self.optional = optional

    def evaluated(self, value: Any, evaluate: Callable[[str], int]) -> Any:
        return evaluate(value) if isinstance(value, str) else value

    def parse(self, value: Any) -> int | None:
        return None if value is None and self.optional else whole_number(value, self.minimum)

    @property
    def schema(self) -> Schema:
        schema = _whole_schema(self.minimum)
        return schema | {"type": ["integer", "string", "null"]} if self.optional else schema


class Sizes(Numbers):
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
        return _sizes(entries, {position % len(entries) for position in self.derived})

    @property
    def schema(self) -> Schema:
        items: Schema = _whole_schema(1)
        if self.derived:
            items = {"anyOf": [items, {"const": -1}]}
        schema = _array_schema(items, self.min_rank, 8)
        return schema | {"type": ["array", "null"]} if self.optional else schema


#: The most spatial dimensions that a window has.
_MAX_SPATIAL = 3


def _each_rank(prefix: Callable[[int], list[Any]]) -> Schema:
    """Return a schema of lists whose entries follow from the number of spatial dimensions."""
    choices = []
    for rank in range(1, _MAX_SPATIAL + 1):
        items = prefix(rank)
        choices.append({"prefixItems": items, "minItems": len(items), "maxItems": len(items)})
    return {"type": "array", "anyOf": choices}


class FilterShape(Numbers):
    """A filter [R, S, channels, channels], or with 1 or 3 spatial sizes.

    -1 is taken at the positions in `derived`, counted from the end.
    """

    def __init__(self, letters: str, derived: tuple[int, ...]) -> None:
        self.letters = letters
        self.derived = derived

    def parse(self, value: Any) -> tuple[int, ...]:
        entries = _spatial(value, f"[{self.letters}]", "in the place of R, S")
        return _sizes(entries, {position % len(entries) for position in self.derived})

    @property
    def schema(self) -> Schema:
        size: Schema = _whole_schema(1)
        either = {"anyOf": [size, {"const": -1}]}
        ends = [either if position in self.derived else size for position in (-2, -1)]
        return _each_rank(lambda rank: [size] * rank + ends)


_ONE: Schema = {"const": 1}


class Window(Numbers):
    """[1, height, width, 1], of a window or of strides; held as (height, width).

    With 1 or 3 spatial dimensions there are so many numbers between the ones.
    """

    schema: ClassVar[Schema] = _each_rank(lambda rank: [_ONE, *[_whole_schema(1)] * rank, _ONE])

    def parse(self, value: Any) -> tuple[int, ...]:
        one, *sizes, last = _spatial(value, "[1, height, width, 1]", "between the ones")
        if whole_number(one) != 1 or whole_number(last) != 1:
            raise ValueError(
                f"expected [1, height, width, 1] (whole in batch and channels), got {shown(value)}"
            )
        return tuple(map(whole_number, sizes))

    def written(self, value: Any) -> Any:
        return [1, *value, 1]


class PaddingKind(Numbers):
    """One of "VALID", "SAME", [p_h, p_w] and [[top, bottom], [left, right]].

    Numbers are held as (before, after) of each dimension, of which there are 1 to 3.
    """

    def parse(self, value: Any) -> str | tuple[tuple[int, int], ...]:
        expected = '"VALID", "SAME", [p_h, p_w] or [[top, bottom], [left, right]]'
        if isinstance(value, str):
            if value not in ("VALID", "SAME"):
                raise ValueError(f"expected {expected}, got {shown(value)}")
            return value
        entries = _listed(value, expected, 1, _MAX_SPATIAL)
        if not any(isinstance(entry, list) for entry in entries):
            entries = [[entry, entry] for entry in entries]
        return _pairs(entries)

    def written(self, value: Any) -> Any:
        if isinstance(value, str):
            return value
        if all(before == after for before, after in value):
            return [before for before, _ in value]
        return [list(pair) for pair in value]

    @property
    def schema(self) -> Schema:
        either = (_whole_schema(0), _PAIR)
        lists = [_array_schema(items, 1, _MAX_SPATIAL) for items in either]
        return {"anyOf": [{"enum": ["VALID", "SAME"]}, *lists]}


#: Tensors have 8 dimensions at most, numbered from 0, the batch.
_MAX_DIMENSION = 7


class Dimension(Kind):
    """A dimension of the input but the batch: 1, 2, ... or -1, the last; null if `optional`."""

    def __init__(self, optional: bool = False) -> None:
        self.optional = optional

    def parse(self, value: Any) -> int | None:
        if (value is None and self.optional) or (type(value) is int and value == -1):
            return value
        number = whole_number(value)
        if number > _MAX_DIMENSION:
            raise ValueError(f"expected 1 to {_MAX_DIMENSION}, or -1, got {shown(value)}")
        return number

    @property
    def schema(self) -> Schema:
        choices = [-1, *range(1, _MAX_DIMENSION + 1), *([None] * self.optional)]
        return {"enum": choices}


class Dimensions(Kind):
    """A list of different dimensions of the input, without the batch: 1, 2, ..."""

    schema: ClassVar[Schema] = _array_schema(
        {"type": "integer", "minimum": 1, "maximum": _MAX_DIMENSION}, 1, uniqueItems=True
    )

    def parse(self, value: Any) -> tuple[int, ...]:
        entries = tuple(map(whole_number, _listed(value, "a list of dimensions, such as [1, 2]")))
        if not entries or len(set(entries)) < len(entries) or max(entries) > _MAX_DIMENSION:
            raise ValueError(
                f"expected different dimensions from 1 to {_MAX_DIMENSION}, got {shown(value)}"
            )
        return entries


class Permutation(Kind):
    """The order of dimensions, such as [0, 2, 1]; the batch, 0, stays first."""

    schema: ClassVar[Schema] = _array_schema(
        {"type": "integer", "minimum": 0, "maximum": _MAX_DIMENSION}, 2, uniqueItems=True
    )

    def parse(self, value: Any) -> tuple[int, ...]:
        expected = "an order of dimensions in which 0 is first, such as [0, 2, 1]"
        entries = [whole_number(entry, 0) for entry in _listed(value, expected)]
        if len(entries) < 2 or entries[0] != 0 or sorted(entries) != list(range(len(entries))):
            raise ValueError(f"expected {expected}, got {shown(value)}")
        return tuple(entries)


class Margins(Numbers):
    """[before, after] of each dimension but the batch."""

    schema: ClassVar[Schema] = _array_schema(_PAIR, 1, _MAX_DIMENSION)

    def parse(self, value: Any) -> tuple[tuple[int, int], ...]:
        return _pairs(_listed(value, "a list of [before, after]", 1, _MAX_DIMENSION))

    def written(self, value: Any) -> Any:
        return [list(pair) for pair in value]


class Name(Kind):
    """A name: one of `choices`, or any if there are none.

    `aliases` are other spellings of choices.
    """

    def __init__(
        self, choices: Collection[str] = (), aliases: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self.choices = tuple(choices)
        self.aliases = aliases

    def parse(self, value: Any) -> str:
        if not isinstance(value, str) or not value:
            raise ValueError(f"expected a name, got {shown(value)}")
        name = self.aliases.get(value, value)
        if self.choices and name not in self.choices:
            raise _unknown(value, self.choices)
        return name

    @property
    def schema(self) -> Schema:
        if self.choices:
            return {"enum": [*self.choices, *self.aliases]}
        return {"type": "string", "minLength": 1}


def _unknown(value: str, choices: Sequence[str]) -> ValueError:
    guess = near(value, choices)
    return ValueError(f"unknown {shown(value)}{guess}; there are: {', '.join(choices)}")


class Spelling(Kind):
    """A word for one of `meanings`, in any case, with or without _ and the like; null too.

    What it means is looked up with `meaning`; the value stays as it is spelt.
    """

    schema: ClassVar[Schema] = {"type": ["string", "null"], "minLength": 1}

    def __init__(self, meanings: Mapping[str, Any]) -> None:
        self.names = tuple(meanings)
        self._meanings = {_plain(name): meaning for name, meaning in meanings.items()}

    def parse(self, value: Any) -> str | None:
        if value is not None and (not isinstance(value, str) or not value):
            raise ValueError(f"expected a name or null, got {shown(value)}")
        if value and _plain(value) not in self._meanings:
            raise _unknown(value, self.names)
        return value

    def meaning(self, value: str | None) -> Any:
        """Return what a word that `parse` has taken means, None for none."""
        return value and self._meanings[_plain(value)]


def _plain(name: str) -> str:
    return "".join(filter(str.isalnum, name.casefold()))


class Probability(Kind):
    """A number above 0, up to 1."""

    schema: ClassVar[Schema] = {"type": "number", "exclusiveMinimum": 0, "maximum": 1}

    def parse(self, value: Any) -> float:
        if not is_number(value) or not 0 < value <= 1:
            raise ValueError(f"expected a number above 0, up to 1, got {shown(value)}")
        return value


class Flag(Kind):
    """true or false; null too, if `optional`."""

    def __init__(self, optional: bool = False) -> None:
        self.optional = optional

    def parse(self, value: Any) -> bool | None:
        if isinstance(value, bool) or (value is None and self.optional):
            return value
        raise ValueError(f"expected true or false{' or null' * self.optional}, got {shown(value)}")

    @property
    def schema(self) -> Schema:
        return {"type": ["boolean", "null"] if self.optional else "boolean"}


class Ignored(Numbers):
    """A list of whole numbers, true, false or null, that changes nothing."""

    schema: ClassVar[Schema] = {
        "type": ["array", "boolean", "null"],
        "items": _whole_schema(1),
    }

    def parse(self, value: Any) -> None:
        if value is None or isinstance(value, bool):
            return
        for entry in _listed(value, "a list such as [K]"):
            whole_number(entry)
