"""The options that pick operator tables and served points to validate with."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import click

from paleo.cli.options import names_option, say_no_effect, several
from paleo.measure.validate import Selection

_F = TypeVar("_F", bound=Callable[..., Any])

#: The options: what a Selection calls each, and what they are in the help.
_SELECTED = {
    "system": ("systems", "systems, of --operators."),
    "operator": ("operators", "operators, of --operators."),
    "dtype": ("dtypes", "element types, of --operators."),
    "framework": ("frameworks", "frameworks, of --operators.  [default: sglang]"),
    "framework_version": (
        "versions",
        "versions of the framework, of --operators.  [default: the newest]",
    ),
}


def operator_options(function: _F) -> _F:
    """Add --operators, what it selects, passed to the command as a `selection`, and --served."""

    @click.option(
        "--operators",
        metavar="PLACE",
        type=click.Path(),
        help="Measured operators instead of files: a folder with Parquet files in the layout of "
        "aiconfigurator-core, one such file, or the name of an installed package that has them.",
    )
    @several(
        names_option(name, help=f"Take only these {said}") for name, (_, said) in _SELECTED.items()
    )
    @click.option(
        "--served",
        metavar="PLACE",
        type=click.Path(),
        help="Measured servers instead of files: a table in the layout of aiconfigurator-core's "
        "silicon_sample.csv, or an installed package that has it. All of it takes some minutes.",
    )
    @functools.wraps(function)
    def command(operators: str | None, **kwargs: Any) -> Any:
        if operators is None:
            say_no_effect("--operators", *_SELECTED)
        chosen: dict[str, Any] = {
            name: tuple(kwargs.pop(key) or ()) for key, (name, _) in _SELECTED.items()
        }
        return function(operators=operators, selection=Selection(**chosen), **kwargs)

    return command  # type: ignore[return-value]
