"""`paleo fullpass`: training steps and inference in one piece, predicted beside measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from paleo.cli.edits import NetEdits, edit_options
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
)
from paleo.cli.plan import (
    convolution_options,
    cost_model_option,
    dtype_option,
    ppp_comp_option,
    say_what_is_used,
)
from paleo.cli.plotting import Plot, plot_option_of
from paleo.cli.progress import progress
from paleo.importers import ImportOptions
from paleo.profile import FullPass, FullPasses, fullpass
from paleo.report import Column, Table

if TYPE_CHECKING:
    from paleo.charts.base import Chart


@click.command("fullpass", short_help="Whole training steps: predicted beside measured.")
@click.argument("nets", nargs=-1, required=True, type=NET, metavar="NET...")
@device_option
@executor_option(("torch",), "What runs the net on this machine: torch, tensorflow, or both.")
@place_option
@num_warmup_option
@num_iter_option
@click.option(
    "--inference",
    is_flag=True,
    help="Measure the forward pass of inference, for which nothing is kept.",
)
@batch_size_option
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
    edits: NetEdits,
    importing: ImportOptions,
    output: Output,
    plot: Plot,
    **settings: Any,
) -> int:
    """Measure the training step of each NET in one piece, beside its prediction.

    The whole step is measured as it runs, then once more with a stop after each part (forward,
    loss, backward, update) until the processor has done it: the parts may take longer together.
    The loss, a sum of the net's outputs, is not predicted. Shown are medians, the spread (the
    distance between the quartiles, as a share of the median) and measured / predicted, as
    "torch / predicted". Predictions are for the device; `paleo calibrate` makes a device file of
    this machine.

    A net that does not fit in memory is named, and the rest goes on. Ctrl-C ends measuring and
    prints what was measured so far.

    \b
    Examples:
      paleo fullpass resnet18 --batch_size=8 --device=mymachine.toml
      paleo fullpass alexnet vgg16 --batch_size=16 --num_warmup=2 --num_iter=10
      paleo fullpass resnet50 --device=H100_SXM --place=cuda --dtype=bf16
      paleo fullpass mobilenet_v2 --inference --batch_size=1
      paleo fullpass resnet18 resnet50 --batch_size=4 --plot=steps.svg
    """  # noqa: D301 (click takes the control character, not the escape)
    chosen = edits.applied(nets, importing)
    # One of all nets, if there are several or no parts, and one of the parts of each.
    plot.check_number(1 if settings["inference"] else len(chosen) + (len(chosen) > 1))
    result = fullpass(
        chosen,
        device=device_name,
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
    return status(result.interrupted, result.missed, result.measured_anything)


def _charts(result: FullPasses) -> Sequence[Chart]:
    from paleo.charts.measuring import of_fullpasses

    return of_fullpasses(result.runs)


def _table(run: FullPass) -> Table:
    setting = run.setting
    names = setting.executors
    common = setting_values(run.case, setting)
    common |= {f"{name}_missing": run.missing.get(name) for name in names}
    rows = []
    for part in run.parts:
        shown = {
            f"{name}_shown": NOT_RUN if name in run.missing else part.seconds(name)
            for name in names
        }
        rows.append(common | part.to_dict(names) | shown)
    footnotes = [
        how_measured(setting, name, complete=not run.interrupted)
        for name in names
        if any(name in part.measured for part in run.parts)
    ]
    footnotes += [f"predicted times {run.band.said}"] if run.band else []
    return Table(
        title(run.case, setting),
        _columns(names),
        rows,
        footnotes=footnotes,
        notes=run.notes,
    )


def _columns(names: tuple[str, ...]) -> list[Column]:
    columns = [
        *SETTING_COLUMNS,
        Column("part", "part"),
        Column("predicted_s", "predicted", "s"),
        *map(Column, ("predicted_low_s", "predicted_high_s")),
    ]
    for name in names:
        columns += [
            Column(f"{name}_s"),
            Column(f"{name}_shown", name, "s", for_people=True, right=True),
            Column(f"{name}_spread", "spread", "percent", digits=2),
            Column(f"{name}_ratio", f"{name} /\npredicted", digits=3),
            *(Column(f"{name}_{key}") for key in ("runs", "missing", "place", "hardware")),
        ]
    return [*columns, *map(Column, ("num_warmup", "num_iter"))]
