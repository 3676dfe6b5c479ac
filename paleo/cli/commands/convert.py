"""`paleo convert`: a net of another framework as a net file."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from paleo.cli.edits import NetEdits, net_options
from paleo.cli.files import file_option, write_net, written_options
from paleo.cli.options import NET
from paleo.cli.printing import say
from paleo.core.errors import SettingError
from paleo.net.graph import checked_batch
from paleo.net.importers import CODE, importer_of
from paleo.net.load import net_source
from paleo.studies.summary import summarize


@click.command("convert", short_help="Write any net, edited or not, as a net file.")
@click.argument("net", type=NET, metavar="NET")
@file_option
@click.option("--name", help="Name of the net.  [default: as in the source]")
@click.option("--source", help="Where the net is published; written into the file.")
@click.option("--batch_size", type=int, help="Batch size in the file.  [default: as in the source]")
@net_options
@written_options
def command(
    net: str,
    output: str | None,
    name: str | None,
    source: str | None,
    batch_size: int | None,
    edits: NetEdits,
    verbose: bool,
    **_: Any,
) -> None:
    """Write NET as a net file, the JSON format of Paleo's own nets.

    NET is a Caffe prototxt, an ONNX, .pt2 or Keras file, the folder of a TensorFlow SavedModel, a
    PyTorch module (python:package.module:name, or a function without arguments that returns one), a
    net of an installed package (timm:NAME, torchvision:NAME), or any other net that is to be
    edited. Weights are not needed. Files are only read; python: imports the module, which runs its
    code.

    \b
    Examples:
      paleo convert resnet50.prototxt -o resnet50.json
      paleo convert model.onnx --dim sequence=128
      paleo convert python:models:resnet18 --input 1x3x224x224 -o resnet18.json
      paleo convert timm:regnety_016 -o regnety_016.json
      paleo convert nin_227 --set="conv8.filter[3]=1536" -o wider.json
    """  # noqa: D301 (click takes the control character, not the escape)
    found = edits.nets()
    if len(found) > 1:
        raise SettingError(f"vary: a file holds one net, and these are {len(found)}")
    spec = found[0]
    if name is not None:
        if not name:
            raise SettingError("name: expected the net's name, got an empty one")
        spec = replace(spec, name=name)
    if source is not None:
        spec = replace(spec, source=source)
    if batch_size is not None:
        spec = spec.with_batch(int(checked_batch(batch_size)))
    for note in summarize(spec).notes:
        say(f"note: {note}")
    _check_output(net, output)
    write_net(spec, output, verbose)


def _check_output(net: str, output: str | None) -> None:
    """Raise SettingError if the file to write is the one that is read."""
    if output is None or importer_of(net) is None or net.startswith(CODE):
        return
    with contextlib.suppress(OSError):
        if Path(net_source(net)).samefile(output):
            raise SettingError(f"{output}: it is the file that is converted; name another")
