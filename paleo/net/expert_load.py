"""A net whose experts have other loads, or places for as many rows each."""

from __future__ import annotations

from dataclasses import replace

from paleo.core.errors import SettingError
from paleo.net.spec import NetSpec


def with_expert_load(
    net: NetSpec, load: str | float | None = None, capacity: float | None = None
) -> NetSpec:
    """Return a net whose experts have rows by this `load`, "even" or the exponent of a power law.

    With a `capacity` each has as many places, so many times those of an even load; what has none is
    dropped, and places may stay empty (D. Lepikhin et al., GShard, arXiv:2006.16668, section 2.2).
    None leaves what the net says. Raises SettingError for a net without experts.
    """
    if load is None and capacity is None:
        return net
    counts = [each.layer.num_experts_held for each in net.layers if each.layer.num_experts_held]
    if not counts:
        name = "expert_load" if load is not None else "expert_capacity"
        raise SettingError(f"{name}: {net.name} has no layer of type Experts")
    layers = tuple(
        replace(each, layer=each.layer.spread_over(load, capacity, counts[0]))
        for each in net.layers
    )
    return replace(net, layers=layers, described=None)
