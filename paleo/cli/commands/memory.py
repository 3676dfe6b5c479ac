"""`paleo memory`: what nets take of a device's memory, layer by layer and at their peak."""

from __future__ import annotations

import functools
from typing import Any

import click

from paleo.cli.edits import NetEdits, edit_options
from paleo.cli.options import (
    DEVICE,
    NET,
    Names,
    Output,
    import_options,
    is_verbose,
    output_options,
    verbose,
)
from paleo.cli.plan import dtype_option, say_no_effect
from paleo.cli.plotting import Plot, plot_option
from paleo.errors import Mistakes, PaleoError, SettingError
from paleo.hardware import find_device
from paleo.importers import ImportOptions
from paleo.load import net_source
from paleo.memory import OPTIMIZERS, fit
from paleo.tables.memory import memory_table
from paleo.units import parse


@click.command("memory", short_help="Memory of nets in training and inference, and what fits.")
@click.argument("nets", nargs=-1, required=True, type=NET, metavar="NET...")
@click.option("--batch_size", type=int, help="Samples in a batch.  [default: the file's]")
@click.option(
    "--optimizer",
    default="sgd",
    show_default=True,
    shell_complete=Names(OPTIMIZERS).shell_complete,
    metavar="[" + "|".join(OPTIMIZERS) + "]",
    help="Rule of the update: "
    + "; ".join(f"{each.name} ({each.summary})" for each in OPTIMIZERS.values())
    + ".",
)
@click.option("--inference", is_flag=True, help="A forward pass alone, which keeps nothing.")
@dtype_option
@click.option(
    "--workspace",
    metavar="SIZE",
    help='Memory to add at every point, such as a library\'s scratch: "4 GiB".',
)
@click.option(
    "--device_name",
    "--device",
    type=DEVICE,
    help="Say what fits this device: a name of `paleo devices`, or a TOML file of your own.",
)
@edit_options
@import_options
@output_options
@plot_option
def command(
    nets: tuple[str, ...],
    batch_size: int | None,
    optimizer: str,
    inference: bool,
    dtype: str,
    workspace: str | None,
    device_name: str | None,
    edits: NetEdits,
    importing: ImportOptions,
    output: Output,
    plot: Plot,
) -> None:
    """Show what each NET takes of a device's memory: layer by layer, in all, at the peak.

    Training keeps the activations that the backward pass needs, as PyTorch does; a tensor
    counts once, with the layer that makes it. The peak is the most that is alive at any
    point of forward pass, backward pass and update.

    \b
    Examples:
      paleo memory resnet50 --batch_size=32
      paleo memory vgg16 --batch_size=64 --optimizer=adam --device=K40
      paleo memory googlenet --inference --dtype=fp16
      paleo memory alexnet --workspace="1 GiB" --device=TITAN_X
      paleo memory nin_227 --scale_input=2
    """  # noqa: D301 (click takes the control character, not the escape)
    mistakes = Mistakes()
    if inference:
        say_no_effect("optimizer", "training")
    edited = mistakes.check(edits.applied, nets, importing) or []
    device = mistakes.check(find_device, device_name) if device_name is not None else None
    added = mistakes.check(_parsed, workspace) if workspace is not None else 0
    settings: dict[str, Any] = {
        "optimizer": optimizer,
        "training": not inference,
        "dtype": dtype,
        "workspace": added or 0,
        "importing": importing,
    }
    asked = functools.partial(fit, device=device, **settings)
    found = [mistakes.check(asked, net, batch_size) for net in edited]
    mistakes.raise_as(PaleoError)
    if is_verbose():
        for name in nets:
            verbose(f"net {name}: {net_source(name)}")
    fits = [each for each in found if each is not None]
    plot.write(
        output,
        [memory_table(each) for each in fits],
        lambda: {"nets": [each.to_dict() for each in fits]},
        lambda charts: charts.of_fits(fits),
    )


def _parsed(workspace: str) -> float:
    try:
        return parse(workspace, "bytes")
    except ValueError as error:
        raise SettingError(f"workspace: {error}") from None
