"""Compared layers of repeated blocks put together, as paleo.studies.folding does."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import fields, replace

from paleo.studies.compare.comparison import (
    ComparedLayer,
    Comparison,
    Difference,
    Figures,
    LayerFigures,
)
from paleo.studies.folding import fold


def folded_comparison(comparison: Comparison) -> Comparison:
    """Return a comparison whose layers are sums over the instances that are alike; totals stay."""
    differences = tuple(map(_folded_difference, comparison.differences))
    return replace(comparison, differences=differences)


def _folded_difference(found: Difference) -> Difference:
    repeats = found.repeats
    if not repeats:
        return found
    layers = fold(found.layers, repeats, _what_differs)
    return replace(found, layers=tuple(_sum_of_compared(name, alike) for name, alike in layers))


def _what_differs(layer: ComparedLayer) -> Hashable:
    sides = (
        (side.type_name, side.output, side.figures.num_params, side.figures.forward_flops)
        if side
        else None
        for side in (layer.reference, layer.other)
    )
    return (layer.change, *sides)


def _sum_of_compared(name: str, alike: Sequence[ComparedLayer]) -> ComparedLayer:
    if len(alike) == 1:
        return alike[0]
    return replace(
        alike[0],
        name=name,
        instances=len(alike),
        reference=_sum_of_figures([one.reference for one in alike]),
        other=_sum_of_figures([one.other for one in alike]),
    )


def _sum_of_figures(alike: Sequence[LayerFigures | None]) -> LayerFigures | None:
    there = [one for one in alike if one]
    if not there:
        return None
    names = [field.name for field in fields(Figures)]
    sums = {name: sum(getattr(one.figures, name) for one in there) for name in names}
    return replace(there[0], figures=Figures(**sums))
