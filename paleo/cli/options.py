"""Options and output that commands share."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from paleo.errors import Mistakes, SettingError
from paleo.importers import PHASES, UNKNOWN, ImportOptions, importer_of
from paleo.importers.options import LOOKED_AT, not_looked_at, parse_dim, parse_input
from paleo.report import FORMATS, Table, to_json, to_markdown, to_separated, to_text
from paleo.values import number

__all__ = [
    "DEVICE",
    "NET",
    "NETWORK",
    "Names",
    "Output",
    "Parsed",
    "cite",
    "device_option",
    "import_options",
    "is_verbose",
    "message_options",
    "network_option",
    "number",
    "numbers",
    "output_options",
    "terminal_width",
    "verbose",
]

_F = TypeVar("_F", bound=Callable[..., Any])

_SEPARATORS = {"tab": "\t", "comma": ",", "semicolon": ";", "space": " ", "pipe": "|", "\\t": "\t"}


class Output:
    """How the user wants the result: `write` prints it so."""

    def __init__(self, output_format: str | None, separator: str | None) -> None:
        if separator is not None:
            separator = _SEPARATORS.get(separator, separator)
            if len(separator) != 1 or separator.isalnum() or separator in '"\r\n.+-_':
                raise click.UsageError(
                    "--separator: expected one character, or one of tab, comma, semicolon, "
                    "space, pipe"
                )
            if output_format not in (None, "csv"):
                raise click.UsageError(f"--separator does not go with --format {output_format}")
        self.format = output_format or ("table" if separator is None else "csv")
        self.separator = separator or {"tsv": "\t", "csv": ","}.get(self.format, "")

    def write(self, tables: Sequence[Table], values: Callable[[], Any]) -> None:
        """Print tables, or `values()` as JSON.

        The notes of tables go to standard error where the format has no place for them.
        """
        if self.format == "json":
            text = to_json(values())
        elif self.format == "markdown":
            text = to_markdown(tables)
        elif self.separator:
            text = to_separated(tables, self.separator)
            for note in dict.fromkeys(note for table in tables for note in table.notes):
                click.echo(f"paleo: note: {note}", err=True)
        else:
            text = to_text(tables, terminal_width())
        sys.stdout.write(text)


def terminal_width() -> int | None:
    """Return the columns of the terminal, None if the output is no terminal."""
    if not sys.stdout.isatty():
        return None
    import shutil  # here, because it takes as long to import as a simulation

    return shutil.get_terminal_size().columns


def output_options(function: _F) -> _F:
    """Add the options of output, passed to the command as one `output`."""

    @click.option(
        "--format",
        "output_format",
        type=click.Choice(FORMATS),
        help="How to print the result: for people (table, the default; markdown) or for "
        "programs (tsv, csv, json: SI units, unrounded).",
    )
    @click.option(
        "--separator",
        metavar="CHARACTER",
        help="Print separated values, with this between them: a character, or tab, comma, "
        "semicolon, space, pipe.",
    )
    @message_options
    @functools.wraps(function)
    def command(output_format: str | None, separator: str | None, **kwargs: Any) -> Any:
        return function(output=Output(output_format, separator), **kwargs)

    return command  # type: ignore[return-value]


def message_options(function: _F) -> _F:
    """Add the options that say what else is printed on standard error."""
    verbose = click.option(
        "--verbose",
        is_flag=True,
        expose_value=False,
        callback=_set_verbose,
        is_eager=True,
        help="Say on standard error what is read and used.",
    )
    debug = click.option(
        "--debug", is_flag=True, expose_value=False, help="Show the traceback of an error."
    )
    return verbose(debug(function))


def _set_verbose(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        ctx.obj = True


def is_verbose() -> bool:
    """Tell whether --verbose was given."""
    return bool(click.get_current_context().obj)


def verbose(message: str) -> None:
    """Print a line on standard error if --verbose was given."""
    if is_verbose():
        click.echo(f"paleo: {message}", err=True)


def _device_names() -> list[str]:
    from paleo.hardware import device_names

    return device_names()


def _network_names() -> list[str]:
    from paleo.hardware import network_names

    return network_names()


def _net_names() -> list[str]:
    from paleo.load import net_names

    return net_names()


class Names(click.ParamType):  # type: ignore[type-arg]
    """Names separated by commas: the last of them is completed, from these or from a list."""

    name = "names"

    def __init__(self, names: Iterable[str] | Callable[[], list[str]]) -> None:
        self.names = names if callable(names) else lambda: list(names)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[str]:
        if isinstance(value, list):
            return value
        return [entry.strip() for entry in value.split(",")] if value.strip() else []

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[Any]:
        from click.shell_completion import CompletionItem

        before, comma, last = incomplete.rpartition(",")
        return [
            CompletionItem(before + comma + name)
            for name in self.names()
            if name.lower().startswith(last.lower())
        ]


def numbers(entries: Iterable[str]) -> list[Any]:
    """Return the entries of a list as numbers; what is none is the API's to refuse."""
    return [number(entry) for entry in entries]


class _Name(click.ParamType):  # type: ignore[type-arg]
    """A name or a file: completed as either."""

    name = "name or file"

    def __init__(self, names: Callable[[], list[str]]) -> None:
        self.names = names

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[Any]:
        from click.shell_completion import CompletionItem

        found = [
            CompletionItem(name)
            for name in self.names()
            if name.lower().startswith(incomplete.lower())
        ]
        return [*found, CompletionItem(incomplete, type="file")]


NET = _Name(_net_names)

DEVICE = _Name(_device_names)
NETWORK = _Name(_network_names)

device_option = click.option(
    "--device_name",
    "--device",
    default="TITAN_X",
    show_default=True,
    type=DEVICE,
    help="Device: a name of `paleo devices`, or a TOML file of your own.",
)
network_option = click.option(
    "--network_name",
    "--network",
    default="ethernet",
    show_default=True,
    type=NETWORK,
    help="Network: a name of `paleo networks`, or a TOML file of your own.",
)


class Parsed(click.ParamType):  # type: ignore[type-arg]
    """A text that a function reads, or raises ValueError."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self.parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _check_use(importers: set[str | None]) -> None:
    """Raise SettingError for options that nobody would look at."""
    mistakes = Mistakes()
    for option in LOOKED_AT:
        source = click.get_current_context().get_parameter_source(option)
        if source is not ParameterSource.DEFAULT and (what := not_looked_at(option, importers)):
            mistakes.add(f"--{option}: none of the nets is {what}")
    mistakes.raise_as(SettingError)


def import_options(function: _F) -> _F:
    """Add the options for files of other frameworks, passed to the command as `importing`."""

    @click.option(
        "--input",
        type=Parsed("[NAME=]SHAPE", parse_input),
        multiple=True,
        help="Shape of an input of a prototxt, ONNX file or PyTorch module, as the framework "
        "writes it, where it does not say. May be repeated, with names.",
    )
    @click.option(
        "--dim",
        type=Parsed("NAME=SIZE", parse_dim),
        multiple=True,
        help="Size of a dimension that an ONNX file leaves open. May be repeated.",
    )
    @click.option(
        "--phase",
        type=click.Choice(PHASES),
        default="train",
        show_default=True,
        help="Which layers of a prototxt to take; the mode of a PyTorch module.",
    )
    @click.option(
        "--unknown",
        type=click.Choice(UNKNOWN),
        default="error",
        show_default=True,
        help="What to do about operators of an imported net that are not understood: stop, or "
        "count them as nothing and say so.",
    )
    @functools.wraps(function)
    def command(**kwargs: Any) -> Any:
        given = {name: kwargs.pop(name) for name in LOOKED_AT}
        nets = kwargs["nets"] if "nets" in kwargs else (kwargs["net"],)
        _check_use({importer_of(net) for net in nets})
        dims = dict(given["dim"])
        importing = ImportOptions(given["input"], dims, given["phase"], given["unknown"])
        return function(importing=importing, **kwargs)

    return command  # type: ignore[return-value]


def cite(
    rows: Sequence[dict[str, Any]], sources: Sequence[Sequence[str]]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the rows, each with the numbers of its sources as "cited", and the sources."""
    numbers: dict[str, int] = {}
    cited = []
    for row, texts in zip(rows, sources, strict=True):
        own = [numbers.setdefault(text, len(numbers) + 1) for text in texts]
        cited.append({**row, "cited": " ".join(f"[{number}]" for number in sorted(own))})
    return cited, [f"[{number}] {text}" for text, number in numbers.items()]
