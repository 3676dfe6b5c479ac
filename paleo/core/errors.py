"""The one family of errors: what is wrong, where, and what would be right.

A file can hold many mistakes; they are collected in `Mistakes` and raised together as
one `PaleoError`, so that a user mends them in one go.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, TypeVar, cast

from paleo.core.frozen import dataclass


def printable(text: object) -> str:
    """Return `text` with control characters escaped, so that it stays on one line."""
    string = str(text)
    if string.isprintable():
        return string
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in string)


def near(name: str, names: Iterable[str]) -> str:
    """Return " (did you mean ...?)" if `name` resembles one of `names`, else ""."""
    import difflib

    by_lower = {known.lower(): known for known in names}
    matches = difflib.get_close_matches(str(name).lower(), by_lower, n=1, cutoff=0.6)
    return f" (did you mean {by_lower[matches[0]]!r}?)" if matches else ""


def near_or_known(name: str, names: Collection[str]) -> str:
    """Return `near(name, names)`, or "; there are: ..." with all of `names`."""
    return near(name, names) or f"; there are: {', '.join(names)}"


@dataclass(frozen=True)
class Mistake:
    """One mistake: a message, and the file, layer and key it is about where there is one."""

    message: str
    file: str | None = None
    layer: str | None = None
    key: str | None = None

    def __str__(self) -> str:
        where = [self.file] if self.file else []
        if self.layer is not None:
            where.append(f'layer "{self.layer}"')
        if self.key is not None:
            where.append(f'key "{self.key}"')
        return printable(": ".join([*where, self.message]))


class PaleoError(Exception):
    """A mistake, or several of one file, in what Paleo was given."""

    def __init__(self, mistakes: str | Mistake | Iterable[Mistake]) -> None:
        if isinstance(mistakes, str):
            mistakes = Mistake(mistakes)
        if isinstance(mistakes, Mistake):
            mistakes = (mistakes,)
        self.mistakes: tuple[Mistake, ...] = tuple(mistakes)
        super().__init__("\n".join(map(str, self.mistakes)))


class NetSpecError(PaleoError):
    """A net-spec that cannot be read, or whose layers do not fit together."""


class HardwareError(PaleoError):
    """A device or network file that cannot be read, or that lacks a figure asked for."""


class MeasurementError(PaleoError):
    """A file of measurements that cannot be read."""


class TraceError(PaleoError):
    """A trace of requests that cannot be read."""


class UnknownNameError(PaleoError):
    """A name that no registry knows."""


class SettingError(PaleoError):
    """A setting (batch size, workers, percent of peak, ...) outside its range."""


class PluginError(PaleoError):
    """What another package adds and cannot be used, or clashes with what is there."""


class ExecutorError(PaleoError):
    """Something that an executor cannot build, or has no memory for."""


_T = TypeVar("_T")
_V = TypeVar("_V")
_E = TypeVar("_E", bound=PaleoError)


#: After so many mistakes, near names are no longer looked for.
_HINTS = 50


class Mistakes:
    """Collects mistakes, to be raised together."""

    def __init__(self, file: str | None = None) -> None:
        self.file = file
        self.found: list[Mistake] = []
        self._kinds: set[type[PaleoError]] = set()

    def __bool__(self) -> bool:
        return bool(self.found)

    def add(self, message: str, layer: str | None = None, key: str | None = None) -> None:
        """Note one mistake in this file."""
        self._kinds.add(PaleoError)
        self.found.append(Mistake(message, self.file, layer, key))

    def say_once(self, first: int) -> None:
        """Leave out what was noted twice of those from the `first` on, by its index."""
        if len(self.found) > first + 1:
            self.found[first:] = dict.fromkeys(self.found[first:])

    def near(self, name: str, names: Iterable[str]) -> str:
        """Return `near(name, names)`, or "" once there are many mistakes: it takes its time."""
        return near(name, names) if len(self.found) < _HINTS else ""

    def include(self, error: PaleoError) -> None:
        """Note the mistakes of an error that was caught, if they are new."""
        self._kinds.add(type(error))
        known = set(self.found)
        self.found += [each for each in dict.fromkeys(error.mistakes) if each not in known]

    def check(self, function: Callable[..., _T], *arguments: Any) -> _T | None:
        """Return `function(*arguments)`; None, with its mistakes noted, if it raises any."""
        try:
            return function(*arguments)
        except PaleoError as error:
            self.include(error)
            return None

    def check_all(self, function: Callable[[_V], _T | None], values: Iterable[_V]) -> list[_T]:
        """Return what `function` returns for values, but for those whose mistakes are noted."""
        results = [self.check(function, value) for value in values]
        return [result for result in results if result is not None]

    def raise_as(self, error: type[_E], most: int | None = None) -> None:
        """Raise all mistakes as one `error`, or as what all of them were caught as.

        Behind the first `most` stands how many others there are. Do nothing if there are none.
        """
        if not self.found:
            return
        caught = next(iter(self._kinds)) if len(self._kinds) == 1 else error
        said = self.found[:most]
        if others := len(self.found) - len(said):
            plural = "s" * (others != 1)
            said.append(Mistake(f"and {others} other mistake{plural}", self.file))
        raise (caught if issubclass(caught, error) else error)(said)


def results_of(function: Callable[[_V], _T], values: Iterable[_V]) -> list[_T]:
    """Return what `function` returns for values; raises one PaleoError with all mistakes."""
    mistakes = Mistakes()
    results = [mistakes.check(function, value) for value in values]
    mistakes.raise_as(PaleoError)
    return cast(list[_T], results)
