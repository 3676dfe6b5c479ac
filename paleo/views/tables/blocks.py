"""The layers of a net by block, as names of layers say it: "layer1/0/conv1" is of "layer1/0"."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from paleo.studies.grouping import Group, block_of
from paleo.studies.summary import LayerSummary, NetSummary
from paleo.views.charts.numbers import counted
from paleo.views.headings import called
from paleo.views.table import in_unit

#: The depths of blocks, that which is looked for first.
_DEPTHS = (2, 1)


def blocks(summary: NetSummary) -> list[dict[str, Any]]:
    """Return the blocks of layers that follow each other: `name`, `first` (a row) and `layers`.

    `said` is what they have together: their number, and with a device their time and its share.
    """
    found, first = [], 0
    whole = Group("", summary.layers).time
    is_folded = any(layer.instances > 1 for layer in summary.layers)
    repeats = summary.repeats if is_folded else {}
    for name, layers in itertools.groupby(summary.layers, lambda layer: _block(layer, repeats)):
        group = Group(name, tuple(layers))
        count = len(group.layers)
        if name and count > 1:
            said = _said(group, float(whole or 0))
            found.append({"name": name, "first": first, "layers": count, "said": said})
        first += count
    return found


def _block(layer: LayerSummary, repeats: Mapping[str, int]) -> str:
    if heading := called(layer.name, layer.instances, repeats).get("heading"):
        return str(heading)
    names = (block_of(layer.name, depth) for depth in _DEPTHS)
    return next((name for name in names if name != layer.name), "")


def _said(group: Group, whole: float) -> str:
    said = counted(sum(layer.instances for layer in group.layers), "layer")
    if not whole or group.time is None:
        return said
    seconds = float(group.time)
    return f"{said}, {in_unit(seconds, 's', 3)}, {100 * seconds / whole:.1f} % of the time"
