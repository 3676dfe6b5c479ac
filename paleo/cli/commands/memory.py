"""`paleo memory`: what nets take of a device's memory, layer by layer and at their peak."""

from __future__ import annotations

import functools
from typing import Any

import click

from paleo.cli.edits import NetEdits
from paleo.cli.options import (
    Output,
    nets_argument,
    say_no_effect,
    setting_option,
    setting_options,
)
from paleo.cli.plan import say_what_is_used
from paleo.cli.plotting import Plot, result_options
from paleo.cluster import find_device
from paleo.core.errors import Mistakes, PaleoError, SettingError
from paleo.core.units import parse
from paleo.step.memory import OPTIMIZERS, fit
from paleo.step.settings import SummarySettings, declared
from paleo.studies.training import TrainingSettings
from paleo.views.tables.memory import memory_table


@click.command("memory", short_help="Memory of nets in training and inference, and what fits.")
@nets_argument
@setting_options(SummarySettings, "batch_size")
@setting_option(
    declared(TrainingSettings)["optimizer"],
    help="Rule of the update: "
    + "; ".join(f"{rule.name} ({rule.summary})" for rule in OPTIMIZERS.values())
    + ".",
)
@click.option("--inference", is_flag=True, help="A forward pass alone, which keeps nothing.")
@setting_options(SummarySettings, "dtype")
@click.option(
    "--workspace",
    metavar="SIZE",
    help='Memory to add at every point, such as a library\'s scratch: "4 GiB".',
)
@setting_option(
    declared(SummarySettings)["device"],
    help="Say what fits this device: a name of `paleo devices`, or a TOML file of your own.",
)
@result_options
def command(
    nets: tuple[str, ...],
    inference: bool,
    workspace: str | None,
    device: str | None,
    edits: NetEdits,
    output: Output,
    plot: Plot,
    **settings: Any,
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
        say_no_effect("training", "optimizer")
    edited = mistakes.check(edits.applied) or []
    found = mistakes.check(find_device, device) if device is not None else None
    added = mistakes.check(_parsed, workspace) if workspace is not None else 0
    asked = functools.partial(
        fit, device=found, training=not inference, workspace=added or 0, **settings
    )
    fits = mistakes.check_all(asked, edited)
    mistakes.raise_as(PaleoError)
    say_what_is_used(nets)
    plot.write(
        output,
        list(map(memory_table, fits)),
        lambda: {"nets": [result.to_dict() for result in fits]},
        lambda charts: charts.of_fits(fits),
    )


def _parsed(workspace: str) -> float:
    try:
        return parse(workspace, "bytes")
    except ValueError as error:
        raise SettingError(f"workspace: {error}") from None
