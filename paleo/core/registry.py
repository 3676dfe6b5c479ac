"""Named things that a user can choose: refuses duplicates, suggests near names."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from paleo.core.errors import PluginError, UnknownNameError, near
from paleo.core.plugins import broken, entry_points, load

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_T = TypeVar("_T")


def unknown(kind: str, name: object, names: list[str], hint: str = "") -> UnknownNameError:
    """Return the error for a `name` that is not among `names` of this `kind`."""
    guess = near(str(name), names)
    known = guess or f" (there are: {', '.join(sorted(names))})"
    return UnknownNameError(f"unknown {kind} {str(name)!r}{known}{hint}")


class Registry(Generic[_T], Mapping[str, _T]):
    """A mapping from exact names to things of one kind.

    `kind` is the word for them in messages, such as "cost model". With a `group`, other packages
    add things by entry points of that group: each names the module that registers the thing, under
    the name of the entry point.
    """

    def __init__(self, kind: str, group: str = "") -> None:
        self.kind = kind
        self.group = group
        #: The names of Paleo's own, in the order in which output shows them.
        self.built_in: tuple[str, ...] = ()
        self._things: dict[str, _T] = {}
        #: The modules of things that nobody has asked for yet, by their names.
        self._waiting: dict[str, str] = {}

    def add(self, name: str, thing: _T) -> None:
        """Register `thing`; raises ValueError if the name is taken."""
        module = self._waiting.pop(name, "")
        if module and module not in sys.modules:
            import_module(module)  # its own is the one
        if name in self._things:
            raise ValueError(f"there is a {self.kind} {name!r} already")
        self._things[name] = thing

    def discover(self, package: str, known: Mapping[str, str], others: str = "") -> None:
        """Find the modules of a package that register things.

        `known` says which module registers what, in the order of output: such a module is imported
        when something of it is asked for. `others` are modules that register nothing. Whatever
        else is in the folder, a file that somebody has added, is imported at once.
        """
        self._waiting = {name: f"{package}.{module}" for name, module in known.items()}
        (folder,) = sys.modules[package].__path__
        told = {"__init__", *known.values(), *others.split()}
        for entry in sorted(Path(folder).iterdir()):
            if entry.stem in told:
                continue
            if entry.suffix == ".py" or (not entry.suffix and (entry / "__init__.py").is_file()):
                import_module(f"{package}.{entry.stem}")
        self.built_in = tuple(dict.fromkeys([*known, *self._things]))

    @cached_property
    def _plugins(self) -> Mapping[str, EntryPoint]:
        return entry_points(self.kind, self.group, self.built_in) if self.group else {}

    def _load(self, entry: EntryPoint) -> None:
        """Import the module of an entry point, which registers what it names, or nothing."""
        before = dict(self._things)
        try:
            load(entry, self.kind)
            if entry.name not in self._things:
                raise broken(entry, self.kind, "it registers nothing of this name")
        except PluginError:
            self._things = before
            raise

    def __getitem__(self, name: str) -> _T:
        try:
            if name in self._waiting:
                import_module(self._waiting[name])
            if name not in self._things and name in self._plugins:
                self._load(self._plugins[name])
            return self._things[name]
        except (KeyError, TypeError):
            raise unknown(self.kind, name, list(self)) from None

    # Mapping's own versions expect KeyError from __getitem__.
    def __contains__(self, name: object) -> bool:
        return name in self._things or name in self._waiting or name in self._plugins

    def __iter__(self) -> Iterator[str]:
        yield from dict.fromkeys([*self.built_in, *self._things, *self._plugins])

    def __len__(self) -> int:
        return sum(1 for _ in self)
