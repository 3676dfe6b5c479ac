"""The table of memory: layer by layer, and what fits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from paleo.step.memory import Fit
from paleo.views.charts.layers import footprint_setting
from paleo.views.charts.numbers import counted
from paleo.views.headings import called, footnotes
from paleo.views.table import Column, Table, in_unit, plain
from paleo.views.tables.base import common_notes


def memory_table(fit: Fit) -> Table:
    """Return the layers of a footprint, with its peak and what fits below."""
    values = fit.to_dict()
    found = fit.footprint.layers
    repeats = fit.footprint.repeats if any(layer.instances > 1 for layer in found) else {}
    rows = [
        {**values, **row, **called(layer.name, layer.instances, repeats)}
        for row, layer in zip(values.pop("layers"), found, strict=True)
    ]
    notes = list(fit.footprint.notes)
    if fit.device and fit.device.memory_capacity is None:
        notes.append(f"how much memory {fit.device.name} has is not known")
    return Table(
        footprint_setting(fit.footprint),
        _columns(fit.footprint.training, fit.on_device),
        rows,
        {
            **values,
            "name": "total",
            "total_bytes": sum(row["total_bytes"] for row in rows),
        },
        footnotes=[*footnotes(found), *_footnotes(fit)],
        notes=notes,
    )


def memory_tables(fits: Sequence[Fit]) -> list[Table]:
    """Return the layers of a footprint, or of several the totals beside each other."""
    return [memory_table(fits[0])] if len(fits) == 1 else [totals_table(fits)]


def totals_table(fits: Sequence[Fit]) -> Table:
    """Return a row for each footprint, with what differs first."""
    rows = [fit.to_dict() for fit in fits]
    varied = [key for key in _VARIED if len({row.get(key) for row in rows}) > 1]
    same = [rows[0].get(key) for key in _VARIED if key not in varied]
    columns = [
        *(Column(key, _VARIED[key]) for key in varied),
        *(
            Column(f"{part}_bytes", part.replace("_", "\n"), "bytes", digits=3)
            for part in ("weights", "gradients", "optimizer_state", "activations")
            if any(row[f"{part}_bytes"] for row in rows)
        ),
        Column("peak_bytes", "peak", "bytes", digits=3, least_is_best=True),
    ]
    if any(fit.device for fit in fits):
        columns += [
            Column("memory_capacity_bytes", "capacity", "bytes"),
            Column("does_fit", "fits"),
            Column("largest_batch_size", "largest\nbatch"),
        ]
    words = {True: "yes", False: "no", None: ""}
    return Table(
        ", ".join([fits[0].footprint.purpose, *(str(value) for value in same if value)]),
        columns,
        [row | {"does_fit": words[fit.fits]} for row, fit in zip(rows, fits, strict=True)],
        notes=common_notes([(fit.footprint.net, fit.footprint.notes) for fit in fits]),
    )


#: The settings that footprints may differ in.
_VARIED = {"net": "net", "device": "device", "dtype": "type", "batch_size": "batch"}


def _footnotes(fit: Fit) -> list[str]:
    found, device = fit.footprint, fit.device
    where = f"{found.peak_pass} pass".removeprefix("update pass") or "update"
    own = in_unit(found.workspace, "bytes")
    workspace = f", {own} of it workspace" if found.workspace else ""
    lines = [
        f"peak: {in_unit(found.peak, 'bytes')}, in the {where} of {found.peak_layer}{workspace}"
    ]
    if device and device.memory_capacity is not None:
        fits = "fits" if fit.fits else "does not fit"
        most = "not even one sample does"
        if fit.largest_batch:
            most = f"the largest batch that does has {counted(fit.largest_batch, 'sample')}"
        capacity = in_unit(device.memory_capacity, "bytes")
        lines.append(f"it {fits} in the {capacity} of {device.name}; {most}")
    return lines


def _columns(training: bool, on_device: Iterable[str]) -> tuple[Column, ...]:
    """Return the columns of a table; in inference without titles for what there is not."""
    activations = "activations\nkept" if training else "activations\nat once"
    return (
        *plain("net", "batch_size", "training", "optimizer", "dtype"),
        Column("name", "layer"),
        Column("type", "type", spare=3),
        Column("output_bytes", "output", "bytes", spare=2),
        Column("weights_bytes", "weights", "bytes"),
        Column("gradients_bytes", "gradients" * training, "bytes", spare=1),
        Column("optimizer_state_bytes", "optimizer\nstate" * training, "bytes"),
        Column("activations_bytes", activations, "bytes"),
        Column("total_bytes", "total", "bytes"),
        *plain("workspace_bytes", "peak_bytes", "peak_layer", "peak_pass", *on_device),
    )
