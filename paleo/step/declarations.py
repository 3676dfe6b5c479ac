"""How a setting is declared, found and checked: `Setting`, and the checks that many have.

The settings themselves stand in paleo.step.settings, and those of studies beside them.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

from paleo.core.checks import (
    MAX_SIZE,
    check_choice,
    is_number,
    is_whole,
    listed,
    python_int,
    shown,
)
from paleo.core.errors import Mistakes, SettingError, near, results_of
from paleo.core.frozen import dataclass
from paleo.core.quantity import Quantity, is_array, largest, smallest, whole_array

#: No share of peak is smaller; less would make times infinite.
_LEAST_SHARE = 1e-9


def choice(name: str, choices: Sequence[str]) -> Callable[[Any], Any]:
    """Return the check of a setting that is one of a few words."""
    return lambda value: check_choice(name, value, choices)


def name_in(known: Mapping[str, Any]) -> Callable[[Any], Any]:
    """Return the check of a setting that is a name of a registry."""

    def check(value: Any) -> Any:
        known[value]
        return value

    return check


def several(
    name: str, check: Callable[[Any], Any], single: Any = str
) -> Callable[[Any], tuple[Any, ...]]:
    """Return the check of a setting that is one value of this type, or several."""
    return lambda values: tuple(results_of(check, listed(name, values, single)))


def checked_share(value: Quantity, name: str) -> Quantity:
    """Return a percent of peak; raises SettingError unless it is above 0, up to 1."""
    if is_array(value) or is_number(value):
        low, high = smallest(value), largest(value)
        if low >= _LEAST_SHARE and high <= 1:  # false for NaN
            return value
        if 0 < low < _LEAST_SHARE:
            raise SettingError(f"{name}: {low} is too small to mean anything")
    raise SettingError(f"{name}: expected a number above 0, up to 1, got {shown(value)}")


def checked_jitter(jitter: Quantity, name: str = "jitter") -> Quantity:
    """Return a jitter, or an array of them; raises SettingError unless it is from 0 to 1."""
    is_known = is_array(jitter) or is_number(jitter)
    if is_known and smallest(jitter) >= 0 and largest(jitter) <= 1:  # false for NaN
        return jitter
    raise SettingError(f"{name}: expected a number from 0 to 1, got {shown(jitter)}")


def checked_workers(workers: Any, name: str = "num_workers") -> Quantity:
    """Return a worker count, or an array of them; raises SettingError."""
    if is_array(workers):
        array = whole_array(workers, MAX_SIZE)
        if array is not None:
            return array
    elif is_whole(workers) and 1 <= workers <= MAX_SIZE:
        return int(workers)
    raise SettingError(
        f"{name}: expected a whole number from 1 to {MAX_SIZE}, got {shown(workers)}"
    )


def check_count(value: Quantity, name: str) -> None:
    """Raise SettingError unless this is a number of 0 or more, or an array of them."""
    if not smallest(value) >= 0:  # false for NaN
        raise SettingError(f"{name}: expected a number of 0 or more, got {shown(value)}")


def one_number(name: str, value: Any) -> Any:
    """Return a number as Python's; raises SettingError for an array of them."""
    number = python_int(value)
    if is_array(number) and number.shape:
        raise SettingError(
            f"{name}: expected one number, got {shown(value)}; paleo.data_parallel takes arrays"
        )
    return number


def checked_number(name: str) -> Callable[[Any], Any]:
    """Return the check of a worker count under the name of its setting."""
    return lambda value: checked_workers(python_int(value), name)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What there is to know of a setting besides its type.

    `check` returns what a value stands for, or raises a PaleoError. `label` is what the page and
    the report call it. `options` are its spellings on the command line, by default its name with
    two dashes. `choices` are offered for completion, and shown where there is no `metavar`;
    `shown_default` is said of one that is None.
    """

    default: Any
    check: Callable[[Any], Any]
    help: str = ""
    label: str = ""
    options: tuple[str, ...] = ()
    choices: Callable[[], Iterable[str]] | None = None
    metavar: str = ""
    shown_default: str = ""
    #: Whether it has to be one number where arrays are not for.
    is_number: bool = False
    #: Whether the help goes on with a word on each of the choices, which are a registry's.
    describes: bool = False
    #: Whether a file of one's own stands for a value, too.
    may_be_file: bool = False
    #: The key in its TypedDict, and the type of one value, `object` if that may be a number or a
    #: text; `declared` fills both in.
    name: str = ""
    type: type = str

    @property
    def whole_help(self) -> str:
        """The help, with what there is to choose: Paleo's own, which are imported for it."""
        if not self.describes or not self.choices:
            return self.help
        things: Any = self.choices()
        each = "; ".join(f"{name} ({things[name].summary})" for name in things.built_in)
        return f"{self.help} {each}."

    def with_default(self, default: Any, **changes: Any) -> Setting:
        """Return the setting as it is where another default holds."""
        check = self._check_given if default is None else self.check
        return replace(self, default=default, check=check, **changes)

    def _check_given(self, value: Any) -> Any:
        return None if value is None else self.check(value)


def found_setting(setting: Setting, value: Any, arrays: bool = False) -> Any:
    """Return what a value of a setting stands for; raises a PaleoError."""
    return setting.check(
        one_number(setting.name, value) if setting.is_number and not arrays else value
    )


@functools.cache
def found_default(setting: Setting) -> Any:
    """Return what the default of a setting stands for: files of Paleo's own are read once."""
    return setting.check(setting.default)


def listing(name: str, setting: Setting, text: str = "") -> Setting:
    """Return a setting of which there may be several values; a text is one."""
    one = functools.partial(found_setting, replace(setting, name=name))
    check = several(name, one)
    return replace(
        setting,
        check=lambda values: check(values if isinstance(values, Iterable) else (values,)),
        is_number=False,
        help=text or setting.help,
        metavar=f"{'N' if setting.is_number else setting.metavar or 'NAME'},...",
    )


@functools.cache
def declared(kind: type) -> dict[str, Setting]:
    """Return the settings of a kind, a TypedDict, by their names."""
    written: Mapping[str, tuple[str, str]] = kind.written_keys  # type: ignore[attr-defined]
    return {
        name: _setting(name, module, text)
        for name, (module, text) in written.items()
        if text.startswith("Annotated[")
    }


@functools.cache
def _setting(name: str, module: str, text: str) -> Setting:
    """Return the setting of a key whose type a module has written so."""
    scope = vars(sys.modules[module])
    written, _, named = text.removeprefix("Annotated[").removesuffix("]").rpartition(", ")
    kinds: Collection[Any] = [_PLAIN.get(each) for each in written.split(" | ")]
    if named.isidentifier() and None not in kinds:
        setting = scope[named]
    else:
        # An array is any number: its type stands in NumPy, which a start does without.
        meant = {"Annotated": _Given, "Quantity": float}
        asked, setting = eval(text, scope, meant)  # noqa: S307 (a type of ours)
        kinds = get_args(asked) or (asked,)
    first: type = next((each for each in (bool, int, float) if each in kinds), str)
    if first is not str and str in kinds:
        first = object
    found: Setting = replace(setting, name=name, type=first)
    return found


#: Types that need not be evaluated: most settings are of these.
_PLAIN = {
    "bool": bool,
    "int": int,
    "float": float,
    "str": str,
    "None": type(None),
    "Quantity": float,
}


class _Given:
    """What `Annotated` is here: `get_type_hints` takes ten times as long for a type."""

    def __class_getitem__(cls, given: tuple[Any, Any]) -> tuple[Any, Any]:
        return given


def check_names(known: Iterable[str], given: Iterable[str], mistakes: Mistakes) -> None:
    """Note every setting that is none of those known, with a near name."""
    for name in given:
        if name not in known and name != "importing":
            hint = near(name, known) or f" (there are: {', '.join(known)})"
            mistakes.include(SettingError(f"{name}: unknown setting{hint}"))
