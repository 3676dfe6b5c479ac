"""What a net is made of: shapes, parameters, FLOPs and bytes, layer by layer."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from paleo.graph import Graph, build, unpriced
from paleo.importers import ImportOptions
from paleo.load import load
from paleo.netspec import NetSpec
from paleo.quantity import Quantity
from paleo.tensor import Shape, num_elements
from paleo.work import Pass

__all__ = ["LayerSummary", "NetSummary", "summarize"]


@dataclass(frozen=True)
class LayerSummary:
    """One layer, or one slice of a split layer.

    `forward_flops` counts a multiply-add as 2, a pooling window as 1 an element, dropout as
    1 an element, and nothing for what only passes over memory.
    """

    name: str
    type_name: str
    parents: tuple[str, ...]
    output: Shape
    num_params: int
    forward_flops: Quantity
    weights_bytes: Quantity
    activations_bytes: Quantity

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        return {
            "name": self.name,
            "type": self.type_name,
            "parents": list(self.parents),
            "output": list(self.output),
            "params": self.num_params,
            "forward_flops": self.forward_flops,
            "weights_bytes": self.weights_bytes,
            "activations_bytes": self.activations_bytes,
        }


@dataclass(frozen=True)
class NetSummary:
    """A net at one batch size. Totals are sums over its layers, inputs included."""

    name: str
    source: str
    batch_size: Quantity
    layers: tuple[LayerSummary, ...]
    #: Operators that an importer did not understand, and how many layers are of each.
    unknown: Mapping[str, int] = field(default_factory=dict)

    @property
    def num_params(self) -> int:
        """Trainable parameters."""
        return sum(layer.num_params for layer in self.layers)

    @property
    def forward_flops(self) -> Quantity:
        """FLOPs of one forward pass over the batch."""
        return sum(layer.forward_flops for layer in self.layers)

    @property
    def weights_bytes(self) -> Quantity:
        """Bytes of the parameters."""
        return sum(layer.weights_bytes for layer in self.layers)

    @property
    def activations_bytes(self) -> Quantity:
        """Bytes of all layers' outputs."""
        return sum(layer.activations_bytes for layer in self.layers)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know of the counts."""
        if not self.unknown:
            return ()
        counts = ", ".join(f"{name} ({count})" for name, count in sorted(self.unknown.items()))
        return (f"not understood, and so not counted: {counts}",)

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        return {
            "name": self.name,
            "source": self.source,
            "batch_size": self.batch_size,
            "layers": [layer.to_dict() for layer in self.layers],
            "params": self.num_params,
            "forward_flops": self.forward_flops,
            "weights_bytes": self.weights_bytes,
            "activations_bytes": self.activations_bytes,
            "not_counted": sorted(self.unknown),
        }


def summarize(
    net: str | os.PathLike[str] | NetSpec,
    batch_size: Quantity | None = None,
    importing: ImportOptions | None = None,
) -> NetSummary:
    """Return the summary of a net at this batch size; None takes the file's.

    `importing` is for files of other frameworks, as in `load`. Raises NetSpecError,
    UnknownNameError or SettingError.
    """
    spec = load(net, importing)
    graph = build(spec, batch_size)
    layers = tuple(_layer(graph, index) for index in range(len(graph.nodes)))
    unknown = Counter(operation.name for operation in unpriced(graph))
    return NetSummary(graph.name, spec.source, graph.batch_size, layers, dict(unknown))


def _layer(graph: Graph, index: int) -> LayerSummary:
    node = graph.nodes[index]
    return LayerSummary(
        node.name,
        node.type_name,
        tuple(graph.nodes[parent].name for parent in node.parents),
        node.output,
        node.num_params,
        graph.work(node, Pass.FORWARD).flops,
        graph.element_size * node.num_params,
        graph.element_size * num_elements(node.output),
    )
