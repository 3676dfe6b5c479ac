"""`paleo memory`: what nets take of a device's memory, layer by layer and at their peak."""

from __future__ import annotations

from typing import Any

import click

from paleo.cli.edits import NetEdits
from paleo.cli.options import (
    Output,
    is_given,
    layers_option,
    nets_argument,
    say_no_effect,
    setting_option,
    setting_options,
)
from paleo.cli.plotting import Plot, result_options
from paleo.cli.setting_groups import MESH, say_what_is_used
from paleo.core.errors import SettingError
from paleo.step.declarations import declared
from paleo.step.plan_keys import TRAINED
from paleo.studies.folding import folded_fit
from paleo.studies.memory import MemorySettings, memory
from paleo.studies.mesh_memory import MeshMemorySettings, mesh_memory
from paleo.views.answers.memory import memory_answer
from paleo.views.answers.mesh_memory import mesh_memory_answer
from paleo.views.tables.memory import memory_table, memory_tables
from paleo.views.tables.mesh_memory import mesh_memory_tables


@click.command("memory", short_help="Memory of training or inference, and what fits.")
@nets_argument
@setting_options(MemorySettings, "batch_size", "optimizer", "optimizer_kernels")
@setting_options(MemorySettings, *TRAINED, "framework", "inference", "dtype")
@setting_option(declared(MemorySettings)["workspace"], type=str)
@setting_options(MemorySettings, "device")
@setting_options(MeshMemorySettings, "cluster", "workers", *MESH)
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
    pass, backward pass and update. With --cluster, or options of devices that share a net, it is
    shown what one device of each stage takes.

    \b
    Examples:
      paleo memory resnet50 --batch_size=32
      paleo memory vgg16 --batch_size=64 --optimizer=adam --device=K40
      paleo memory gpt2 --batch_size=8 --dtype=mixed_bf16 --recompute=full
      paleo memory llama3_2_1b --batch_size=2 --framework=transformers
      paleo memory googlenet --inference --dtype=fp16
      paleo memory alexnet --workspace="1 GiB" --device=TITAN_X
      paleo memory nin_227 --scale_input=2
      paleo memory llama3_8b --cluster=dgx_h100 --num_workers=8 --tp=4 --pp=2
    """  # noqa: D301 (click takes the control character, not the escape)
    shared = {name: settings.pop(name) for name in ("cluster", "workers", *MESH)}
    if any(map(is_given, ("cluster", *MESH))):
        _of_mesh(edits.applied(), output, plot, settings | shared)
        return
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


def _of_mesh(nets: Any, output: Output, plot: Plot, settings: dict[str, Any]) -> None:
    """Print the memory of devices that share a net."""
    say_no_effect("one device", "inference", "workspace", "every_layer")
    one = {name: settings.get(name) for name in ("device", "batch_size", "dtype")}
    for name, values in one.items():
        if isinstance(values, list | tuple) and len(values) > 1:
            raise SettingError(f"{name}: devices that share a net have one, got {len(values)}")
    known = {*declared(MeshMemorySettings), "importing"}
    given = {
        name: value[0] if isinstance(value, list | tuple) and name in one else value
        for name, value in settings.items()
        if name in (*known, "importing") and value is not None
    }
    found = mesh_memory(nets, **given)
    plot.write(
        output,
        mesh_memory_tables(found),
        lambda: {"nets": [result.to_dict() for result in found]},
        lambda charts: charts.of_mesh_memory(found),
        answer=lambda: mesh_memory_answer(found),
    )
