"""`paleo summary`: the layers of nets, with shapes, parameters, FLOPs and bytes."""

from __future__ import annotations

import functools
from typing import Any

import click

from paleo.cli.edits import NetEdits, edit_options
from paleo.cli.options import (
    DEVICE,
    NET,
    Output,
    import_options,
    is_verbose,
    output_options,
)
from paleo.cli.plan import (
    convolution_options,
    cost_model_option,
    dtype_option,
    fuse_option,
    ppp_comp_option,
    say_no_effect,
    say_what_is_used,
    use_pipeline_option,
)
from paleo.cli.plotting import Plot, plot_option
from paleo.errors import Mistakes, PaleoError
from paleo.importers import ImportOptions
from paleo.summary import summarize
from paleo.tables.summary import explanation_table, summary_table


@click.command("summary", short_help="Layers of nets: shapes, parameters, FLOPs, bytes.")
@click.argument("nets", nargs=-1, required=True, type=NET, metavar="NET...")
@click.option("--batch_size", type=int, help="Samples in a batch.  [default: the file's]")
@click.option(
    "--device_name",
    "--device",
    type=DEVICE,
    help="Add the times of each layer on this device: a name of `paleo devices`, or a TOML file "
    "of your own.",
)
@cost_model_option
@dtype_option
@ppp_comp_option
@use_pipeline_option
@fuse_option
@convolution_options
@click.option(
    "--explain",
    multiple=True,
    metavar="LAYER",
    help="Show instead why this layer takes what it takes, operation by operation: a name, a "
    "block, or a pattern such as 'conv*'. Needs --device. May be repeated.",
)
@edit_options
@import_options
@output_options
@plot_option
def command(
    nets: tuple[str, ...],
    batch_size: int | None,
    device_name: str | None,
    cost_model: str,
    dtype: str,
    ppp_comp: float,
    use_pipeline: bool,
    fuse: bool,
    conv_library: str | None,
    workspace: Any,
    use_only_gemm: bool,
    explain: tuple[str, ...],
    edits: NetEdits,
    importing: ImportOptions,
    output: Output,
    plot: Plot,
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
    if explain and device_name is None:
        raise click.UsageError("--explain needs --device")
    mistakes = Mistakes()
    edited = edits.applied(nets, importing)
    if device_name is None:
        for option in (
            *("cost_model", "ppp_comp", "use_pipeline", "fuse"),
            *("conv_library", "workspace", "use_only_gemm"),
        ):
            say_no_effect(option, "--device")
    asked = functools.partial(
        summarize,
        device=device_name,
        cost_model=cost_model,
        ppp_comp=ppp_comp,
        use_pipeline=use_pipeline,
        dtype=dtype,
        fuse=fuse,
        explain=explain,
        conv_library=conv_library,
        workspace=workspace,
        use_only_gemm=use_only_gemm,
    )
    found = [mistakes.check(asked, net, batch_size, importing) for net in edited]
    mistakes.raise_as(PaleoError)
    summaries = [summary for summary in found if summary is not None]
    if is_verbose():
        say_what_is_used(nets, device_name, None, cost_model, dtype)
    tables = [summary_table(summary) for summary in summaries]
    if explain:
        tables = [explanation_table(each, layer) for each in summaries for layer in each.explained]
    plot.write(
        output,
        tables,
        lambda: {"nets": [summary.to_dict() for summary in summaries]},
        lambda charts: charts.of_summaries(summaries),
    )
