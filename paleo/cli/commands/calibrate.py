"""`paleo calibrate`: a device file for this machine, or for timings of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from paleo.cli.files import check_apart, check_file, write_file
from paleo.cli.measuring import place_option
from paleo.cli.options import (
    Output,
    choice_option,
    is_given,
    names_option,
    output_options,
    setting_option,
    verbose,
)
from paleo.cli.plotting import Plot, plot_option_of
from paleo.cli.printing import say
from paleo.cli.progress import progress
from paleo.core.tensor import DTYPES
from paleo.measure.calibrate import calibrate, calibrate_from
from paleo.measure.executors import EXECUTORS
from paleo.step.settings import MaybeDeviceSettings, declared
from paleo.views.answers.measuring import calibration_answer
from paleo.views.tables.calibration import calibration_tables


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
@choice_option("executor", EXECUTORS, "torch", "What runs the points that are measured.")
@place_option
@names_option("dtype", default="fp32", completed=DTYPES, help="Element types to measure.")
@click.option("--seconds", type=float, default=60.0, help="How long to measure, about.")
@click.option(
    "--force", is_flag=True, help="Go on if the machine is too busy to trust, and record that."
)
@click.option("--name", help="The name of the device.  [default: the file's]")
@setting_option(
    declared(MaybeDeviceSettings)["device"],
    help="A device to take the figures from.  [default: the GPU by its name; of a CPU, measured]",
)
@output_options
@plot_option_of("the points, predicted against measured times")
def command(
    file: str,
    rows: str | None,
    name: str | None,
    device: str | None,
    output: Output,
    plot: Plot,
    **measuring: Any,
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
        for option in filter(is_given, measuring):
            raise click.UsageError(f"--{option} does not go with --from, which measures nothing")
    check_file(file)
    check_apart("output", file, "plot", plot.file)
    settings: dict[str, Any] = {
        "name": name or Path(file).stem,
        "device": device,
        "progress": progress,
    }
    try:
        if rows is not None:
            result = calibrate_from(rows, **settings)
        else:
            result = calibrate(dtypes=measuring.pop("dtype"), **measuring, **settings)
    except KeyboardInterrupt:
        say("interrupted: nothing is written")
        return 130
    write_file(file, result.to_toml())
    verbose(f"{file}: {result.device.title}")
    plot.write(
        output,
        calibration_tables(result, file, for_people=output.for_people),
        lambda: {"file": file} | result.to_dict(),
        lambda charts: charts.of_calibration(result),
        answer=lambda: calibration_answer(result, file),
    )
    return 130 if result.interrupted else 0
