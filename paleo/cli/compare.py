"""`paleo compare`: nets, or settings, against the first of them."""

from __future__ import annotations

import itertools
from typing import Any

import click

from paleo.cli.edits import NetEdits, edit_options
from paleo.cli.options import (
    NET,
    Names,
    Output,
    import_options,
    is_verbose,
    numbers,
    output_options,
)
from paleo.cli.plan import (
    CONV_LIBRARY_HELP,
    DTYPE_HELP,
    fuse_option,
    say_what_is_used,
    use_only_gemm_option,
    use_pipeline_option,
    workspace_option,
)
from paleo.cli.plotting import Plot, plot_option
from paleo.compare import compare
from paleo.costs import COST_MODELS, DEFAULT_COST_MODEL
from paleo.costs.convolutions import LIBRARIES
from paleo.errors import Mistakes, PaleoError
from paleo.hardware import device_names
from paleo.importers import ImportOptions
from paleo.load import load
from paleo.memory import OPTIMIZERS
from paleo.tables.comparison import difference_table, totals_table
from paleo.tensor import PRECISIONS


@click.command("compare", short_help="Nets, or settings, against the first: factors.")
@click.argument("nets", nargs=-1, required=True, type=NET, metavar="NET...")
@click.option(
    "--device_name",
    "--device",
    type=Names(device_names),
    default="TITAN_X",
    show_default=True,
    metavar="NAME,...",
    help="Devices: names of `paleo devices`, or TOML files of your own.",
)
@click.option(
    "--batch_size",
    type=Names(()),
    metavar="N,...",
    help="Samples in a batch.  [default: the first net's own]",
)
@click.option(
    "--cost_model",
    type=Names(COST_MODELS),
    default=DEFAULT_COST_MODEL,
    show_default=True,
    metavar="NAME,...",
    help=f"Cost models: {', '.join(COST_MODELS)}.",
)
@click.option(
    "--ppp_comp",
    type=Names(()),
    default="1.0",
    show_default=True,
    metavar="SHARE,...",
    help="Shares of the device's peak that are reached, above 0, up to 1.",
)
@click.option(
    "--optimizer",
    type=Names(OPTIMIZERS),
    default="sgd",
    show_default=True,
    metavar="NAME,...",
    help=f"Optimizers, for the memory of training: {', '.join(OPTIMIZERS)}.",
)
@click.option(
    "--dtype",
    type=Names(PRECISIONS),
    default="fp32",
    show_default=True,
    metavar="NAME,...",
    help=f"Types ({', '.join(PRECISIONS)}) {DTYPE_HELP}",
)
@click.option("--conv_library", type=Names(LIBRARIES), metavar="NAME,...", help=CONV_LIBRARY_HELP)
@workspace_option
@use_only_gemm_option
@use_pipeline_option
@fuse_option
@click.option(
    "--totals", is_flag=True, help="Compare totals alone: the nets need have no layer in common."
)
@click.option("--changed", is_flag=True, help="Leave out layers that are the same in everything.")
@edit_options
@import_options
@output_options
@plot_option
def command(
    nets: tuple[str, ...],
    device_name: list[str],
    batch_size: list[str] | None,
    cost_model: list[str],
    ppp_comp: list[str],
    dtype: list[str],
    changed: bool,
    edits: NetEdits,
    importing: ImportOptions,
    output: Output,
    plot: Plot,
    **settings: Any,
) -> None:
    """Compare every NET with the first, layer by layer and in total.

    Output, parameters, FLOPs of a forward pass, time of a training step on one device and
    memory of training, each with its factor. Layers are those of one name. One net may be
    compared with itself under several settings, separated by commas; several nets are compared
    under each of them. Edits are of all nets but the first; with one net, it is compared with
    itself as edited.

    A change is local if it alters dimensions of the edited layers and a few behind them, and
    global if all that follows gets another height and width.

    \b
    Examples:
      paleo compare vgg13 vgg19 --batch_size=64
      paleo compare vgg16 --device=K40,K80
      paleo compare vgg16 --cost_model=paleo2017 --conv_library=cudnn4,cudnn7
      paleo compare vgg16 --device=K40 --cost_model=roofline --dtype=fp32,fp64
      paleo compare nin_227 --set="conv8.filter[3]=1536" --changed
      paleo compare nin_227 --vary=scale_input=2,3,4 --totals
    """  # noqa: D301 (click takes the control character, not the escape)
    mistakes = Mistakes()
    compared: list[Any] = list(nets)
    if edits:
        reference = mistakes.check(load, nets[0], importing)
        compared = [reference, *(mistakes.check(edits.nets, nets[1:] or nets, importing) or [])]
        mistakes.raise_as(PaleoError)
    found = compare(
        compared,
        device=device_name,
        batch_size=None if batch_size is None else numbers(batch_size),
        cost_model=cost_model,
        ppp_comp=numbers(ppp_comp),
        dtype=dtype,
        importing=importing,
        **settings,
    )
    if is_verbose():
        say_what_is_used(nets, None, None, DEFAULT_COST_MODEL)
        for each in itertools.product(device_name, cost_model, dtype):
            say_what_is_used((), each[0], None, *each[1:])
    if changed:
        found = found.only_changed()
    tables = []
    if not settings["totals"]:
        tables += [
            difference_table(found.reference, difference) for difference in found.differences
        ]
    if settings["totals"] or not output.separator:
        tables.append(totals_table(found, with_notes=not tables))
    plot.write(output, tables, found.to_dict, lambda charts: charts.of_comparison(found))
