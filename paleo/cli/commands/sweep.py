"""`paleo sweep`: every combination of settings, written to a file or a folder."""

from __future__ import annotations

import json
from pathlib import Path

import click

from paleo.cli.files import check_file
from paleo.cli.options import Output, output_options
from paleo.cli.sweep_parts import Job, went_on
from paleo.cli.sweeping import run, say_what_was_found
from paleo.core.errors import PaleoError
from paleo.studies.sweeps.grid_file import grid_of_content, read_content
from paleo.studies.sweeps.tally import added
from paleo.views.sweep_files import FORMATS


@click.command("sweep", short_help="Training steps of every combination of settings, to a file.")
@click.argument("grid", type=click.Path(), metavar="GRID")
@click.option(
    "-o",
    "--output",
    "target",
    required=True,
    metavar="FILE|FOLDER",
    help="Where results go: a file that ends in .parquet, .csv or .jsonl, or a folder, whose name "
    "ends in /, of Parquet parts (--part_format).",
)
@click.option(
    "--dask",
    metavar="ADDRESS|N",
    help="Have workers of this Dask scheduler compute and write the parts, such as "
    "tcp://127.0.0.1:8786, or N processes that are started here. They need the same Paleo and the "
    "same folder.",
)
@click.option(
    "--part",
    "points",
    type=click.IntRange(min=1),
    metavar="POINTS",
    help="About how many points a part has: so many are held, and done anew, at a time.  "
    "[default: 1,048,576; 2,048 of points that are evaluated one by one]",
)
@click.option(
    "--part_format",
    type=click.Choice([ending[1:] for ending in FORMATS]),
    default="parquet",
    help="The format of parts in a folder.",
)
@output_options
def command(
    grid: str,
    target: str,
    dask: str | None,
    points: int | None,
    part_format: str,
    output: Output,
) -> None:
    """Predict the training steps of every combination of settings that the file GRID says.

    GRID is TOML: net, any settings of `paleo simulate`, and a table [axes] of those that vary, as
    lists or ranges {from, to, step} or {from, to, factor}. Axes may also be seq_len, dim.NAME, and
    edits of the net such as "conv8.filter[3]". A condition where leaves out points.

    Each point is a row, in SI units. One that cannot be has the reason in the column error. What
    was written is kept: the same command goes on where it was stopped.

    \b
    Examples:
      paleo sweep grid.toml -o results.parquet
      paleo sweep grid.toml -o results.csv --part=100000
      paleo sweep grid.toml --dask=tcp://127.0.0.1:8786 -o results/
      paleo sweep grid.toml --dask=4 -o results/
    """  # noqa: D301 (click takes the control character, not the escape)
    content = read_content(grid)
    found = grid_of_content(content, grid)
    is_folder = target.endswith("/") or Path(target).is_dir()
    ending = f".{part_format}" if is_folder else Path(target).suffix
    if ending not in FORMATS:
        raise click.UsageError(
            f"--output: expected a file that ends in {', '.join(FORMATS)}, or a folder that ends "
            f"in /, got {target!r}"
        )
    if not is_folder:
        check_file(target)
    folder = target if is_folder else f"{target}.parts"
    text = json.dumps(content)
    job = Job(text, grid, str(Path(folder).absolute()), ending, points, found.identity)
    job.prepare()
    run(job, dask)
    job.clean()
    tally = added(job.tallies())
    if not is_folder:
        try:
            job.join(target)
        except PaleoError as error:
            raise went_on(job, error) from None
    say_what_was_found(job, tally, output, target)
