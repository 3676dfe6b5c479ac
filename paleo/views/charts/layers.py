"""Layers of a net beside each other: their time, the memory they take, what they compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paleo.core.errors import SettingError
from paleo.core.quantity import is_array
from paleo.step.memory import Footprint
from paleo.studies.summary import NetSummary
from paleo.views.charts.base import Chart, bars
from paleo.views.charts.numbers import NOTHING, left_out
from paleo.views.charts.settings import joined


def summary_setting(summary: NetSummary, what: str = "") -> str:
    """Return what the figures of a summary are of; `what` comes before the device."""
    parts = [summary.name, f"batch {summary.batch_size}", summary.dtype, what]
    if on := summary.timed_on:
        parts += [f"on {on.plan.device.name}", *on.plan.said(on_network=False).values()]
    return joined(parts)


#: What stands in the charts of a summary, by key: attributes of a layer by their series.
_PARTS = {
    "time": {"forward": "forward", "backward": "backward"},
    "memory": {"weights": "weights_bytes", "outputs": "activations_bytes"},
    "flops": {"forward": "forward_flops"},
}


def ranks(summary: NetSummary, *keys: str) -> list[float]:
    """Return the largest share that each layer has of what these charts of a summary show.

    Charts side by side that take it have the same layers.
    """
    _check_batch(summary)
    shares = [[0.0] * len(summary.layers)]
    for key in keys:
        names = _PARTS[key].values()
        values = [sum(getattr(layer, name) or 0 for name in names) for layer in summary.layers]
        whole = sum(values)
        shares.append([value / whole for value in values] if whole else shares[0])
    return [max(own) for own in zip(*shares, strict=True)]


def time_by_layer(summary: NetSummary, by: Sequence[float] | None = None) -> Chart:
    """Return the seconds of the forward and of the backward pass, stacked.

    Layers that take none are left out unless `by` ranks layers, for charts side by side. Raises
    SettingError without a device, and for an array of batch sizes.
    """
    if summary.timed_on is None:
        raise SettingError("plot: times by layer need a device")
    said = {"key": "time", "title": "Time by layer", "setting": summary_setting(summary)}
    return _stacked(summary, _PARTS["time"], "s", "time of a step without the update", by, **said)


def memory_by_layer(summary: NetSummary, by: Sequence[float] | None = None) -> Chart:
    """Return the bytes of weights and of outputs, stacked; raises as `time_by_layer`."""
    title, setting = "Weights and outputs by layer", summary_setting(summary)
    said = {"key": "memory", "title": title, "setting": setting}
    return _stacked(summary, _PARTS["memory"], "bytes", "weights and outputs", by, **said)


def computation_by_layer(summary: NetSummary, by: Sequence[float] | None = None) -> Chart:
    """Return the FLOPs of a forward pass; raises as `time_by_layer`."""
    said = {"key": "flops", "title": "Computation by layer", "setting": summary_setting(summary)}
    label = "computation of a forward pass"
    return _stacked(summary, _PARTS["flops"], "FLOP", label, by, **said)


def footprint_by_layer(found: Footprint) -> Chart:
    """Return what each layer takes of memory: weights, gradients, state and activations, stacked.

    Raises SettingError for an array of batch sizes.
    """
    names = ("weights", "gradients", "optimizer_state", "activations")
    return _stacked(
        found,
        {name.replace("_", " "): name for name in names},
        "bytes",
        "memory",
        key="footprint",
        title=f"Memory of {'training' if found.training else 'inference'} by layer",
        setting=footprint_setting(found),
    )


def footprint_setting(found: Footprint) -> str:
    """Return what the bytes of a footprint are of."""
    return f"{found.net}, batch {found.batch_size}, {found.purpose}, {found.dtype}"


def _stacked(
    net: NetSummary | Footprint,
    parts: Mapping[str, str],
    dimension: str,
    label: str,
    by: Sequence[float] | None = None,
    **chart: Any,
) -> Chart:
    """Return bars of the layers that have any of these parts, in SI units of `dimension`.

    `parts` names attributes of a layer by their series. A series in which no layer has any is left
    out, if another one is left. `by` ranks all layers; None leaves out those without any part.
    """
    _check_batch(net)
    layers = net.layers
    values = {name: [getattr(layer, part) for layer in layers] for name, part in parts.items()}
    values = {name: own for name, own in values.items() if any(own)} or values
    rows = enumerate(zip(*values.values(), strict=True))
    shown = [i for i, each in rows if by or any(each)]
    columns = {name: [own[i] for i in shown] for name, own in values.items()}
    if number := len(layers) - len(shown):
        chart["notes"] = (left_out(number, len(layers), *NOTHING[dimension]),)
    names = [layers[i].name for i in shown]
    return bars(names, columns, dimension, label, by=by, x_label="layer", **chart)


def _check_batch(net: NetSummary | Footprint) -> None:
    if is_array(net.batch_size):
        raise SettingError("plot: it is for one batch size, not an array of them")
