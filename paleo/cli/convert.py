"""`paleo convert`: a net of another framework as a net file."""

from __future__ import annotations

import os
from dataclasses import replace

import click

from paleo.cli.files import write_file
from paleo.cli.options import NET, import_options
from paleo.importers import ImportOptions
from paleo.load import load, loads
from paleo.netwriter import dumps
from paleo.summary import summarize


@click.command("convert", short_help="Write a prototxt, ONNX file or PyTorch module as a net file.")
@click.argument("net", type=NET, metavar="NET")
@click.option(
    "-o",
    "--output",
    type=click.Path(readable=False),
    help="The file to write.  [default: standard output]",
)
@click.option("--name", help="The net's name.  [default: what the source calls it]")
@click.option("--source", help="Where the net is published, for the net file's `source`.")
@click.option("--batch_size", type=int, help="The file's batch.  [default: the source's]")
@import_options
@click.option("--verbose", is_flag=True, help="Say on standard error what is written.")
@click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")
def command(
    net: str,
    output: str | None,
    name: str | None,
    source: str | None,
    batch_size: int | None,
    importing: ImportOptions,
    verbose: bool,
) -> None:
    """Write NET as a net-spec, the JSON format of Paleo's own nets.

    NET is a Caffe prototxt, an ONNX file, or python:package.module:name, a PyTorch module or
    a function without arguments that returns one. Weights are not needed. A file is only
    read; a python: target alone is imported, which runs its code.

    \b
    Examples:
      paleo convert resnet50.prototxt -o resnet50.json
      paleo convert model.onnx --dim sequence=128
      paleo convert python:models:resnet18 --input 1x3x224x224 -o resnet18.json
    """  # noqa: D301 (click takes the control character, not the escape)
    spec = load(net, importing)
    if name is not None:
        spec = replace(spec, name=name)
    if source is not None:
        spec = replace(spec, source=source)
    if batch_size is not None:
        spec = spec.with_batch(batch_size)
    text = dumps(spec)
    for note in summarize(loads(text, file=output)).notes:
        click.echo(f"paleo: note: {note}", err=True)
    if output is None:
        click.echo(text, nl=False)
        return
    write_file(output, text)
    if verbose:
        click.echo(f"paleo: {os.fspath(output)}: {len(spec.layers)} layers", err=True)
