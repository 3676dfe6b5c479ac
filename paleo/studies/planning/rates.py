"""Which plan is best if links had another bandwidth, or devices computed at another rate.

Messages hide behind computation, and what is left of them shows: steps are found anew. Those of
plans that might be best are, by what they take at least; of ways to share a net these are few.
"""

from __future__ import annotations

import math
from dataclasses import replace

from paleo.core.quantity import Array, np
from paleo.studies.planning.candidates import Candidates
from paleo.studies.planning.question import Scored
from paleo.studies.planning.search import Search
from paleo.studies.planning.values import BANDWIDTH, Change

#: So many ways to share a net are looked at, at most.
_MOST_WAYS = 16
#: How often the interval is halved in which another plan becomes the best.
_HALVED = 8


def rate_change(search: Search, best: int, what: str, end: float) -> Change:
    """Return the factor nearest to 1, on the way to an end, from which on another plan is best.

    It is one on the bandwidth, or on the time of computation. Half the way is looked at, and the
    end, then where between it is.
    """
    before = 1.0
    for factor in (math.sqrt(end), end):
        alone = _scored(search, np.array([best]), what, factor)
        places = _contenders(search, best, alone, what, factor)
        found = alone if len(places) == 1 else _scored(search, places, what, factor)
        own = int(np.searchsorted(places, best))
        if not found.is_best(own):
            break
        before = factor
    else:
        return Change(what, end)
    is_ahead = found.feasible & (found.scores <= found.scores[own])
    is_ahead = is_ahead if found.feasible[own] else found.feasible
    places = places[is_ahead | (places == best)]
    own = int(np.searchsorted(places, best))
    for _ in range(_HALVED):
        middle = math.sqrt(before * factor)
        if _scored(search, places, what, middle).is_best(own):
            before = middle
        else:
            factor = middle
    place = _scored(search, places, what, factor).best()
    return Change(what, end, factor, None if place is None else search.plan(int(places[place])))


def _scored(search: Search, places: Array, what: str, factor: float) -> Scored:
    """Return what plans at some places are worth at a factor."""
    found = search.only(places).every
    return search.question.scored([_anew(plans, what, factor) for plans in found])


def _anew(plans: Candidates, what: str, factor: float) -> Candidates:
    """Return plans as they are at a factor.

    Where all that computes takes f times as long, a step does that is with f times the bandwidth.
    """
    found = plans.with_bandwidth(factor)
    return found if what == BANDWIDTH else found.longer(factor)


def _at_least(plans: Candidates, what: str, factor: float) -> Candidates:
    """Return plans with no more seconds than they have at a factor.

    Of slower links those messages that show take longer at least, of quicker ones all hide.
    """
    sent = plans.communication / factor if factor < 1 else 0.0
    found = replace(plans, seconds=plans.seconds - plans.communication + sent)
    return found if what == BANDWIDTH else found.longer(factor)


def _contenders(search: Search, best: int, alone: Scored, what: str, factor: float) -> Array:
    """Return the places, rising, of the best plan and of those that may be better at a factor.

    `alone` is what the best plan is worth then.
    """
    least = search.question.scored([_at_least(plans, what, factor) for plans in search.every])
    may_be = least.feasible
    if alone.feasible[0]:
        may_be = may_be & (least.scores < alone.scores[0])
    ways = search.together("ways")
    starts = [np.full(len(plans), kind) for kind, plans in enumerate(search.every)]
    ways = ways + (1 + ways.max(initial=0)) * np.concatenate(starts)
    order = np.flatnonzero(may_be)[np.argsort(least.scores[may_be], kind="stable")]
    chosen = list(dict.fromkeys(ways[order].tolist()))[:_MOST_WAYS]
    may_be &= np.isin(ways, chosen)
    may_be[best] = True
    return np.flatnonzero(may_be)
