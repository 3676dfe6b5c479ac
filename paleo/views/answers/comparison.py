"""What a comparison says: how much longer each takes than the first, and what else differs."""

from __future__ import annotations

from paleo.studies.compare import Comparison, Difference
from paleo.views.answers.base import duration, durations, listed, spread
from paleo.views.charts.difference import variant_labels

#: Factors this near to 1 are none.
_SAME = 0.005


def comparison_answer(comparison: Comparison) -> list[str]:
    """Return the sentences of a comparison: of several, of the quickest."""
    variants = [comparison.reference, *(each.other for each in comparison.differences)]
    labels, _ = variant_labels(variants)
    names = dict(zip(map(id, variants), labels, strict=True))
    differences = comparison.differences
    quickest = min(differences, key=lambda each: each.other.total.time)
    sentences = []
    if len(differences) > 1:
        best = min(variants, key=lambda each: each.total.time)
        sentences.append(f"The quickest of {len(variants):,} is {names[id(best)]}.")
    here, there = names[id(quickest.other)], names[id(quickest.reference)]
    return [*sentences, _time_said(quickest, here, there), *_others_said(quickest)]


def _time_said(difference: Difference, here: str, there: str) -> str:
    times = []
    for variant in (difference.other, difference.reference):
        plan = variant.settings.plan
        ends = durations(variant.time_ends, plan.digits, variant.total.time)
        is_first = variant is difference.other
        times.append(
            f"{duration(variant.total.time, plan.digits)}"
            f"{spread(ends, plan.band if is_first else None)}"
        )
    factor = difference.factors()["time_factor"] or 1.0
    much = f"{_factor(factor)} " if abs(factor - 1) >= _SAME else ""
    return f"A step of {here} takes {much}as long as one of {there}: {times[0]} against {times[1]}."


def _others_said(difference: Difference) -> list[str]:
    words = {
        "params_factor": "parameters",
        "forward_flops_factor": "FLOPs",
        "memory_factor": "memory",
    }
    said = [
        f"{_factor(factor)} the {words[key]}"
        for key, factor in difference.factors().items()
        if key in words and factor is not None and abs(factor - 1) >= _SAME
    ]
    return [f"It has {listed(said)}."] if said else []


def _factor(factor: float) -> str:
    return f"{factor:.2f} times" if factor < 10 else f"{factor:,.0f} times"
