"""Nets layer by layer: the predicted time of each pass beside what executors measure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from time import perf_counter
from typing import Any, Unpack

from paleo.core.attributes import attributes
from paleo.core.checks import check_choice
from paleo.core.errors import ExecutorError, Mistakes, SettingError
from paleo.core.frozen import NamedTuple, dataclass
from paleo.core.operations import PRODUCTS, Fused, Operation, Pass, Unpriced
from paleo.costs import DEFAULT_COST_MODEL, Time, find_cost_model
from paleo.measure.executors import Executor, LayerRun, Timing, measure
from paleo.measure.executors.executor import UPDATE
from paleo.measure.profile.setup import (
    Compared,
    MeasuredNet,
    MeasuringSettings,
    NetGraphs,
    Nets,
    Progress,
    Setting,
    failure,
    no_progress,
    prepare,
)
from paleo.net.graph import Node
from paleo.net.load import NetLike
from paleo.step.passes import needed_gradients
from paleo.step.plan import Plan
from paleo.studies.folding import fold

#: The gradients of a backward pass, and the passes that each is.
GRADIENTS = {
    "data": (Pass.INPUT_GRADIENT,),
    "filter": (Pass.WEIGHT_GRADIENT,),
    "both": (Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT),
}
#: What can be asked for; "all" is a training step: forward, both gradients and the update.
DIRECTIONS = ("forward", "backward", "all")
#: Why an input gradient has no time of its own where all gradients are made at once.
JOINED = "it is made with the weight gradient"


@dataclass(frozen=True)
class Measured:
    """What an executor gave for one pass of a layer.

    Without a `timing`, `missing` says why; it is empty where there is nothing to run.
    `algorithm` is the one that the executor names. Where it makes all gradients of a layer at
    once, the time of the weight gradient has that of the input gradient in it, whose predicted
    seconds are `joined`.
    """

    timing: Timing | None = None
    algorithm: str = ""
    missing: str = ""
    joined: float | None = None


@dataclass(frozen=True)
class LayerPass(Compared):
    """One pass of one layer: seconds as predicted, and as measured by each executor.

    `direction` is the value of a Pass, or UPDATE. `algorithm` is what the cost model calls the
    way in which the longest of its operations, products first, is computed.
    """

    layer: str
    type_name: str
    direction: str
    time: Time
    algorithm: str
    measured: Mapping[str, Measured] = field(default_factory=dict)
    #: How many instances of a repeated block these are sums over.
    instances: int = 1

    @property
    def predicted(self) -> float:
        """Seconds by the cost model."""
        return float(self.time.total)

    def timing(self, executor: str) -> Timing | None:
        return self.measured.get(executor, Measured()).timing

    def compared(self, executor: str) -> float:
        return self.predicted + (self.measured.get(executor, Measured()).joined or 0.0)

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output; None for what there is not."""
        values: dict[str, Any] = {
            "layer": self.layer,
            "type": self.type_name,
            "pass": self.direction,
            "predicted_s": self.predicted,
            **self.time.to_dict("predicted"),
            "bound": self.time.bound,
            "algorithm": self.algorithm,
        }
        for name, found in self.measured.items():
            values |= self.measured_to_dict(name) | {
                f"{name}_algorithm": found.algorithm or None,
                f"{name}_missing": found.missing or None,
                f"{name}_joined": found.joined is not None,
            }
        return values


@dataclass(frozen=True)
class Sums:
    """The passes that an executor measured: how many, their seconds, and those predicted."""

    rows: int
    measured: float
    predicted: float

    @property
    def ratio(self) -> float | None:
        """Measured / predicted; None where nothing is predicted."""
        return self.measured / self.predicted if self.predicted else None

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        seconds = attributes(self, "measured", "predicted", unit="s")
        return {"rows": self.rows, **seconds, "ratio": self.ratio}


@dataclass(frozen=True)
class LayerSum:
    """All passes of one layer together: seconds as predicted, and as each executor measured them.

    An executor has None where it did not run all that there is to run.
    """

    layer: str
    predicted: float
    measured: Mapping[str, float | None]


@dataclass(frozen=True)
class Profile(MeasuredNet):
    """A net layer by layer. Of `num_layers`, the rows are of the first `layers_done`.

    `passes` names what was asked for. Where that is one pass, every layer has a row; where it
    is several, a layer has those that there is something to do in.
    """

    passes: tuple[str, ...]
    rows: tuple[LayerPass, ...]
    layers_done: int

    @property
    def num_layers(self) -> int:
        """All layers of the net."""
        return len(self.case.graph.nodes)

    @property
    def interrupted(self) -> bool:
        """Whether there are layers that nobody came to."""
        return self.layers_done < self.num_layers

    @property
    def predicted(self) -> float:
        """Seconds of all rows by the cost model."""
        return sum(row.predicted for row in self.rows)

    def sums(self, executor: str) -> Sums:
        """Return the sums of what this executor measured."""
        rows = [row for row in self.rows if row.seconds(executor) is not None]
        return Sums(
            len(rows),
            sum(row.seconds(executor) or 0.0 for row in rows),
            sum(row.compared(executor) for row in rows),
        )

    def folded(self) -> Profile:
        """Return this with rows that are sums over the instances of repeated blocks.

        It is the same where something was measured: that is of each instance.
        """
        repeats = self.case.spec.repeats
        if not repeats or self.setting.executors:
            return self
        alike = {node.name: node.like for node in self.case.graph.nodes}
        folds = fold(
            self.rows,
            repeats,
            lambda row: (alike[row.layer], row.algorithm),
            lambda row: row.layer,
            lambda row: row.direction,
        )
        return replace(self, rows=tuple(_sum_of(name, rows) for name, rows in folds))

    @property
    def by_layer(self) -> tuple[LayerSum, ...]:
        """The passes of each layer together, in the order of the layers."""
        rows: dict[str, list[LayerPass]] = {}
        for row in self.rows:
            rows.setdefault(row.layer, []).append(row)
        return tuple(
            LayerSum(
                layer,
                sum(row.predicted for row in own),
                {name: _whole(own, name) for name in self.setting.executors},
            )
            for layer, own in rows.items()
        )

    @property
    def measured_anything(self) -> bool:
        """Whether an executor measured at least one row."""
        return any(self.sums(name).rows for name in self.setting.executors)

    def _own_notes(self) -> Iterator[str]:
        if self.interrupted:
            yield f"interrupted after {self.layers_done} of {self.num_layers} layers"
        both = Pass.WEIGHT_GRADIENT.value in self.passes
        for name in self.setting.executors:
            reasons: dict[str, list[str]] = {}
            joined: list[str] = []
            for row in self.rows:
                found = row.measured[name]
                if found.joined is not None:
                    joined.append(row.layer)
                elif found.missing and (found.missing != JOINED or not both):
                    layers = reasons.setdefault(found.missing, [])
                    layers += [row.layer] * (row.layer not in layers)
            for why, layers in reasons.items():
                yield f"{name} did not run {_named(layers)}: {why}"
            if joined:
                yield (
                    f"{name} makes all gradients of {_named(joined)} at once: in the time of the "
                    "weight gradient and in its ratio there is the input gradient, too"
                )

    def _own_values(self) -> dict[str, Any]:
        return {
            **attributes(self, "passes"),
            "layers": self.num_layers,
            **attributes(self, "layers_done", "rows"),
            "predicted_s": self.predicted,
            "sums": {name: self.sums(name).to_dict() for name in self.setting.executors},
        }


def _sum_of(name: str, rows: Sequence[LayerPass]) -> LayerPass:
    """Return a pass of several instances of a layer as one."""
    if len(rows) == 1:
        return rows[0]
    time = sum((row.time for row in rows), Time())
    return replace(rows[0], layer=name, time=time, instances=len(rows))


def _whole(rows: Sequence[LayerPass], executor: str) -> float | None:
    """Return the seconds of all passes of a layer, None unless the executor ran them all.

    An input gradient that is made with the weight gradient is in the time of that one.
    """
    found = [row.measured[executor] for row in rows]
    both = any(each.joined is not None for each in found)
    if any(each.missing and not (both and each.missing == JOINED) for each in found):
        return None
    times = [each.timing.median for each in found if each.timing]
    return sum(times) if times else None


#: So many layers are named in a note.
_NAMED = 4


def _named(layers: Sequence[str]) -> str:
    """Return the names of layers, of many the first."""
    if len(layers) <= _NAMED:
        return ", ".join(layers)
    return f"{len(layers)} layers ({', '.join(layers[:_NAMED])}, ...)"


class Profiles(Nets[Profile]):
    """Nets layer by layer."""


def profile(
    nets: NetLike | Sequence[NetLike],
    *,
    executors: str | Sequence[str] = (),
    direction: str = "forward",
    gradient_wrt: str = "data",
    progress: Progress = no_progress,
    **settings: Unpack[MeasuringSettings],
) -> Profiles:
    """Return the time of each layer of nets, predicted and measured.

    Predictions are for `device` ("TITAN_X" unless told otherwise); measured is on this machine, by
    `executors` of paleo.measure.executors.EXECUTORS, at `place` ("cpu", "cuda", "mps"; None for the
    best there is): each layer alone, on random inputs, `num_iter` times (50) after `num_warmup`
    (10) that do not count. `direction` is one of DIRECTIONS; of a backward pass, `gradient_wrt` is
    one of GRADIENTS. `batch_size` None is the file's, `importing` is as in `load`; `conv_library`,
    `workspace` and `use_only_gemm` are of predictions, as in `paleo.estimate_forward`.

    What an executor cannot run, or has no memory for, is missing with its reason, and the rest
    goes on. An interrupt (KeyboardInterrupt) while it measures ends that: what there is by then
    is returned, as `interrupted`. Raises PaleoError with every mistake before anything is
    measured.
    """
    mistakes = Mistakes()
    mistakes.check(check_choice, "direction", direction, DIRECTIONS)
    mistakes.check(check_choice, "gradient_wrt", gradient_wrt, tuple(GRADIENTS))
    mistakes.raise_as(SettingError)
    setting, cases, running = prepare(nets, executors, settings)
    passes = _passes(direction, gradient_wrt)
    plans = [_planned(case, setting, passes) for case in cases]
    done: list[list[list[LayerPass]]] = [[] if running else plan.rows for plan in plans]
    if running:
        total = sum(len(plan.rows) for plan in plans)
        with suppress(KeyboardInterrupt), progress("measuring", total) as advance:
            for plan, into in zip(plans, done, strict=True):
                for node in plan.case.real.nodes:
                    advance(f"{plan.case.spec.name}: {node.name}")
                    into.append(_measured(plan, node, running, setting))
    return Profiles(
        tuple(
            Profile(case, setting, passes, _shown(rows, passes), len(rows))
            for case, rows in zip(cases, done, strict=True)
            if rows
        ),
        tuple(case.spec.name for case, rows in zip(cases, done, strict=True) if not rows),
    )


def _passes(direction: str, gradient_wrt: str) -> tuple[str, ...]:
    if direction == "forward":
        return (Pass.FORWARD.value,)
    if direction == "backward":
        return tuple(each.value for each in GRADIENTS[gradient_wrt])
    return tuple(step.value for step in Pass)


class _Plan(NamedTuple):
    """A net before it is measured: its nodes' passes, as predicted.

    `needed` says of which inputs of each node a framework computes the gradient,
    `input_gradients` the predicted seconds of that pass.
    """

    case: NetGraphs
    rows: list[list[LayerPass]]
    needed: list[tuple[bool, ...]]
    input_gradients: list[float]


def _planned(case: NetGraphs, setting: Setting, passes: Sequence[str]) -> _Plan:
    back = setting.plan.estimate(case.graph, GRADIENTS["data"])
    return _Plan(
        case,
        _predicted(case, setting, passes),
        needed_gradients(case.real, find_cost_model(DEFAULT_COST_MODEL).conventions),
        [float(layer.seconds) for layer in back.layers],
    )


def _predicted(case: NetGraphs, setting: Setting, passes: Sequence[str]) -> list[list[LayerPass]]:
    """Return the passes of each node as the cost model has them."""
    graph, plan = case.graph, setting.plan
    found: list[list[LayerPass]] = [[] for _ in graph.nodes]
    for name in passes:
        if name == UPDATE:
            times = [
                plan.update_time(node.num_params, node.num_tensors) if node.num_params else Time()
                for node in graph.nodes
            ]
            algorithms = [UPDATE if node.num_params else "" for node in graph.nodes]
        else:
            directions = (Pass(name),)
            times = [layer.time for layer in plan.estimate(graph, directions).layers]
            operations = plan.kernels(graph, directions).of
            algorithms = [_algorithm([each for _, each in own], plan) for own in operations]
        for node, time, algorithm in zip(graph.nodes, times, algorithms, strict=True):
            row = LayerPass(node.name, node.type_name, name, time, algorithm)
            found[node.index].append(row)
    return found


def _algorithm(operations: Sequence[Operation], plan: Plan) -> str:
    """Return how the longest of the operations is computed, products before all others."""
    model = plan.cost_model
    longest: tuple[bool, float] = (False, 0.0)
    algorithm = ""
    for operation in operations:
        if isinstance(operation, Unpriced) or not model.counts(operation):
            continue
        head = operation.head if isinstance(operation, Fused) else operation
        why = model.explain(operation, plan.target.of(operation))
        key = (isinstance(head, PRODUCTS), float(why.time.total))
        if key > longest:
            longest, algorithm = key, why.algorithm
    return algorithm


def _measured(
    plan: _Plan, node: Node, running: Sequence[Executor], setting: Setting
) -> list[LayerPass]:
    """Return the passes of a node with what each executor measures."""
    rows = plan.rows[node.index]
    times: dict[str, list[Measured]] = {}
    for executor in running:
        if node.layer.is_input:
            times[executor.name] = [Measured() for _ in rows]
            continue
        try:
            run = executor.layer(plan.case.real, node, plan.needed[node.index])
        except (ExecutorError, MemoryError) as error:
            times[executor.name] = [Measured(missing=failure(error)) for _ in rows]
            continue
        joined = plan.input_gradients[node.index] if run.joins else None
        times[executor.name] = [_timed(row, run, executor, setting, joined) for row in rows]
    return [
        replace(row, measured={name: found[i] for name, found in times.items()})
        for i, row in enumerate(rows)
    ]


def _timed(
    row: LayerPass, run: LayerRun, executor: Executor, setting: Setting, joined: float | None
) -> Measured:
    """Return what one pass takes; `joined` are seconds predicted of an input gradient in it."""
    call = run.part(row.direction)
    if call is None:
        missing = f"it computes no {row.direction.replace('_', ' ')} there"
        if joined is not None and row.direction == Pass.INPUT_GRADIENT.value:
            missing = JOINED
        return Measured(missing=missing if row.predicted else "")
    try:
        timing = measure(
            call,
            executor.synchronize,
            num_warmup=setting.num_warmup,
            num_iter=setting.num_iter,
            clock=perf_counter,
        )
    except (ExecutorError, MemoryError) as error:
        return Measured(missing=failure(error))
    algorithms = {direction.value: name for direction, name in run.algorithms.items()}
    is_joint = row.direction == Pass.WEIGHT_GRADIENT.value
    return Measured(timing, algorithms.get(row.direction, ""), joined=joined if is_joint else None)


def _shown(rows: Sequence[Sequence[LayerPass]], passes: Sequence[str]) -> tuple[LayerPass, ...]:
    """Return the rows of all layers; where several passes are asked for, those that do something.

    Every layer has its forward pass.
    """
    return tuple(
        row
        for own in rows
        for row in own
        if len(passes) == 1
        or row.direction == Pass.FORWARD.value
        or row.predicted
        or any(each.timing or each.missing for each in row.measured.values())
    )
