"""Options and output that commands share."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from paleo.cli.printing import say, show
from paleo.core.checks import number
from paleo.net.load import net_names
from paleo.step.declarations import Setting, declared
from paleo.views.arrange import Arrangement
from paleo.views.headings import under_headings
from paleo.views.table import (
    FORMATS,
    Table,
    to_json,
    to_markdown,
    to_paragraph,
    to_separated,
    to_text,
)

_F = TypeVar("_F", bound=Callable[..., Any])

#: The columns of output that is piped, where COLUMNS does not say otherwise.
_WIDTH = 100
#: No terminal is taken to be narrower, whatever it says.
_NARROWEST = 20
#: COLUMNS of more digits say nothing.
_MOST_DIGITS = 6
_SEPARATORS = {"tab": "\t", "comma": ",", "semicolon": ";", "space": " ", "pipe": "|", "\\t": "\t"}


class Output:
    """How the user wants the result: `write` prints it so."""

    def __init__(
        self,
        output_format: str | None,
        separator: str | None,
        quiet: bool = False,
        arrangement: Arrangement = Arrangement(),  # noqa: B008 (it is frozen)
        *,
        is_ranked: bool = False,
    ) -> None:
        if separator is not None:
            separator = _SEPARATORS.get(separator, separator)
            if (
                len(separator) != 1
                or separator.isalnum()
                or separator in '".+-_'
                or not (separator.isprintable() or separator == "\t")
            ):
                raise click.UsageError(
                    "--separator: expected one character, or one of tab, comma, semicolon, "
                    "space, pipe"
                )
            if output_format not in (None, "csv"):
                raise click.UsageError(f"--separator does not go with --format {output_format}")
        self.format = output_format or ("table" if separator is None else "csv")
        self.separator = separator or {"tsv": "\t", "csv": ","}.get(self.format, "")
        self.quiet = quiet
        self.arrangement = arrangement
        if (replace(arrangement, top=None) if is_ranked else arrangement) and self.format == "json":
            names = (
                "--columns, --wide and --sort"
                if is_ranked
                else "--columns, --wide, --sort and --top"
            )
            raise click.UsageError(f"{names} are for tables, not JSON")

    @property
    def for_people(self) -> bool:
        """Whether it is a table that people read."""
        return self.format in ("table", "markdown")

    def write(
        self,
        tables: Sequence[Table],
        values: Callable[[], Any],
        answer: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        """Print `answer()`, a paragraph of sentences, and tables; or `values()` as JSON.

        Programs get no sentences. The notes of tables go to standard error where the format has no
        place for them.
        """
        if self.format == "json":
            show(to_json(values()))
            return
        tables = self.arrangement.applied(tables)
        width = self.width
        said = "" if self.quiet or not self.for_people else to_paragraph(answer(), width)
        if self.format == "markdown":
            text = said + to_markdown(tables)
        elif self.separator:
            text = to_separated(tables, self.separator)
            for note in dict.fromkeys(note for table in tables for note in table.notes):
                say(f"note: {note}")
        else:
            arranged = self.arrangement
            if not arranged.sort:  # blocks are together
                room = None if arranged.wide or arranged.columns else width
                tables = [under_headings(table, room) for table in tables]
            text = said + to_text(tables, width)
        show(text)

    @property
    def width(self) -> int | None:
        """The columns that tables may take; None for as many as a wide one needs in a pipe."""
        columns = terminal_width()
        return columns or (None if self.arrangement.wide else _WIDTH)


def terminal_width() -> int | None:
    """Return the columns of the terminal, or that COLUMNS says there are; else None."""
    if not sys.stdout.isatty():
        columns = os.environ.get("COLUMNS", "")
        is_count = columns.isascii() and columns.isdecimal() and columns[0] != "0"
        return max(_NARROWEST, int(columns)) if is_count and len(columns) <= _MOST_DIGITS else None
    import shutil  # here, because it takes as long to import as a simulation

    return max(_NARROWEST, shutil.get_terminal_size().columns)


def several(options: Iterable[Callable[[Any], Any]]) -> Callable[[_F], _F]:
    """Return what adds options, which the help lists in this order."""
    listed = tuple(options)

    def add(function: _F) -> _F:
        for option in reversed(listed):
            function = option(function)
        return function

    return add


def _set_verbose(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        ctx.obj = True


debug_option = click.option(
    "--debug", is_flag=True, expose_value=False, help="Show the Python traceback of an error."
)
#: What else is printed on standard error.
message_options = several(
    (
        click.option(
            "--verbose",
            is_flag=True,
            expose_value=False,
            callback=_set_verbose,
            is_eager=True,
            help="Print on standard error what is read and used.",
        ),
        debug_option,
    )
)


def output_options(function: _F, *, is_ranked: bool = False) -> _F:
    """Add the options of output, passed to the command as one `output`.

    Where rows are ranked, JSON has as many as --top says, too.
    """

    @click.option(
        "--format",
        "output_format",
        type=click.Choice(FORMATS),
        help="How to print the result: table (the default) or markdown for people; tsv, csv or "
        "json for programs, in SI units and not rounded.",
    )
    @click.option(
        "--separator",
        metavar="CHARACTER",
        help="Print separated values, with this between them: a character, or tab, comma, "
        "semicolon, space, pipe.",
    )
    @click.option("--quiet", "-q", is_flag=True, help="Leave out the sentences before the table.")
    @click.option(
        "--columns",
        "only_columns",
        type=Names(()),
        default="",
        metavar="NAME,...",
        show_default=False,
        help="Show only these columns. Their names are those of --format=csv, or short for them.",
    )
    @click.option("--wide", is_flag=True, help="Show all columns, however wide.")
    @click.option(
        "--sort",
        default="",
        show_default=False,
        metavar="COLUMN",
        help="Sort the rows by this column, the best or the largest first. A - before its name "
        "reverses the order.",
    )
    @click.option(
        "--top", type=click.IntRange(min=1), metavar="N", help="Show only the first N rows."
    )
    @message_options
    @functools.wraps(function)
    def command(
        output_format: str | None,
        separator: str | None,
        quiet: bool,
        only_columns: list[str],
        wide: bool,
        sort: str,
        top: int | None,
        **kwargs: Any,
    ) -> Any:
        arrangement = Arrangement(tuple(only_columns), wide, sort, top)
        how = (output_format, separator, quiet, arrangement)
        return function(output=Output(*how, is_ranked=is_ranked), **kwargs)

    return command  # type: ignore[return-value]


#: The options of output of a command whose rows are the best of many.
ranked_options = functools.partial(output_options, is_ranked=True)


def layers_option(function: _F) -> _F:
    """Add `--every_layer`, passed on as `every_layer`, which is true for programs anyway."""

    @click.option(
        "--every_layer",
        is_flag=True,
        help="Show each layer of repeated blocks, not one for all instances. JSON and separated "
        "values have each.",
    )
    @functools.wraps(function)
    def command(every_layer: bool, output: Output, **kwargs: Any) -> Any:
        every_layer = every_layer or not output.for_people
        return function(output=output, every_layer=every_layer, **kwargs)

    return command  # type: ignore[return-value]


def is_verbose() -> bool:
    """Tell whether --verbose was given."""
    return bool(click.get_current_context().obj)


def verbose(message: str) -> None:
    """Print a line on standard error if --verbose was given."""
    if is_verbose():
        say(message)


class Names(click.ParamType):  # type: ignore[type-arg]
    """Names separated by commas: the last of them is completed, from these or from a list.

    Of `numbers`, what is none is the API's to refuse. Where one alone is asked for, which
    `may_be_file`, files are completed, too.
    """

    def __init__(
        self,
        names: Iterable[str] | Callable[[], Iterable[str]],
        *,
        numbers: bool = False,
        may_be_file: bool = False,
    ) -> None:
        self.names = names if callable(names) else lambda: names
        self.read: Callable[[str], Any] = number if numbers else str
        self.may_be_file = may_be_file
        self.name = "name or file" if may_be_file else "names"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, list) or self.may_be_file:
            return value
        return [self.read(entry.strip()) for entry in value.split(",")] if value.strip() else []

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[Any]:
        from click.shell_completion import CompletionItem

        before, comma, last = incomplete.rpartition(",")
        files = [CompletionItem(incomplete, type="file")] if self.may_be_file else []
        names = (name for name in self.names() if name.lower().startswith(last.lower()))
        return [*(CompletionItem(before + comma + name) for name in names), *files]


def names_option(
    name: str, told: Iterable[str] = (), *, completed: Iterable[str] = (), **settings: Any
) -> Callable[[_F], _F]:
    """Return an option for several names; those `told` stand at the end of its help.

    Of a registry these are Paleo's own. All are completed, and those of `completed`.
    """
    if told:
        settings["help"] += f": {', '.join(getattr(told, 'built_in', None) or told)}."
    names = Names(completed or told)
    return click.option(f"--{name}", type=names, **{"metavar": "NAME,..."} | settings)


def choice_option(name: str, choices: Iterable[str], default: str, text: str) -> Callable[[_F], _F]:
    """Return an option for one of a few words."""
    return click.option(f"--{name}", type=click.Choice(tuple(choices)), default=default, help=text)


def is_given(option: str) -> bool:
    """Tell whether an option of this name was given."""
    context = click.get_current_context()
    names = (known.name for known in context.command.params if f"--{option}" in known.opts)
    return context.get_parameter_source(next(names)) is not ParameterSource.DEFAULT


def say_no_effect(only_for: str, *options: str) -> None:
    """Print a note for each option that was given and that only another one lets do something."""
    for option in filter(is_given, options):
        said = f"--{option} is for {only_for}, it has no effect here"
        say(f"note: {said}")


NET = Names(net_names, may_be_file=True)

nets_argument = click.argument("nets", nargs=-1, required=True, type=NET, metavar="NET...")


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


_NUMBER_OR_TEXT = Parsed("text", number)


def one_of(names: Any) -> dict[str, Any]:
    """Return what an option says and completes that takes one name; of a registry, its own."""
    return {
        "metavar": "[" + "|".join(getattr(names, "built_in", None) or names) + "]",
        "shell_complete": Names(names).shell_complete,
    }


class _Described(click.Option):
    """An option that says more of its choices where its help is asked for."""

    def __init__(self, *args: Any, whole_help: Callable[[], str], **words: Any) -> None:
        super().__init__(*args, **words)
        self.whole_help = whole_help

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        self.help = self.whole_help()
        return super().get_help_record(ctx)


def setting_option(setting: Setting, **changes: Any) -> Callable[[_F], _F]:
    """Return the option of a declared setting; `changes` are what is to be said otherwise.

    The command gets it under the name of the setting.
    """
    said = f"  [default: {setting.shown_default}]" if setting.shown_default else ""
    words: dict[str, Any] = {"default": setting.default, "help": setting.help + said}
    if setting.describes:
        words |= {"cls": _Described, "whole_help": lambda: setting.whole_help + said}
    if setting.type is bool:
        words["is_flag"] = True
    elif setting.metavar.endswith(",..."):
        words["type"] = Names(setting.choices or (), numbers=setting.type in (int, float))
        if isinstance(setting.default, tuple):
            words["default"] = ",".join(map(str, setting.default))
        elif setting.default is not None:
            words["default"] = str(setting.default)
    elif setting.may_be_file and setting.choices:
        words["type"] = Names(setting.choices, may_be_file=True)
    else:
        words["type"] = _NUMBER_OR_TEXT if setting.type is object else setting.type
        if setting.choices and "type" not in changes:
            words |= one_of(setting.choices())
    if setting.metavar:
        words["metavar"] = setting.metavar
    spellings = setting.options or (f"--{setting.name}",)
    return click.option(*spellings, setting.name, **words | changes)


def setting_options(kind: type, *names: str) -> Callable[[_F], _F]:
    """Return what adds the options of these settings of a kind, in this order."""
    settings = declared(kind)
    return several(setting_option(settings[name]) for name in names)
