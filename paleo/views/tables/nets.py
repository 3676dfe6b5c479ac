"""`paleo nets`: the predefined nets, and the JSON Schema of the format."""

from __future__ import annotations

import click

from paleo.cli.options import Output, cite, output_options
from paleo.load import load, net_names
from paleo.report import Column, Table, to_json
from paleo.schema import net_schema
from paleo.summary import summarize
from paleo.tensor import format_shape

_COLUMNS = (
    Column("name", "net"),
    Column("input", "input"),
    Column("layers", "layers"),
    Column("params", "parameters"),
    Column("forward_flops_per_sample", "forward, of\none sample", "FLOP"),
    Column("cited", "cited", for_people=True),
    Column("source"),
)


@click.command("nets", short_help="The predefined nets, and the schema of net files.")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of net files instead.")
@output_options
def command(schema: bool, output: Output) -> None:
    """List the predefined nets: size, FLOPs of one sample, and where they are published."""
    if schema:
        click.echo(to_json(net_schema()), nl=False)
        return
    rows = []
    for name in net_names():
        net = load(name)
        summary = summarize(net, 1)
        inputs = [layer for layer in summary.layers if layer.type_name == "Input"]
        rows.append(
            {
                "name": name,
                "input": ", ".join(format_shape(layer.output[1:]) for layer in inputs),
                "layers": len(summary.layers),
                "params": summary.num_params,
                "forward_flops_per_sample": summary.forward_flops,
                "source": net.source,
            }
        )
    cited, sources = cite(rows, [[str(row["source"])] for row in rows])
    output.write([Table("", _COLUMNS, cited, footnotes=sources)], lambda: {"nets": rows})
