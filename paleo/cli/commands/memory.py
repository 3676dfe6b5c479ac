"""`paleo memory`: what nets take of a device's memory, layer by layer and at their peak."""

from __future__ import annotations

from typing import Any

import click

from paleo.cli.edits import NetEdits
from paleo.cli.options import (
    Output,
    layers_option,
    nets_argument,
    say_no_effect,
    setting_option,
    setting_options,
)
from paleo.cli.plan import say_what_is_used
from paleo.cli.plotting import Plot, result_options
from paleo.step.declarations import declared
from paleo.step.plan import TRAINED
from paleo.studies.folding import folded_fit
from paleo.studies.memory import MemorySettings, memory
from paleo.views.answers.memory import memory_answer
from paleo.views.tables.memory import memory_table, memory_tables


@click.command("memory", short_help="Memory of training or inference, and what fits.")
@nets_argument
@setting_options(MemorySettings, "batch_size", "optimizer", "optimizer_kernels")
@setting_options(MemorySettings, *TRAINED, "inference", "dtype")
@setting_option(declared(MemorySettings)["workspace"], type=str)
@setting_options(MemorySettings, "device")
@result_options
@layers_option
def command(
    nets: tuple[str, ...],
    edits: NetEdits,
    output: Output,
    plot: Plot,
    every_layer: bool,
    **settings: Any,
) -> None:
    """Show how much device memory each NET needs, in total and layer by layer.

    Training keeps the activations that the backward pass needs, as PyTorch does. A tensor counts
    once, for the layer that makes it. The peak is the most that is held at any moment of forward
    pass, backward pass and update.

    \b
    Examples:
      paleo memory resnet50 --batch_size=32
      paleo memory vgg16 --batch_size=64 --optimizer=adam --device=K40
      paleo memory gpt2 --batch_size=8 --dtype=mixed_bf16 --recompute=full
      paleo memory googlenet --inference --dtype=fp16
      paleo memory alexnet --workspace="1 GiB" --device=TITAN_X
      paleo memory nin_227 --scale_input=2
    """  # noqa: D301 (click takes the control character, not the escape)
    if settings["inference"]:
        say_no_effect("training", "optimizer", "optimizer_kernels", *TRAINED)
    fits = memory(edits.applied(), **settings)
    say_what_is_used(nets)
    shown = fits if every_layer else list(map(folded_fit, fits))
    plot.write(
        output,
        # Programs get all layers.
        memory_tables(shown) if output.for_people else list(map(memory_table, fits)),
        lambda: {"nets": [result.to_dict() for result in fits]},
        lambda charts: charts.of_fits(shown),
        answer=lambda: memory_answer(fits),
    )
