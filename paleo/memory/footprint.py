"""The memory of a net at a batch size, layer by layer and at its peak.

Bytes at every point of a step are a + b times the batch, so that the largest batch which fits
is found without a search.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paleo.errors import Mistakes, PaleoError, SettingError
from paleo.estimate import keep_shape
from paleo.graph import Graph, build, checked_batch
from paleo.importers import ImportOptions
from paleo.layers.shaping import Unknown
from paleo.load import load
from paleo.memory.optimizers import OPTIMIZERS
from paleo.memory.step import Step
from paleo.netspec import NetSpec
from paleo.quantity import Quantity, is_array, maximum, total
from paleo.tensor import find_precision, num_elements
from paleo.values import is_number, shown

__all__ = ["Footprint", "LayerMemory", "footprint", "largest_batch"]


@dataclass(frozen=True)
class LayerMemory:
    """The bytes of one layer, or of one slice of a split layer.

    `weights` are those at the end of the forward pass: in mixed precision parameters and the
    copies of them that the layers have read. `activations` are kept for the backward pass, each
    tensor counted where it is made; in inference they are what of the layer is alive when the
    sum of activations is largest. `output` is the size of its output, whether or not that takes
    memory of its own.
    """

    name: str
    type_name: str
    output: Quantity
    weights: int
    gradients: int
    optimizer_state: int
    activations: Quantity

    @property
    def total(self) -> Quantity:
        """Weights, gradients, optimizer state and activations."""
        return self.weights + self.gradients + self.optimizer_state + self.activations

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        return {
            "name": self.name,
            "type": self.type_name,
            "output_bytes": self.output,
            "weights_bytes": self.weights,
            "gradients_bytes": self.gradients,
            "optimizer_state_bytes": self.optimizer_state,
            "activations_bytes": self.activations,
            "total_bytes": self.total,
        }


@dataclass(frozen=True)
class Footprint:
    """The bytes of a net at one batch size, or at an array of them.

    `activations` are those kept for the backward pass, at the end of the forward pass; in
    inference the largest sum of those alive at one time. `peak` is the largest sum of
    everything in a step, `workspace` included; it is reached in the layer `peak_layer`, in
    `peak_pass`: "forward", "backward" or "update". For an array of batch sizes both are
    arrays of names. Layers that are split over devices count with all their slices.
    """

    net: str
    batch_size: Quantity
    optimizer: str
    training: bool
    dtype: str
    workspace: int
    peak: Quantity
    peak_layer: Any
    peak_pass: Any
    layers: tuple[LayerMemory, ...]
    #: What a reader should know of the figures.
    notes: tuple[str, ...] = ()

    @property
    def weights(self) -> int:
        """Bytes of the parameters, and of the copies that layers read in mixed precision."""
        return sum(layer.weights for layer in self.layers)

    @property
    def gradients(self) -> int:
        """Bytes of the parameters' gradients; 0 in inference."""
        return sum(layer.gradients for layer in self.layers)

    @property
    def optimizer_state(self) -> int:
        """Bytes that the optimizer keeps from one step to the next; 0 in inference."""
        return sum(layer.optimizer_state for layer in self.layers)

    @property
    def activations(self) -> Quantity:
        """Bytes of activations: kept for the backward pass, or the largest sum in inference."""
        return total(layer.activations for layer in self.layers)

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        return {
            "net": self.net,
            "batch_size": self.batch_size,
            "optimizer": self.optimizer if self.training else None,
            "training": self.training,
            "dtype": self.dtype,
            "layers": [layer.to_dict() for layer in self.layers],
            "weights_bytes": self.weights,
            "gradients_bytes": self.gradients,
            "optimizer_state_bytes": self.optimizer_state,
            "activations_bytes": self.activations,
            "workspace_bytes": self.workspace,
            "peak_bytes": self.peak,
            "peak_layer": self.peak_layer,
            "peak_pass": self.peak_pass,
            "notes": list(self.notes),
        }


def footprint(
    net: str | os.PathLike[str] | NetSpec,
    batch_size: Quantity | None = None,
    *,
    optimizer: str = "sgd",
    training: bool = True,
    dtype: str = "fp32",
    workspace: float = 0,
    importing: ImportOptions | None = None,
) -> Footprint:
    """Return what a net takes of memory at this batch size; None takes the file's.

    `optimizer` is one of `OPTIMIZERS`; in inference there is none. `dtype` is one of
    paleo.tensor.PRECISIONS: training in mixed precision keeps parameters in fp32, with copies of
    them for the layers to read; inference has the copies alone. `workspace` are bytes to add
    at every point, such as a library's scratch memory. `importing` is for files of other
    frameworks, as in `load`. Raises a PaleoError with every mistake in settings and file.
    """
    mistakes = Mistakes()
    chosen = mistakes.check(OPTIMIZERS.__getitem__, optimizer)
    added = mistakes.check(_checked_bytes, workspace, "workspace")
    mistakes.check(find_precision, dtype)
    if batch_size is not None:
        mistakes.check(checked_batch, batch_size)
    spec = mistakes.check(load, net, importing)
    mistakes.raise_as(PaleoError)
    assert chosen is not None
    assert added is not None
    assert spec is not None
    graph = build(spec, batch_size, dtype, keep_shape)
    step = Step(spec, graph, chosen if training else None)
    sums = step.sums()
    top = _position_of_largest(sums)
    fullest = step.last_forward if training else None
    if fullest is None:
        fullest = _position_of_largest(step.sums(activations_only=True))
    activations = step.activations(fullest)
    copies = (1, chosen.states) if training else (0, 0)
    size, learned = graph.element_size, graph.precision.parameter_size
    return Footprint(
        net=spec.name,
        batch_size=graph.batch_size,
        optimizer=chosen.name,
        training=training,
        dtype=dtype,
        workspace=math.ceil(added),
        peak=functools.reduce(maximum, sums) + math.ceil(added),
        peak_layer=_at([node.name for node, _ in step.points], top),
        peak_pass=_at([direction for _, direction in step.points], top),
        layers=tuple(
            LayerMemory(
                node.name,
                node.type_name,
                size * num_elements(node.output),
                (step.weight_size + step.copy_size) * node.num_params,
                learned * node.num_params * copies[0],
                learned * node.num_params * copies[1],
                activations[node.index],
            )
            for node in graph.nodes
        ),
        notes=_notes(spec, graph),
    )


def largest_batch(
    net: str | os.PathLike[str] | NetSpec,
    capacity: float,
    *,
    optimizer: str = "sgd",
    training: bool = True,
    dtype: str = "fp32",
    workspace: float = 0,
    importing: ImportOptions | None = None,
) -> int:
    """Return the largest batch whose peak is at most `capacity` bytes; 0 if there is none.

    The others are those of `footprint`, and so are the errors.
    """
    mistakes = Mistakes()
    chosen = mistakes.check(OPTIMIZERS.__getitem__, optimizer)
    room = mistakes.check(_checked_bytes, capacity, "capacity")
    added = mistakes.check(_checked_bytes, workspace, "workspace")
    mistakes.check(find_precision, dtype)
    spec = mistakes.check(load, net, importing)
    mistakes.raise_as(PaleoError)
    assert room is not None
    assert added is not None
    assert spec is not None
    left = math.floor(room) - math.ceil(added)

    def sums(batch: int) -> list[int]:
        graph = build(spec, batch, dtype, keep_shape)
        return Step(spec, graph, chosen if training else None).sums()

    # Two batch sizes say where each line reaches the capacity. Not 1: dimensions of 1 are
    # repeated, as a batch of 2 is not.
    two, three = sums(2), sums(3)
    if max(two) > left:
        return int(max(sums(1)) <= left)
    return min(
        2 + (left - low) // (high - low) for low, high in zip(two, three, strict=True) if high > low
    )


def _checked_bytes(value: Any, name: str) -> float:
    """Return a number of bytes; raises SettingError if it is none, or less than 0."""
    if is_number(value) and 0 <= value < math.inf:  # false for NaN
        found: float = value
        return found
    raise SettingError(f"{name}: expected bytes, 0 or more, got {shown(value)}")


def _position_of_largest(values: Sequence[Any]) -> Any:
    """Return the position of the first largest, for each element where values are arrays."""
    if any(map(is_array, values)):
        import numpy as np

        return np.argmax(np.stack(np.broadcast_arrays(*values)), axis=0)
    return max(range(len(values)), key=values.__getitem__)


def _at(names: list[str], position: Any) -> Any:
    """Return the name at a position, or those at an array of them."""
    if is_array(position):
        import numpy as np

        return np.array(names)[position]
    return names[position]


def _notes(spec: NetSpec, graph: Graph) -> tuple[str, ...]:
    notes = []
    if spec.splits:
        notes.append("layers that are split over devices count with all their slices")
    unknown = {node.layer.operator for node in graph.nodes if isinstance(node.layer, Unknown)}
    if unknown:
        notes.append(
            f"not understood, and taken to keep what it reads: {', '.join(sorted(unknown))}"
        )
    return tuple(notes)
