"""`paleo summary`: the layers of nets, with shapes, parameters, FLOPs and bytes."""

from __future__ import annotations

import click

from paleo.cli.options import (
    NET,
    Output,
    import_options,
    is_verbose,
    output_options,
    verbose,
)
from paleo.errors import Mistakes, PaleoError
from paleo.importers import ImportOptions
from paleo.load import net_source
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


@click.command("summary", short_help="Layers of nets: shapes, parameters, FLOPs, bytes.")
@click.argument("nets", nargs=-1, required=True, type=NET, metavar="NET...")
@click.option("--batch_size", type=int, help="Samples in a batch.  [default: the file's]")
@import_options
@output_options
def command(
    nets: tuple[str, ...], batch_size: int | None, importing: ImportOptions, output: Output
) -> None:
    """Show the layers of each NET: output shape, parameters, FLOPs, memory.

    One multiply-add is 2 FLOPs, a pooling window 1 an element; elements have 4 bytes.

    \b
    Examples:
      paleo summary alex_v2
      paleo summary nets/nin.json vgg16 --batch_size=1 --format=csv
      paleo summary deploy.prototxt model.onnx
      paleo summary python:models:resnet18 --input=1x3x224x224
    """  # noqa: D301 (click takes the control character, not the escape)
    mistakes = Mistakes()
    found = [mistakes.check(summarize, net, batch_size, importing) for net in nets]
    mistakes.raise_as(PaleoError)
    summaries = [summary for summary in found if summary is not None]
    if is_verbose():
        for net in nets:
            verbose(f"net {net}: {net_source(net)}")
    output.write(
        [_table(summary) for summary in summaries],
        lambda: {"nets": [summary.to_dict() for summary in summaries]},
    )


def _short(parents: tuple[str, ...]) -> str:
    """Return the first parents, and how many more there are: a table is to fit a screen."""
    more = f", +{len(parents) - 2}" if len(parents) > 2 else ""
    return ", ".join(parents[:2]) + more


def _table(summary: NetSummary) -> Table:
    rows = [
        {
            "net": summary.name,
            **layer.to_dict(),
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
    }
    plural = "s" * (len(rows) != 1)
    title = f"{summary.name}, batch {summary.batch_size}, {len(rows)} layer{plural}"
    return Table(title, _COLUMNS, rows, total, notes=summary.notes)
