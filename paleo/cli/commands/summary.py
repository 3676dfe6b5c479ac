"""`paleo summary`: the layers of nets, with shapes, parameters, FLOPs and bytes."""

from __future__ import annotations

import functools
from typing import Any

import click

from paleo.cli.edits import NetEdits
from paleo.cli.options import Output, nets_argument, say_no_effect, setting_options
from paleo.cli.plan import CONVOLUTIONS, KERNELS, say_what_is_used
from paleo.cli.plotting import Plot, result_options
from paleo.core.errors import results_of
from paleo.step.plan import RATED
from paleo.step.settings import EstimateSettings, SummarySettings, declared
from paleo.studies.summary import summarize
from paleo.views.tables.summary import explanation_table, summary_table


@click.command("summary", short_help="Layers of nets: shapes, parameters, FLOPs, bytes.")
@nets_argument
@setting_options(SummarySettings, "batch_size", *RATED, "dtype")
@setting_options(SummarySettings, *KERNELS, *CONVOLUTIONS)
@click.option(
    "--explain",
    multiple=True,
    metavar="LAYER",
    help="Show instead why this layer takes what it takes, operation by operation: a name, a "
    "block, or a pattern such as 'conv*'. Needs --device. May be repeated.",
)
@result_options
def command(
    nets: tuple[str, ...],
    explain: tuple[str, ...],
    edits: NetEdits,
    output: Output,
    plot: Plot,
    **settings: Any,
) -> None:
    """Show the layers of each NET: output shape, parameters, FLOPs, memory, time on a device.

    One multiply-add is 2 FLOPs, a pooling window 1 an element. Times are those of one training
    step, without the update of the parameters; each is bound by what it takes most of:
    computation, memory traffic, or overhead such as the start of kernels.

    \b
    Examples:
      paleo summary alex_v2
      paleo summary nets/nin.json vgg16 --batch_size=1 --format=csv
      paleo summary resnet50 --device=K40 --ppp_comp=0.62
      paleo summary alex_v2 --device=K40 --explain=conv1 --explain='fc*'
      paleo summary vgg16 --dtype=mixed_fp16
      paleo summary vgg16 --device=K80 --plot=layers.png
      paleo summary deploy.prototxt model.onnx
      paleo summary nin_227 --set="conv8.filter[3]=1536" --remove=pool3
      paleo summary python:models:resnet18 --input=1x3x224x224
    """  # noqa: D301 (click takes the control character, not the escape)
    if explain and settings["device"] is None:
        raise click.UsageError("--explain needs --device")
    edited = edits.applied()
    if settings["device"] is None:
        say_no_effect("--device", *declared(EstimateSettings))
    summaries = results_of(functools.partial(summarize, explain=explain, **settings), edited)
    say_what_is_used(nets, settings)
    tables = [summary_table(summary) for summary in summaries]
    if explain:
        tables = [explanation_table(each, layer) for each in summaries for layer in each.explained]
    plot.write(
        output,
        tables,
        lambda: {"nets": [summary.to_dict() for summary in summaries]},
        lambda charts: charts.of_summaries(summaries),
    )
