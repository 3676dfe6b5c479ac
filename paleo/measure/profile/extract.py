"""Each convolution of a net as a net of its own."""

from __future__ import annotations

from paleo.net.graph import build
from paleo.net.importers import ImportOptions
from paleo.net.layers.reshape import Input
from paleo.net.load import NetLike, load
from paleo.net.spec import LayerSpec, NetSpec


def convolutions(
    net: NetLike,
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
        if node.layer.is_convolution and not node.layer.is_transposed:
            name = node.name.replace("@", "_")
            data = "data" if name != "data" else "input"
            layers = (
                LayerSpec(data, Input(tensor=tuple(map(int, node.inputs[0]))), ()),
                LayerSpec(name, node.layer, (data,)),
            )
            source = f"layer {node.name} of {spec.name}"
            found.append(NetSpec(f"{spec.name}_{name}", layers, source=source))
    return tuple(found)
