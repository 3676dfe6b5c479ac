"""`paleo compare`: nets, or settings, against the first of them."""

from __future__ import annotations

from typing import Any

import click

from paleo.cli.comparing import print_plans
from paleo.cli.edits import NetEdits
from paleo.cli.options import (
    Output,
    is_given,
    layers_option,
    nets_argument,
    setting_option,
    setting_options,
)
from paleo.cli.plotting import Plot, result_options
from paleo.cli.setting_groups import (
    CLUSTER,
    CONVOLUTIONS,
    KERNELS,
    MESH,
    SYNCHRONOUS,
    UPDATE,
    say_what_is_used,
)
from paleo.step.declarations import declared
from paleo.step.plan import RATED
from paleo.studies.compare import compare
from paleo.studies.compare.comparison import CompareSettings
from paleo.studies.compare.folding import folded_comparison
from paleo.studies.compare.plans import PlansSettings
from paleo.views.answers.comparison import comparison_answer
from paleo.views.tables.comparison import comparison_tables

#: Settings of plans of devices that share a net.
_OF_PLANS = ("plan", *MESH, "loader_rate")


@click.command("compare", short_help="Compare nets, or one net under several settings.")
@nets_argument
@setting_options(CompareSettings, *CLUSTER, *RATED[1:], *UPDATE, "loss", "recompute")
@setting_options(CompareSettings, "ppp_comm", "scheme", *SYNCHRONOUS)
@setting_options(CompareSettings, "dtype", *CONVOLUTIONS, *KERNELS)
@setting_options(PlansSettings, *MESH, "plan")
@setting_option(declared(PlansSettings)["loader_rate"], type=str)
@click.option(
    "--totals", is_flag=True, help="Compare totals alone: the nets need have no layer in common."
)
@click.option("--changed", is_flag=True, help="Leave out layers that are the same in everything.")
@result_options
@layers_option
def command(
    nets: tuple[str, ...],
    changed: bool,
    every_layer: bool,
    edits: NetEdits,
    output: Output,
    plot: Plot,
    **settings: Any,
) -> None:
    """Compare every NET with the first, layer by layer and in total.

    Compared are output, parameters, FLOPs of a forward pass, time of a training step on one device,
    and memory of training, each with the factor between both nets. Layers of the same name are
    compared with each other.

    Settings may be lists (--device=K40,K80): one net is then compared with itself under each.
    Edits such as --set apply to all nets but the first; a single net is compared with its edited
    self. An edit is local if only the edited layers and a few behind them change, and global if
    everything behind them gets another height and width.

    With --plan, or options of devices that share a net (--tp, --pp, --zero, ...) or wait for data
    (--loader_rate), nets or plans are compared by their steps, tokens a second and memory, not
    layer by layer. What cannot be divided so is left out.

    \b
    Examples:
      paleo compare vgg13 vgg19 --batch_size=64
      paleo compare vgg16 --device=K40,K80
      paleo compare vgg16 --cost_model=paleo2017 --conv_library=cudnn4,cudnn7
      paleo compare vgg16 --device=K40 --cost_model=roofline --dtype=fp32,fp64
      paleo compare llama3_8b qwen3_8b gemma3_12b --device=B200_SXM --dtype=bf16
      paleo compare gpt2 --dtype=bf16 --recompute=none,full --seq_len=512
      paleo compare nin --cluster=aws_p3dn --num_workers=64 --compress=topk,onebit
      paleo compare llama3_8b --cluster=dgx_h100 --num_workers=64 --tp=2,4 --pp=2
      paleo compare nin_227 --set="conv8.filter[3]=1536" --changed
      paleo compare nin_227 --vary=scale_input=2,3,4 --totals
    """  # noqa: D301 (click takes the control character, not the escape)
    if any(map(is_given, _OF_PLANS)):
        print_plans(nets, edits, output, plot, settings)
        return
    for name in _OF_PLANS:
        del settings[name]
    found = compare(edits.beside(), **settings)
    say_what_is_used(nets, settings)
    found = found.only_changed() if changed else found
    shown = found if every_layer else folded_comparison(found)
    tables = comparison_tables(
        shown, only_totals=settings["totals"], with_totals=not output.separator
    )
    plot.write(
        output,
        tables,
        found.to_dict,
        lambda charts: charts.of_comparison(shown),
        answer=lambda: comparison_answer(found),
    )
