"""Layers of repeated blocks put together: what instances have alike is one layer of sums.

People read a row for each layer of a block, programs each layer of each instance. What differs by
index, such as a window or experts, is apart.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, TypeVar

from paleo.core.operations import Work
from paleo.core.quantity import is_array, total
from paleo.costs import Time
from paleo.net.spec import in_file
from paleo.step.memory import Fit
from paleo.step.memory.footprint import PARTS, Footprint, LayerMemory
from paleo.studies.explain import ExplainedLayer
from paleo.studies.summary import LayerSummary, NetSummary

_Layer = TypeVar("_Layer")


def fold(
    layers: Iterable[_Layer],
    repeats: Mapping[str, int],
    kind: Callable[[_Layer], Hashable],
    name: Callable[[_Layer], str] = attrgetter("name"),
    part: Callable[[_Layer], str] = lambda layer: "",
) -> list[tuple[str, list[_Layer]]]:
    """Return layers by what they are in the net's file, apart where their `kind` differs.

    `repeats` are those of the NetSpec; a layer may have a row for each `part`, such as a pass. The
    name is that of the file, with "*" in the place of an index, if all instances are alike; else
    that of the first of them. The order is that of the net, but that a block is in one piece.
    """
    found: dict[tuple[str, str], dict[Hashable, list[_Layer]]] = {}
    for layer in layers:
        kinds = found.setdefault((in_file(name(layer), repeats), part(layer)), {})
        kinds.setdefault(kind(layer), []).append(layer)
    first: dict[str, int] = {}
    places: dict[str, list[int]] = {}
    for own, (known, _) in enumerate(found):
        blocks = [prefix for prefix in repeats if known.startswith(prefix)]
        where = [first.setdefault(block, own) for block in blocks]
        places.setdefault(known, [*where, own])
    return [
        (known if len(kinds) == 1 else name(alike[0]), alike)
        for (known, _), kinds in sorted(found.items(), key=lambda item: places[item[0][0]])
        for alike in kinds.values()
    ]


def folded_summary(summary: NetSummary) -> NetSummary:
    """Return a summary whose layers are sums over the instances that are alike.

    Totals stay. It is the same where nothing repeats, and for an array of batch sizes.
    """
    if not summary.repeats or is_array(summary.batch_size):
        return summary
    numbered = fold(
        enumerate(summary.layers),
        summary.repeats,
        lambda row: _what_it_is(row[1]),
        lambda row: row[1].name,
    )
    places = [[place for place, _ in alike] for _, alike in numbered]
    why = fold(summary.explained, summary.repeats, lambda layer: (layer.operations, layer.runs_in))
    return replace(
        summary,
        layers=tuple(
            _sum_of_layers(name, [layer for _, layer in alike], summary.repeats)
            for name, alike in numbered
        ),
        find_work=summary.find_work and functools.partial(_work, summary.find_work, places),
        explained=tuple(_one_of(name, alike) for name, alike in why),
    )


def _work(find: Callable[[], list[list[Work]]], places: list[list[int]]) -> list[list[Work]]:
    """Return the work in each pass of the layers at these places, together."""
    return [[sum((works[place] for place in own), Work()) for own in places] for works in find()]


def _what_it_is(layer: LayerSummary) -> Hashable:
    return layer.type_name, layer.output, layer.num_params, layer.forward_flops


def _sum_of_layers(
    name: str, alike: Sequence[LayerSummary], repeats: Mapping[str, int]
) -> LayerSummary:
    first = alike[0]
    if len(alike) == 1:
        return first
    sums = ("num_params", "forward_flops", "weights_bytes", "activations_bytes")
    return replace(
        first,
        name=name,
        instances=len(alike),
        parents=tuple(in_file(parent, repeats) for parent in first.parents),
        **_sums(alike, *sums),
        forward=_seconds(alike, "forward"),
        backward=_seconds(alike, "backward"),
        forward_time=_time(alike, "forward_time"),
        backward_time=_time(alike, "backward_time"),
    )


def _sums(alike: Sequence[Any], *names: str) -> dict[str, Any]:
    return {name: sum(getattr(layer, name) for layer in alike) for name in names}


def _seconds(alike: Sequence[LayerSummary], name: str) -> Any:
    return None if getattr(alike[0], name) is None else total(getattr(one, name) for one in alike)


def _time(alike: Sequence[LayerSummary], name: str) -> Time | None:
    if getattr(alike[0], name) is None:
        return None
    return sum((getattr(one, name) for one in alike), Time())


def _one_of(name: str, alike: Sequence[ExplainedLayer]) -> ExplainedLayer:
    """Return one of several instances, which says why each of them takes its time."""
    return replace(alike[0], name=name, instances=len(alike)) if len(alike) > 1 else alike[0]


def folded_fit(fit: Fit) -> Fit:
    """Return what fits, with the layers of its footprint as those of `folded_summary`."""
    return replace(fit, footprint=folded_footprint(fit.footprint))


def folded_footprint(found: Footprint) -> Footprint:
    """Return a footprint whose layers are sums over the instances that are alike; totals stay."""
    if not found.repeats or is_array(found.batch_size):
        return found
    layers = fold(
        found.layers, found.repeats, lambda layer: (layer.type_name, layer.output, layer.weights)
    )
    return replace(found, layers=tuple(_sum_of_memory(name, alike) for name, alike in layers))


def _sum_of_memory(name: str, alike: Sequence[LayerMemory]) -> LayerMemory:
    if len(alike) == 1:
        return alike[0]
    return replace(alike[0], name=name, instances=len(alike), **_sums(alike, "output", *PARTS))
