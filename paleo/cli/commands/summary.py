"""`paleo summary`: the layers of nets, with shapes, parameters, FLOPs and bytes."""

from __future__ import annotations

import functools
from typing import Any

import click

from paleo.cli.edits import NetEdits
from paleo.cli.options import (
    Output,
    is_given,
    layers_option,
    nets_argument,
    say_no_effect,
    setting_options,
)
from paleo.cli.plotting import Plot, result_options
from paleo.cli.setting_groups import CONVOLUTIONS, KERNELS, say_what_is_used
from paleo.core.errors import results_of
from paleo.step.declarations import declared
from paleo.step.plan import RATED
from paleo.step.settings import EstimateSettings, SummarySettings
from paleo.studies.folding import folded_summary
from paleo.studies.summary import summarize
from paleo.views.answers.summary import explanation_answer, summary_answer
from paleo.views.tables.summary import explanation_table, summary_tables


@click.command("summary", short_help="The layers of a net: shapes, parameters, FLOPs, times.")
@nets_argument
@setting_options(SummarySettings, "batch_size", *RATED, "dtype")
@setting_options(SummarySettings, *KERNELS, *CONVOLUTIONS)
@click.option(
    "--explain",
    multiple=True,
    metavar="LAYER",
    help="Show instead why a layer takes its time, operation by operation: a name, a block, or a "
    "pattern such as 'conv*'. Needs --device. May be repeated.",
)
@click.option(
    "--depth",
    type=click.IntRange(min=1),
    metavar="N",
    help="Show blocks of layers down to this depth instead of layers: sums, and shares of the net.",
)
@click.option(
    "--by", type=click.Choice(["type"]), help="Show sums over the layers of each type instead."
)
@result_options
@layers_option
def command(
    nets: tuple[str, ...],
    explain: tuple[str, ...],
    depth: int | None,
    by: str | None,
    every_layer: bool,
    edits: NetEdits,
    output: Output,
    plot: Plot,
    **settings: Any,
) -> None:
    """Show the layers of each NET: output shape, parameters, FLOPs, memory, time on a device.

    One multiply-add counts as 2 FLOPs, pooling as 1 for each element of a window. Times are of one
    training step without the update of parameters. A layer is bound by what takes most of its
    time: compute, memory (traffic), or overhead (such as kernel launches).

    \b
    Examples:
      paleo summary alex_v2
      paleo summary nets/nin.json vgg16 --batch_size=1 --format=csv
      paleo summary resnet50 --device=K40 --ppp_comp=0.62
      paleo summary alex_v2 --device=K40 --explain=conv1 --explain='fc*'
      paleo summary inception_v3 --device=T4 --depth=1 --sort=time --top=5
      paleo summary vgg16 --dtype=mixed_fp16 --by=type
      paleo summary llama3_8b --seq_len=8192
      paleo summary vgg16 --device=K80 --plot=layers.png
      paleo summary deploy.prototxt model.onnx
      paleo summary nin_227 --set="conv8.filter[3]=1536" --remove=pool3
      paleo summary python:models:resnet18 --input=1x3x224x224
    """  # noqa: D301 (click takes the control character, not the escape)
    if explain and settings["device"] is None:
        raise click.UsageError("--explain needs --device")
    given = {"--explain": explain, "--depth": depth, "--by": by}
    given |= {"--every_layer": is_given("every_layer") and not explain}
    if len(chosen := [option for option, value in given.items() if value]) > 1:
        raise click.UsageError(f"{' and '.join(chosen)} do not go together")
    edited = edits.applied()
    if settings["device"] is None:
        say_no_effect("--device", *declared(EstimateSettings))
    summaries = results_of(functools.partial(summarize, explain=explain, **settings), edited)
    say_what_is_used(nets, settings)
    shown = summaries if every_layer else list(map(folded_summary, summaries))
    explained = [(each, layer) for each in shown for layer in each.explained]
    tables = [explanation_table(*each) for each in explained]
    plot.write(
        output,
        tables
        if explain
        else summary_tables(
            shown if depth is None and by is None else summaries, depth=depth, types=by is not None
        ),
        lambda: {"nets": [summary.to_dict() for summary in summaries]},
        lambda charts: charts.of_summaries(shown),
        answer=lambda: explanation_answer(explained) if explain else summary_answer(summaries),
    )
