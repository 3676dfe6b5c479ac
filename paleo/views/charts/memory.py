"""What nets take of a device's memory: parts, the peak, and the device's capacity."""

from __future__ import annotations

from collections.abc import Sequence

from paleo.step.memory import Fit
from paleo.views.charts.base import Chart, bars

_PARTS = ("weights", "gradients", "optimizer_state", "activations", "workspace")


def memory_chart(fits: Sequence[Fit]) -> Chart:
    """Return a bar for each net, of what there is at the end of the forward pass.

    The peak, which may be at another point, and the capacity of the device are references.
    """
    first = fits[0]
    footprints = [each.footprint for each in fits]
    parts: dict[str, list[float | None]] = {
        name.replace("_", " "): [float(getattr(found, name)) for found in footprints]
        for name in _PARTS
    }
    columns = {name: own for name, own in parts.items() if any(own)}
    references: dict[str, list[float | None]] = {
        "peak": [float(found.peak) for found in footprints]
    }
    setting = f"{first.footprint.purpose}, {first.footprint.dtype}"
    if device := first.device:
        setting += f", on {device.name}"
        if device.memory_capacity is not None:
            capacity = float(device.memory_capacity)
            references[f"memory of {device.name}"] = [capacity] * len(fits)
    return bars(
        [f"{found.net}, batch {found.batch_size}" for found in footprints],
        columns | references,
        "bytes",
        "memory",
        references,
        key="memory",
        title=f"Memory of {', '.join(dict.fromkeys(found.net for found in footprints))}",
        setting=setting,
        x_label="net",
        notes=tuple(dict.fromkeys(note for found in footprints for note in found.notes)),
    )
