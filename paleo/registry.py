"""Named things that a user can choose: refuses duplicates, suggests near names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from paleo.errors import UnknownNameError, near

__all__ = ["Registry", "unknown"]

_T = TypeVar("_T")


def unknown(kind: str, name: object, names: list[str], hint: str = "") -> UnknownNameError:
    """Return the error for a `name` that is not among `names` of this `kind`."""
    guess = near(str(name), names)
    known = guess or f" (there are: {', '.join(sorted(names))})"
    return UnknownNameError(f"unknown {kind} {str(name)!r}{known}{hint}")


class Registry(Generic[_T], Mapping[str, _T]):
    """A mapping from exact names to things of one kind.

    `kind` is the word for them in messages, such as "cost model".
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._things: dict[str, _T] = {}

    def add(self, name: str, thing: _T) -> None:
        """Register `thing`; raises ValueError if the name is taken."""
        if name in self._things:
            raise ValueError(f"there is a {self.kind} {name!r} already")
        self._things[name] = thing

    def __getitem__(self, name: str) -> _T:
        try:
            return self._things[name]
        except (KeyError, TypeError):
            raise unknown(self.kind, name, list(self._things)) from None

    # Mapping's own versions expect KeyError from __getitem__.
    def __contains__(self, name: object) -> bool:
        return name in self._things

    def __iter__(self) -> Iterator[str]:
        return iter(self._things)

    def __len__(self) -> int:
        return len(self._things)
