"""`paleo simulate`: the time of training steps of nets on a cluster."""

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
    ppp_comm_option,
    ppp_comp_option,
    say_what_has_no_effect,
    say_what_is_used,
    scalings_option,
    use_pipeline_option,
)
from paleo.cli.plotting import Plot, plot_option
from paleo.cli.tracing import Trace, trace_option
from paleo.collectives import COLLECTIVES
from paleo.importers import ImportOptions
from paleo.simulate import DEFAULT_WORKERS, PARALLELISMS, simulate
from paleo.tables.simulation import simulation_table


@click.command("simulate", short_help="Time of training steps, by number of workers.")
@click.argument("nets", nargs=-1, required=True, type=NET, metavar="NET...")
@device_option
@network_option
@batch_size_option
@num_workers_option(DEFAULT_WORKERS)
@scalings_option
@ppp_comp_option
@ppp_comm_option
@click.option(
    "--parallel",
    type=click.Choice(PARALLELISMS),
    default="data",
    show_default=True,
    help="data: a copy of the net on each worker; model: a split net's slices on a "
    "device each; hybrid: unsplit layers data-parallel, split ones model-parallel.",
)
@hybrid_workers_option
@use_pipeline_option
@convolution_options
@cost_model_option
@dtype_option
@fuse_option
@click.option(
    "--scheme",
    type=Names(COLLECTIVES),
    default=",".join(COLLECTIVES),
    show_default="all",
    metavar="NAME,...",
    help="Communication schemes to compare. " + SCHEMES_HELP,
)
@edit_options
@import_options
@output_options
@plot_option
@trace_option
def command(
    nets: tuple[str, ...],
    device_name: str,
    network_name: str,
    num_workers: list[str],
    scaling: list[str],
    scheme: list[str],
    edits: NetEdits,
    importing: ImportOptions,
    output: Output,
    plot: Plot,
    trace: Trace,
    **settings: Any,
) -> None:
    """Predict the training step of each NET on a number of workers.

    A step is forward, backward and update on each worker, then the exchange of gradients.
    The step, throughput, speedup (over one worker) and efficiency shown are those of the
    best exact scheme, marked with an asterisk: the quickest after which all workers have
    the sum, which butterfly mixing does not give in one step.

    The knee of a scheme's curve is the number of workers, of all up to 65,536, with the largest
    speedup^2 / workers: more of them waste more than they gain.

    \b
    Examples:
      paleo simulate alex_v2
      paleo simulate nin --device=K20X --network=infiniband --scaling=strong
      paleo simulate alex_v2_4gpu --parallel=model
      paleo simulate vgg16 --conv_library=cudnn4 --workspace=256MiB
      paleo simulate squeezenet --vary=squeezenet.sr=0.125,0.5,1 --num_workers=1
      paleo simulate inception_v3 --plot=scaling.svg
      paleo simulate nin --scaling=weak --num_workers=4 --trace=step.json
    """  # noqa: D301 (click takes the control character, not the escape)
    settings |= {"device": device_name, "network": network_name, "importing": importing}
    edited = edits.applied(nets, importing)
    trace.check(edited)
    result = simulate(
        edited, workers=numbers(num_workers), scaling=scaling, schemes=scheme, **settings
    )
    if is_verbose():
        say_what_is_used(nets, device_name, network_name, settings["cost_model"], settings["dtype"])
    say_what_has_no_effect(settings["parallel"], _ONLY_FOR)
    if trace.write(edited[0], result.runs, settings):
        return
    tables = [simulation_table(run) for run in result.runs]
    plot.write(output, tables, result.to_dict, lambda charts: charts.of_simulation(result))


#: The options that one kind of parallelism alone looks at.
_ONLY_FOR = {
    "num_workers": "data",
    "scaling": "data",
    "scheme": "data",
    "hybrid_workers": "hybrid",
}
