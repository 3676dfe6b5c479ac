"""What a net is made of: shapes, parameters, FLOPs and bytes, layer by layer; times on a device."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from paleo.costs import DEFAULT_COST_MODEL, CostModel, Target, find_cost_model
from paleo.errors import Mistakes, PaleoError
from paleo.estimate import (
    BACKWARD,
    FORWARD,
    DeviceLike,
    adapter,
    checked_share,
    estimate_pass,
    not_counted,
)
from paleo.graph import Graph, build, unpriced
from paleo.hardware import find_device
from paleo.importers import ImportOptions
from paleo.load import load
from paleo.netspec import NetSpec
from paleo.quantity import Quantity, total
from paleo.tensor import Shape, num_elements
from paleo.work import Pass

__all__ = ["LayerSummary", "NetSummary", "TimedOn", "summarize"]


@dataclass(frozen=True)
class TimedOn:
    """What the times of a summary are of: one device, by a cost model.

    `pipelines` tells whether `use_pipeline` matters to the cost model, `not_counted` names the
    operations that it leaves out.
    """

    device: str
    cost_model: str
    ppp_comp: Quantity
    use_pipeline: bool
    pipelines: bool
    not_counted: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        return {
            "device": self.device,
            "cost_model": self.cost_model,
            "ppp_comp": self.ppp_comp,
            "use_pipeline": self.use_pipeline,
        }


@dataclass(frozen=True)
class LayerSummary:
    """One layer, or one slice of a split layer.

    `forward_flops` counts a multiply-add as 2, a pooling window as 1 an element, dropout as
    1 an element, and nothing for what only passes over memory. `forward` and `backward` are
    the seconds of the passes on one device, None where no device was asked for.
    """

    name: str
    type_name: str
    parents: tuple[str, ...]
    output: Shape
    num_params: int
    forward_flops: Quantity
    weights_bytes: Quantity
    activations_bytes: Quantity
    forward: Quantity | None = None
    backward: Quantity | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output; times only if there are any."""
        times = {"forward_s": self.forward, "backward_s": self.backward}
        return {
            "name": self.name,
            "type": self.type_name,
            "parents": list(self.parents),
            "output": list(self.output),
            "params": self.num_params,
            "forward_flops": self.forward_flops,
            "weights_bytes": self.weights_bytes,
            "activations_bytes": self.activations_bytes,
            **({} if self.forward is None else times),
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
    #: What the times are of, None where no device was asked for.
    timed_on: TimedOn | None = None

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
    def forward(self) -> Quantity | None:
        """Seconds of the forward pass, one layer after the other; None without a device."""
        return self._seconds(layer.forward for layer in self.layers)

    @property
    def backward(self) -> Quantity | None:
        """Seconds of the backward pass: the gradients of inputs and of parameters."""
        return self._seconds(layer.backward for layer in self.layers)

    def _seconds(self, times: Iterable[Quantity | None]) -> Quantity | None:
        return total(time for time in times if time is not None) if self.timed_on else None

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know of the counts and times."""
        notes = []
        if self.unknown:
            counts = ", ".join(f"{name} ({count})" for name, count in sorted(self.unknown.items()))
            notes.append(f"not understood, and so not counted: {counts}")
        if on := self.timed_on:
            if on.use_pipeline and not on.pipelines:
                notes.append(f"{on.cost_model} overlaps by itself: use_pipeline has no effect")
            if free := [name for name in on.not_counted if name not in self.unknown]:
                notes.append(f"not counted by {on.cost_model}: {', '.join(free)}")
        return tuple(notes)

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
            **({} if self.timed_on is None else self._times(self.timed_on)),
            "not_counted": sorted(self.unknown),
        }

    def _times(self, timed_on: TimedOn) -> dict[str, Any]:
        times = {"forward_s": self.forward, "backward_s": self.backward}
        return {**timed_on.to_dict(), **times, "not_timed": list(timed_on.not_counted)}


def summarize(
    net: str | os.PathLike[str] | NetSpec,
    batch_size: Quantity | None = None,
    importing: ImportOptions | None = None,
    *,
    device: DeviceLike | None = None,
    cost_model: str | CostModel = DEFAULT_COST_MODEL,
    ppp_comp: Quantity = 1.0,
    use_pipeline: bool = False,
) -> NetSummary:
    """Return the summary of a net at this batch size; None takes the file's.

    With a `device`, each layer has the times of its passes there: by this cost model, at the
    share `ppp_comp` of peak, computation and memory traffic overlapped with `use_pipeline`.
    `importing` is for files of other frameworks, as in `load`. Raises NetSpecError,
    UnknownNameError or SettingError; with a device, a PaleoError with every mistake.
    """
    if device is None:
        return _counted(load(net, importing), batch_size)
    mistakes = Mistakes()
    spec = mistakes.check(load, net, importing)
    summary = mistakes.check(_counted, spec, batch_size) if spec else None
    found_device = mistakes.check(find_device, device)
    model = mistakes.check(find_cost_model, cost_model)
    mistakes.check(checked_share, ppp_comp, "ppp_comp")
    mistakes.raise_as(PaleoError)
    assert spec
    assert summary
    assert found_device
    assert model
    graph = build(spec, batch_size, adapt=adapter(model))
    target = Target(found_device, graph.dtype, ppp_comp)
    return _timed(summary, graph, target, model, use_pipeline)


def _counted(spec: NetSpec, batch_size: Quantity | None) -> NetSummary:
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


def _timed(
    summary: NetSummary, graph: Graph, target: Target, model: CostModel, use_pipeline: bool
) -> NetSummary:
    """Return a summary with the times of `graph`, the same net as this cost model sees it."""
    forward, backward = (
        estimate_pass(graph, directions, target, model, use_pipeline).layers
        for directions in (FORWARD, BACKWARD)
    )
    layers = tuple(
        replace(layer, forward=there.seconds, backward=back.seconds)
        for layer, there, back in zip(summary.layers, forward, backward, strict=True)
    )
    timed_on = TimedOn(
        target.device.name,
        model.name,
        target.ppp_comp,
        use_pipeline,
        model.pipelines,
        not_counted(graph, model),
    )
    return replace(summary, layers=layers, timed_on=timed_on)
