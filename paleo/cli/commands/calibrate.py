"""`paleo calibrate`: a device file for this machine, or for timings of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from paleo.cli.files import check_apart, check_file, write_file
from paleo.cli.measuring import file_options, place_option
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
from paleo.step.declarations import declared
from paleo.step.settings import MaybeDeviceSettings
from paleo.views.answers.measuring import calibration_answer
from paleo.views.tables.calibration import calibration_tables


@click.command("calibrate", short_help="Measure this machine and write its device file.")
@file_options
@choice_option("executor", EXECUTORS, "torch", "The framework that runs what is measured.")
@place_option
@names_option("dtype", default="fp32", completed=DTYPES, help="Element types to measure.")
@click.option("--seconds", type=float, default=60.0, help="About how long to measure.")
@click.option(
    "--force", is_flag=True, help="Go on though the machine is too busy, and say so in the file."
)
@click.option("--name", help="Name of the device.  [default: the file's]")
@setting_option(
    declared(MaybeDeviceSettings)["device"],
    help="Take data-sheet figures from this device.  [default: the GPU that is found; a CPU's are "
    "measured]",
)
@output_options
@plot_option_of("the points, predicted against measured times")
def command(
    file: str,
    rows: str | None,
    links: str | None,
    name: str | None,
    device: str | None,
    output: Output,
    plot: Plot,
    **measuring: Any,
) -> int:
    """Measure this machine and write a device file, so that predictions are for it.

    It runs matrix products, convolutions, copies and pointwise operations for about a minute,
    and fits the constants of the cost model tiled to their times. The file holds the machine's
    figures, these constants, and how far predictions are off; use it as --device=mymachine.toml.

    Errors are medians of |predicted / measured - 1|. Those "on others" are on shapes that the
    constants were not fitted to. Nothing is written, unless --force is given, if the machine is
    too busy: repeated runs differ by more than 15 %, or other programs use more than 25 % of its
    CPUs. Ctrl-C ends measuring; what was measured is used if it suffices.

    \b
    Examples:
      paleo calibrate -o mymachine.toml
      paleo calibrate --place=cuda --dtype=fp32,bf16 -o mygpu.toml
      paleo calibrate --from=mine.csv --device_name=T4 -o t4.toml --plot=fit.svg
      paleo calibrate --from=steps.csv -o gpu.toml --links=link.toml
      paleo simulate resnet50 --device=mymachine.toml
    """  # noqa: D301 (click takes the control character, not the escape)
    if rows is not None:
        for option in filter(is_given, measuring):
            raise click.UsageError(f"--{option} does not go with --from, which measures nothing")
    if links is not None:
        if rows is None:
            raise click.UsageError("--links goes with --from: one device has none")
        check_file(links)
        check_apart("output", file, "links", links)
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
    if links is not None:
        write_file(links, result.links_toml(Path(links).stem))
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
