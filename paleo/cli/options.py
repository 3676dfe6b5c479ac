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
from paleo.report import FORMATS, Table, to_json, to_markdown, to_separated, to_text
from paleo.values import number

__all__ = [
    "DEVICE",
    "NET",
    "NETWORK",
    "Names",
    "Output",
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


class _Input(click.ParamType):  # type: ignore[type-arg]
    """A shape, with or without the name of the input: 1x3x224x224, data=1x3x224x224."""

    name = "[NAME=]SHAPE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str | None, tuple[int, ...]]:
        if isinstance(value, tuple):
            return value
        name, equals, shape = value.rpartition("=")
        sizes = shape.lower().replace(",", "x").split("x")
        if (equals and not name) or not all(map(_is_number, sizes)):
            self.fail("expected a shape such as 1x3x224x224 or data=1x3x224x224", param, ctx)
        return name or None, tuple(map(int, sizes))


class _Dimension(click.ParamType):  # type: ignore[type-arg]
    """The size of a dimension that a file leaves open: sequence=128."""

    name = "NAME=SIZE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        if isinstance(value, tuple):
            return value
        name, _, size = value.rpartition("=")
        if not name or not _is_number(size):
            self.fail("expected a name and a size, such as sequence=128", param, ctx)
        return name, int(size)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 20


#: Which importers look at an option, and what is wrong where none of them is asked.
_LOOKED_AT = {
    "inputs": (("caffe", "onnx", "pytorch"), "--input: none of the nets is of another framework"),
    "dims": (("onnx",), "--dim: none of the nets is an ONNX file"),
    "phase": (("caffe", "pytorch"), "--phase: none of the nets is a prototxt or PyTorch module"),
    "unknown": (
        ("caffe", "onnx", "pytorch"),
        "--unknown: none of the nets is of another framework",
    ),
}


def _check_use(importers: set[str | None]) -> None:
    """Raise SettingError for options that nobody would look at."""
    mistakes = Mistakes()
    for option, (own, message) in _LOOKED_AT.items():
        source = click.get_current_context().get_parameter_source(option)
        if source is not ParameterSource.DEFAULT and not importers.intersection(own):
            mistakes.add(message)
    mistakes.raise_as(SettingError)


def import_options(function: _F) -> _F:
    """Add the options for files of other frameworks, passed to the command as `importing`."""

    @click.option(
        "--input",
        "inputs",
        type=_Input(),
        multiple=True,
        help="Shape of an input of a prototxt, ONNX file or PyTorch module, as the framework "
        "writes it, where it does not say. May be repeated, with names.",
    )
    @click.option(
        "--dim",
        "dims",
        type=_Dimension(),
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
    def command(
        inputs: tuple[Any, ...], dims: tuple[Any, ...], phase: str, unknown: str, **kwargs: Any
    ) -> Any:
        nets = kwargs["nets"] if "nets" in kwargs else (kwargs["net"],)
        _check_use({importer_of(net) for net in nets})
        return function(importing=ImportOptions(inputs, dict(dims), phase, unknown), **kwargs)

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
