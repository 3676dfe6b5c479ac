"""`paleo generate`: nets from metaparameters, as net files."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from paleo.cli.files import write_net
from paleo.cli.options import Names
from paleo.generators.squeezenet import BYPASSES, squeezenet
from paleo.netspec import NetSpec


@click.group(
    "generate",
    short_help="Write a net made from metaparameters as a net file.",
    invoke_without_command=True,
)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Make a net from metaparameters and write it as a net-spec, Paleo's JSON format."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(2)


def _writes(function: Callable[..., NetSpec]) -> Callable[..., None]:
    """Add the options that all generators share; what the function returns is written."""

    @click.option(
        "--batch_size", type=int, default=128, show_default=True, help="The file's batch."
    )
    @click.option("--name", help="The net's name.  [default: made of the other settings]")
    @click.option(
        "-o",
        "--output",
        type=click.Path(readable=False),  # what is wrong with it, write_file says
        help="The file to write.  [default: standard output]",
    )
    @click.option("--verbose", is_flag=True, help="Say on standard error what is written.")
    @click.option(
        "--debug", is_flag=True, expose_value=False, help="Show the traceback of an error."
    )
    @functools.wraps(function)
    def generate(output: str | None, verbose: bool, **settings: Any) -> None:
        write_net(function(**settings), output, verbose)

    return generate


@command.command("squeezenet", short_help="SqueezeNet and the design space around it.")
@click.option(
    "--base_e",
    type=int,
    default=128,
    show_default=True,
    help="Expand filters of the first Fire module.",
)
@click.option(
    "--incr_e",
    type=int,
    default=128,
    show_default=True,
    help="Expand filters that are added after every --freq modules.",
)
@click.option(
    "--pct3x3",
    type=float,
    default=0.5,
    show_default=True,
    help="Share of the expand filters that is 3x3, from 0 to 1; the others are 1x1.",
)
@click.option(
    "--freq",
    type=int,
    default=2,
    show_default=True,
    help="Fire modules after which there are more filters.",
)
@click.option(
    "--sr",
    type=float,
    default=0.125,
    show_default=True,
    help="Squeeze ratio, of squeeze filters to expand filters, above 0, up to 1.",
)
@click.option("--num_fire", type=int, default=8, show_default=True, help="Fire modules.")
@click.option(
    "--bypass",
    shell_complete=Names(BYPASSES).shell_complete,
    default="none",
    show_default=True,
    metavar="[" + "|".join(BYPASSES) + "]",
    help="simple: the input of a module is added to its output where both have as many channels; "
    "complex: elsewhere too, through a 1x1 convolution.",
)
@click.option(
    "--image_size",
    type=int,
    default=227,
    show_default=True,
    help="Height and width of the images.",
)
@click.option("--num_classes", type=int, default=1000, show_default=True, help="Classes.")
@_writes
def _squeezenet(**settings: Any) -> NetSpec:
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
    return squeezenet(**settings)
