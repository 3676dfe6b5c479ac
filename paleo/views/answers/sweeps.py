"""What a sweep says: how many points can be, why others cannot, and which is the quickest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paleo.core.attributes import at_ends
from paleo.step.pieces import WholeStep
from paleo.step.plan import Plan
from paleo.studies.sweeps.tally import Tally
from paleo.views.answers.base import amounts, duration, listed, rounded, spread
from paleo.views.charts.numbers import counted


def sweep_answer(
    tally: Tally, labels: Mapping[str, Any], best: WholeStep | None, plan: Plan | None
) -> list[str]:
    """Return the sentences of a sweep; `best` is the quickest step, under a plan, if any fits."""
    asked = tally.points - tally.left_out
    wrong = asked - tally.valid
    sentences = [f"{counted(asked, 'point')}{_why(tally, wrong)}."]
    if best is None or plan is None:
        return [*sentences, "None of them is known to fit."] if tally.valid else sentences
    digits = plan.digits
    slow, quick = amounts(at_ends(best.ends, lambda end: end.throughput), digits)[::-1]
    about = "about " if plan.band else ""
    where = listed([f"{name} {_said(value)}" for name, value in labels.items()])
    sentences.append(
        f"The quickest that fits: {about}{rounded(best.throughput, digits)} samples/s"
        f"{spread((slow, quick), plan.band)}, a step of {duration(best.seconds, digits)}, with "
        f"{where}."
    )
    return sentences


def _said(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _why(tally: Tally, wrong: int) -> str:
    """Return how many cannot be, and what most of these lack; "" if all can be."""
    if not wrong:
        return ""
    reasons = "; ".join(f"{count:,} x {text}" for text, count in tally.most_frequent())
    return f", of which {wrong:,} cannot be ({reasons})"
