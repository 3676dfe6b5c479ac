"""`paleo metrics`: what running and training nets takes, from operations to money."""

from __future__ import annotations

from typing import Any

import click

from paleo.cli.edits import NetEdits, edit_options
from paleo.cli.options import (
    NET,
    Names,
    Output,
    device_option,
    import_options,
    is_verbose,
    network_option,
    number,
    numbers,
    output_options,
)
from paleo.cli.plan import (
    SCHEMES_HELP,
    batch_size_option,
    convolution_options,
    cost_model_option,
    dtype_option,
    fuse_option,
    hybrid_workers_option,
    num_workers_option,
    one_of,
    ppp_comm_option,
    ppp_comp_option,
    say_what_has_no_effect,
    say_what_is_used,
    use_pipeline_option,
)
from paleo.cli.plotting import Plot, plot_option
from paleo.cli.training import optimizer_option, price_option, schedule_options
from paleo.collectives import COLLECTIVES
from paleo.importers import ImportOptions
from paleo.metrics import PARALLELISMS, metrics
from paleo.parallelism import SCALINGS
from paleo.tables.metrics import metrics_table

#: The options that one kind of parallelism alone looks at.
_ONLY_FOR = {
    "num_workers": "data",
    "scaling": "data",
    "scheme": "data",
    "hybrid_workers": "hybrid",
}


@click.command("metrics", short_help="Time, energy, memory, cost of running and training nets.")
@click.argument("nets", nargs=-1, required=True, type=NET, metavar="NET...")
@device_option
@network_option
@batch_size_option
@num_workers_option((1,))
@click.option(
    "--scaling",
    default="strong",
    show_default=True,
    help="weak: a batch for every worker; strong: one batch divided among them.",
    **one_of(SCALINGS),
)
@click.option(
    "--scheme",
    metavar="NAME",
    show_default="the best",
    shell_complete=Names(COLLECTIVES).shell_complete,
    help="Communication scheme. " + SCHEMES_HELP,
)
@click.option(
    "--parallel",
    type=click.Choice(PARALLELISMS),
    default="data",
    show_default=True,
    help="data: a copy of the net on each worker; hybrid: unsplit layers data-parallel, split "
    "ones model-parallel.",
)
@hybrid_workers_option
@ppp_comp_option
@ppp_comm_option
@use_pipeline_option
@convolution_options
@cost_model_option
@dtype_option
@fuse_option
@schedule_options
@click.option(
    "--weight_bits",
    type=int,
    help="Bits of a stored weight.  [default: those of a parameter's type]",
)
@click.option(
    "--sparsity",
    type=float,
    default=0.0,
    show_default=True,
    help="Share of the weights that are zero, and not stored.",
)
@click.option(
    "--index_bits",
    type=int,
    default=0,
    show_default=True,
    help="Bits that say where a stored weight stands.",
)
@optimizer_option
@price_option
@click.option(
    "--power", help="Power of one device, such as '180 W'.  [default: that of the device's file]"
)
@edit_options
@import_options
@output_options
@plot_option
def command(
    nets: tuple[str, ...],
    device_name: str,
    network_name: str,
    num_workers: list[str],
    epochs: float | None,
    price: str | None,
    edits: NetEdits,
    importing: ImportOptions,
    output: Output,
    plot: Plot,
    **settings: Any,
) -> None:
    """Show what running and training each NET takes.

    Inference and memory are those of one device at the batch of one worker. A training step is
    that of `paleo simulate`; the whole training is dataset_size / batch * epochs of them. Energy
    is power times time, as if every device took its full power all along. Computation equals
    communication at the number of workers whose exchange first takes as long as what they
    compute.

    \b
    Examples:
      paleo metrics vgg16 --device=K40 --batch_size=32
      paleo metrics nin --epochs=47 --dataset=imagenet --num_workers=1,8,32
      paleo metrics squeezenet --weight_bits=6 --sparsity=0.67 --index_bits=4
      paleo metrics alex_v2 --device=K80 --epochs=90 --dataset=imagenet
      paleo metrics alex_v2_8gpu --parallel=hybrid --hybrid_workers=8
    """  # noqa: D301 (click takes the control character, not the escape)
    found = metrics(
        edits.applied(nets, importing),
        device=device_name,
        network=network_name,
        workers=numbers(num_workers),
        epochs=epochs,
        price=None if price is None else number(price),
        importing=importing,
        **settings,
    )
    if is_verbose():
        say_what_is_used(nets, device_name, network_name, settings["cost_model"], settings["dtype"])
    say_what_has_no_effect(settings["parallel"], _ONLY_FOR)
    plot.write(
        output,
        [metrics_table(found)],
        lambda: {"metrics": [each.to_dict() for each in found]},
        lambda charts: charts.of_metrics(found),
    )
