"""Nets, or settings, beside a reference: layer by layer, and in total."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paleo.step.loss import NONE
from paleo.studies.compare import Comparison, Conditions, Difference, LayerFigures, Variant
from paleo.views.charts.base import Chart, Series, in_one_unit, summed
from paleo.views.charts.numbers import NOTHING, counted, left_out
from paleo.views.charts.settings import joined, places

#: What is compared by layer: its key, the title, the label, the dimension, and the figure.
_BY_LAYER = (
    ("time", "Time by layer", "time of a step without the update", "s", "time"),
    ("memory", "Memory of training by layer", "memory of training", "bytes", "memory_bytes"),
    ("params", "Parameters by layer", "parameters", "count", "num_params"),
)
_MILLION = 10**6
#: Up to so many layers are all shown; of more, those that differ.
_ALL = 20
#: What is compared in total: the key of the factor, and its name.
_IN_TOTAL = {
    "time_factor": "time of a step",
    "memory_factor": "memory at the peak",
    "params_factor": "parameters",
    "forward_flops_factor": "FLOPs forward",
    "output_factor": "outputs",
}


def variant_labels(variants: Sequence[Variant]) -> tuple[list[str], str]:
    """Return a name for each variant, with the settings that differ, and what all have."""
    is_many = any(variant.settings.workers > 1 for variant in variants)
    where = places([variant.settings.plan for variant in variants])
    texts = [
        _setting_texts(variant.settings, place, is_many)
        for variant, place in zip(variants, where, strict=True)
    ]
    differing = [name for name in texts[0] if len({each[name] for each in texts}) > 1]
    labels = [
        joined([variant.net, *(each[name] for name in differing)])
        for variant, each in zip(variants, texts, strict=True)
    ]
    return labels, joined(text for name, text in texts[0].items() if name not in differing)


def _setting_texts(settings: Conditions, place: Mapping[str, str], is_many: bool) -> dict[str, str]:
    """Return the settings in words, in the order in which they are said.

    Where no variant has many workers, nothing is said of them, or of their network.
    """
    return {
        **{key: text for key, text in place.items() if is_many or key != "network"},
        "workers": counted(settings.workers, "worker") if is_many else "",
        "batch_size": f"batch {settings.batch_size}",
        "dtype": settings.plan.dtype,
        "scheme": settings.scheme or "",
        **settings.plan.said(on_network=is_many),
        "optimizer": settings.plan.optimizer,
        **({"loss": "no loss"} if settings.plan.loss == NONE else {}),
    }


def differences(comparison: Comparison) -> tuple[Chart, ...]:
    """Return the totals and, for each variant whose layers were compared, what differs by layer.

    Those are time, memory and parameters; one in which nothing differs has no chart.
    """
    found = [totals(comparison)]
    for difference in comparison.differences:
        found += _by_layer(comparison.reference, difference)
    return tuple(found)


def totals(comparison: Comparison) -> Chart:
    """Return by how much the totals of each variant are the reference's."""
    variants = [comparison.reference, *(each.other for each in comparison.differences)]
    labels, common = variant_labels(variants)
    labels = _told_apart(labels, any(map(_differs, comparison.differences)))
    factors = [each.factors() for each in comparison.differences]
    shown = [key for key in _IN_TOTAL if any(own[key] is not None for own in factors)]
    names = tuple(_IN_TOTAL[key] for key in shown)
    return Chart(
        "totals",
        "grouped",
        "Totals over those of the reference",
        f"reference: {labels[0]}; {common}",
        "total",
        "factor",
        (
            *(
                Series(label, names, tuple(own[key] for key in shown))
                for label, own in zip(labels[1:], factors, strict=True)
            ),
            Series("reference", names, (1.0,) * len(names), is_reference=True),
        ),
        notes=("a factor is missing where the reference has none of it",)
        if any(own[key] is None for own in factors for key in _IN_TOTAL)
        else (),
    )


def _by_layer(reference: Variant, difference: Difference) -> list[Chart]:
    labels, common = variant_labels([reference, difference.other])
    there, here = _told_apart(labels, _differs(difference))
    charts = []
    for key, title, label, dimension, figure in _BY_LAYER:
        pairs = [
            (each.name, _value(each.reference, figure), _value(each.other, figure))
            for each in difference.layers
        ]
        having = [pair for pair in pairs if any(pair[1:])]
        differing = [pair for pair in having if pair[1] != pair[2]]
        if not differing:
            continue
        shown = differing if len(having) > _ALL else having
        rows = summed(
            [pair[0] for pair in shown],
            {there: [pair[1] for pair in shown], here: [pair[2] for pair in shown]},
            [abs((pair[2] or 0) - (pair[1] or 0)) for pair in shown],
            beside=2,
            title=title,
            what="layer",
        )
        unit, scaled = _scaled(list(rows.columns.values()), dimension, rows.others)
        notes = [*rows.notes]
        if number := len(pairs) - len(having):
            notes.append(left_out(number, len(pairs), *NOTHING[dimension]))
        if number := len(having) - len(shown):
            notes.append(f"{title}: {left_out(number, len(pairs), 'have', 'the same in both')}")
        setting, y_label = f"{here} against {there}: {common}", f"{label}{unit}"
        series = (Series(there, rows.names, scaled[0]), Series(here, rows.names, scaled[1]))
        said: dict[str, Any] = {"notes": tuple(notes), "others": rows.others}
        charts.append(Chart(key, "grouped", title, setting, "layer", y_label, series, **said))
    return charts


def _scaled(
    columns: Sequence[Sequence[float | None]], dimension: str, others: int
) -> tuple[str, list[tuple[float | None, ...]]]:
    """Return the unit in brackets, and the values in it; counts are in millions if they are."""
    if dimension != "count":
        scale, scaled = in_one_unit(columns, dimension, by_largest=True, others=others)
        return f" ({scale.unit})", scaled
    most = max(value for own in columns for value in own if value is not None)
    divisor, unit = (_MILLION, " (millions)") if most >= _MILLION else (1, "")
    return unit, [tuple(v if v is None else v / divisor for v in own) for own in columns]


def _value(layer: LayerFigures | None, figure: str) -> Any:
    """Return a figure of a layer; None where there is no such layer."""
    return None if layer is None else getattr(layer.figures, figure)


def _differs(difference: Difference) -> bool:
    """Tell whether the other has other layers, or other figures in total."""
    is_other = difference.change.reach != "none"
    return is_other or difference.other.total != difference.reference.total


def _told_apart(labels: Sequence[str], differ: bool) -> list[str]:
    """Return the labels, numbered where they are the same: a net and its edits have one name.

    `differ` tells whether the variants do.
    """
    if len(set(labels)) == len(labels):
        return list(labels)
    if len(labels) == 2:
        return [f"{labels[0]} (reference)", f"{labels[1]} ({'changed' if differ else 'the same'})"]
    return [
        f"{label} (reference)" if not number else f"{label} ({number})"
        for number, label in enumerate(labels)
    ]
