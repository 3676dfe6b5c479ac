"""`paleo calibrate`: a device file for this machine, or for timings of one's own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from paleo.calibrate import Calibration, calibrate, calibrate_from
from paleo.cli.files import check_file, write_file
from paleo.cli.hardware import errors_table
from paleo.cli.measuring import place_option
from paleo.cli.options import DEVICE, Names, Output, output_options, verbose
from paleo.cli.plotting import Plot, plot_option_of
from paleo.cli.progress import progress
from paleo.costs.tiled.constants import CONSTANTS
from paleo.executors import EXECUTORS
from paleo.hardware import Figure
from paleo.report import Column, Table, in_unit
from paleo.tensor import DTYPES

if TYPE_CHECKING:
    from paleo.charts.base import Chart

_CONSTANTS = (
    Column("name", "constant"),
    Column("value", "value", right=True),
    Column("folds", "in folds", right=True),
    Column("before", "before", right=True),
    Column("on_bound", "on bound"),
    Column("meaning", "meaning"),
)
_POINTS = (
    Column("device"),
    Column("kind"),
    Column("layer"),
    Column("pass"),
    Column("dtype"),
    Column("measured_s"),
    Column("spread"),
    Column("predicted_s"),
    Column("held_out_s"),
)
_UNPREDICTED = (
    Column("count", "rows"),
    Column("reason", "reason"),
    Column("first", "first rows"),
)
#: Options of a measurement.
_MEASURING = ("executor", "place", "dtype", "seconds", "force")


@click.command("calibrate", short_help="Measure this machine, and write a device file of it.")
@click.option(
    "--output",
    "-o",
    "file",
    type=click.Path(),
    required=True,
    metavar="FILE.toml",
    help="The device file to write.",
)
@click.option(
    "--from",
    "rows",
    type=click.Path(),
    metavar="FILE.csv",
    help="Fit to these timings instead of measuring: rows as for `paleo validate`, or those of "
    "`paleo profile --format=csv`.",
)
@click.option(
    "--executor",
    type=click.Choice(tuple(EXECUTORS)),
    default="torch",
    show_default=True,
    help="What runs the points that are measured.",
)
@place_option
@click.option(
    "--dtype",
    type=Names(DTYPES),
    default="fp32",
    show_default=True,
    metavar="NAME,...",
    help="Element types to measure.",
)
@click.option(
    "--seconds",
    type=float,
    default=60.0,
    show_default=True,
    help="How long to measure, about.",
)
@click.option(
    "--force", is_flag=True, help="Go on if the machine is too busy to trust, and record that."
)
@click.option("--name", help="The name of the device.  [default: the file's]")
@click.option(
    "--device_name",
    "--device",
    "device",
    type=DEVICE,
    help="A device to take the figures from.  [default: the GPU by its name; of a CPU, measured]",
)
@output_options
@plot_option_of("the points, predicted against measured times")
def command(
    file: str,
    rows: str | None,
    executor: str,
    place: str | None,
    dtype: list[str],
    seconds: float,
    force: bool,
    name: str | None,
    device: str | None,
    output: Output,
    plot: Plot,
) -> int:
    """Measure this machine, fit the cost model tiled to it, and write a device file.

    Products, convolutions, copies, pointwise operations and tiny ones are run for about a minute.
    The file has the machine's figures, the fitted constants of the cost model, and what they are
    worth; every command takes it: --device=mymachine.toml.

    Errors are medians of |predicted / measured - 1|. Those "on others" are of shapes that the
    constants were not fitted to. A machine is too busy if the same points take times that
    are more than 15 % apart, or if others use more than 25 % of its CPUs: then nothing is written
    unless --force is given. Ctrl-C ends measuring; there is a file if there is enough of each kind.

    \b
    Examples:
      paleo calibrate -o mymachine.toml
      paleo calibrate --place=cuda --dtype=fp32,bf16 -o mygpu.toml
      paleo calibrate --from=mine.csv --device_name=T4 -o t4.toml --plot=fit.svg
      paleo simulate resnet50 --device=mymachine.toml
    """  # noqa: D301 (click takes the control character, not the escape)
    if rows is not None:
        source = click.get_current_context().get_parameter_source
        for option in _MEASURING:
            if source(option) is not ParameterSource.DEFAULT:
                raise click.UsageError(
                    f"--{option} does not go with --from, which measures nothing"
                )
    check_file(file)
    if plot.file is not None and Path(plot.file).resolve() == Path(file).resolve():
        raise click.UsageError(f"--output and --plot both name {plot.file}")
    name = name or Path(file).stem
    try:
        if rows is not None:
            found = calibrate_from(rows, name=name, device=device, progress=progress)
        else:
            found = calibrate(
                executor,
                place=place,
                dtypes=dtype,
                seconds=seconds,
                name=name,
                device=device,
                force=force,
                progress=progress,
            )
    except KeyboardInterrupt:
        click.echo("paleo: interrupted: nothing is written", err=True)
        return 130
    write_file(file, found.to_toml())
    verbose(f"{file}: {found.device.title}")
    plot.write(
        output,
        _tables(found, file, output),
        lambda: {"file": file} | found.to_dict(),
        lambda _: _charts(found),
    )
    return 130 if found.interrupted else 0


def _charts(found: Calibration) -> Sequence[Chart]:
    from paleo.charts.measuring import of_calibration

    return of_calibration(found)


def _tables(found: Calibration, file: str, output: Output) -> list[Table]:
    record = found.record
    notes = [*record.notes]
    if record.on_bound:
        bounds = ", ".join(record.on_bound)
        notes.append(f"on a bound, so that they may stand for something else: {bounds}")
    notes.append(f"written: {file}")
    if output.format not in ("table", "markdown"):
        rows = [{"device": found.device.name} | each.to_dict() for each in record.points]
        return [Table("", _POINTS, rows, notes=notes)]
    what = f"{found.device.name}: {record.hardware}, {record.source}"
    if record.seconds is not None:
        what += f", {record.seconds:.0f} s"
    tables = [
        errors_table(what, record),
        Table(
            "Constants of the cost model tiled, fitted",
            _CONSTANTS,
            [_constant(each) for each in found.constants],
            footnotes=[*_figures(found), *_steadiness(found)],
            notes=notes,
        ),
    ]
    if found.unpredicted:
        tables.insert(1, _not_used(found))
    return tables


def _constant(fitted: Any) -> dict[str, Any]:
    unit = CONSTANTS[fitted.name].unit

    def text(value: float | None) -> str:
        if not value:
            return "" if value is None else "0"
        return in_unit(float(f"{value:.3g}"), "" if unit == "1" else unit)

    folds = text(fitted.least)
    if fitted.least != fitted.most:
        folds = f"{folds} to {text(fitted.most)}"
    return {
        "name": fitted.name,
        "value": text(fitted.value),
        "folds": folds,
        "before": text(fitted.before),
        "on_bound": fitted.bound,
        "meaning": CONSTANTS[fitted.name].meaning,
    }


def _figures(found: Calibration) -> Iterable[str]:
    """Yield the figures that were measured, or whose they are."""
    record = found.record
    if record.base:
        yield f"figures: those of {record.base}"
        return
    for dtype, units in found.device.peaks.items():
        for figure in units.values():
            yield f"{dtype} peak: {_text(figure)}"
    yield f"memory bandwidth: {_text(found.device.figures['memory_bandwidth'])}"


def _text(figure: Figure) -> str:
    return f"{in_unit(figure.value, figure.unit)} ({figure.note})"


def _steadiness(found: Calibration) -> Iterable[str]:
    record = found.record
    if record.spread is not None:
        yield f"the same points took times up to {100 * record.spread:.1f} % apart"
    if record.busy is not None:
        yield f"others used {100 * record.busy:.0f} % of the CPUs before the beginning"


def _not_used(found: Calibration) -> Table:
    rows = [
        {"count": each.count, "reason": each.reason, "first": ", ".join(each.ids[:3])}
        for each in found.unpredicted
    ]
    return Table("Rows that could not be predicted", _UNPREDICTED, rows)
