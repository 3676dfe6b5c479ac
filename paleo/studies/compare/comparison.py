"""Nets, or one net under several settings, against the first: figures and their factors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Annotated, Any, Unpack

from paleo.core.attributes import Ends, at_ends, attributes, with_ends
from paleo.core.checks import listed
from paleo.core.errors import Mistakes, PaleoError, SettingError
from paleo.core.frozen import dataclass
from paleo.core.results import Result
from paleo.core.tensor import Shape
from paleo.net.graph import build
from paleo.net.load import ONE_NET, NetLike, load
from paleo.net.spec import NetSpec
from paleo.step.declarations import check_names, declared, listing, several
from paleo.step.memory import OPTIMIZERS, footprint
from paleo.step.parallelism import data_parallel
from paleo.step.plan import RATED, Plan, plan_of
from paleo.step.plan_keys import EXCHANGED, HOW, TRAINED, UPDATED
from paleo.step.recompute import Recompute, find_recomputes
from paleo.step.scenario import scenario
from paleo.step.settings import (
    LOSS,
    OPTIMIZER,
    OPTIMIZER_KERNELS,
    RECOMPUTE,
    ComparedSettings,
    found_settings,
)
from paleo.studies.compare.change import Change, change_of
from paleo.studies.summary import summarize

#: The most nets times settings in one comparison.
MAX_VARIANTS = 100


@dataclass(frozen=True)
class Conditions:
    """What a net is compared under: a training step, `batch_size` samples on each of `workers`."""

    plan: Plan
    batch_size: int
    workers: int = 1

    @property
    def optimizer(self) -> str:
        """The name of the optimizer."""
        return self.plan.optimizer

    @property
    def scheme(self) -> str | None:
        """The scheme that was asked for, None for the one that the cost model takes by itself."""
        return self.plan.schemes[0] if self.plan.schemes else None

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        values = self.plan.to_dict() | attributes(self, "batch_size", "workers", "scheme")
        return {key: values[key] for key in KEYS}


#: The keys of a variant's settings in JSON.
KEYS = (
    *(RATED[0], "batch_size", *RATED[1:], *UPDATED[:2], *TRAINED, HOW[0], "dtype"),
    *(key for key in HOW[1:] if key != "convolution_algorithm"),
    *("network", "cluster", "ppp_comm", "workers", "scheme", *EXCHANGED),
)


#: What takes as many times as long as computation does.
_COMPUTED = ("forward", "recomputation", "backward", "update", "wait")
#: What is of the net at once, and of no layer.
_OF_NETS = ("recomputation", "update", "communication", "wait")


@dataclass(frozen=True)
class Figures:
    """What is compared of a layer or of a whole net, at one batch size.

    Bytes of the output, parameters, FLOPs of a forward pass, seconds of the passes and, for the
    net, of what is computed again, of the update, of the exchange between workers and of waiting
    for the slowest; bytes that training needs: for a layer, of its parameters, their gradients, the
    optimizer's state and the output that is kept; for the net, the peak.
    """

    output_bytes: int
    num_params: int
    forward_flops: int
    forward: float
    backward: float
    memory_bytes: int
    recomputation: float = 0.0
    update: float = 0.0
    communication: float = 0.0
    wait: float = 0.0

    @property
    def compute(self) -> float:
        """Seconds of both passes, of what is computed again and of the update."""
        return self.forward + self.recomputation + self.backward + self.update

    @property
    def time(self) -> float:
        """Seconds of a step: computation, communication that nothing hides, and waiting."""
        return self.compute + self.communication + self.wait

    def taking(self, factor: float) -> Figures:
        """Return the figures as they are if computation takes so many times as long."""
        return replace(self, **{name: factor * getattr(self, name) for name in _COMPUTED})

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        return {
            "output_bytes": self.output_bytes,
            "params": self.num_params,
            "forward_flops": self.forward_flops,
            **attributes(self, *_COMPUTED, "communication", "time", unit="s"),
            "memory_bytes": self.memory_bytes,
        }

    def factors(self, reference: Figures) -> dict[str, float | None]:
        """Return by how much these are the reference's, under the keys of the JSON output.

        1 where both are 0, None where the reference alone is.
        """
        return {
            "output_factor": _factor(self.output_bytes, reference.output_bytes),
            "params_factor": _factor(self.num_params, reference.num_params),
            "forward_flops_factor": _factor(self.forward_flops, reference.forward_flops),
            "time_factor": _factor(self.time, reference.time),
            "memory_factor": _factor(self.memory_bytes, reference.memory_bytes),
        }


def _factor(value: float, reference: float) -> float | None:
    if reference:
        return value / reference
    return None if value else 1.0


@dataclass(frozen=True)
class LayerFigures:
    """One layer of a variant; `output` has the batch first."""

    name: str
    type_name: str
    output: Shape
    figures: Figures

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        values = {"type": self.type_name, "output": list(self.output), **self.figures.to_dict()}
        for whole in _OF_NETS:
            del values[f"{whole}_s"]
        return values


@dataclass(frozen=True)
class Variant:
    """One net under one choice of settings. `notes` say what a reader should know."""

    net: str
    settings: Conditions
    layers: tuple[LayerFigures, ...]
    total: Figures
    notes: tuple[str, ...]
    #: The repeated blocks of the net, as in NetSpec.
    repeats: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)

    @property
    def time_ends(self) -> Ends[float]:
        """The seconds of a step at both ends of their error band."""
        band = self.settings.plan.band
        factors: Ends[float] = band.ends if band else (None, None)
        return at_ends(factors, lambda end: self.total.taking(end).time)

    def totals(self, prefix: str = "") -> dict[str, Any]:
        """Return the totals under the keys of the JSON output, times with their error band."""
        times = [f"{name}_s" for name in (*_COMPUTED, "time")]
        values = self.total.to_dict()
        if band := self.settings.plan.band:
            ends = at_ends(band.ends, lambda end: self.total.taking(end).to_dict())
            values = with_ends(values, ends, times=times)
        return {f"{prefix}{key}": value for key, value in values.items()}

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output, but for the layers."""
        return {"net": self.net, "settings": self.settings.to_dict()}


@dataclass(frozen=True)
class ComparedLayer:
    """One layer in the reference and in the other variant; None where it is not there.

    `change` is "edited", "added", "removed", "follows" as in `Change`, or "" for nothing.
    """

    name: str
    change: str
    reference: LayerFigures | None
    other: LayerFigures | None
    #: How many instances of a repeated block these are sums over.
    instances: int = 1

    def factors(self) -> dict[str, float | None]:
        """Return the factors as `Figures.factors` does, all None where one of the two lacks it."""
        if self.other and self.reference:
            return self.other.figures.factors(self.reference.figures)
        return dict.fromkeys(_NOTHING.factors(_NOTHING))

    @property
    def is_same(self) -> bool:
        """Whether everything is as in the reference."""
        return not self.change and set(self.factors().values()) == {1.0}

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        missing = dict.fromkeys(LayerFigures("", "", (), _NOTHING).to_dict())
        other = self.other.to_dict() if self.other else missing
        reference = self.reference.to_dict() if self.reference else missing
        return {
            "name": self.name,
            "change": self.change,
            **other,
            **{f"reference_{key}": value for key, value in reference.items()},
            **self.factors(),
        }


_NOTHING = Figures(0, 0, 0, 0.0, 0.0, 0)


@dataclass(frozen=True)
class Difference:
    """Another variant against the reference.

    `layers` are those of both, in the other's order; empty where totals alone were asked for.
    """

    other: Variant
    change: Change
    layers: tuple[ComparedLayer, ...]
    reference: Variant

    @property
    def repeats(self) -> dict[str, int]:
        """The repeated blocks of both, each as often as in the deeper one."""
        both = (self.reference.repeats, self.other.repeats)
        prefixes = dict.fromkeys(prefix for repeats in both for prefix in repeats)
        return {prefix: max(one.get(prefix, 0) for one in both) for prefix in prefixes}

    def factors(self) -> dict[str, float | None]:
        """Return the factors of the totals, as `Figures.factors` does."""
        return self.other.total.factors(self.reference.total)

    def total(self) -> dict[str, Any]:
        """Return the totals under the keys of the JSON output."""
        return {
            **self.other.totals(),
            **self.reference.totals("reference_"),
            **self.factors(),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        return {
            **self.other.to_dict(),
            **self.change.to_dict(),
            "layers": [layer.to_dict() for layer in self.layers],
            "total": self.total(),
            "notes": list(self.other.notes),
        }


@dataclass(frozen=True)
class Comparison(Result):
    """The reference, and how every other variant differs from it."""

    reference: Variant
    differences: tuple[Difference, ...]

    def only_changed(self) -> Comparison:
        """Return this comparison without the layers that are the same in everything."""
        return replace(
            self,
            differences=tuple(
                replace(each, layers=tuple(layer for layer in each.layers if not layer.is_same))
                for each in self.differences
            ),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        reference = self.reference
        return {
            "reference": {
                **reference.to_dict(),
                "total": reference.totals(),
                "notes": list(reference.notes),
            },
            "comparisons": [difference.to_dict() for difference in self.differences],
        }


class CompareSettings(ComparedSettings, total=False):
    """Of a comparison."""

    optimizer: Annotated[
        str | Sequence[str],
        replace(
            OPTIMIZER,
            check=several("optimizer", OPTIMIZER.check),
            help="Optimizers, which decide how much state training keeps and how long an update "
            f"takes: {', '.join(OPTIMIZERS)}.",
            metavar="NAME,...",
        ),
    ]
    optimizer_kernels: Annotated[
        str | Sequence[str | None] | None, listing("optimizer_kernels", OPTIMIZER_KERNELS)
    ]
    recompute: Annotated[
        str | Recompute | Sequence[str | Recompute],
        replace(RECOMPUTE, check=find_recomputes, metavar="MODE,..."),
    ]
    loss: Annotated[str | Sequence[str], listing("loss", LOSS)]


#: Of what there may be several, what changes quickest last.
SEVERAL = (
    *("cluster", RATED[0], "network", "workers", "batch_size", *RATED[1:]),
    *("scheme", "accumulate", "gradient_dtype", "compress"),
    *("optimizer", "optimizer_kernels", "loss", "recompute", "dtype", "conv_library"),
)


def compare(
    nets: NetLike | Iterable[NetLike], *, totals: bool = False, **settings: Unpack[CompareSettings]
) -> Comparison:
    """Compare nets, or one net under several settings, with the first of them.

    Settings may be several; every net is then compared under every combination of them, the
    settings named last here changing quickest. `batch_size` is for all nets, by default what
    the first one's file has; `optimizer` is one of `paleo.OPTIMIZERS`, `dtype` one of
    paleo.core.tensor.PRECISIONS, and the other settings are as in `simulate`. Times are those of a
    training step, of several `workers` by the `scheme` or the quickest, each with a batch, or with
    `accumulate` of them. Layers are compared by name; with `totals` they are left out, and nets
    need have none in common. `importing` is for files of other frameworks, as in `load`. Raises a
    PaleoError with every mistake in the settings and files, and if there is nothing to compare.

    >>> wider = paleo.edit("alex_v2", set="fc8.filter[3]=2000")
    >>> comparison = paleo.compare(["alex_v2", wider])
    >>> comparison.differences[0].factors()["params_factor"]
    1.08...
    """
    mistakes = Mistakes()
    check = mistakes.check
    many = check(listed, "nets", nets, ONE_NET) or []
    specs = [check(load, net, settings.get("importing")) for net in many]
    check_names(declared(CompareSettings), settings, mistakes)
    values = found_settings(CompareSettings, settings, mistakes)
    choices: list[Sequence[Any]] = [values[name] or () for name in SEVERAL]
    mistakes.raise_as(PaleoError)
    found = [spec for spec in specs if spec]
    count = len(found) * math.prod(map(len, choices))
    if count < 2:
        raise SettingError(
            "nets: expected two or more, or one with edits or under several settings, got one"
        )
    if count > MAX_VARIANTS:
        raise SettingError(
            f"nets: {count} of them, times settings, are too many to compare "
            f"(at most {MAX_VARIANTS})"
        )
    batch = check(batch_of, found[0])
    mistakes.raise_as(PaleoError)
    changes = [check(change_of, found[0], spec, batch) for spec in found]
    for spec, change in zip(found, changes, strict=True):
        if change and not (change.common or change.reach or totals):
            mistakes.add(
                f"{spec.name} and {found[0].name} have no layer in common (of one name, with "
                "parameters); --totals compares their totals alone"
            )
    mistakes.raise_as(PaleoError)
    variants = [
        (
            check(_variant, spec, batch, {**values, **dict(zip(SEVERAL, chosen, strict=True))}),
            change,
        )
        for spec, change in zip(found, changes, strict=True)
        for chosen in itertools.product(*choices)
    ]
    mistakes.raise_as(PaleoError)
    reference = variants[0][0]
    assert reference
    return Comparison(
        reference,
        tuple(
            _difference(reference, other, change, totals)
            for other, change in variants[1:]
            if other and change
        ),
    )


def batch_of(net: NetSpec) -> int:
    """Return the batch of a net's own file."""
    batch: Any = build(net).batch_size
    return int(batch)


def _variant(net: NetSpec, own_batch: int, values: Mapping[str, Any]) -> Variant:
    """Return a net under found settings, of which each is one."""
    mistakes = Mistakes()
    schemes = None if values["scheme"] is None else (values["scheme"],)
    plan = plan_of({**values, "schemes": schemes}, mistakes)
    mistakes.raise_as(PaleoError)
    assert plan
    batch = own_batch if values["batch_size"] is None else int(values["batch_size"])
    settings = Conditions(plan, batch, values["workers"])
    summary: Any = summarize(scenario(net, **plan.settings, batch_size=batch))
    memory: Any = footprint(net, batch, **plan.in_memory)
    layers = tuple(
        LayerFigures(layer.name, layer.type_name, layer.output, _figures(layer, kept.total))
        for layer, kept in zip(summary.layers, memory.layers, strict=True)
    )
    step = data_parallel(net, plan, batch, settings.workers).of_floats()
    computed: Any = {name: float(step.seconds_of(name)) for name in _COMPUTED[:-1]}
    total = replace(
        _figures(summary, memory.peak),
        **computed,
        communication=float(step.exposed_communication(step.best_scheme)),
        wait=float(step.waiting),
    )
    notes = (*summary.notes, *memory.notes)
    return Variant(net.name, settings, layers, total, notes, net.repeats)


def _figures(found: Any, memory_bytes: int) -> Figures:
    """Return what is compared of a layer or of a net, whose summary this is."""
    return Figures(
        found.activations_bytes,
        found.num_params,
        found.forward_flops,
        float(found.forward),
        float(found.backward),
        memory_bytes,
    )


def _difference(reference: Variant, other: Variant, change: Change, totals: bool) -> Difference:
    kinds = ("edited", "added", "removed", "follows")
    kind_of = {name: kind for kind in kinds for name in getattr(change, kind)}
    pairs = [] if totals else _paired(reference.layers, other.layers)
    layers = tuple(ComparedLayer(name, kind_of.get(name, ""), old, new) for name, old, new in pairs)
    return Difference(other, change, layers, reference)


def _paired(
    reference: Sequence[LayerFigures], other: Sequence[LayerFigures]
) -> Iterator[tuple[str, LayerFigures | None, LayerFigures | None]]:
    """Yield the layers of one name, in the other's order; removed ones where they stood."""
    position = {layer.name: i for i, layer in enumerate(reference)}
    left = {layer.name for layer in other}
    reached = 0

    def removed(until: int) -> Iterator[tuple[str, LayerFigures, None]]:
        gone = (layer for layer in reference[reached:until] if layer.name not in left)
        return ((layer.name, layer, None) for layer in gone)

    for layer in other:
        place = position.get(layer.name)
        if place is not None:
            yield from removed(place)
            reached = max(reached, place)
        yield layer.name, None if place is None else reference[place], layer
    yield from removed(len(reference))
