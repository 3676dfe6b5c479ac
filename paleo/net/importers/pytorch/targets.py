"""Finds what `python:package.module:attribute` names.

The attribute is a module, or a function or class that makes one when it is called without
arguments. Only what such a target names is ever imported, with the current directory on the
import path.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from paleo.core.errors import NetSpecError, near
from paleo.net.importers.base import PYTHON
from paleo.net.importers.pytorch.running import guarded


def parts(target: str) -> tuple[str, str]:
    """Return the Python module and the attribute that a target names; raises NetSpecError."""
    path, separator, attribute = target[len(PYTHON) :].rpartition(":")
    if not (separator and path and attribute):
        raise NetSpecError(f"{target}: expected python:package.module:attribute")
    return path, attribute


def find(target: str) -> tuple[str, Any]:
    """Return what to call the module that a target names, and the module; raises NetSpecError."""
    path, attribute = parts(target)
    found = _find(target, path, attribute)
    module = _module(target, found)
    name = attribute.rpartition(".")[2]
    if found is module and not name.isidentifier():
        name = type(module).__name__
    return name, module


@contextlib.contextmanager
def import_path() -> Iterator[None]:
    """Have the current directory on the import path for a while."""
    here = str(Path.cwd())
    sys.path.insert(0, here)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(here)


def _find(target: str, path: str, attribute: str) -> Any:
    """Return what a target names."""

    def load() -> Any:
        try:
            return importlib.import_module(path)
        except ModuleNotFoundError as error:
            if error.name and (path == error.name or path.startswith(f"{error.name}.")):
                raise NetSpecError(f"{target}: there is no Python module {error.name!r}") from None
            raise

    if not all(part.isidentifier() for part in path.split(".")):
        raise NetSpecError(f"{target}: {path!r} is no name of a Python module")
    thing = guarded(target, f"importing {path}", load)
    at = path
    for part in attribute.split("."):
        found = guarded(target, f"reading {at}.{part}", partial(getattr, thing, part, _MISSING))
        if found is _MISSING:
            hint = near(part, [name for name in dir(thing) if not name.startswith("_")])
            raise NetSpecError(f"{target}: {at} has no attribute {part!r}{hint}")
        thing, at = found, f"{at}.{part}"
    return thing


_MISSING = object()


def _module(target: str, found: Any) -> Any:
    """Return the module that a target is, or that it makes."""
    from paleo.net.importers.pytorch.export import construct

    torch = importlib.import_module("torch")
    if isinstance(found, torch.nn.Module):
        return found
    if not callable(found):
        raise NetSpecError(
            f"{target}: expected a torch.nn.Module or what makes one, got {type(found).__name__}"
        )
    needed = _needed(found)
    if needed:
        raise NetSpecError(
            f"{target}: it needs arguments ({', '.join(needed)}); name a function without any"
        )
    made = guarded(target, "making it", lambda: construct(found))
    if not isinstance(made, torch.nn.Module):
        raise NetSpecError(
            f"{target}: it returns {type(made).__name__}, which is no torch.nn.Module"
        )
    return made


def _needed(function: Any) -> list[str]:
    """Return the arguments that a function cannot be called without."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.default is p.empty and p.kind not in variable]
