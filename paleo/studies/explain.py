"""Why layers take what they take: each operation of each pass, as the cost model explains it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any

from paleo.core.attributes import attributes
from paleo.core.errors import Mistakes, SettingError, near
from paleo.core.frozen import dataclass
from paleo.core.operations import Operation, Pass, Unpriced
from paleo.core.quantity import Quantity, is_array
from paleo.core.tensor import element_size
from paleo.costs import Explanation, Time
from paleo.costs.convolutions import DEFAULT
from paleo.costs.error_bands import Band, Like, kind_of
from paleo.net.graph import Graph
from paleo.net.spec import NetSpec
from paleo.step.passes import BACKWARD, FORWARD
from paleo.step.plan import Plan


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
        values = {
            "pass": self.direction.value,
            "operation": self.operation.name,
            "counted": self.is_counted,
            **attributes(why, "algorithm", "bound"),
            **attributes(time, "compute", "memory", "overhead", "total", unit="s"),
            **attributes(self, "band"),
            **attributes(work, "flops", "bytes_read", "bytes_written"),
            "why": why.why,
            "details": [
                {"name": name, "value": _plain(value), "unit": unit}
                for name, value, unit in why.details
            ],
        }
        return {key: _plain(value) for key, value in values.items()}


def _plain(value: Any) -> Any:
    """Return a number of Python for one of NumPy."""
    return value.item() if is_array(value) else value


@dataclass(frozen=True)
class ExplainedLayer:
    """One layer, or one slice of a split layer, with its operations in order.

    `runs_in` says of a pass ("forward", "backward") in which other layer's kernel those run that
    are not here. For `waits` seconds the device waits for the host to hand its kernels over.
    """

    name: str
    type_name: str
    operations: tuple[ExplainedOperation, ...]
    runs_in: tuple[tuple[str, str], ...] = ()
    waits: Quantity = 0.0
    #: For how many instances of a repeated block it stands.
    instances: int = 1

    @property
    def total(self) -> Quantity:
        """Seconds of all operations, and of waiting for the host."""
        return sum((each.explanation.time for each in self.operations), Time()).total + self.waits

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        values = {"name": self.name, "type": self.type_name, "runs_in": dict(self.runs_in)}
        return values | attributes(self, "waits", unit="s") | attributes(self, "operations")


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


def explain_layers(graph: Graph, names: Sequence[str], plan: Plan) -> tuple[ExplainedLayer, ...]:
    """Return why these layers take what they take in a training step, without the update.

    It is for a graph of one batch size and rates that are numbers.
    """
    passes = {
        "forward": plan.kernels(graph, FORWARD),
        "backward": plan.kernels(graph, BACKWARD),
    }
    waits = plan.waits(graph)
    return tuple(
        ExplainedLayer(
            node.name,
            node.type_name,
            tuple(
                _explained(direction, operation, plan)
                for found in passes.values()
                for direction, operation in found.of[node.index]
            ),
            tuple(
                (name, graph.nodes[found.into[node.index]].name)
                for name, found in passes.items()
                if node.index in found.into
            ),
            waits[node.index],
        )
        for node in graph.nodes
        if node.name in names
    )


def _explained(direction: Pass, operation: Operation, plan: Plan) -> ExplainedOperation:
    if isinstance(operation, Unpriced):
        return ExplainedOperation(direction, operation, Explanation("", Time()), False)
    kind, target, cost_model = kind_of(operation), plan.target.of(operation), plan.cost_model
    # Errors were of predictions at the peak, of convolutions by the device's own library.
    as_measured = target.share == 1 and (kind != "convolution" or target.convolutions == DEFAULT)
    return ExplainedOperation(
        direction,
        operation,
        cost_model.explain(operation, target),
        cost_model.counts(operation),
        cost_model.band(Like(kind, bits=8 * element_size(target.dtype), software=""), target.device)
        if as_measured
        else None,
    )
