"""What a search for plans says: the best, the next, why others are behind, what changes that."""

from __future__ import annotations

from collections.abc import Iterator

from paleo.core.attributes import Ends, at_ends
from paleo.studies.planning import Alternative, Change, FoundPlan, Planning
from paleo.studies.planning.sensitivity import nearest
from paleo.views.answers.base import (
    amounts,
    duration,
    durations,
    listed,
    percent,
    rounded,
    samples_of,
    spread,
    used,
)
from paleo.views.charts.numbers import counted
from paleo.views.charts.settings import joined
from paleo.views.tables.planning import SAME, difference, part_said, settings_said, share_said

#: So many reasons why others are behind are said.
_REASONS = 4
#: What a plan that is behind by some share is, by what was looked for.
_BEHIND = {
    "time": "takes {} longer",
    "cost": "costs {} more",
    "energy": "takes {} more energy",
    "throughput": "takes {} more time of devices",
    "latency": "takes {} longer",
}
#: What settings are called in sentences, where that is not their name.
_NAMES = {"place": "device", "zero": "ZeRO", "recompute": "recomputation", "num_workers": "number"}
#: What a factor on something is in words.
_CHANGED = {
    "bandwidth": "links have {} times the bandwidth",
    "computation": "computation takes {} times as long",
    "device": "{place} takes {} times as long as predicted, and others do not",
    "price": "{place} costs {} times as much",
}


def planning_answer(found: Planning) -> list[str]:
    """Return the sentences of a search for plans."""
    sentences = [_best(found)]
    if len(found.plans) > 1:
        sentences.append(_next(found, found.plans[1]))
    why = list(_why(found))
    if why:
        sentences.append(f"Why others are behind: {'; '.join(why)}.")
    sentences += filter(None, (_missed(found), _sure(found), _changes(found)))
    return sentences


def _best(found: Planning) -> str:
    """Return what the best plan is, how quick, at what cost, and how full its devices are."""
    best = found.best
    digits, about = best.scenario.plan.digits, "about " if best.band else ""
    said = settings_said(best)
    if len({plan.scenario.plan.dtype for plan in found.front}) == 1:
        said.pop("dtype")
    things = "tokens" if best.tokens else samples_of(best.scenario.net)
    rates = amounts(at_ends(best.ends, best.rate)[::-1], digits)
    each = "" if found.question.serves and not best.serves_requests else "/device"
    rate = f"{about}{rounded(best.rate(), digits)} {things}/s{each}{spread(rates, best.band)}"
    times = spread(durations(best.ends, digits, best.seconds))
    taken = f"{about}{duration(best.seconds, digits)}{times}"
    parts = [rate, f"{taken} a {'batch' if found.question.serves else 'step'}"]
    if best.serves_requests:
        share = best.tpot / best.seconds
        first = about + _with_ends(best, best.ttft, best.ttft_ends)
        ends = at_ends(best.ends, lambda seconds: share * seconds)
        other = about + _with_ends(best, best.tpot, ends)
        parts = [f"first token {first}", f"then {other} a token", rate]
    if found.question.is_whole:
        length = best.time()
        whole = spread(durations(at_ends(best.ends, best.time), digits, length))
        parts.append(f"{about}{duration(length, digits)}{whole} of training")
    if (cost := best.cost()) is not None and best.rates.price:
        costs = spread(amounts(at_ends(best.ends, lambda end: best.cost(end) or 0.0), digits))
        of = "" if found.question.is_whole else f" for {found.cost_of}"
        parts.append(f"{about}{rounded(cost, digits)} {best.rates.price.currency}{costs}{of}")
    if best.memory:
        parts.append(used(float(best.memory), best.capacity))
    return f"Best: {joined(said.values())}: {', '.join(parts)}."


def _with_ends(plan: FoundPlan, seconds: float, ends: Ends[float]) -> str:
    digits = plan.scenario.plan.digits
    return f"{duration(seconds, digits)}{spread(durations(ends, digits, seconds))}"


def _next(found: Planning, plan: FoundPlan) -> str:
    behind = plan.score / found.best.score - 1
    return f"Runner-up: {difference(plan, found.best)}, which {_behind(found, behind)}."


def _behind(found: Planning, share: float) -> str:
    if share < SAME:
        return "is as good"
    return _BEHIND[found.question.objective].format(share_said(share))


def _why(found: Planning) -> Iterator[str]:
    """Yield of the settings in which plans differ what the best with another value is behind by."""
    behind = [each for each in found.alternatives if each.behind is None or each.behind >= SAME]
    for each in behind[:_REASONS]:
        yield _reason(found, each)


def _reason(found: Planning, each: Alternative) -> str:
    if each.plan is None:
        name = _NAMES.get(each.setting, each.setting.replace("_", " "))
        best = found.best
        most = used(float(each.memory or 0), None)
        if best.capacity is not None and (each.memory or 0) > best.capacity:
            return f"with another {name} nothing fits ({most} at least)"
        return f"with another {name} nothing keeps to the limits"
    assert each.behind is not None
    part = f" ({part_said(each.part)})" if each.part and each.setting != "place" else ""
    return f"{difference(each.plan, found.best)} {_behind(found, each.behind)}{part}"


def _missed(found: Planning) -> str:
    """Return which limits the best plan misses at the slow end of its band, "" if none."""
    digits = found.best.scenario.plan.digits
    said = [
        f"the {name} ({rounded(value, digits)} {found.question.currency})"
        if name == "budget"
        else f"the {name} ({duration(value, digits)})"
        for name, value in found.may_miss.items()
    ]
    return f"At the slow end of its band it misses {listed(said)}." if said else ""


def _sure(found: Planning) -> str:
    """Return how sure it is that the best is the best, given the error band of each."""
    sure = found.sureness
    if sure.lead is None:
        return ""
    other = "The next way to divide the step" if not found.question.serves else "The next device"
    if found.best.serves_requests:
        other = "The next way to share a copy"
    lead = f"{other} {_behind(found, sure.lead)}"
    if sure.chance is None:
        return f"{lead}; no error band says how sure that is."
    if not sure.rivals:
        return f"{lead}: no error band of another reaches the best one's."
    ways = counted(sure.rivals, "other way") + (" is" if sure.rivals == 1 else " are")
    return (
        f"{lead}: {ways} within the error bands; if their errors had nothing to do with each "
        f"other, the best would be ahead in {percent(sure.chance)} of cases, and it is in more."
    )


def _changes(found: Planning) -> str:
    """Return what changes the best plan, the smallest change of each kind; or that nothing does."""
    if not found.changes:
        return ""
    changed: dict[str, Change] = {}
    for each in nearest(found.changes):
        changed.setdefault(each.what, each)
    said = [_change(found, each) for each in changed.values()]
    same = [
        name for name in dict.fromkeys(each.what for each in found.changes) if name not in changed
    ]
    if same:
        ends = {
            name: sorted(each.end for each in found.changes if each.what == name) for name in same
        }
        between = [_called(found, name, _range(own)) for name, own in ends.items()]
        said.append(f"it stays the best where {listed(between, 'or')}")
    text = "; ".join(said)
    return f"{text[0].upper()}{text[1:]}."


def _range(ends: list[float]) -> str:
    """Return from where to where a factor was looked at, of one end or both."""
    *first, last = (rounded(end, 2) for end in ends)
    return f"{first[0]} to {last}" if first else f"up to {last}"


def _called(found: Planning, what: str, factor: str) -> str:
    return _CHANGED[what].format(factor, place=found.best.place)


def _change(found: Planning, each: Change) -> str:
    factor = _called(found, each.what, rounded(each.factor or 1.0, 3))
    if each.plan is None:
        return f"where {factor}, no plan keeps to the limits"
    return f"where {factor}, {difference(each.plan, found.best) or 'another plan'} is best"
