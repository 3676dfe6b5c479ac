"""Reading a configuration: values by key, other spellings, defaults, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paleo.core.checks import is_number, shown, whole_number
from paleo.core.errors import Mistakes

#: The key that says which architecture a file is of.
MODEL_TYPE = "model_type"
_MISSING: Any = object()


class Config:
    """The values of one configuration, or of one inside of another.

    `defaults` are the values of transformers for keys that a file may leave out; `spellings` the
    other names that a key has, a dotted one for a key of an inner object. What is wrong is noted in
    `mistakes`, and a value that fits returned in its place, so that a file's mistakes are said
    together. `place` is the dotted path of an inner configuration. With `unknown` "zero", what is
    not understood costs nothing.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        mistakes: Mistakes,
        defaults: Mapping[str, Any] | None = None,
        spellings: Mapping[str, Sequence[str]] | None = None,
        place: str = "",
        unknown: str = "error",
    ) -> None:
        self.values = values
        self.mistakes = mistakes
        self.defaults = defaults or {}
        self.spellings = spellings or {}
        self.place = place
        self.unknown = unknown
        #: Sizes that the file does not say, with what was taken; filled while it is read.
        self.assumed: dict[str, Any] = {}

    def wrong(self, key: str, message: str) -> None:
        """Note a mistake of a key, once."""
        before = self.mistakes.found[:]
        self.mistakes.add(message, key=self.path(key))
        if self.mistakes.found[-1] in before:
            self.mistakes.found.pop()

    def path(self, key: str) -> str:
        """Return how messages name a key: as the file spells it, below what it is in."""
        usual = key if key in self.defaults else next(iter(self.spellings.get(key, ())), key)
        spelled = next((name for name, _ in self._said(key)), usual)
        return f"{self.place}.{spelled}" if self.place else spelled

    def _said(self, key: str) -> list[tuple[str, Any]]:
        """Return the names under which the file has a key, and its values: null if that is all."""
        found = []
        for name in (key, *self.spellings.get(key, ())):
            *outer, last = name.split(".")
            body: Any = self.values
            for part in outer:
                body = body.get(part) if isinstance(body, Mapping) else None
            if isinstance(body, Mapping) and last in body:
                found.append((name, body[last]))
        return [one for one in found if one[1] is not None] or found[:1]

    def get(self, key: str, default: Any = None) -> Any:
        """Return what the file says of a key, else the default of its family, else that given."""
        said = self._said(key)
        if not said:
            return self.defaults.get(key, default)
        (_, value), *others = said
        for name, other in others:
            if other != value:
                self.wrong(key, f"{shown(value)} contradicts {shown(other)} of key {shown(name)}")
        return value

    def has(self, key: str) -> bool:
        """Tell whether the file itself says a key."""
        return bool(self._said(key))

    def _checked(self, key: str, check: Callable[[Any], Any], instead: Any) -> Any:
        value = self.get(key, _MISSING)
        if value is _MISSING:
            self.wrong(key, "missing")
            return instead
        try:
            return check(value)
        except ValueError as error:
            self.wrong(key, str(error))
            return instead

    def whole(self, key: str, minimum: int = 1) -> int:
        """Return a whole number of at least `minimum`; one that is missing or wrong is noted."""
        found: int = self._checked(key, lambda value: whole_number(value, minimum), minimum)
        if not self.has(key):
            self.assumed.setdefault(key, found)
        return found

    def optional(self, key: str, minimum: int = 1) -> int | None:
        """Return a whole number, None where nothing is said or the default is none."""
        return None if self.get(key) is None else self.whole(key, minimum)

    def number(self, key: str) -> float:
        """Return a number of a key."""

        def check(value: Any) -> float:
            if not is_number(value):
                raise ValueError(f"expected a number, got {shown(value)}")
            return float(value)

        found: float = self._checked(key, check, 1.0)
        return found

    def flag(self, key: str) -> bool:
        """Return true or false; false where nothing is said."""

        def check(value: Any) -> bool:
            if not isinstance(value, bool):
                raise ValueError(f"expected true or false, got {shown(value)}")
            return value

        found: bool = self._checked(key, check, False) if self.get(key) is not None else False
        return found

    def text(self, key: str) -> str:
        """Return a text of a key."""

        def check(value: Any) -> str:
            if not isinstance(value, str):
                raise ValueError(f"expected a text, got {shown(value)}")
            return value

        found: str = self._checked(key, check, "")
        return found

    def listed(self, key: str, count: int) -> list[Any] | None:
        """Return the list of a key, with one entry for each of `count` layers; None if not said."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != count:
            got = f"{len(value)}" if isinstance(value, list) else shown(value)
            self.wrong(key, f"expected one entry for each of {count} layers, got {got}")
            return None
        return value

    def divided(self, key: str, by: str) -> int:
        """Return a size divided by another, which must leave no remainder."""
        size, parts = self.whole(key), self.whole(by)
        if size % parts:
            self.wrong(key, f"{size} cannot be divided among {parts} of key {shown(self.path(by))}")
            return max(1, size // parts)
        return size // parts

    def with_values(self, **values: Any) -> Config:
        """Return this configuration with other values for some keys."""
        return Config(
            {**self.values, **values}, self.mistakes, self.defaults, self.spellings, self.place,
            self.unknown,
        )  # fmt: skip

    def inner(
        self,
        key: str,
        defaults: Mapping[str, Any],
        spellings: Mapping[str, Sequence[str]] | None = None,
    ) -> Config:
        """Return the configuration that a key holds, with defaults of its own."""
        values = self.get(key, {})
        if not isinstance(values, Mapping):
            self.wrong(key, f"expected an object, got {shown(values)}")
            values = {}
        return Config(values, self.mistakes, defaults, spellings, self.path(key), self.unknown)
