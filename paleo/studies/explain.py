"""Why layers take what they take: each operation of each pass, as the cost model explains it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from paleo.costs import CostModel, Explanation, Target, Time
from paleo.costs.bands import Band, kind_of
from paleo.costs.convolutions import DEFAULT
from paleo.errors import Mistakes, SettingError, near
from paleo.estimate import BACKWARD, FORWARD, kernels
from paleo.graph import Graph
from paleo.netspec import NetSpec
from paleo.quantity import Quantity, is_array
from paleo.work import Operation, Pass, Unpriced

__all__ = ["ExplainedLayer", "ExplainedOperation", "explain_layers", "find_layers"]


@dataclass(frozen=True)
class ExplainedOperation:
    """One operation of a layer, and why it takes what it does.

    `is_counted` tells whether the cost model prices it at all.
    """

    direction: Pass
    operation: Operation
    explanation: Explanation
    is_counted: bool
    band: Band | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        why, time, work = self.explanation, self.explanation.time, self.operation.work
        return {
            "pass": self.direction.value,
            "operation": self.operation.name,
            "counted": self.is_counted,
            "algorithm": why.algorithm,
            "bound": why.bound,
            "compute_s": _plain(time.compute),
            "memory_s": _plain(time.memory),
            "overhead_s": _plain(time.overhead),
            "total_s": _plain(time.total),
            "band": self.band.to_dict() if self.band else None,
            "flops": _plain(work.flops),
            "bytes_read": _plain(work.bytes_read),
            "bytes_written": _plain(work.bytes_written),
            "why": why.why,
            "details": [
                {"name": name, "value": _plain(value), "unit": unit}
                for name, value, unit in why.details
            ],
        }


def _plain(value: Any) -> Any:
    """Return a number of Python for one of NumPy."""
    return value.item() if is_array(value) else value


@dataclass(frozen=True)
class ExplainedLayer:
    """One layer, or one slice of a split layer, with its operations in order.

    `runs_in` says of a pass ("forward", "backward") in which other layer's kernel those run that
    are not here.
    """

    name: str
    type_name: str
    operations: tuple[ExplainedOperation, ...]
    runs_in: tuple[tuple[str, str], ...] = ()

    @property
    def total(self) -> Quantity:
        """Seconds of all operations."""
        return sum((each.explanation.time for each in self.operations), Time()).total

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        return {
            "name": self.name,
            "type": self.type_name,
            "runs_in": dict(self.runs_in),
            "operations": [each.to_dict() for each in self.operations],
        }


def find_layers(net: NetSpec, patterns: Sequence[str]) -> list[str]:
    """Return the names of the layers that names or patterns mean, in the order of the file.

    A pattern is one of a shell (`conv*`); the name of a block means its layers, that of a split
    layer its slices. Raises SettingError for each that means none, with a near name.
    """
    mistakes = Mistakes(net.name)
    names = [spec.name for spec in net.layers]
    found: set[str] = set()
    for pattern in patterns:
        own = {pattern} if pattern in names else set(_matching(net, pattern))
        if not own:
            inside = [name for name in names if name.endswith(f"/{pattern}")]
            guess = f" (did you mean {inside[0]!r}?)" if inside else near(pattern, names)
            mistakes.add(f"there is no such layer to explain{guess}", pattern)
        found |= own
    mistakes.raise_as(SettingError)
    return [name for name in names if name in found]


def _matching(net: NetSpec, pattern: str) -> Iterator[str]:
    for spec in net.layers:
        block = f"{pattern.rstrip('/')}/"
        if pattern == spec.origin or spec.name.startswith(block) or fnmatchcase(spec.name, pattern):
            yield spec.name


def explain_layers(
    graph: Graph,
    names: Sequence[str],
    target: Target,
    cost_model: CostModel,
    *,
    fuse: bool = False,
) -> tuple[ExplainedLayer, ...]:
    """Return why these layers take what they take in a training step, without the update.

    It is for a graph of one batch size and rates that are numbers. `fuse` is that of `kernels`.
    """
    passes = {
        "forward": kernels(graph, FORWARD, cost_model, fuse=fuse),
        "backward": kernels(graph, BACKWARD, cost_model, fuse=fuse),
    }
    return tuple(
        ExplainedLayer(
            node.name,
            node.type_name,
            tuple(
                _explained(direction, operation, target, cost_model)
                for found in passes.values()
                for direction, operation in found.of[node.index]
            ),
            tuple(
                (name, graph.nodes[found.into[node.index]].name)
                for name, found in passes.items()
                if node.index in found.into
            ),
        )
        for node in graph.nodes
        if node.name in names
    )


def _explained(
    direction: Pass, operation: Operation, target: Target, cost_model: CostModel
) -> ExplainedOperation:
    if isinstance(operation, Unpriced):
        return ExplainedOperation(direction, operation, Explanation("", "", Time()), False)
    kind = kind_of(operation)
    # Errors were of predictions at the peak, of convolutions by the device's own library.
    as_measured = target.ppp_comp == 1 and (kind != "convolution" or target.convolutions == DEFAULT)
    return ExplainedOperation(
        direction,
        operation,
        cost_model.explain(operation, target),
        cost_model.counts(operation),
        cost_model.band(kind, target.device) if as_measured else None,
    )
