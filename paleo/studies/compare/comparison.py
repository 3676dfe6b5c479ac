"""Nets, or one net under several settings, against the first: figures and their factors."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from paleo.compare.change import Change, change_of
from paleo.costs import (
    DEFAULT_COST_MODEL,
    ConvolutionChoice,
    CostModel,
    convolution_choice,
    find_cost_model,
)
from paleo.costs.convolutions import DEFAULT
from paleo.errors import Mistakes, PaleoError, SettingError
from paleo.estimate import DeviceLike, checked_share, estimate_update
from paleo.graph import build, checked_batch
from paleo.hardware import Device, find_device
from paleo.importers import ImportOptions
from paleo.load import load
from paleo.memory import OPTIMIZERS, Optimizer, footprint
from paleo.netspec import NetSpec
from paleo.quantity import is_array
from paleo.simulate import NetLike
from paleo.summary import summarize
from paleo.tensor import Shape, find_precision
from paleo.values import listed, python_int, shown

__all__ = [
    "MAX_VARIANTS",
    "ComparedLayer",
    "Comparison",
    "Difference",
    "Figures",
    "LayerFigures",
    "Settings",
    "Variant",
    "compare",
]

#: The most nets times settings in one comparison.
MAX_VARIANTS = 100


@dataclass(frozen=True)
class Settings:
    """What a net is compared under: a training step of `batch_size` samples on one device."""

    device: str
    batch_size: int
    cost_model: str
    ppp_comp: float
    optimizer: str
    use_pipeline: bool
    dtype: str = "fp32"
    fuse: bool = False
    convolutions: ConvolutionChoice = DEFAULT

    @classmethod
    def keys(cls) -> tuple[str, ...]:
        """Return the keys of the JSON output."""
        names = (field.name for field in fields(cls) if field.name != "convolutions")
        return (*names, *DEFAULT.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        named = {key: value for key, value in vars(self).items() if key != "convolutions"}
        return {**named, **self.convolutions.to_dict()}


@dataclass(frozen=True)
class Figures:
    """What is compared of a layer or of a whole net, at one batch size.

    Bytes of the output, parameters, FLOPs of a forward pass, seconds of the passes and, for
    the net, of the update; bytes that training needs: for a layer, of its parameters, their
    gradients, the optimizer's state and the output that is kept; for the net, the peak.
    """

    output_bytes: int
    num_params: int
    forward_flops: int
    forward: float
    backward: float
    memory_bytes: int
    update: float = 0.0

    @property
    def time(self) -> float:
        """Seconds of forward, backward and update."""
        return self.forward + self.backward + self.update

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        return {
            "output_bytes": self.output_bytes,
            "params": self.num_params,
            "forward_flops": self.forward_flops,
            "forward_s": self.forward,
            "backward_s": self.backward,
            "update_s": self.update,
            "time_s": self.time,
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
        del values["update_s"]  # which is done for the net at once
        return values


@dataclass(frozen=True)
class Variant:
    """One net under one choice of settings. `notes` say what a reader should know."""

    net: str
    settings: Settings
    layers: tuple[LayerFigures, ...]
    total: Figures
    notes: tuple[str, ...]

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
    """Another variant against the reference, of which it knows the totals.

    `layers` are those of both, in the other's order; empty where totals alone were asked for.
    """

    other: Variant
    change: Change
    layers: tuple[ComparedLayer, ...]
    reference_total: Figures

    def factors(self) -> dict[str, float | None]:
        """Return the factors of the totals, as `Figures.factors` does."""
        return self.other.total.factors(self.reference_total)

    def total(self) -> dict[str, Any]:
        """Return the totals under the keys of the JSON output."""
        return {
            **self.other.total.to_dict(),
            **{f"reference_{key}": value for key, value in self.reference_total.to_dict().items()},
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
class Comparison:
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
                "total": reference.total.to_dict(),
                "notes": list(reference.notes),
            },
            "comparisons": [difference.to_dict() for difference in self.differences],
        }


def compare(
    nets: NetLike | Iterable[NetLike],
    *,
    device: DeviceLike | Sequence[DeviceLike] = "TITAN_X",
    batch_size: int | Sequence[int] | None = None,
    cost_model: str | CostModel | Sequence[str | CostModel] = DEFAULT_COST_MODEL,
    ppp_comp: float | Sequence[float] = 1.0,
    optimizer: str | Sequence[str] = "sgd",
    use_pipeline: bool = False,
    totals: bool = False,
    importing: ImportOptions | None = None,
    dtype: str | Sequence[str] = "fp32",
    fuse: bool = False,
    conv_library: str | Sequence[str | None] | None = None,
    workspace: int | str | None = None,
    use_only_gemm: bool = False,
) -> Comparison:
    """Compare nets, or one net under several settings, with the first of them.

    Settings may be several; every net is then compared under every combination of them, the
    settings named last here changing quickest. `batch_size` is for all nets, by default what
    the first one's file has; `optimizer` is one of `paleo.OPTIMIZERS`, `dtype` one of
    paleo.tensor.PRECISIONS, and the other settings are as in `simulate`. Times are those of a
    training step on one device. Layers are compared by name; with `totals` they are left out,
    and nets need have none in common. `importing` is
    for files of other frameworks, as in `load`. Raises a PaleoError with every mistake in the
    settings and files, and if there is nothing to compare.
    """
    mistakes = Mistakes()
    check = mistakes.check
    many = check(listed, "nets", nets, str | os.PathLike | NetSpec) or []
    specs = [check(load, net, importing) for net in many]
    choices: list[list[Any]] = [
        [check(find, value) for value in check(listed, name, values, single) or []]
        for name, values, single, find in (
            ("device", device, str | os.PathLike | Device, find_device),
            ("batch_size", batch_size, int | float | None, _checked_batch),
            ("cost_model", cost_model, str | CostModel, find_cost_model),
            ("ppp_comp", ppp_comp, int | float, _checked_share),
            ("optimizer", optimizer, str, OPTIMIZERS.__getitem__),
            ("dtype", dtype, str, _checked_dtype),
            (
                "conv_library",
                conv_library,
                str | None,
                lambda library: convolution_choice(library, workspace, use_only_gemm),
            ),
        )
    ]
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
    batch = check(_batch_of, found[0])
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
        (check(_variant, spec, batch, use_pipeline, fuse, *chosen), change)
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


def _checked_batch(value: Any) -> int | None:
    if value is None:
        return None
    checked: Any = checked_batch(_single("batch_size", value))
    return int(checked)


def _checked_share(value: Any) -> float:
    checked: Any = checked_share(_single("ppp_comp", value), "ppp_comp")
    return float(checked)


def _checked_dtype(value: str) -> str:
    find_precision(value)
    return value


def _single(name: str, value: Any) -> Any:
    """Return a number, a Python one if it is whole; raises SettingError for an array of them."""
    if is_array(value) and value.shape:
        raise SettingError(f"{name}: expected one number, got {shown(value)}")
    return python_int(value)


def _batch_of(net: NetSpec) -> int:
    """Return the batch of a net's own file."""
    batch: Any = build(net).batch_size
    return int(batch)


def _variant(
    net: NetSpec,
    own_batch: int,
    use_pipeline: bool,
    fuse: bool,
    device: Device,
    batch_size: int | None,
    cost_model: CostModel,
    ppp_comp: float,
    optimizer: Optimizer,
    dtype: str,
    convolutions: ConvolutionChoice,
) -> Variant:
    batch = own_batch if batch_size is None else batch_size
    rates: Any = {
        "cost_model": cost_model,
        "ppp_comp": ppp_comp,
        "use_pipeline": use_pipeline,
        "dtype": dtype,
    }
    summary: Any = summarize(
        net,
        batch,
        device=device,
        fuse=fuse,
        conv_library=convolutions.library,
        workspace=convolutions.workspace,
        use_only_gemm=convolutions.only_gemm,
        **rates,
    )
    memory: Any = footprint(net, batch, optimizer=optimizer.name, dtype=dtype)
    layers = tuple(
        LayerFigures(
            layer.name,
            layer.type_name,
            layer.output,
            Figures(
                layer.activations_bytes,
                layer.num_params,
                layer.forward_flops,
                float(layer.forward),
                float(layer.backward),
                kept.total,
            ),
        )
        for layer, kept in zip(summary.layers, memory.layers, strict=True)
    )
    update: Any = estimate_update(summary.num_params, device, **rates)
    total = Figures(
        summary.activations_bytes,
        summary.num_params,
        summary.forward_flops,
        float(summary.forward),
        float(summary.backward),
        memory.peak,
        float(update),
    )
    settings = Settings(
        device.name,
        batch,
        cost_model.name,
        ppp_comp,
        optimizer.name,
        use_pipeline,
        dtype,
        fuse,
        convolutions,
    )
    return Variant(net.name, settings, layers, total, (*summary.notes, *memory.notes))


def _difference(reference: Variant, other: Variant, change: Change, totals: bool) -> Difference:
    kinds = ("edited", "added", "removed", "follows")
    kind_of = {name: kind for kind in kinds for name in getattr(change, kind)}
    pairs = [] if totals else _paired(reference.layers, other.layers)
    layers = tuple(ComparedLayer(name, kind_of.get(name, ""), old, new) for name, old, new in pairs)
    return Difference(other, change, layers, reference.total)


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
