"""The layers of a net by block, as names of layers say it: "layer1/0/conv1" is of "layer1/0"."""

from __future__ import annotations

import itertools
from typing import Any

from paleo.studies.grouping import Group, block_of
from paleo.studies.summary import LayerSummary, NetSummary
from paleo.views.charts.numbers import counted
from paleo.views.table import in_unit

#: The depths of blocks, that which is looked for first.
_DEPTHS = (2, 1)


def blocks(summary: NetSummary) -> list[dict[str, Any]]:
    """Return the blocks of layers that follow each other: `name`, `first` (a row) and `layers`.

    `said` is what they have together: their number, and with a device their time and its share.
    """
    found, first = [], 0
    whole = Group("", summary.layers).time
    for name, layers in itertools.groupby(summary.layers, key=_block):
        group = Group(name, tuple(layers))
        count = len(group.layers)
        if name and count > 1:
            said = _said(group, float(whole or 0))
            found.append({"name": name, "first": first, "layers": count, "said": said})
        first += count
    return found


def _block(layer: LayerSummary) -> str:
    names = (block_of(layer.name, depth) for depth in _DEPTHS)
    return next((name for name in names if name != layer.name), "")


def _said(group: Group, whole: float) -> str:
    said = counted(len(group.layers), "layer")
    if not whole or group.time is None:
        return said
    seconds = float(group.time)
    return f"{said}, {in_unit(seconds, 's', 3)}, {100 * seconds / whole:.1f} % of the time"
