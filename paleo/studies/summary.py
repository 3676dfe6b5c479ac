"""What a net is made of: shapes, parameters, FLOPs and bytes, layer by layer; times on a device."""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from paleo.costs import (
    DEFAULT_COST_MODEL,
    ConvolutionChoice,
    CostModel,
    Target,
    Time,
    convolution_choice,
    find_cost_model,
)
from paleo.costs.bands import Band
from paleo.costs.convolutions import DEFAULT
from paleo.errors import Mistakes, PaleoError, SettingError
from paleo.estimate import (
    BACKWARD,
    FORWARD,
    DeviceLike,
    Kernels,
    PassTime,
    adapter,
    checked_share,
    checked_target,
    estimate_pass,
    kernels,
    net_band,
    not_counted,
)
from paleo.explain import ExplainedLayer, explain_layers, find_layers
from paleo.graph import Graph, build, unpriced
from paleo.hardware import find_device
from paleo.importers import ImportOptions
from paleo.layers.convolution import Filtered
from paleo.load import load
from paleo.netspec import NetSpec
from paleo.quantity import Quantity, is_array, minimum, total
from paleo.tensor import Shape, find_precision, num_elements
from paleo.work import Pass, Unpriced, Work, total_work

__all__ = ["LayerSummary", "NetSummary", "Reached", "Roof", "TimedOn", "summarize"]


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
    fuse: bool = False
    #: How far the truth may be from the times of a whole pass; None where that is not known.
    band: Band | None = None
    #: How convolutions are computed, as in `Run`.
    convolution_algorithm: str = "gemm"
    convolutions: ConvolutionChoice = DEFAULT
    #: What a reader should know of that.
    said: str = ""
    #: What the device computes at most.
    roof: Roof | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        return {
            "device": self.device,
            "cost_model": self.cost_model,
            "ppp_comp": self.ppp_comp,
            "use_pipeline": self.use_pipeline,
            "fuse": self.fuse,
            **self.convolutions.to_dict(),
            "convolution_algorithm": self.convolution_algorithm,
        }


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

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output; times only if there are any."""
        return {
            "name": self.name,
            "type": self.type_name,
            "parents": list(self.parents),
            "output": list(self.output),
            "params": self.num_params,
            "forward_flops": self.forward_flops,
            "weights_bytes": self.weights_bytes,
            "activations_bytes": self.activations_bytes,
            **_timed_values(self),
        }


def _timed_values(of: LayerSummary | NetSummary) -> dict[str, Any]:
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
    dtype: str = "fp32"
    #: Why some of the layers take what they take, where that was asked for.
    explained: tuple[ExplainedLayer, ...] = ()

    #: Finds what `reached` is, when somebody asks.
    find_work: Callable[[], tuple[tuple[Work, ...], ...]] | None = field(
        default=None, compare=False, repr=False
    )

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
        seconds = (
            [layer.forward or 0.0 for layer in self.layers],
            [layer.backward or 0.0 for layer in self.layers],
        )
        return tuple(
            Reached(layer.name, name, work.flops, work.num_bytes, taken)
            for name, works, times in zip(
                ("forward", "backward"), self.find_work(), seconds, strict=True
            )
            for layer, work, taken in zip(self.layers, works, times, strict=True)
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
        notes = []
        if self.unknown:
            counts = ", ".join(f"{name} ({count})" for name, count in sorted(self.unknown.items()))
            notes.append(f"not understood, and so not counted: {counts}")
        if on := self.timed_on:
            notes += [on.said] if on.said else []
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
            "dtype": self.dtype,
            "layers": [layer.to_dict() for layer in self.layers],
            "params": self.num_params,
            "forward_flops": self.forward_flops,
            "weights_bytes": self.weights_bytes,
            "activations_bytes": self.activations_bytes,
            **({} if self.timed_on is None else self._times(self.timed_on)),
            "not_counted": sorted(self.unknown),
            **(
                {"explained": [each.to_dict() for each in self.explained]} if self.explained else {}
            ),
        }

    def _times(self, timed_on: TimedOn) -> dict[str, Any]:
        not_timed = list(timed_on.not_counted)
        band = timed_on.band
        ends: dict[str, Any] = {"band": band.to_dict() if band else None}
        if band and self.forward is not None and self.backward is not None:
            ends |= band.ends(self.forward, "forward") | band.ends(self.backward, "backward")
        return {**timed_on.to_dict(), **_timed_values(self), **ends, "not_timed": not_timed}


def summarize(
    net: str | os.PathLike[str] | NetSpec,
    batch_size: Quantity | None = None,
    importing: ImportOptions | None = None,
    *,
    device: DeviceLike | None = None,
    cost_model: str | CostModel = DEFAULT_COST_MODEL,
    ppp_comp: Quantity = 1.0,
    use_pipeline: bool = False,
    dtype: str = "fp32",
    fuse: bool = False,
    explain: str | Iterable[str] = (),
    conv_library: str | None = None,
    workspace: int | str | None = None,
    use_only_gemm: bool = False,
) -> NetSummary:
    """Return the summary of a net at this batch size; None takes the file's.

    With a `device`, each layer has the times of its passes there: by this cost model, at the
    share `ppp_comp` of peak, computation and memory traffic overlapped with `use_pipeline`,
    pointwise operations in the kernels before them with `fuse` (see paleo.fusion), and those
    that `explain` names, or means as a pattern, with why; convolutions by an algorithm of
    `conv_library` within `workspace`, or a product, as in `estimate_forward`. `dtype` is one of
    paleo.tensor.PRECISIONS. `importing` is for files of other frameworks, as in `load`. Raises
    NetSpecError, UnknownNameError or SettingError; with a device, a PaleoError with every
    mistake.
    """
    patterns = [explain] if isinstance(explain, str) else list(explain)
    if device is None:
        if patterns:
            raise SettingError("explain: it needs a device")
        spec = load(net, importing)
        return _summary(spec, build(spec, batch_size, dtype))
    mistakes = Mistakes()
    found = mistakes.check(load, net, importing)
    if mistakes.check(find_precision, dtype) is None:
        dtype = "fp32"  # to find more mistakes
    counted = mistakes.check(build, found, batch_size, dtype) if found else None
    names = mistakes.check(find_layers, found, patterns) if found else None
    found_device = mistakes.check(find_device, device)
    model = mistakes.check(find_cost_model, cost_model)
    mistakes.check(checked_share, ppp_comp, "ppp_comp")
    choice = mistakes.check(convolution_choice, conv_library, workspace, use_only_gemm)
    if found_device and model:
        mistakes.check(checked_target, found_device, model, dtype, 1.0, choice or DEFAULT)
    mistakes.raise_as(PaleoError)
    assert found
    assert counted
    assert found_device
    assert model
    graph = build(found, batch_size, dtype, adapter(model))
    target = checked_target(found_device, model, dtype, ppp_comp, choice or DEFAULT)
    done = {each: kernels(graph, each, model, fuse=fuse) for each in (FORWARD, BACKWARD)}
    passes = [
        estimate_pass(graph, directions, target, model, use_pipeline, found=own)
        for directions, own in done.items()
    ]
    timed = replace(
        _summary(found, counted, passes),
        timed_on=_timed_on(graph, target, model, use_pipeline, fuse),
        find_work=functools.partial(_work, tuple(done.values()), model),
    )
    if not names:
        return timed
    if is_array(graph.batch_size):
        raise SettingError("explain: it is for one batch size, not an array of them")
    explained = explain_layers(graph, names, target, model, fuse=fuse)
    return replace(timed, explained=explained)


def _summary(spec: NetSpec, graph: Graph, passes: Sequence[PassTime] = ()) -> NetSummary:
    """Return the summary of a graph of the net, with the times of its layers in `passes`.

    These are the forward and the backward pass, if any, of the net as a cost model sees it, which
    has the same layers.
    """
    layers = tuple(_layers(graph, passes))
    unknown = Counter(operation.name for operation in unpriced(graph))
    return NetSummary(
        graph.name, spec.source, graph.batch_size, layers, dict(unknown), dtype=graph.dtype
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


def _timed_on(
    graph: Graph, target: Target, model: CostModel, use_pipeline: bool, fuse: bool
) -> TimedOn:
    has_convolutions = any(isinstance(node.layer, Filtered) for node in graph.nodes)
    choice, by_default = target.convolutions, model.convolution_algorithm
    return TimedOn(
        target.device.name,
        model.name,
        target.ppp_comp,
        use_pipeline,
        model.pipelines,
        not_counted(graph, model),
        fuse,
        net_band(model, target, not (fuse or use_pipeline)),
        choice.algorithm(by_default),
        choice,
        choice.note(by_default) if has_convolutions else "",
        _roof(model, target),
    )


def _roof(model: CostModel, target: Target) -> Roof:
    rates = {name: value for name, value, _ in model.rates(target.device, target.dtype)}
    return Roof(rates["peak"], rates["memory bandwidth"])


def _work(passes: Sequence[Kernels], model: CostModel) -> tuple[tuple[Work, ...], ...]:
    """Return the work of each node in each pass, of operations that a model counts."""
    return tuple(tuple(_work_of(found, model)) for found in passes)


def _work_of(found: Kernels, model: CostModel) -> Iterator[Work]:
    """Yield the work of each node in a pass; equal ones share what they do, summed up once."""
    distinct = {id(own): own for own in found.of}
    works = {
        which: total_work(
            tuple(
                operation
                for _, operation in own
                if not isinstance(operation, Unpriced) and model.counts(operation)
            )
        )
        for which, own in distinct.items()
    }
    return (works[id(own)] for own in found.of)
