"""Layers of a net beside each other: their time, the memory they take, what they compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paleo.charts.base import Chart, Series, in_one_unit
from paleo.charts.numbers import NOTHING, left_out
from paleo.charts.settings import joined, pricing
from paleo.errors import SettingError
from paleo.memory import Footprint
from paleo.quantity import Quantity, is_array
from paleo.summary import LayerSummary, NetSummary

__all__ = [
    "computation_by_layer",
    "footprint_by_layer",
    "footprint_setting",
    "memory_by_layer",
    "summary_setting",
    "time_by_layer",
]


def summary_setting(summary: NetSummary, what: str = "") -> str:
    """Return what the figures of a summary are of; `what` comes before the device."""
    parts = [f"batch {summary.batch_size}", summary.dtype, what]
    if on := summary.timed_on:
        parts += [f"on {on.device}", *pricing(on).values()]
    return joined(parts)


def time_by_layer(summary: NetSummary, *, every: bool = False) -> Chart:
    """Return the seconds of the forward and of the backward pass, stacked.

    Layers that take none are left out unless `every` one is to be there, for charts side by side.
    Raises SettingError without a device, and for an array of batch sizes.
    """
    values = {
        "forward": [layer.forward for layer in _timed(summary)],
        "backward": [layer.backward for layer in _timed(summary)],
    }
    return _bars(
        summary, "time", "Time by layer", "time of a step without the update", "s", values, every
    )


def memory_by_layer(summary: NetSummary, *, every: bool = False) -> Chart:
    """Return the bytes of weights and of outputs, stacked; raises as `time_by_layer`."""
    values = {
        "weights": [layer.weights_bytes for layer in _layers(summary)],
        "outputs": [layer.activations_bytes for layer in _layers(summary)],
    }
    title = "Weights and outputs by layer"
    return _bars(summary, "memory", title, "weights and outputs", "bytes", values, every)


def computation_by_layer(summary: NetSummary, *, every: bool = False) -> Chart:
    """Return the FLOPs of a forward pass; raises as `time_by_layer`."""
    values = {"forward": [layer.forward_flops for layer in _layers(summary)]}
    title, label = "Computation by layer", "computation of a forward pass"
    return _bars(summary, "flops", title, label, "FLOP", values, every)


def _layers(summary: NetSummary) -> tuple[LayerSummary, ...]:
    _check(summary.batch_size)
    return summary.layers


def _timed(summary: NetSummary) -> tuple[LayerSummary, ...]:
    if summary.timed_on is None:
        raise SettingError("plot: times by layer need a device")
    return _layers(summary)


def footprint_by_layer(found: Footprint) -> Chart:
    """Return what each layer takes of memory: weights, gradients, state and activations, stacked.

    Raises SettingError for an array of batch sizes.
    """
    _check(found.batch_size)
    values = {
        name.replace("_", " "): own
        for name in ("weights", "gradients", "optimizer_state", "activations")
        if any(own := [getattr(layer, name) for layer in found.layers])
    }
    names = [layer.name for layer in found.layers]
    setting = footprint_setting(found)
    title = f"Memory of {'training' if found.training else 'inference'} by layer"
    return _stacked("footprint", title, setting, "memory", "bytes", names, values)


def footprint_setting(found: Footprint) -> str:
    """Return what the bytes of a footprint are of."""
    return f"{found.net}, batch {found.batch_size}, {found.purpose}, {found.dtype}"


def _check(batch_size: Quantity) -> None:
    if is_array(batch_size):
        raise SettingError("plot: it is for one batch size, not an array of them")


def _bars(
    summary: NetSummary,
    key: str,
    title: str,
    label: str,
    dimension: str,
    values: Mapping[str, Sequence[Any]],
    every: bool,
) -> Chart:
    setting = f"{summary.name}, {summary_setting(summary)}"
    names = [layer.name for layer in summary.layers]
    return _stacked(key, title, setting, label, dimension, names, values, every)


def _stacked(
    key: str,
    title: str,
    setting: str,
    label: str,
    dimension: str,
    layers: Sequence[str],
    values: Mapping[str, Sequence[Any]],
    every: bool = False,
) -> Chart:
    """Return bars of the layers that have any of these values, in SI units of `dimension`.

    A series in which no layer has any is left out, if another one is left.
    """
    values = {name: own for name, own in values.items() if any(own)} or values
    rows = enumerate(zip(*values.values(), strict=True))
    shown = [i for i, each in rows if every or any(each)]
    columns = [[own[i] for i in shown] for own in values.values()]
    scale, scaled = in_one_unit(columns, dimension, by_largest=True)
    names = tuple(layers[i] for i in shown)
    number = len(layers) - len(shown)
    notes = (left_out(number, len(layers), *NOTHING[dimension]),) if number else ()
    return Chart(
        key,
        "bars",
        title,
        setting,
        "layer",
        f"{label} ({scale.unit})",
        tuple(Series(name, names, own) for name, own in zip(values, scaled, strict=True)),
        notes=notes,
    )
