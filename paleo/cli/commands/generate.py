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
from paleo.net.generators.transformer import transformer


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


#: The metaparameters of a language model: what they are, those left out as the function has them.
_TRANSFORMER = {
    "layers": "Layers.",
    "hidden": "Width of the states.",
    "heads": "Heads of queries.",
    "kv_heads": "Heads of keys and values, which must divide --heads.  [default: --heads]",
    "head": "Size of each head.  [default: --hidden / --heads]",
    "ffn": "Width of the gated nets.  [default: 4 times --hidden]",
    "vocab": "Words.",
    "seq_len": "Length of the sequences.",
    "window": "The most words that one sees, the last up to its own.  [default: all]",
}


def _of_transformer(name: str, text: str) -> Callable[[Any], Any]:
    default = inspect.signature(transformer).parameters[name].default
    return click.option(f"--{name}", type=int, default=default, help=text)


@command.command("transformer", short_help="A decoder as LLaMA is one.")
@several(itertools.starmap(_of_transformer, _TRANSFORMER.items()))
@click.option("--tied", is_flag=True, help="Let the scores of words share the table of words.")
@click.option("--batch_size", type=int, default=1, help="Batch size in the file.")
@click.option("--name", help="Name of the net.  [default: made of layers and width]")
@file_option
@written_options
def _transformer(output: str | None, verbose: bool, **settings: Any) -> None:
    """Write a language model with RMSNorm, rotary positions, grouped heads and gated nets.

    Its dimensions are named, so that --seq_len and --dim of other commands set them.

    \b
    Examples:
      paleo generate transformer --layers=2 --hidden=512 --heads=8 -o small.json
      paleo generate transformer --kv_heads=8 --ffn=14336 --vocab=128256 -o mine.json
    """  # noqa: D301 (click takes the control character, not the escape)
    write_net(transformer(**settings), output, verbose)
