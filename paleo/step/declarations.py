"""What there is to know of one setting, and the checks that many have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from paleo.core.checks import check_choice, listed
from paleo.core.errors import results_of
from paleo.core.frozen import dataclass
from paleo.core.registry import Registry


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


def described(things: Registry[Any]) -> str:
    """Return a line on each of Paleo's own: those of other packages are looked up when used."""
    return "; ".join(f"{name} ({things[name].summary})" for name in things.built_in) + "."


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
    #: Whether a file of one's own stands for a value, too.
    may_be_file: bool = False
    #: The key in its TypedDict, and the type of one value, `object` if that may be a number or a
    #: text; `declared` fills both in.
    name: str = ""
    type: type = str

    def with_default(self, default: Any, **changes: Any) -> Setting:
        """Return the setting as it is where another default holds."""
        check = self._check_given if default is None else self.check
        return replace(self, default=default, check=check, **changes)

    def _check_given(self, value: Any) -> Any:
        return None if value is None else self.check(value)
