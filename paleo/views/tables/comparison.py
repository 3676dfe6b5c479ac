"""The tables of a comparison: layer by layer, and in total."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paleo.core.tensor import format_shape
from paleo.studies.compare import Change, Comparison, Difference, Variant
from paleo.studies.compare.comparison import KEYS
from paleo.views.charts.difference import variant_labels
from paleo.views.headings import called, footnotes
from paleo.views.table import Column, Table, plain
from paleo.views.tables.base import common_notes

#: Names in a footnote before the rest is a number.
_FEW = 20


def _settings(prefix: str = "") -> tuple[Column, ...]:
    """Return the columns of a variant's settings, which are for programs alone."""
    return plain(*(f"{prefix}{name}" for name in ("net", *KEYS)))


#: What is compared: the key, the title, the dimension, and the factor's key and title.
_COMPARED = (
    ("output_bytes", "output", "bytes", "output_factor", "output\nfactor"),
    ("params", "parameters", "", "params_factor", "params\nfactor"),
    ("forward_flops", "forward", "FLOP", "forward_flops_factor", "forward\nfactor"),
    ("time_s", "time", "s", "time_factor", "time\nfactor"),
    ("memory_bytes", "memory", "bytes", "memory_factor", "memory\nfactor"),
)


def _figures(times: Sequence[str], digits: int, *factors: str) -> tuple[Column, ...]:
    """Return the columns of what is compared, `times` its parts; these `factors` are shown.

    Times have so many digits, 0 for as many as are usual.
    """
    shown = []
    for key, title, dimension, factor, factor_title in _COMPARED:
        is_wide = factor not in factors
        shown += [
            Column(
                key,
                title,
                dimension,
                digits=digits if dimension == "s" else 0,
                wide=key == "output_bytes",
                least_is_best=True,
                spare=int(key in ("params", "forward_flops")),
            ),
            Column(f"reference_{key}"),
            Column(factor),
            Column(f"{factor}_text", factor_title, for_people=True, right=True, wide=is_wide),
        ]
    return (*shown, *plain(*(f"{side}{key}" for side in ("", "reference_") for key in times)))


def comparison_tables(
    comparison: Comparison, *, only_totals: bool, with_totals: bool
) -> list[Table]:
    """Return the layers of each net beside the reference's, and the totals of all."""
    tables = []
    if not only_totals:
        tables = [
            difference_table(comparison.reference, difference)
            for difference in comparison.differences
        ]
    if only_totals or with_totals:
        tables.append(totals_table(comparison, with_notes=not tables))
    return tables


def difference_table(reference: Variant, difference: Difference) -> Table:
    """Return the table of a net's layers beside the reference's."""
    change, other = difference.change, difference.other
    same = {**_flat(other), **_flat(reference, "reference_"), "reach": change.reach}
    rows = []
    is_folded = any(layer.instances > 1 for layer in difference.layers)
    repeats = difference.repeats if is_folded else {}
    for layer in difference.layers:
        values = layer.to_dict() | called(layer.name, layer.instances, repeats)
        for side, of in (("", layer.other), ("reference_", layer.reference)):
            values[f"{side}output"] = format_shape(of.output) if of else None
        values["dimensions"] = format_shape(layer.other.output[1:]) if layer.other else None
        rows.append({**same, **values, **_texts(layer.factors())})
    columns = (
        *_settings(),
        *_settings("reference_"),
        Column("reach"),
        Column("name", "layer"),
        Column("change", "change" if any(row["change"] for row in rows) else ""),
        *plain("type", "reference_type", "output", "reference_output"),
        Column("dimensions", "dimensions", for_people=True, spare=2),
        *_figures(("forward_s", "backward_s"), _digits(reference, other), "time_factor"),
    )
    (here, there), common = variant_labels([other, reference])
    return Table(
        f"{here} against {there}: {common}",
        columns,
        rows,
        {"name": "total", **difference.total(), **_texts(difference.factors())},
        footnotes=[*footnotes(difference.layers), *_said_of(change)],
        notes=_notes(reference, other),
    )


def totals_table(found: Comparison, with_notes: bool) -> Table:
    """Return the table of totals: a row for each variant, the reference first."""
    variants = [found.reference, *(difference.other for difference in found.differences)]
    labels, common = variant_labels(variants)
    same = Difference(found.reference, Change(None, 0), (), found.reference)
    rows = [
        {
            **_flat(variant),
            "reach": difference.change.reach,
            "label": label,
            **difference.total(),
            **_texts(difference.factors()),
        }
        for difference, variant, label in zip(
            (same, *found.differences), variants, labels, strict=True
        )
    ]
    columns = (
        *_settings(),
        Column("label", "net", for_people=True),
        Column("reach", "reach" if any(row["reach"] for row in rows) else "", wide=True),
        *_figures(
            ("forward_s", "recomputation_s", "backward_s", "update_s", "communication_s", "wait_s"),
            _digits(*variants),
            *(factor for *_, factor, _ in _COMPARED if factor != "output_factor"),
        ),
    )
    notes = _notes(*variants) if with_notes else ()
    is_many = any(variant.settings.workers > 1 for variant in variants)
    again = " and what is computed again" * any(each.total.recomputation for each in variants)
    exchange = " and what is exposed of the exchange" * is_many
    exchange += " and waits for the slowest worker" * any(each.total.wait for each in variants)
    footnote = (
        "forward: FLOPs of a forward pass; time: a training step on one device, in total with "
        f"the update{again}{exchange}; memory: what training keeps of a layer, in total the peak"
    )
    return Table(f"totals: {common}", columns, rows, footnotes=[footnote], notes=notes)


def _digits(*variants: Variant) -> int:
    """Return how many digits the bands of all support, 0 if one has none."""
    plans = [variant.settings.plan for variant in variants]
    return max(plan.digits for plan in plans) if all(plan.band for plan in plans) else 0


def _flat(variant: Variant, prefix: str = "") -> dict[str, Any]:
    values = {"net": variant.net, **variant.settings.to_dict()}
    return {f"{prefix}{key}": value for key, value in values.items()}


def _texts(factors: Mapping[str, float | None]) -> dict[str, str | None]:
    return {f"{key}_text": _short(value) for key, value in factors.items()}


def _short(factor: float | None) -> str | None:
    """Return a factor in about three digits: 1x, 1.33x, 12.5x; 1.00x is one that is not quite 1."""
    if factor is None or factor == 1:
        return None if factor is None else "1x"
    if factor < 0.01:
        return f"{factor:.1g}x"
    return f"{factor:,.{2 if factor < 9.995 else 1 if factor < 99.95 else 0}f}x"


def _said_of(change: Change) -> list[str]:
    """Return what a reader is told of a change: how far it reaches, and which layers it is in."""
    said = {
        "none": "the nets are the same",
        "local": "a local change: the last layers see the same height and width",
        "global": "a global change: the last layers too see another height and width",
        None: "other nets: less than half of their layers are in both",
    }[change.reach]
    listed = {
        "edited": change.edited,
        "added": change.added,
        "removed": change.removed,
        "other dimensions": change.changed,
    }
    return [said, *(f"{what}: {_few(names)}" for what, names in listed.items() if names)]


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _FEW} more" if len(names) > _FEW else ""
    return ", ".join(names[:_FEW]) + more


def _notes(*variants: Variant) -> tuple[str, ...]:
    """Return the notes of all; one net under several settings need not be named."""
    one = len({variant.net for variant in variants}) == 1
    return common_notes([("" if one else variant.net, variant.notes) for variant in variants])
