"""What a search says: the best net, how sure that is, and what it is like beside the original."""

from __future__ import annotations

from collections.abc import Sequence

from paleo.core.units import scale_for
from paleo.costs.error_bands import MOST_DIGITS
from paleo.studies.search.quantities import Asked
from paleo.studies.search.results import SAMPLED, Search
from paleo.views.answers.base import (
    device_named,
    duration,
    listed,
    rounded,
    spread,
    told_apart,
)

#: What is said of parameters, operations and layers of the best.
_SIZES = ("params", "flops", "layers")
#: Quantities that are shown in multiples of their unit.
_SCALED = ("bytes", "J", "FLOP")


def value_said(asked: Asked, value: float, digits: int = MOST_DIGITS) -> str:
    """Return a quantity with its unit, to so many digits; whole numbers without one in full."""
    quantity = asked.quantity
    if quantity.unit == "s":
        return duration(value, digits)
    if quantity.unit in _SCALED:
        scale = scale_for([[value / 10]], quantity.unit)
        return f"{rounded(value / scale.factor, digits)} {scale.unit}"
    return f"{value:,.0f}" if quantity.is_whole else rounded(value, digits)


def _found(found: Search, asked: Asked, value: float, *, with_band: bool = True) -> str:
    """Return a quantity in words, with its error band."""
    band = found.band(asked)
    digits = band.digits if band else MOST_DIGITS
    money = f" {currency}" if (currency := found.currency(asked)) else ""
    if not band:
        return f"{value_said(asked, value, digits)}{money}"
    texts = told_apart(
        found.ends(asked, value), lambda end, digits: value_said(asked, end, digits), digits
    )
    around = spread(texts, band) if with_band else ""
    return f"{value_said(asked, value, digits)}{money}{around}"


def search_answer(found: Search) -> list[str]:
    """Return the sentences of a search."""
    asked = found.goal.asked
    title = f"{asked.quantity.title}"
    where = device_named(found.plan_of(asked).device.name)
    way = "most" if found.goal.most else "least"
    on = f" on {where}, batch {found.scenario.batch_size:,}" if asked.quantity.source else ""
    if found.how == SAMPLED:
        which = f"The best of {found.evaluated:,} of {found.count:,} nets, drawn at random, has"
    else:
        which = f"The best of {found.count:,} nets, exactly, has"
    first = f"{which} the {way} {title}{on}: {_found(found, asked, found.objective)}."
    fit = []
    if found.valid not in (None, found.count):
        fit = [f"{found.valid:,} of them fit together."]
    return [first, *fit, *_beside(found, asked), _sizes(found), *_front(found)]


def _beside(found: Search, asked: Asked) -> list[str]:
    """Return what the original takes, and how many times as much the best does."""
    if found.original is None or not found.original[str(asked)]:
        return []
    before = found.original[str(asked)]
    factor = found.objective / before
    band = found.band(asked)
    plan = found.plan_of(asked)
    times = rounded(factor, plan.ratio_digits if band else MOST_DIGITS)
    was = _found(found, asked, before, with_band=False)
    return [f"That is {times} times what {found.net.name} has, {was}."]


def _sizes(found: Search) -> str:
    """Return the sizes of the best, and what it keeps to."""
    values = found.best.values
    params, flops, layers = (value_said(Asked(name), values[name], 3) for name in _SIZES)
    # A time is not known to as many digits as it is bounded by.
    kept = [
        f"{each.text} ({value_said(each.asked, values[str(each.asked)])})"
        if each.asked.quantity.is_whole
        else each.text
        for each in found.constraints
    ]
    keeps = f". It keeps to {listed(kept)}" if kept else ""
    return f"It has {params} parameters in {layers} layers and computes {flops} forward{keeps}."


def _front(found: Search) -> Sequence[str]:
    if not found.front:
        return []
    others = listed([str(goal) for goal in found.front_goals])
    sentence = (
        f"{len(found.front):,} nets are on the front of the {found.goal} and the {others}: none of "
        "all is better in all of these."
    )
    if found.how == SAMPLED:
        sentence = sentence.replace("of all", "of the samples")
    return [sentence, *_as_large(found)]


def _as_large(found: Search) -> list[str]:
    """Return what the best net has that is no worse than the original in what else is asked."""
    if len(found.front_goals) != 1 or found.original is None:
        return []
    (goal,), asked = found.front_goals, found.goal.asked
    name, sign = str(goal.asked), 1 if goal.most else -1
    before = found.original[name]
    alike = next((net for net in found.front if sign * (net.values[name] - before) >= 0), None)
    if alike is None or not found.original[str(asked)]:
        return []
    value = alike.values[str(asked)]
    plan, band = found.plan_of(asked), found.band(asked)
    factor = rounded(value / found.original[str(asked)], plan.ratio_digits if band else MOST_DIGITS)
    size = "least" if goal.most else "most"
    has = _found(found, asked, value, with_band=False)
    least = f"With at {size} the {name} of {found.net.name} the best has"
    return [f"{least} {has}, {factor} times as much as it."]
