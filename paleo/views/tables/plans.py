"""Plans of nets on meshes beside each other: a row for each, the reference first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

from paleo.step.plan_keys import DEGREES
from paleo.studies.compare.plans import PlansComparison, PlanVariant
from paleo.views.answers.base import band_said, percent, rounded
from paleo.views.charts.numbers import counted
from paleo.views.charts.settings import joined, places
from paleo.views.table import Column, Table, plain
from paleo.views.tables.base import common_notes

_DEGREES = ("dp", *DEGREES)
_PLAIN = (
    *("net", "device", "network", "cluster", "cost_model", "dtype", "optimizer", "recompute"),
    *("batch_size", "global_batch", *_DEGREES, "zero", "schedule", "interleave"),
)


def plan_labels(variants: Sequence[PlanVariant]) -> tuple[list[str], str]:
    """Return a name for each plan, of the settings that differ, and what all have."""
    where = places([variant.run.plan for variant in variants])
    texts = [_said(variant, place) for variant, place in zip(variants, where, strict=True)]
    differing = [name for name in texts[0] if len({each[name] for each in texts}) > 1]
    labels = [
        joined(each[name] for name in differing) or variant.net
        for variant, each in zip(variants, texts, strict=True)
    ]
    usual = {"tp 1", "pp 1", "cp 1", "ep 1", "ZeRO 0", "1 chunk a stage", "no recomputation"}
    common = [
        text for name, text in texts[0].items() if name not in differing and text not in usual
    ]
    return labels, joined(common)


def _said(variant: PlanVariant, place: dict[str, str]) -> dict[str, str]:
    """Return the settings of a plan in words, in the order in which they are said."""
    plan, row = variant.run.plan, variant.row
    said = plan.said()
    return {
        "plan": PurePath(variant.file).name,
        "net": variant.net,
        **place,
        "workers": counted(row.workers, "worker"),
        "batch": counted(row.batch_size, "sample"),
        **{name: f"{name} {getattr(plan, name)}" for name in DEGREES},
        "micro_batch": f"micro-batch {row.worker_batch_size}",
        "zero": f"ZeRO {plan.zero}",
        "schedule": plan.schedule,
        "interleave": f"{counted(plan.interleave, 'chunk')} a stage",
        "recompute": said["recompute"] or "no recomputation",
        "dtype": plan.dtype,
        "context": plan.context if plan.cp > 1 else "",
        **{
            key: text
            for key, text in said.items()
            if key not in (*DEGREES, "zero", "schedule", "interleave", "recompute")
        },
        "optimizer": plan.optimizer,
    }


def plans_table(found: PlansComparison) -> Table:
    """Return the table of plans."""
    labels, common = plan_labels(found.variants)
    has_tokens = all(variant.step.tokens_per_s for variant in found.variants)
    rows = [
        _row(found, variant, label, has_tokens=has_tokens)
        for variant, label in zip(found.variants, labels, strict=True)
    ]
    digits = max(variant.run.plan.digits for variant in found.variants)
    has_bubble = any(variant.value("bubble_s") for variant in found.variants)
    columns = (
        *plain("plan", *_PLAIN),
        Column("label", "plan", for_people=True),
        Column("workers", "workers", wide=len({v.row.workers for v in found.variants}) == 1),
        *plain("micro_batch", "throughput_per_s", "hfu"),
        Column("step_s", "step", "s", digits=digits, least_is_best=True),
        Column("rate", f"{'tokens' if has_tokens else 'samples'}\n/s", for_people=True, right=True),
        Column("speed_text", "speed", for_people=True, right=True),
        *plain("tokens_per_s", "time_factor", "speed_factor", "memory_factor"),
        Column("mfu", "MFU", "percent", digits=2),
        Column("waiting", "bubble" if has_bubble else "", for_people=True, right=True),
        Column("exposed", "exposed", for_people=True, right=True),
        *plain("bubble_s", "exposed_communication_s", "compute_s"),
        Column("memory_bytes", "memory", "bytes", digits=3, least_is_best=True),
        Column("fits", "fits"),
    )
    bands = dict.fromkeys(band_said("steps", each.run.band) for each in found.variants)
    said = (
        "speed: of tokens or samples a second, over the first plan's; bubble and exposed "
        "communication: of the step; memory: of the fullest stage"
    )
    footnotes = [said, *filter(None, bands)]
    notes = common_notes([(variant.net, variant.run.notes) for variant in found.variants])
    left = [f"left out: {why}" for why in found.left_out]
    return Table(f"plans: {common}", columns, rows, footnotes=footnotes, notes=[*notes, *left])


def _row(
    found: PlansComparison, variant: PlanVariant, label: str, *, has_tokens: bool
) -> dict[str, Any]:
    values, factors = variant.to_dict(), found.factors(variant)
    step = variant.step
    rate = (step.tokens_per_s or 0.0) if has_tokens else step.throughput
    return {
        **{key: value for key, value in values.items() if not isinstance(value, dict | list)},
        **factors,
        "global_batch": variant.row.batch_size,
        "label": label,
        "rate": rounded(rate, variant.run.plan.digits),
        "speed_text": f"{rounded(factors['speed_factor'], variant.run.plan.ratio_digits)}x",
        "waiting": percent(variant.value("bubble_s") / step.seconds),
        "exposed": percent(variant.value("exposed_communication_s") / step.seconds),
    }
