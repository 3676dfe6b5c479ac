"""What the commands that measure share: their options, and what they say when they are done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from paleo.cli.edits import net_options
from paleo.cli.options import (
    Names,
    Output,
    nets_argument,
    output_options,
    setting_options,
    several,
    verbose,
)
from paleo.cli.plotting import Plot, plot_option_of
from paleo.cli.printing import say
from paleo.cli.setting_groups import CONVOLUTIONS, say_what_is_used
from paleo.measure.executors import EXECUTORS
from paleo.measure.profile.setup import MeasuringSettings, Nets
from paleo.step.plan import RATED
from paleo.views.table import Table

if TYPE_CHECKING:
    from paleo.views.charts.base import Chart

_F = TypeVar("_F", bound=Callable[..., Any])

#: Where an executor can run.
PLACES = ("cpu", "cuda", "mps")

place_option = click.option(
    "--place",
    type=click.Choice(PLACES),
    help="Processor that the executors use.  [default: the best there is]",
)
#: The files that `paleo calibrate` reads and writes.
file_options = several(
    (
        click.option(
            "--output",
            "-o",
            "file",
            type=click.Path(),
            required=True,
            metavar="FILE.toml",
            help="The device file to write.",
        ),
        click.option(
            "--from",
            "rows",
            type=click.Path(),
            metavar="FILE.csv",
            help="Fit to the timings in this file instead of measuring: rows as for "
            "`paleo validate`, or what `paleo profile --format=csv` printed.",
        ),
        click.option(
            "--links",
            type=click.Path(),
            metavar="FILE.toml",
            help="With --from: write the links inside a node here, whose constants rows of steps "
            "on several devices tell, too.",
        ),
    )
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


def measuring_options(
    executors: Callable[[_F], _F],
    what: Sequence[Callable[[_F], _F]],
    files: Sequence[Callable[[_F], _F]] = (),
) -> Callable[[_F], _F]:
    """Return what adds the options of a command that measures nets.

    `executors` is that of what measures, `what` are those of what is measured, `files` those of
    what is written.
    """
    return several(
        (
            nets_argument,
            setting_options(MeasuringSettings, "device"),
            executors,
            place_option,
            setting_options(MeasuringSettings, "num_warmup", "num_iter"),
            *what,
            setting_options(MeasuringSettings, "batch_size"),
            *files,
            setting_options(MeasuringSettings, *RATED[1:], *CONVOLUTIONS, "dtype", "optimizer"),
            net_options,
            output_options,
            plot_option_of("predicted and measured times"),
        )
    )


def write_measured(
    result: Nets[Any],
    output: Output,
    plot: Plot,
    table: Callable[[Any], Table],
    charts: Callable[[Any], Sequence[Chart]],
    answer: Callable[[], Sequence[str]],
    used: tuple[Sequence[str], Mapping[str, Any]],
    *,
    is_measured: bool = True,
) -> int:
    """Print and draw the times of nets, and return the exit status.

    `used` is what `say_what_is_used` takes. Nothing is drawn if an interrupt came before there was
    anything to draw. The status is 130 after an interrupt, as of any command; 1, with a line on
    standard error, if nothing could be measured that was to be.
    """
    say_what_is_used(*used)
    for ran in result.runs[0].setting.processors if result.runs else ():
        versions = "".join(f", {name} {text}" for name, text in ran.versions.items())
        verbose(f"{ran.executor}: {ran.hardware} ({ran.place}){versions}")
    tables = [table(run) for run in result.runs]
    if result.runs and (result.measured_anything or not result.interrupted):
        plot.write(output, tables, result.to_dict, charts, answer=answer)
    elif result.runs or output.format == "json":
        output.write(tables, result.to_dict, answer)
    if result.missed:
        say(f"note: interrupted before {', '.join(result.missed)}")
    if result.interrupted:
        return 130
    if is_measured and not result.measured_anything:
        say("nothing could be measured")
        return 1
    return 0
