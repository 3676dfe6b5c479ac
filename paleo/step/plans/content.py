"""What is in a plan file: keys and values, whichever way they are written."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from paleo.core.errors import SettingError
from paleo.core.files import read_bytes
from paleo.core.frozen import dataclass
from paleo.core.optional import extra
from paleo.step.plans.shell import has_options, options_of

#: No plan is as large: those of a framework with all its defaults have some ten thousand bytes.
_MOST = 1 << 20
#: Aliases in YAML can make a few lines millions of values.
_MOST_VALUES = 10_000
_SECTION = re.compile(r"^[ \t]*\[{1,2}[\w.\- \"']+\]{1,2}[ \t]*(#.*)?$", re.MULTILINE)
_KEY = re.compile(r"^[ \t]*(- )?[\w.\"'$/-]+[ \t]*:(\s|$)", re.MULTILINE)


@dataclass(frozen=True)
class Content:
    """What a plan file holds: values by paths such as `zero_optimization.stage`.

    `syntax` is "json", "toml", "yaml" or "shell"; of a shell script values are its options by
    their names with two dashes.
    """

    file: str
    syntax: str
    values: Mapping[str, Any]


def content_of(path: str) -> Content:
    """Return what is in a file; raises SettingError if that is no mapping in a known syntax."""
    try:
        data = read_bytes(path, _MOST)
    except IsADirectoryError:
        raise SettingError(f"{path}: a directory, not a plan file") from None
    except OSError as error:
        raise SettingError(f"{path}: {error.strerror or error}") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SettingError(f"{path}: not a plan file: not text in UTF-8") from None
    if "\0" in text:
        raise SettingError(f"{path}: not a plan file: it has bytes that no text has")
    if not text.strip():
        raise SettingError(f"{path}: the plan file is empty")
    syntax = _syntax(text)
    if not syntax:
        raise SettingError(f"{path}: not a plan file: {EXPECTED}")
    try:
        return Content(path, syntax, _READERS[syntax](path, text))
    except RecursionError:
        raise SettingError(f"{path}: not {_TITLES[syntax]}: nested too deeply") from None


def _syntax(text: str) -> str:
    """Return in which syntax a text seems to be, "" for none."""
    if text.lstrip()[0] == "{":
        return "json"
    if has_options(text):
        return "shell"
    if _SECTION.search(text):
        return "toml"
    return "yaml" if _KEY.search(text) else ""


def _json(path: str, text: str) -> dict[str, Any]:
    import json

    try:
        return _flat(path, json.loads(text))
    except json.JSONDecodeError as error:
        raise SettingError(f"{path}: not JSON: {error}") from None
    except ValueError:  # the interpreter's limit on the digits of an integer
        raise SettingError(f"{path}: a number is too large to mean anything") from None


def _toml(path: str, text: str) -> dict[str, Any]:
    import tomllib

    try:
        return _flat(path, tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise SettingError(f"{path}: not TOML: {error}") from None
    except ValueError:
        raise SettingError(f"{path}: a number is too large to mean anything") from None


def _yaml(path: str, text: str) -> dict[str, Any]:
    yaml: Any = extra("yaml", f"{path}: reading YAML", "PyYAML", of="yaml")
    try:
        root = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        said = getattr(error, "problem", None) or " ".join(str(error).split())
        raise SettingError(f"{path}: not YAML: {said}{where}") from None
    except ValueError:
        raise SettingError(f"{path}: not YAML: a value is out of range") from None
    return _flat(path, root)


def _flat(path: str, root: Any) -> dict[str, Any]:
    """Return the values of nested mappings and lists of them, by dotted paths."""
    if not isinstance(root, dict):
        raise SettingError(f"{path}: not a plan file: expected keys with values, got no mapping")
    found = {}
    for name, value in _leaves(root, ""):
        found[name] = value
        if len(found) > _MOST_VALUES:
            raise SettingError(f"{path}: more than {_MOST_VALUES:,} values: no plan has as many")
    return found


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and (value or not path):
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and any(isinstance(each, dict | list) for each in value):
        for i, inner in enumerate(value):
            yield from _leaves(inner, f"{path}.{i}")
    else:
        yield path, value


_READERS = {"json": _json, "toml": _toml, "yaml": _yaml, "shell": options_of}
_TITLES = {"json": "JSON", "toml": "TOML", "yaml": "YAML", "shell": "a shell script"}
#: What a message says of a file in which nothing is known.
EXPECTED = (
    "expected arguments of Megatron-LM (a shell line or script, or YAML), a configuration of "
    "DeepSpeed (JSON) or torchtitan (TOML), or a recipe of NeMo (YAML)"
)
