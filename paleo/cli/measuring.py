"""Options of the commands that measure, and what they say when they are done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from paleo.cli.options import Names, Output, verbose
from paleo.cli.plotting import Plot
from paleo.costs.convolutions import DEFAULT
from paleo.executors import EXECUTORS
from paleo.profile import Case, Setting
from paleo.profile.setting import Nets
from paleo.report import Column, Table

if TYPE_CHECKING:
    from paleo.charts.base import Chart

__all__ = [
    "NOT_RUN",
    "PLACES",
    "SETTING_COLUMNS",
    "batch_size_option",
    "executor_option",
    "how_measured",
    "num_iter_option",
    "num_warmup_option",
    "place_option",
    "say_what_measures",
    "setting_values",
    "status",
    "title",
    "write_measured",
]

_F = TypeVar("_F", bound=Callable[..., Any])

#: What stands in the place of a time that an executor could not measure.
NOT_RUN = "not run"
#: Where an executor can run.
PLACES = ("cpu", "cuda", "mps")

batch_size_option = click.option(
    "--batch_size", type=int, help="Samples in a batch.  [default: the file's]"
)
num_warmup_option = click.option(
    "--num_warmup",
    type=int,
    default=10,
    show_default=True,
    help="Runs before those that are measured.",
)
num_iter_option = click.option(
    "--num_iter", type=int, default=50, show_default=True, help="Runs that are measured."
)
place_option = click.option(
    "--place",
    type=click.Choice(PLACES),
    help="Where executors run.  [default: the best there is]",
)


def executor_option(default: Sequence[str], text: str) -> Callable[[_F], _F]:
    """Return the option for executors, with these unless told otherwise."""
    return click.option(
        "--executor",
        "executors",
        type=Names(EXECUTORS),
        default=",".join(default),
        show_default=bool(default),
        metavar="NAME,...",
        help=text if default else f"{text}  [default: none]",
    )


#: What net it is and what is predicted, the same in all rows: for programs.
SETTING_COLUMNS = tuple(
    map(
        Column,
        (
            *("net", "file", "batch_size", "dtype", "device", "cost_model", "ppp_comp"),
            *DEFAULT.to_dict(),
        ),
    )
)


def setting_values(case: Case, setting: Setting) -> dict[str, Any]:
    """Return what is the same in all rows of a net, with where each executor ran."""
    values = case.to_dict() | setting.to_dict()
    for name, processor in values.pop("executors").items():
        values |= {f"{name}_{key}": processor[key] for key in ("place", "hardware")}
    return values


def title(case: Case, setting: Setting, *what: str) -> str:
    """Return the title of a net's table; `what` says what its rows are of."""
    parts = [case.spec.name, f"batch {case.graph.batch_size}", setting.dtype, *what]
    parts += [f"on {setting.device.name}", setting.cost_model.name]
    parts += [f"ppp_comp {setting.target.ppp_comp:g}"]
    return ", ".join(filter(None, (*parts, str(setting.target.convolutions))))


def how_measured(setting: Setting, executor: str, *, complete: bool = True) -> str:
    """Return how an executor measured, and on what; of an incomplete measurement, at most."""
    on = next(each for each in setting.processors if each.executor == executor)
    runs = f"{'' if complete else 'up to '}{setting.num_iter} runs"
    after = f"after {setting.num_warmup} to warm up"
    return f"{executor}: medians of {runs} {after}, on {on.hardware} ({on.place})"


def say_what_measures(setting: Setting) -> None:
    """Print what executors run on, for --verbose."""
    for each in setting.processors:
        versions = "".join(f", {name} {text}" for name, text in each.versions.items())
        verbose(f"{each.executor}: {each.hardware} ({each.place}){versions}")


def write_measured(
    output: Output,
    plot: Plot,
    tables: Sequence[Table],
    result: Nets[Any],
    charts: Callable[[], Sequence[Chart]],
) -> None:
    """Print the tables; draw them unless an interrupt came before there was anything to draw."""
    if result.runs and (result.measured_anything or not result.interrupted):
        plot.write(output, tables, result.to_dict, lambda _: charts())
    else:
        output.write(tables, result.to_dict)


def status(interrupted: bool, missed: Sequence[str], measured: bool) -> int:
    """Return the exit status of a command that measures, and say on standard error why.

    It is 130 after an interrupt, as of any command; 1 if nothing could be measured.
    """
    if missed:
        click.echo(f"paleo: note: interrupted before {', '.join(missed)}", err=True)
    if interrupted:
        return 130
    if not measured:
        click.echo("paleo: nothing could be measured", err=True)
        return 1
    return 0
