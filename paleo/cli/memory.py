"""`paleo memory`: what nets take of a device's memory, layer by layer and at their peak."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
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
from paleo.errors import Mistakes, PaleoError, SettingError
from paleo.hardware import Device, find_device
from paleo.importers import ImportOptions
from paleo.load import net_source
from paleo.memory import OPTIMIZERS, Footprint, footprint, largest_batch
from paleo.report import Column, Table, in_unit
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
    asked = functools.partial(footprint, **settings)
    found = [(net, mistakes.check(asked, net, batch_size)) for net in edited]
    mistakes.raise_as(PaleoError)
    if is_verbose():
        for name in nets:
            verbose(f"net {name}: {net_source(name)}")
    capacity = device.memory_capacity if device else None
    reports = [
        _Report(
            each,
            device,
            None if capacity is None else largest_batch(net, capacity, **settings),
        )
        for net, each in found
        if each is not None
    ]
    output.write(
        [report.table() for report in reports],
        lambda: {"nets": [report.to_dict() for report in reports]},
    )


def _parsed(workspace: str) -> float:
    try:
        return parse(workspace, "bytes")
    except ValueError as error:
        raise SettingError(f"workspace: {error}") from None


@dataclass(frozen=True)
class _Report:
    """A footprint and, if a device is asked about, the largest batch that it holds."""

    footprint: Footprint
    device: Device | None
    largest_batch: int | None

    @property
    def on_device(self) -> dict[str, Any]:
        """What there is to say of the device; None for what is not known."""
        if self.device is None:
            return {}
        capacity = self.device.memory_capacity
        return {
            "device": self.device.name,
            "memory_capacity_bytes": capacity,
            "fits": None if capacity is None else self.footprint.peak <= capacity,
            "largest_batch_size": self.largest_batch,
        }

    def to_dict(self) -> dict[str, Any]:
        return {**self.footprint.to_dict(), **self.on_device}

    def table(self) -> Table:
        values = self.to_dict()
        layers = values.pop("layers")
        found = self.footprint
        of = f"training with {found.optimizer}" if found.training else "inference"
        return Table(
            f"{found.net}, batch {found.batch_size}, {of}, {found.dtype}",
            _columns(found.training, self.on_device),
            [{**values, **layer} for layer in layers],
            {
                **values,
                "name": "total",
                "total_bytes": sum(layer["total_bytes"] for layer in layers),
            },
            footnotes=self._footnotes(),
            notes=self._notes(),
        )

    def _footnotes(self) -> list[str]:
        found, device = self.footprint, self.device
        where = f"{found.peak_pass} pass".removeprefix("update pass") or "update"
        own = in_unit(found.workspace, "bytes")
        workspace = f", {own} of it workspace" if found.workspace else ""
        lines = [
            f"peak: {in_unit(found.peak, 'bytes')}, in the {where} of {found.peak_layer}{workspace}"
        ]
        if device and device.memory_capacity is not None:
            fits = "fits" if found.peak <= device.memory_capacity else "does not fit"
            plural = "s" * (self.largest_batch != 1)
            most = f"the largest batch that does has {self.largest_batch:,} sample{plural}"
            most = most if self.largest_batch else "not even one sample does"
            capacity = in_unit(device.memory_capacity, "bytes")
            lines.append(f"it {fits} in the {capacity} of {device.name}; {most}")
        return lines

    def _notes(self) -> tuple[str, ...]:
        if self.device and self.device.memory_capacity is None:
            return (*self.footprint.notes, f"how much memory {self.device.name} has is not known")
        return self.footprint.notes


def _columns(training: bool, on_device: Iterable[str]) -> tuple[Column, ...]:
    """Return the columns of a table; in inference without titles for what there is not."""
    gradients = "gradients" * training
    state = "optimizer\nstate" * training
    activations = "activations\nkept" if training else "activations\nat once"
    return (
        *map(Column, ("net", "batch_size", "training", "optimizer", "dtype")),
        Column("name", "layer"),
        Column("type", "type"),
        Column("output_bytes", "output", "bytes"),
        Column("weights_bytes", "weights", "bytes"),
        Column("gradients_bytes", gradients, "bytes"),
        Column("optimizer_state_bytes", state, "bytes"),
        Column("activations_bytes", activations, "bytes"),
        Column("total_bytes", "total", "bytes"),
        *map(Column, ("workspace_bytes", "peak_bytes", "peak_layer", "peak_pass", *on_device)),
    )
