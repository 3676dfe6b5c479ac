"""The settings of the tab of inference: those of `paleo infer`, under names of their own.

They begin with `infer_`, because steps of training have some of the same names. On what is served,
and how many devices there are, is what the page shows elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from paleo.core.checks import number, shown
from paleo.core.errors import Mistake, PaleoError, SettingError
from paleo.core.registry import unknown
from paleo.step.declarations import Setting, declared
from paleo.studies.serving.settings import DTYPE, InferSettings
from paleo.web import predefined

#: Settings, each with what was given for it, where that is not the default.
Given = tuple[tuple[str, Any], ...]

_PREFIX = "infer_"
#: What the page has elsewhere, and what a request must not name: files.
_ELSEWHERE = (
    *("cluster", "device", "network", "cost_model", "workers", "batch_size", "framework"),
    *("price", "prices", "prompts", "power"),
)
#: No text is longer.
_MOST_CHARACTERS = 200


def _declared() -> dict[str, Setting]:
    """Return the settings by their names; of types there is one at a time, which is chosen."""
    found = declared(InferSettings) | {"dtype": replace(DTYPE, name="dtype", metavar="")}
    return {name: setting for name, setting in found.items() if name not in _ELSEWHERE}


#: The settings by the keys of the page.
SERVED = {f"{_PREFIX}{name}": setting for name, setting in _declared().items()}


def served_values(given: Given) -> dict[str, Any]:
    """Return all settings under the keys of the page, with the defaults of the others."""
    return {key: setting.default for key, setting in SERVED.items()} | dict(given)


def infer_settings(given: Given) -> dict[str, Any]:
    """Return what was given under the names of `paleo.infer`."""
    return {SERVED[key].name: _values(SERVED[key], value) for key, value in given}


def infer_options(given: Given) -> dict[str, Any]:
    """Return what was given under the names of the options of `paleo infer`."""
    return {SERVED[key].name: value for key, value in given}


def read_given(values: Mapping[str, Any], check: Callable[..., Any]) -> Given:
    """Return what these values, texts of a query or of JSON, say of them.

    `check(key, function, *arguments)` returns what it returns, or None with its mistakes noted.
    """
    found = []
    for key, setting in SERVED.items():
        value = values.get(key)
        if value is None or value == "" or value == setting.default:
            continue
        read = check(key, _read, setting, value)
        if read is not None and read != setting.default:
            found.append((key, read))
    return tuple(found)


def _read(setting: Setting, value: Any) -> Any:
    """Return a value as it is kept: a number, a text, a yes or no; raises a PaleoError."""
    if setting.type is bool:
        known = {"true": True, "false": False}
        found = known.get(value, value) if isinstance(value, str) else value
        if not isinstance(found, bool):
            raise SettingError(f"expected true or false, got {shown(value)}")
        return found
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number and not isinstance(value, str):
        raise SettingError(f"expected a text, got {shown(value)}")
    if isinstance(value, str) and len(value) > _MOST_CHARACTERS:
        raise SettingError(f"longer than {_MOST_CHARACTERS} characters")
    if setting.name == "draft" and value not in predefined.net_names():  # never a file
        raise unknown("net", str(value), list(predefined.net_names()))
    if isinstance(value, str):
        value = value.strip()
        if setting.type in (int, float) and not _is_listed(setting):
            value = number(value)
    elif setting.type in (str, object) or _is_listed(setting):
        value = shown(value)
    try:
        setting.check(_values(setting, value))
    except PaleoError as error:
        name = f"{setting.name}: "
        said = [Mistake(str(each).removeprefix(name)) for each in error.mistakes]
        raise SettingError(said) from None
    return value


def _is_listed(setting: Setting) -> bool:
    return setting.metavar.endswith(",...")


def _values(setting: Setting, value: Any) -> Any:
    """Return a value as the API takes it: of several, a list of numbers."""
    return list(map(number, value.split(","))) if _is_listed(setting) else value
