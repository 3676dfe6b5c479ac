"""`paleo summary`: the layers of nets, with shapes, parameters, FLOPs and bytes."""

from __future__ import annotations

import functools

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
    cost_model_option,
    ppp_comp_option,
    say_no_effect,
    say_what_is_used,
    use_pipeline_option,
)
from paleo.errors import Mistakes, PaleoError
from paleo.importers import ImportOptions
from paleo.report import Column, Table
from paleo.summary import NetSummary, summarize
from paleo.tensor import format_shape

_COLUMNS = (
    Column("net"),
    Column("name", "layer"),
    Column("type", "type"),
    Column("parents"),
    Column("first_parents", "parents", for_people=True),
    Column("output", "output"),
    Column("params", "parameters"),
    Column("forward_flops", "forward", "FLOP"),
    Column("weights_bytes", "weights", "bytes"),
    Column("activations_bytes", "activations", "bytes"),
)
_TIMES = (
    Column("forward_s", "forward", "s"),
    Column("backward_s", "backward", "s"),
    *map(Column, ("device", "cost_model", "ppp_comp", "use_pipeline")),
)


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
@ppp_comp_option
@use_pipeline_option
@edit_options
@import_options
@output_options
def command(
    nets: tuple[str, ...],
    batch_size: int | None,
    device_name: str | None,
    cost_model: str,
    ppp_comp: float,
    use_pipeline: bool,
    edits: NetEdits,
    importing: ImportOptions,
    output: Output,
) -> None:
    """Show the layers of each NET: output shape, parameters, FLOPs, memory, time on a device.

    One multiply-add is 2 FLOPs, a pooling window 1 an element; elements have 4 bytes. Times
    are those of one training step, without the update of the parameters.

    \b
    Examples:
      paleo summary alex_v2
      paleo summary nets/nin.json vgg16 --batch_size=1 --format=csv
      paleo summary resnet50 --device=K40 --ppp_comp=0.62
      paleo summary deploy.prototxt model.onnx
      paleo summary nin_227 --set="conv8.filter[3]=1536" --remove=pool3
      paleo summary python:models:resnet18 --input=1x3x224x224
    """  # noqa: D301 (click takes the control character, not the escape)
    mistakes = Mistakes()
    edited = edits.applied(nets, importing)
    if device_name is None:
        say_no_effect("cost_model", "--device")
        say_no_effect("ppp_comp", "--device")
        say_no_effect("use_pipeline", "--device")
    asked = functools.partial(
        summarize,
        device=device_name,
        cost_model=cost_model,
        ppp_comp=ppp_comp,
        use_pipeline=use_pipeline,
    )
    found = [mistakes.check(asked, net, batch_size, importing) for net in edited]
    mistakes.raise_as(PaleoError)
    summaries = [summary for summary in found if summary is not None]
    if is_verbose():
        say_what_is_used(nets, device_name, None, cost_model)
    output.write(
        [_table(summary) for summary in summaries],
        lambda: {"nets": [summary.to_dict() for summary in summaries]},
    )


def _short(parents: tuple[str, ...]) -> str:
    """Return the first parents, and how many more there are: a table is to fit a screen."""
    more = f", +{len(parents) - 2}" if len(parents) > 2 else ""
    return ", ".join(parents[:2]) + more


def _table(summary: NetSummary) -> Table:
    timed_on = summary.timed_on
    rows = [
        {
            "net": summary.name,
            **layer.to_dict(),
            **(timed_on.to_dict() if timed_on else {}),
            "output": format_shape(layer.output),
            "first_parents": _short(layer.parents),
        }
        for layer in summary.layers
    ]
    total = {
        "name": "total",
        "params": summary.num_params,
        "forward_flops": summary.forward_flops,
        "weights_bytes": summary.weights_bytes,
        "activations_bytes": summary.activations_bytes,
        "forward_s": summary.forward,
        "backward_s": summary.backward,
    }
    plural = "s" * (len(rows) != 1)
    title = f"{summary.name}, batch {summary.batch_size}, {len(rows)} layer{plural}"
    columns: tuple[Column, ...] = _COLUMNS
    if timed_on:
        title += f", on {timed_on.device}, {timed_on.cost_model}, ppp_comp {timed_on.ppp_comp:g}"
        columns += _TIMES
    return Table(title, columns, rows, total, notes=summary.notes)
