"""What nets take of a device's memory: parts, the peak, and the device's capacity."""

from __future__ import annotations

from collections.abc import Sequence

from paleo.charts.base import Chart, Series, in_one_unit
from paleo.memory import Fit

__all__ = ["memory_chart"]

_PARTS = {
    "weights": "weights",
    "gradients": "gradients",
    "optimizer_state": "optimizer state",
    "activations": "activations",
    "workspace": "workspace",
}


def memory_chart(fits: Sequence[Fit]) -> Chart:
    """Return a bar for each net, of what there is at the end of the forward pass.

    The peak, which may be at another point, and the capacity of the device are references.
    """
    first = fits[0]
    names = tuple(f"{each.footprint.net}, batch {each.footprint.batch_size}" for each in fits)
    keys = [key for key in _PARTS if any(getattr(each.footprint, key) for each in fits)]
    columns: list[list[float | None]] = [
        [float(getattr(each.footprint, key)) for each in fits] for key in keys
    ]
    columns.append([float(each.footprint.peak) for each in fits])
    capacity = first.device.memory_capacity if first.device else None
    columns.append([None if capacity is None else float(capacity)] * len(fits))
    scale, (*parts, peaks, capacities) = in_one_unit(columns, "bytes", by_largest=True)
    series = [Series(_PARTS[key], names, column) for key, column in zip(keys, parts, strict=True)]
    series.append(Series("peak", names, peaks, is_reference=True))
    if first.device and capacity is not None:
        series.append(
            Series(f"memory of {first.device.name}", names, capacities, is_reference=True)
        )
    setting = f"{first.footprint.purpose}, {first.footprint.dtype}"
    setting += f", on {first.device.name}" if first.device else ""
    nets = dict.fromkeys(each.footprint.net for each in fits)
    notes = dict.fromkeys(note for each in fits for note in each.footprint.notes)
    return Chart(
        "memory", "bars", f"Memory of {', '.join(nets)}",
        setting, "net", f"memory ({scale.unit})", tuple(series), notes=tuple(notes),
    )  # fmt: skip
