"""What a net is made of: shapes, parameters, FLOPs and bytes, layer by layer; times on a device."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, TypeVar, Unpack

from paleo.core.attributes import attributes
from paleo.core.errors import Mistakes, PaleoError, SettingError
from paleo.core.frozen import dataclass
from paleo.core.operations import Operation, Pass, Unpriced, Work, total_work
from paleo.core.quantity import Quantity, is_array, minimum, total
from paleo.core.results import Result
from paleo.core.tensor import PRECISIONS, Shape, num_elements
from paleo.costs import CostModel, Time
from paleo.net.asked import unpriced
from paleo.net.graph import Graph, build
from paleo.net.importers import ImportOptions
from paleo.net.load import load
from paleo.net.spec import NetSpec
from paleo.step.declarations import check_names, declared
from paleo.step.passes import Kernels, PassTime, not_counted
from paleo.step.plan import RATED, Plan
from paleo.step.plan_keys import HOW
from paleo.step.scenario import Scenario, ScenarioLike, asked
from paleo.step.settings import SummarySettings, TimedSettings
from paleo.studies.explain import ExplainedLayer, explain_layers, find_layers

_Found = TypeVar("_Found")


@dataclass(frozen=True)
class Roof:
    """The most that a device computes: its `peak` in FLOP/s, if bytes do not hold it back.

    `memory_bandwidth` is in bytes/s. Both are what the cost model reckons with for the type, at a
    `ppp_comp` of 1, and products run at such a peak. After Williams, Waterman, Patterson,
    "Roofline", CACM 52(4), 2009.
    """

    peak: Quantity
    memory_bandwidth: Quantity

    @property
    def ridge(self) -> Quantity:
        """The FLOP per byte from which on the peak holds back, and below which memory does."""
        return self.peak / self.memory_bandwidth

    def at(self, intensity: Quantity) -> Quantity:
        """Return the most FLOP/s at so many FLOP per byte."""
        return minimum(self.peak, intensity * self.memory_bandwidth)


@dataclass(frozen=True)
class Reached:
    """What a device computes and moves in a pass of a layer, and how quick that makes it.

    `pass_name` is "forward" or "backward", `flops` and `num_bytes` are of the operations that the
    cost model counts, bytes read and written by each. What finds its operands in a cache moves
    less, and an algorithm may compute less than is counted, so that a layer may be above the roof.
    """

    layer: str
    pass_name: str
    flops: Quantity
    num_bytes: Quantity
    seconds: Quantity

    @property
    def intensity(self) -> Quantity | None:
        """FLOP per byte; None if it moves none."""
        return self.flops / self.num_bytes if self.num_bytes else None

    @property
    def flops_per_s(self) -> Quantity | None:
        """FLOP/s that are reached; None if it takes no time."""
        return self.flops / self.seconds if self.seconds else None

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of JSON output."""
        return {
            "layer": self.layer,
            "pass": self.pass_name,
            "flops": self.flops,
            "bytes": self.num_bytes,
            "seconds": self.seconds,
            "flops_per_byte": self.intensity,
            "flops_per_s": self.flops_per_s,
        }


@dataclass(frozen=True)
class TimedOn:
    """What the times of a summary are of: one device, as the plan of a scenario prices it.

    `not_counted` names the operations that the cost model leaves out.
    """

    scenario: Scenario
    not_counted: tuple[str, ...]

    @property
    def plan(self) -> Plan:
        """The device, and how operations are priced on it."""
        return self.scenario.plan

    @property
    def roof(self) -> Roof:
        """What the device computes at most."""
        model, target = self.plan.cost_model, self.plan.target
        rates = {name: value for name, value, _ in model.rates(target.device, target.dtype)}
        return Roof(rates["peak"], rates["memory bandwidth"])

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know of the settings."""
        said = self.plan.convolution_note if self.scenario.has_convolutions else ""
        return (*filter(None, [said]), *self.plan.notes_on(self.scenario.net))

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        return self.plan.to_dict(*RATED, *HOW)


@dataclass(frozen=True)
class LayerSummary:
    """One layer, or one slice of a split layer.

    `forward_flops` counts a multiply-add as 2, a pooling window as 1 an element, dropout as
    1 an element, and nothing for what only passes over memory. `forward` and `backward` are
    the seconds of the passes on one device, None where no device was asked for; so are
    `forward_time` and `backward_time`, which say what of them is computation, memory traffic
    and overhead.
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
    forward_time: Time | None = None
    backward_time: Time | None = None
    #: How many instances of a repeated block these are sums over: see paleo.studies.folding.
    instances: int = 1

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output; times only if there are any."""
        return {
            "name": self.name,
            "type": self.type_name,
            **attributes(self, "parents", "output"),
            **counts(self),
            **timed_values(self),
        }


def counts(net: LayerSummary | NetSummary) -> dict[str, Any]:
    """Return what there is to count in a layer or a net."""
    others = attributes(net, "forward_flops", "weights_bytes", "activations_bytes")
    return {"params": net.num_params, **others}


def timed_values(of: LayerSummary | NetSummary) -> dict[str, Any]:
    """Return what there is to say of the times of a layer or a net, nothing without a device."""
    if of.forward_time is None or of.backward_time is None:
        return {}
    return {
        "forward_s": of.forward,
        "backward_s": of.backward,
        **of.forward_time.to_dict("forward"),
        **of.backward_time.to_dict("backward"),
        "forward_bound": of.forward_time.bound,
        "backward_bound": of.backward_time.bound,
    }


@dataclass(frozen=True)
class NetSummary(Result):
    """A net at one batch size. Totals are sums over its layers, inputs included."""

    name: str
    source: str
    batch_size: Quantity
    layers: tuple[LayerSummary, ...]
    #: Operators that an importer did not understand, and how many layers are of each.
    unknown: Mapping[str, int] = field(default_factory=dict)
    #: What the times are of, None where no device was asked for.
    timed_on: TimedOn | None = None
    dtype: str = "fp32"
    #: Why some of the layers take what they take, where that was asked for.
    explained: tuple[ExplainedLayer, ...] = ()

    #: Finds what `reached` is, when somebody asks.
    find_work: Callable[[], list[list[Work]]] | None = field(
        default=None, compare=False, repr=False
    )
    #: What the net itself says of its figures.
    stated: tuple[str, ...] = ()
    #: The repeated blocks of the net, as in NetSpec.
    repeats: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)

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

    @property
    def forward_time(self) -> Time | None:
        """Computation, memory traffic and overhead of the forward pass."""
        return self._time(layer.forward_time for layer in self.layers)

    @property
    def backward_time(self) -> Time | None:
        """Computation, memory traffic and overhead of the backward pass."""
        return self._time(layer.backward_time for layer in self.layers)

    @functools.cached_property
    def reached(self) -> tuple[Reached, ...]:
        """What each layer computes, moves and reaches forward, then backward.

        Empty without a device. It takes a while, so that it is found when it is asked for. Raises
        SettingError for an array of batch sizes.
        """
        if self.find_work is None:
            return ()
        if is_array(self.batch_size):
            raise SettingError("reached: it is for one batch size, not an array of them")
        return tuple(
            Reached(layer.name, name, work.flops, work.num_bytes, getattr(layer, name) or 0.0)
            for name, works in zip(("forward", "backward"), self.find_work(), strict=True)
            for layer, work in zip(self.layers, works, strict=True)
        )

    def _time(self, times: Iterable[Time | None]) -> Time | None:
        if not self.timed_on:
            return None
        # Part by part: of many layers that is sooner done than adding up one Time after the other.
        parts = ((each.compute, each.memory, each.overhead, each.total) for each in times if each)
        return Time(*map(total, zip(*parts, strict=True)))

    def _seconds(self, times: Iterable[Quantity | None]) -> Quantity | None:
        return total(time for time in times if time is not None) if self.timed_on else None

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know of the counts and times."""
        notes = [*self.stated]
        if self.unknown:
            counts = ", ".join(f"{name} ({count})" for name, count in sorted(self.unknown.items()))
            notes.append(f"operators that are not known, and not counted: {counts}")
        if on := self.timed_on:
            notes += on.notes
            if free := [name for name in on.not_counted if name not in self.unknown]:
                notes.append(f"not counted by {on.plan.cost_model.name}: {', '.join(free)}")
        return tuple(notes)

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        return {
            **attributes(self, "name", "source", "batch_size", "dtype", "layers"),
            **counts(self),
            **({} if self.timed_on is None else self._times(self.timed_on)),
            "not_counted": sorted(self.unknown),
            **(attributes(self, "explained") if self.explained else {}),
        }

    def _times(self, timed_on: TimedOn) -> dict[str, Any]:
        not_timed = list(timed_on.not_counted)
        band = timed_on.plan.band
        values = {**timed_on.to_dict(), **timed_values(self)}
        ends: dict[str, Any] = {"band": band.to_dict() if band else None}
        for name in ("forward", "backward") if band and values["forward_s"] is not None else ():
            assert band
            for end, seconds in zip(("low", "high"), band.around(values[f"{name}_s"]), strict=True):
                ends |= {f"{name}_s_{end}": seconds, f"{name}_{end}_s": seconds}  # as it ever was
        return {**values, **ends, "not_timed": not_timed}


def summarize(
    net: ScenarioLike,
    batch_size: Quantity | None = None,
    importing: ImportOptions | None = None,
    *,
    explain: str | Iterable[str] = (),
    **settings: Unpack[TimedSettings],
) -> NetSummary:
    """Return the summary of a net at this batch size; None takes the file's.

    With a `device`, each layer has the times of its passes there: by this cost model, at the
    share `ppp_comp` of peak, computation and memory traffic overlapped with `use_pipeline`,
    pointwise operations in the kernels before them with `fuse` (see paleo.net.fusion), and those
    that `explain` names, or means as a pattern, with why; convolutions by an algorithm of
    `conv_library` within `workspace`, or a product, as in `estimate_forward`. `dtype` is one of
    paleo.core.tensor.PRECISIONS. `importing` is for files of other frameworks, as in `load`. A
    Scenario has a device and settings already, of which those that are given replace some. Raises
    NetSpecError, UnknownNameError or SettingError; with a device, a PaleoError with every
    mistake.

    >>> summary = paleo.summarize("alex_v2")
    >>> summary.batch_size, summary.num_params
    (128, 50303912)
    >>> summary.layers[1].name, summary.layers[1].output
    ('conv1', (128, 54, 54, 64))
    """
    patterns = [explain] if isinstance(explain, str) else list(explain)
    given: dict[str, Any] = {**settings, "importing": importing}
    if batch_size is not None or not isinstance(net, Scenario):
        given["batch_size"] = batch_size
    mistakes = Mistakes()
    if given.get("device") is None and not isinstance(net, Scenario):
        if patterns:
            raise SettingError("explain: it needs a device")
        check_names(declared(SummarySettings), given, mistakes)
        mistakes.raise_as(SettingError)
        plain = load(net, importing)
        return _summary(plain, build(plain, batch_size, given.get("dtype", "fp32")))
    spec: NetSpec | None
    spec = (
        net.plan.trained(net.net)
        if isinstance(net, Scenario)
        else mistakes.check(load, net, importing)
    )
    counted = names = None
    if spec:
        before = net.settings if isinstance(net, Scenario) else {"dtype": "fp32"}
        batch, dtype = (({**before, **given})[name] for name in ("batch_size", "dtype"))
        known = dtype if dtype in PRECISIONS else "fp32"  # to find more mistakes
        counted = mistakes.check(build, spec, batch, known)
        names = mistakes.check(find_layers, spec, patterns)
    (found, _) = asked(
        net if isinstance(net, Scenario) else spec or net,
        SummarySettings,
        given,
        mistakes,
        arrays=True,
    )
    mistakes.raise_as(PaleoError)
    (scenario,) = found
    assert counted
    plan, graph = scenario.plan, scenario.graph()
    passes = plan.passes(graph)
    timed = replace(
        _summary(spec or scenario.net, counted, passes),
        timed_on=TimedOn(scenario, not_counted(graph, plan.cost_model)),
        find_work=functools.partial(_work, [one.kernels for one in passes], plan.cost_model),
    )
    if not names:
        return timed
    if is_array(graph.batch_size):
        raise SettingError("explain: it is for one batch size, not an array of them")
    return replace(timed, explained=explain_layers(graph, names, plan))


def _summary(spec: NetSpec, graph: Graph, passes: Sequence[PassTime] = ()) -> NetSummary:
    """Return the summary of a graph of the net, with the times of its layers in `passes`.

    These are the forward and the backward pass, if any, of the net as a cost model sees it, which
    has the same layers.
    """
    layers = tuple(_layers(graph, passes))
    unknown = Counter(operation.name for operation in unpriced(graph))
    return NetSummary(
        graph.name,
        spec.source,
        graph.batch_size,
        layers,
        dict(unknown),
        dtype=graph.dtype,
        stated=spec.notes,
        repeats=spec.repeats,
    )


def _layers(graph: Graph, passes: Sequence[PassTime]) -> Iterator[LayerSummary]:
    """Yield the layers of a graph; what equal ones have in common is counted once."""
    names = [node.name for node in graph.nodes]
    parameter_size = graph.precision.parameter_size
    counts: dict[int, tuple[Quantity, Quantity]] = {}
    for node, *own in zip(graph.nodes, *(found.layers for found in passes), strict=True):
        if node.like not in counts:
            flops = sum(each.flops for each in graph.operations(node, Pass.FORWARD))
            counts[node.like] = flops, graph.element_size * num_elements(node.output)
        flops, num_bytes = counts[node.like]
        times: list[Any] = [each.seconds for each in own] + [each.time for each in own]
        num_params = node.num_params
        yield LayerSummary(
            node.name,
            node.type_name,
            tuple([names[parent] for parent in node.parents]),
            node.output,
            num_params,
            flops,
            parameter_size * num_params,
            num_bytes,
            *times,
        )


def of_each(what: Callable[[Any], _Found], values: Sequence[Any]) -> list[_Found]:
    """Return `what` of each of these values: equal layers have the same ones, so it is found once.

    They are told apart by what they are, not by what they equal: they may have arrays in them.
    """
    distinct = {id(value): value for value in values}
    found = {which: what(value) for which, value in distinct.items()}
    return [found[id(value)] for value in values]


def _work(passes: Sequence[Kernels], model: CostModel) -> list[list[Work]]:
    """Return the work of each node in each pass, of operations that a model counts."""

    def work(operations: Iterable[tuple[Pass, Operation]]) -> Work:
        priced = (each for _, each in operations if not isinstance(each, Unpriced))
        return total_work(tuple(each for each in priced if model.counts(each)))

    return [of_each(work, kernels.of) for kernels in passes]
