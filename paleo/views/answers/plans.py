"""What a comparison of plans says: which is the quickest that fits, and what it gains."""

from __future__ import annotations

from paleo.core.attributes import at_ends
from paleo.studies.compare.plans import PlansComparison
from paleo.views.answers.base import amounts, misfits, rounded, spread, used
from paleo.views.charts.numbers import counted
from paleo.views.tables.plans import plan_labels

#: A speed this near to that of another is the same.
_SAME = 0.005


def plans_answer(found: PlansComparison) -> list[str]:
    """Return the sentences of a comparison of plans."""
    variants = list(found.variants)
    labels, _ = plan_labels(variants)
    names = dict(zip(map(id, variants), labels, strict=True))
    misfit = [each for each in variants if each.fits is False]
    best = found.quickest
    run, step = best.run, best.step
    sentences = misfits(len(misfit), len(variants))
    digits = run.plan.digits
    things = "tokens" if step.tokens_per_s else "samples"
    ends = at_ends(step.ends, lambda end: end.tokens_per_s or end.throughput)
    slow, quick = amounts(ends, digits)[::-1]
    among = len(variants) - len(misfit) if best.fits is not False else len(variants)
    which = f"The quickest of {counted(among, 'plan')}" if among > 1 else "The plan that fits"
    about = "about " if run.band else ""
    said = (
        f"{which} is {names[id(best)]}: {about}{rounded(best.rate, digits)} {things}/s"
        f"{spread((slow, quick), run.band)}, {used(float(best.memory), run.memory_capacity)} used "
        "at most."
    )
    sentences.append(said)
    speed = found.factors(best)["speed_factor"]
    if best is not found.reference and abs(speed - 1) >= _SAME:
        of = rounded(speed, run.plan.ratio_digits)
        first = names[id(found.reference)]
        fits = ", which does not fit" if found.reference.fits is False else ""
        sentences.append(f"That is {of} times the speed of {first}{fits}.")
    if found.left_out:
        sentences.append(
            f"{counted(len(found.left_out), 'combination')} of settings cannot be: notes say why."
        )
    return sentences
