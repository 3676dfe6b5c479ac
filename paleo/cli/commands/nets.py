"""`paleo nets`: the predefined nets, and the JSON Schema of the format."""

from __future__ import annotations

import click

from paleo.cli.options import Names, Output, output_options
from paleo.cli.printing import show
from paleo.net.layers import LAYERS
from paleo.net.load import load, net_names
from paleo.net.reference import layer_section
from paleo.net.schema import net_schema
from paleo.views.answers.listing import nets_answer
from paleo.views.table import to_json
from paleo.views.tables.nets import net_rows, net_table


@click.command("nets", short_help="List the predefined nets; describe net files.")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of net files instead.")
@click.option(
    "--layer",
    metavar="TYPE",
    shell_complete=Names(LAYERS).shell_complete,
    help="Describe this layer type instead.",
)
@output_options
def command(schema: bool, layer: str | None, output: Output) -> None:
    """List the predefined nets: parameters, FLOPs of one sample, and where they are published."""
    if schema or layer:
        show(layer_section(layer) if layer else to_json(net_schema()))
        return
    rows = net_rows((name, load(name)) for name in net_names())
    output.write([net_table(rows)], lambda: {"nets": rows}, lambda: nets_answer(rows))
