"""What other packages add, through entry points.

A package names a thing of its own in a group such as `paleo.collectives`; it need not import
Paleo to be found. Which there are is looked up when a name is not one of Paleo's or when names are
listed, and a package is imported when a thing of it is used: `importlib.metadata` takes as long to
import as a small simulation takes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from paleo.core.errors import PluginError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def entry_points(kind: str, group: str, taken: Collection[str]) -> Mapping[str, EntryPoint]:
    """Return what other packages add to a group, by name, nothing of it imported yet.

    `kind` is the word for one such thing, `taken` has the names of Paleo's own. Raises PluginError
    if two have one name.
    """
    from importlib import metadata

    entries: dict[str, EntryPoint] = {}
    for entry in metadata.entry_points(group=group):
        if entry.name in taken:
            raise PluginError(
                f"{distribution(entry)} adds a {kind} {entry.name!r}, which Paleo has already: "
                "uninstall it, or rename what it adds"
            )
        if entry.name in entries:
            both = sorted((distribution(entries[entry.name]), distribution(entry)))
            raise PluginError(
                f"{' and '.join(both)} both add a {kind} {entry.name!r}: uninstall one of them"
            )
        entries[entry.name] = entry
    return entries


def distribution(entry: EntryPoint) -> str:
    """Return the package that an entry point is of, with its version."""
    if entry.dist is None:
        return f"an unknown package ({entry.value})"
    return f"{entry.dist.name} {entry.dist.version}"


def load(entry: EntryPoint, kind: str) -> Any:
    """Return what an entry point names; raises PluginError, whatever goes wrong on the way."""
    try:
        return entry.load()
    except Exception as error:  # a package of somebody else's may raise anything
        raise broken(entry, kind, f"{type(error).__name__}: {error}") from error


def broken(entry: EntryPoint, kind: str, why: str) -> PluginError:
    """Return the error for what an entry point names but does not give."""
    return PluginError(
        f"{distribution(entry)}: its {kind} {entry.name!r} ({entry.value}) cannot be used: {why}"
    )
