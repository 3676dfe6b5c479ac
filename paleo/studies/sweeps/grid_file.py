"""Files of grids: TOML that says which nets, which axes and which settings.

    net = "resnet50_v1_5"
    device = "A100_SXM_80GB"
    where = "batch_size * workers <= 65536"

    [axes]
    batch_size = {from = 32, to = 1024, factor = 2}
    workers = [1, 8, 64, 512]
    network = ["ethernet", "infiniband"]

`net` is one net or several, `axes` are as `paleo.sweep` takes them; `where`, `bands` and `memory`
are those of it, and any other key is a setting that is the same everywhere. Files are named by
their paths from the grid's folder.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paleo.core.checks import shown
from paleo.core.errors import Mistake, PaleoError, SettingError
from paleo.core.files import read_bytes
from paleo.studies.sweeps.axes import NET
from paleo.studies.sweeps.grid import FILES, Grid, grid_of

#: The keys that are no settings, and of what type they are.
_OWN: Mapping[str, tuple[Any, str]] = {
    "axes": (dict, "a table"),
    "where": (str, "a text"),
    "bands": (bool, "true or false"),
    "memory": (bool, "true or false"),
}


def read_content(path: str) -> dict[str, Any]:
    """Return what a grid file says, as JSON has it; files in it have absolute paths.

    Raises PaleoError with what is wrong with the file.
    """
    import tomllib  # here: a sweep in Python has no file

    try:
        text = read_bytes(path).removeprefix(codecs.BOM_UTF8).decode()
        content = tomllib.loads(text)
        json.dumps(content)
    except OSError as error:
        raise PaleoError(Mistake(f"cannot be read: {error.strerror or error}", path)) from None
    except tomllib.TOMLDecodeError as error:
        raise PaleoError(Mistake(f"not TOML: {error}", path)) from None
    except RecursionError:
        raise PaleoError(Mistake("not TOML: nested too deep", path)) from None
    except UnicodeDecodeError:
        raise PaleoError(Mistake("not TOML: not all of it is text in UTF-8", path)) from None
    except (TypeError, ValueError):
        raise PaleoError(Mistake("expected numbers and texts, got a date", path)) from None
    folder = Path(path).absolute().parent
    named = {name: _absolute(folder, content[name]) for name in FILES if name in content}
    axes = content.get("axes", {})
    if isinstance(axes, dict):
        own = {name: _absolute(folder, axes[name]) for name in FILES if name in axes}
        named["axes"] = {**axes, **own}
    return {**content, **named}


def grid_of_content(content: Mapping[str, Any], path: str) -> Grid:
    """Return the grid of what a file says; raises PaleoError with every mistake, naming it."""
    try:
        return _grid(content)
    except PaleoError as error:
        raise type(error)([_in_file(mistake, path) for mistake in error.mistakes]) from None


def _in_file(mistake: Mistake, path: str) -> Mistake:
    """Return a mistake with the grid's file, unless it is of another file."""
    return mistake if mistake.file else Mistake(mistake.message, path, mistake.layer, mistake.key)


def _grid(content: Mapping[str, Any]) -> Grid:
    given = dict(content)
    own = {name: given.pop(name) for name in _OWN if name in given}
    for name, value in own.items():
        kind, said = _OWN[name]
        if not isinstance(value, kind):
            raise SettingError(f"{name}: expected {said}, got {shown(value)}")
    nets = given.pop(NET, None)
    return grid_of(nets, own.pop("axes", {}), given, **own)


def _absolute(folder: Path, value: Any) -> Any:
    """Return the names of files that are there, from a folder, as absolute paths."""
    if isinstance(value, list):
        return [_absolute(folder, each) for each in value]
    if isinstance(value, str) and value and (folder / value).is_file():
        return str(folder / value)
    return value
