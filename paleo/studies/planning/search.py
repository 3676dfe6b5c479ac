"""Which plans are best, which no other beats, and why the rest is behind."""

from __future__ import annotations

import bisect
import functools
import itertools
from typing import Any

from paleo.core.frozen import dataclass
from paleo.core.quantity import Array, np
from paleo.studies.fronts import undominated
from paleo.studies.planning.candidates import Candidates
from paleo.studies.planning.question import Question, Scored
from paleo.studies.planning.values import Alternative, FoundPlan

#: Settings whose values follow from those of others.
_FOLLOW = ("dp", "global_batch", "scheme")
#: How a step is divided among devices.
_DIVIDE = ("num_workers", "tp", "pp", "cp", "ep", "attention_dp", "prefill", "dtype")
#: What the plans of a scenario have in common: the cluster or device, and the type of elements.
WHERE = ("place", "dtype")


@dataclass(frozen=True, eq=False)
class Search:
    """All plans of a question, numbered one kind of device after the other."""

    question: Question
    every: tuple[Candidates, ...]

    @functools.cached_property
    def scored(self) -> Scored:
        """What is least of the best plan, and which plans can be taken."""
        return self.question.scored(self.every)

    @functools.cached_property
    def _starts(self) -> list[int]:
        return [0, *itertools.accumulate(map(len, self.every))]

    def source(self, place: int) -> tuple[Candidates, int]:
        """Return what a plan is among, and which of these it is."""
        kind = bisect.bisect_right(self._starts, place) - 1
        while place >= self._starts[kind + 1]:  # behind kinds that have none
            kind += 1
        return self.every[kind], place - self._starts[kind]

    def only(self, places: Array) -> Search:
        """Return the search among the plans at some places, which rise."""
        ends = np.searchsorted(places, self._starts)
        found = zip(self.every, self._starts, ends, ends[1:], strict=False)
        own = (plans.only(places[i:j] - start) for plans, start, i, j in found)
        return Search(self.question, tuple(own))

    def together(self, name: str) -> Array:
        """Return an attribute of all plans, one after the other."""
        found: Array = np.concatenate([np.asarray(getattr(plans, name)) for plans in self.every])
        return found

    def plan(self, place: int) -> FoundPlan:
        """Return a plan as a value."""
        plans, i = self.source(place)
        own = {name: _plain(values[i]) for name, values in plans.settings.items()}
        low, high = (None if end is None else float(end[i]) for end in plans.ends)
        return FoundPlan(
            scenario=plans.scenario,
            question=self.question,
            rates=plans.rates,
            settings=own,
            seconds=float(plans.seconds[i]),
            parts={name: float(values[i]) for name, values in plans.parts.items()},
            communication=float(plans.communication[i]),
            ends=(low, high),
            band=plans.band,
            batch=int(plans.batch[i]),
            tokens=plans.tokens,
            memory=int(plans.memory[i]),
            score=float(self.scored.scores[place]),
        )

    def ranked(self, count: int | None = None) -> list[int]:
        """Return the places of plans that can be taken, best first, so many at most.

        Among equals the quicker is first, then that with less memory. Those that take and need
        exactly the same as one before are left out.
        """
        keys, workers = self.scored.keys, self.together("workers")
        known: set[Any] = set()
        found = []
        for place in self.scored.ordered().tolist():
            plans, _ = self.source(place)
            same = (f"{key[place]:.10g}" for key in keys)  # but for rounding
            key = (id(plans.scenario.plan.device), workers[place], *same)
            if key not in known:
                known.add(key)
                found.append(place)
            if len(found) == count:
                break
        return found

    def divisions(self) -> list[int]:
        """Return of each way to divide a step among devices its best plan, the best first.

        Ways differ in what devices there are, how many, and how many of them share tensors, stages,
        positions and experts.
        """
        groups: list[Any] = []
        for plans in self.every:
            where = plans.place, plans.dtype
            columns = [plans.settings[name] for name in _DIVIDE if name in plans.settings]
            rows = zip(*(column.tolist() for column in columns), strict=True)
            groups += [(*where, *row) for row in rows]
        known: set[Any] = set()
        found = []
        for place in self.scored.ordered().tolist():
            if groups[place] not in known:
                known.add(groups[place])
                found.append(place)
        return found

    def front(self) -> list[int]:
        """Return the plans that none beats in time, money and memory at once, the quickest first.

        Where no price is known, seconds of devices stand for money; in inference time is latency.
        """
        question = self.question
        places = np.flatnonzero(self.scored.feasible)
        has_prices = all(plans.rates.price for plans in self.every)
        columns = []
        for plans in self.every:
            time = plans.seconds if question.serves else question.time(plans)
            cost = question.cost(plans) if has_prices else plans.device_seconds
            columns.append(np.stack([time, np.asarray(cost), plans.memory.astype(float)]))
        values = np.concatenate(columns, axis=1)[:, places]
        kept = undominated(list(values))
        order = np.lexsort(values[::-1, kept])
        return [int(place) for place in places[kept[order]]]

    def alternatives(self, best: int) -> list[Alternative]:
        """Return for each setting that varies the best plan with another value of it."""
        names = dict.fromkeys(name for plans in self.every for name in plans.settings)
        own, i = self.source(best)
        found, known = [], set()
        for name in dict.fromkeys([*WHERE, *names]):
            if name in WHERE and name not in own.settings:
                value = getattr(own, name)
                differs = self._other(functools.partial(_stands_elsewhere, name, value))
            elif name in _FOLLOW or name not in own.settings:
                continue
            else:
                value = own.settings[name][i]
                differs = self._other(functools.partial(_differs, name, value))
            if not differs.any():
                continue
            place = self._first(differs)
            if place is None or place not in known:
                found.append(self._alternative(name, best, differs, place))
                known.add(place)
        return found

    def _other(self, is_other: Any) -> Array:
        found: Array = np.concatenate([is_other(plans) for plans in self.every]).astype(bool)
        return found

    def _first(self, chosen: Array) -> int | None:
        """Return the best of some plans that can be taken, None if there is none."""
        own = np.where(self.scored.feasible & chosen, self.scored.scores, np.inf)
        place = int(np.argmin(own))
        return place if np.isfinite(own[place]) else None

    def _alternative(self, name: str, best: int, differs: Array, place: int | None) -> Alternative:
        scored = self.scored
        if place is None:
            keeps = scored.keeps.all(axis=0) & differs
            memory = self.together("memory")[keeps if keeps.any() else differs]
            return Alternative(name, None, memory=int(memory.min()))
        plan = self.plan(place)
        behind = float(scored.scores[place] / scored.scores[best]) - 1
        return Alternative(name, plan, behind, *plan.grown(self.plan(best)))

    def nearest_miss(self) -> tuple[int, dict[str, tuple[float, float]]] | None:
        """Return the plan that misses limits by least, and of each that it misses value and most.

        By how much is the largest ratio of a value to its limit. A plan that fits its device comes
        first. None where nothing can be said.
        """
        ratios, each = [], []
        for plans in self.every:
            values: dict[str, tuple[Array, float]] = {
                limit.name: (limit.value(plans), limit.most) for limit in self.question.limits
            }
            if plans.capacity is not None:
                values["memory"] = (plans.memory, plans.capacity)
            shares = [np.asarray(value / most, float) for value, most in values.values()]
            ratios.append(np.max(shares, axis=0) if shares else np.zeros(len(plans)))
            each.append(values)
        whole = np.concatenate(ratios)
        if self.scored.fits.any():
            whole = np.where(self.scored.fits, whole, np.nan)
        if not len(whole) or np.isnan(whole).all():
            return None
        place = int(np.nanargmin(whole))
        plans, i = self.source(place)
        kind = next(k for k, own in enumerate(self.every) if own is plans)
        missed = {
            name: (float(value[i]), float(most))
            for name, (value, most) in each[kind].items()
            if value[i] > most
        }
        return place, missed


def _stands_elsewhere(name: str, value: str, plans: Candidates) -> Array:
    """Tell whether plans are of scenarios with another value."""
    return np.full(len(plans), getattr(plans, name) != value)


def _differs(name: str, value: Any, plans: Candidates) -> Array:
    """Tell which plans have another value of a setting."""
    own = plans.settings.get(name)
    return np.full(len(plans), False) if own is None else np.asarray(own != value)


def _plain(value: Any) -> Any:
    """Return an element of an array as Python's."""
    return value.item() if hasattr(value, "item") else value
