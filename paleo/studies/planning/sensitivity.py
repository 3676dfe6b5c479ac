"""What would change which plan is best, and how sure it is that it is the best."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from paleo.core.quantity import Array, np
from paleo.costs.error_bands import Band
from paleo.studies.planning.candidates import Candidates
from paleo.studies.planning.question import Scored
from paleo.studies.planning.rates import rate_change
from paleo.studies.planning.search import Search
from paleo.studies.planning.values import BANDWIDTH, COMPUTATION, Change, Sureness

#: By how many times what is not banded is looked at, up and down.
_FAR = 4.0
#: Steps on a logarithmic scale from 1 to an end, and how often one of them is halved.
_STEPS, _HALVED = 24, 12
#: Standard deviations on each side that errors are looked at, and at how many places.
_SIDES, _PLACES = 5.0, 101
#: Of more plans than these the nearest count: others are too far behind to be ahead.
_MOST = 100

#: Plans as they are if something takes so many times as long, or costs as much.
_Changed = Callable[[Candidates, float], Candidates]


def changes(search: Search, best: int) -> list[Change]:
    """Return what is the least change of each kind that lets another plan be best.

    Bandwidths and prices are looked at from a quarter to four times of what they are, times of
    computation as far as the error band of the best plan reaches, and all times of its kind of
    device up to the end of that, all else as it is.
    """
    own, _ = search.source(best)
    low, high = own.band.ends if own.band else (None, None)
    band = (low or 1 / _FAR, high or _FAR)
    every = search.every
    kinds: dict[str, tuple[_Changed, tuple[float, ...]]] = {}
    found = []
    if any(plans.anew and (plans.workers > 1).any() for plans in every):
        ends = {BANDWIDTH: (1 / _FAR, _FAR), COMPUTATION: band}
        found = [rate_change(search, best, what, end) for what in ends for end in ends[what]]
    if len({plans.place for plans in every if len(plans)}) > 1:
        on_own = functools.partial(_on_place, own.place)
        kinds["device"] = (
            on_own(Candidates.longer),
            band[1:],
        )
        if search.question.objective == "cost" or _has_budget(search):
            kinds["price"] = (on_own(_priced), (1 / _FAR, _FAR))
    return found + [
        _change(search, best, what, changed, end)
        for what, (changed, ends) in kinds.items()
        for end in ends
    ]


def _has_budget(search: Search) -> bool:
    return any(limit.name == "budget" for limit in search.question.limits)


def _on_place(place: str, changed: _Changed) -> _Changed:
    """Return what changes the plans on one kind of device alone."""
    return lambda plans, factor: changed(plans, factor) if plans.place == place else plans


def _priced(plans: Candidates, factor: float) -> Candidates:
    price = plans.rates.price
    if price is None:
        return plans
    return replace(
        plans, rates=plans.rates._replace(price=replace(price, amount=factor * price.amount))
    )


def _change(search: Search, best: int, what: str, changed: _Changed, end: float) -> Change:
    """Return the factor nearest to 1, on the way to an end, from which on another plan is best."""

    def scored(factor: float) -> Scored:
        return search.question.scored([changed(plans, factor) for plans in search.every])

    before = 1.0
    for step in range(1, _STEPS + 1):
        factor = end ** (step / _STEPS)
        if not scored(factor).is_best(best):
            break
        before = factor
    else:
        return Change(what, end)
    for _ in range(_HALVED):
        middle = math.sqrt(before * factor)
        if scored(middle).is_best(best):
            before = middle
        else:
            factor = middle
    place = scored(factor).best()
    return Change(what, end, factor, None if place is None else search.plan(place))


def sureness(search: Search) -> Sureness:
    """Return how sure it is that the best plan's way to divide a step is ahead of other ways.

    A band is taken for that of a normal distribution of the logarithm of the error, of which it has
    its share of cases; plans without one have the widest.
    """
    ranked = search.divisions()
    scores = search.scored.scores[ranked]
    if len(ranked) < 2:
        return Sureness(None, None, None)
    lead = float(scores[1] / scores[0]) - 1
    bands = [search.source(place)[0].band for place in ranked]
    spreads = [_spread(band) for band in bands]
    known = [spread for spread in spreads if spread is not None]
    if spreads[0] is None or not known:
        return Sureness(lead, None, None)
    widest = max(known, key=lambda spread: spread[1])
    both = np.array([spread or widest for spread in spreads])
    centres = np.log(scores) + both[:, 0]
    reach = np.array([_half(band) if band else 0.0 for band in bands])
    ends = centres[0] + reach[0]
    rivals = int((centres[1:] - reach[1:] < ends).sum())
    chance = _ahead(centres[:_MOST], both[:_MOST, 1])
    return Sureness(lead, rivals, chance)


def _half(band: Band) -> float:
    """Return half the width of a band, of the logarithm of the factor."""
    low, high = band.ends
    return (math.log(high) - math.log(low)) / 2 if low and high else math.inf


def _spread(band: Band | None) -> tuple[float, float] | None:
    """Return the centre and the standard deviation of the logarithm of truth over prediction."""
    from statistics import NormalDist  # here: commands that plan nothing start without

    low, high = band.ends if band else (None, None)
    if band is None or not low or not high:
        return None
    deviations = NormalDist().inv_cdf((1 + band.coverage) / 2)
    return (math.log(low) + math.log(high)) / 2, _half(band) / deviations


def _ahead(centres: Array, deviations: Array) -> float:
    """Return how likely the first of normally distributed numbers is the least.

    It is the integral over the first of its density times the shares of all others above it.
    """
    x = np.linspace(-_SIDES, _SIDES, _PLACES)
    density = np.exp(-x * x / 2)
    first = centres[0] + deviations[0] * x
    above = (centres[1:, None] - first) / deviations[1:, None]
    shares = np.vectorize(_below)(above).prod(axis=0)
    return float((density * shares).sum() / density.sum())


def _below(x: float) -> float:
    """Return the share of a standard normal distribution below a number."""
    return (1 + math.erf(x / math.sqrt(2))) / 2


def nearest(found: Sequence[Change]) -> Iterator[Change]:
    """Yield the changes that let another plan be best, the smallest first."""
    known = [each for each in found if each.factor]
    yield from sorted(known, key=lambda each: abs(math.log(each.factor or 1.0)))
