"""Each convolution of a net as a net of its own."""

from __future__ import annotations

import os

from paleo.graph import build
from paleo.importers import ImportOptions
from paleo.layers.convolution import Convolution
from paleo.layers.shaping import Input
from paleo.load import load
from paleo.netspec import LayerSpec, NetSpec

__all__ = ["convolutions"]


def convolutions(
    net: str | os.PathLike[str] | NetSpec,
    batch_size: int | None = None,
    importing: ImportOptions | None = None,
) -> tuple[NetSpec, ...]:
    """Return each convolution of a net, behind an input of the shape that it has there.

    The layer keeps its name (a slice "conv@0" becomes "conv_0") and its keys, its bias and
    activation among them; parameters that it shares are its own. Deconvolutions are not among
    them. Raises NetSpecError, UnknownNameError or SettingError.
    """
    spec = load(net, importing)
    graph = build(spec, batch_size)
    found = []
    for node in graph.nodes:
        if isinstance(node.layer, Convolution):
            name = node.name.replace("@", "_")
            data = "data" if name != "data" else "input"
            layers = (
                LayerSpec(data, Input(tensor=tuple(map(int, node.inputs[0]))), ()),
                LayerSpec(name, node.layer, (data,)),
            )
            source = f"layer {node.name} of {spec.name}"
            found.append(NetSpec(f"{spec.name}_{name}", layers, source=source))
    return tuple(found)
