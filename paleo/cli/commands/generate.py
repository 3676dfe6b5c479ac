"""`paleo generate`: nets from metaparameters, as net files."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from typing import Any

import click

from paleo.cli.files import file_option, write_net, written_options
from paleo.cli.options import one_of, several
from paleo.net.generators.squeezenet import BYPASSES, squeezenet


@click.group(
    "generate",
    short_help="Write a net file from a few parameters.",
    invoke_without_command=True,
)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Make a net from a few parameters and write it as a net file, Paleo's JSON format."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(2)


#: The metaparameters of SqueezeNet: their types and defaults are those of the function.
_SQUEEZENET = {
    "base_e": "Expand filters of the first Fire module.",
    "incr_e": "Expand filters that are added after every --freq modules.",
    "pct3x3": "Share of the expand filters that is 3x3, from 0 to 1; the others are 1x1.",
    "freq": "Fire modules after which there are more filters.",
    "sr": "Squeeze ratio, of squeeze filters to expand filters, above 0, up to 1.",
    "num_fire": "Fire modules.",
    "bypass": "simple: the input of a module is added to its output where both have as many "
    "channels; complex: elsewhere too, through a 1x1 convolution.",
    "image_size": "Height and width of the images.",
    "num_classes": "Classes.",
}


def _metaparameter(name: str, text: str) -> Callable[[Any], Any]:
    default = inspect.signature(squeezenet).parameters[name].default
    said = one_of(BYPASSES) if name == "bypass" else {}
    return click.option(f"--{name}", type=type(default), default=default, help=text, **said)


@command.command("squeezenet", short_help="SqueezeNet and its design space.")
@several(itertools.starmap(_metaparameter, _SQUEEZENET.items()))
@click.option("--batch_size", type=int, default=128, help="Batch size in the file.")
@click.option("--name", help="Name of the net.  [default: made of the other settings]")
@file_option
@written_options
def _squeezenet(output: str | None, verbose: bool, **settings: Any) -> None:
    """Write SqueezeNet, or a net of its design space.

    The metaparameters are those of Iandola et al., arXiv:1602.07360, section 5.1. Numbers of
    filters are rounded to the nearest whole number, a half up. Max-pooling follows conv1 and the
    first 3/8 and 7/8 of the Fire modules.

    \b
    Examples:
      paleo generate squeezenet
      paleo generate squeezenet --sr=0.75 -o wide.json
      paleo generate squeezenet --sr=0.5 --bypass=complex -o net.json
    """  # noqa: D301 (click takes the control character, not the escape)
    write_net(squeezenet(**settings), output, verbose)
