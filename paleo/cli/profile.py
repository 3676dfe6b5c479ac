"""`paleo profile`: nets layer by layer, predicted beside measured."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from paleo.cli.edits import NetEdits, edit_options
from paleo.cli.files import check_file, write_file
from paleo.cli.measuring import (
    NOT_RUN,
    SETTING_COLUMNS,
    batch_size_option,
    executor_option,
    how_measured,
    num_iter_option,
    num_warmup_option,
    place_option,
    say_what_measures,
    setting_values,
    status,
    title,
    write_measured,
)
from paleo.cli.options import (
    NET,
    Output,
    device_option,
    import_options,
    is_verbose,
    output_options,
    verbose,
)
from paleo.cli.plan import (
    convolution_options,
    cost_model_option,
    dtype_option,
    ppp_comp_option,
    say_no_effect,
    say_what_is_used,
)
from paleo.cli.plotting import Plot, plot_option_of
from paleo.cli.progress import progress
from paleo.costs import Time
from paleo.errors import Mistakes, PaleoError
from paleo.executors import EXECUTORS
from paleo.importers import ImportOptions
from paleo.netspec import NetSpec
from paleo.netwriter import dumps
from paleo.profile import (
    DIRECTIONS,
    GRADIENTS,
    JOINED,
    LayerPass,
    Profile,
    Profiles,
    convolutions,
    profile,
)
from paleo.report import Column, Table

if TYPE_CHECKING:
    from paleo.charts.base import Chart


@click.command("profile", short_help="Layers of nets: predicted beside measured times.")
@click.argument("nets", nargs=-1, required=True, type=NET, metavar="NET...")
@device_option
@executor_option(
    (),
    f"Measure each layer on this machine, by {', '.join(EXECUTORS)} or several of them.",
)
@place_option
@num_warmup_option
@num_iter_option
@click.option(
    "--direction",
    type=click.Choice(DIRECTIONS),
    default="forward",
    show_default=True,
    help="The passes: all is a training step, with both gradients and the update.",
)
@click.option(
    "--gradient_wrt",
    type=click.Choice(tuple(GRADIENTS)),
    default="data",
    show_default=True,
    help="With --direction=backward, what the gradient is of.",
)
@batch_size_option
@click.option(
    "--extract_conv_dir",
    type=click.Path(),
    metavar="DIR",
    help="Write each convolution into this folder, as a net file of its own. A file that is there "
    "is replaced only if it is such a net of the same name.",
)
@ppp_comp_option
@convolution_options
@cost_model_option
@dtype_option
@edit_options
@import_options
@output_options
@plot_option_of("predicted and measured times")
def command(
    nets: tuple[str, ...],
    device_name: str,
    executors: list[str],
    extract_conv_dir: str | None,
    edits: NetEdits,
    importing: ImportOptions,
    output: Output,
    plot: Plot,
    **settings: Any,
) -> int:
    """Show the time of each layer of each NET, predicted and measured.

    Predictions are for the device. With --executor each layer is also run on this machine, alone
    and on random inputs: shown are the median, the spread (the distance between the quartiles, as
    a share of the median) and measured / predicted, as "torch / predicted". To predict for this
    machine, `paleo calibrate` makes a device file of it.

    A layer that an executor cannot run is marked. Ctrl-C ends measuring and prints what was
    measured so far. docs/measuring.md says what is run and how.

    \b
    Examples:
      paleo profile alex_v2
      paleo profile nin --device=K80 --direction=backward --gradient_wrt=filter
      paleo profile resnet18 --executor=torch --batch_size=8 --num_iter=20
      paleo profile resnet18 --executor=torch --batch_size=8 --plot=layers.png
      paleo profile vgg16 --device=mymachine.toml --executor=torch --direction=all
      paleo profile vgg16 --extract_conv_dir=convolutions
    """  # noqa: D301 (click takes the control character, not the escape)
    if settings["direction"] != "backward":
        say_no_effect("gradient_wrt", "--direction=backward")
    if not executors:
        for option in ("place", "num_warmup", "num_iter"):
            say_no_effect(option, "--executor")
    chosen = edits.applied(nets, importing)
    # Of each net one by layer, and one of points by executor.
    plot.check_number(len(chosen) * (1 + len(set(executors))))
    if extract_conv_dir is not None:
        mistakes = Mistakes()
        found = [
            mistakes.check(convolutions, net, settings["batch_size"], importing) for net in chosen
        ]
        mistakes.raise_as(PaleoError)
        extracted = [each for own in found for each in own or ()]
        if not extracted:
            click.echo("paleo: note: there are no convolutions to extract", err=True)
        _extract(extracted, Path(extract_conv_dir))
    result = profile(
        chosen,
        device=device_name,
        executors=executors,
        importing=importing,
        progress=progress,
        **settings,
    )
    if is_verbose():
        say_what_is_used(nets, device_name, None, settings["cost_model"], settings["dtype"])
        if result.runs:
            say_what_measures(result.runs[0].setting)
    if result.runs or output.format == "json":
        tables = [_table(run) for run in result.runs]
        write_measured(output, plot, tables, result, lambda: _charts(result))
    measured = result.measured_anything or not executors
    return status(result.interrupted, result.missed, measured)


def _charts(result: Profiles) -> Sequence[Chart]:
    from paleo.charts.measuring import of_profiles

    return of_profiles(result.runs)


def _table(run: Profile) -> Table:
    names = run.setting.executors
    common = setting_values(run.case, run.setting)
    rows = [
        common
        | row.to_dict()
        | {"pass_shown": row.direction.replace("_", " ")}
        | {f"{name}_shown": _shown(row, name) for name in names}
        for row in run.rows
    ]
    total: dict[str, Any] = {"layer": "total", "predicted_s": run.predicted}
    footnotes = []
    for name in names:
        sums = run.sums(name)
        if sums.rows:
            total |= {f"{name}_shown": sums.measured, f"{name}_ratio": sums.ratio}
            footnotes += [how_measured(run.setting, name), *_covered(run, name)]
    what = run.passes[0].replace("_", " ") if len(run.passes) == 1 else ""
    return Table(
        title(run.case, run.setting, what),
        _columns(run),
        rows,
        total,
        footnotes=footnotes,
        notes=run.notes,
    )


def _shown(row: LayerPass, executor: str) -> float | str | None:
    """Return the time that an executor took, or a mark where it could not run the layer."""
    found = row.measured[executor]
    if found.missing == JOINED:
        return "joined"
    return NOT_RUN if found.missing else row.seconds(executor)


def _covered(run: Profile, name: str) -> list[str]:
    """Return how much of the prediction the rows are of that an executor measured, if not all."""
    rest = run.predicted - run.sums(name).predicted
    if rest <= 1e-9 * run.predicted:  # what rounding leaves
        return []
    share = f"{100 * rest / run.predicted:.1f} % of the prediction is of others"
    return [f"{name}: the total's ratio is of the rows that it measured; {share}"]


def _columns(run: Profile) -> list[Column]:
    names = run.setting.executors
    several = len(run.passes) > 1
    columns = [
        *SETTING_COLUMNS,
        Column("layer", "layer"),
        Column("type", "type"),
        Column("pass"),
        Column("pass_shown", "pass" * several, for_people=True),
        Column("predicted_s", "predicted", "s"),
        *map(Column, Time().to_dict("predicted")),
    ]
    for name in names:
        columns += [
            Column(f"{name}_shown", name, "s", for_people=True, right=True),
            *(Column(f"{name}_{key}") for key in ("s", "runs")),
            Column(f"{name}_spread", "spread", "percent", digits=2),
            Column(f"{name}_ratio", f"{name} /\npredicted", digits=3),
        ]
    columns += [
        Column("bound", "" if names else "bound"),
        Column("algorithm", "algorithm"),
    ]
    for name in names:
        named = any(row.measured[name].algorithm for row in run.rows)
        columns += [
            Column(f"{name}_algorithm", f"{name}'s\nalgorithm" * named),
            *(Column(f"{name}_{key}") for key in ("joined", "missing", "place", "hardware")),
        ]
    return [*columns, *map(Column, ("num_warmup", "num_iter") if names else ())]


#: What a file's name is made of; anything else becomes a "_".
_ODD = re.compile(r"[^A-Za-z0-9.+=-]+")
#: File names are cut after so many characters: file systems take 255 bytes.
_LONGEST = 200


def _extract(nets: Sequence[NetSpec], folder: Path) -> None:
    """Write nets into a folder, which is made if it is not there.

    Raises PaleoError before anything is written if a file in the way is something else.
    """
    files: dict[str, NetSpec] = {}
    taken: set[str] = set()
    for net in nets:
        stem = _ODD.sub("_", net.name).lstrip(".")[:_LONGEST]
        name, number = stem, 1
        while name.casefold() in taken:  # file systems may not tell letters' cases apart
            number += 1
            name = f"{stem}_{number}"
        taken.add(name.casefold())
        files[f"{name}.json"] = net
    mistakes = Mistakes()
    for file, net in files.items():
        if (folder / file).exists() and not _is_extract(folder / file, net):
            mistakes.add(f"{folder / file}: there is something else of this name; it is kept")
    mistakes.raise_as(PaleoError)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise PaleoError(f"{folder}: cannot be made a folder: {why}") from None
    for file in files:
        mistakes.check(check_file, folder / file)
    if mistakes:
        raise PaleoError(mistakes.found[:1])  # of a folder, one line says it
    for file, net in files.items():
        write_file(folder / file, dumps(net))
        verbose(f"{folder / file}: {net.source}")


def _is_extract(path: Path, net: NetSpec) -> bool:
    """Tell whether a file is the net of this name and source, so that it may be replaced."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and (found.get("name"), found.get("source")) == (
        net.name,
        net.source,
    )
