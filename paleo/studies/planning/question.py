"""What is asked of plans: which is best, and what each has to keep to."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from paleo.core.errors import SettingError
from paleo.core.frozen import NamedTuple, dataclass
from paleo.core.quantity import Array, np
from paleo.studies.datasets import Schedule
from paleo.studies.planning.candidates import Candidates
from paleo.studies.planning.settings import DATA, asks_inference
from paleo.studies.training import HOUR

#: Costs and energies of no whole training are of so many samples, or tokens.
MILLION = 1e6
#: Samples of a step at most where nobody says how many there are.
MOST_SAMPLES = 32_768
#: A plan at a limit keeps to it, whatever rounding makes of it.
_ROUNDING = 1e-12
#: Numbers that sums in another order may make of one differ by less, and have so much in common.
_ALIKE, _DIGITS = 1e-9, 2.0**36


@dataclass(frozen=True)
class Limit:
    """What a plan may be at most under the name of a setting, in SI units or money.

    `value` gives it of plans; `dimension` is its unit in paleo.core.units, "" of counts, or money.
    """

    name: str
    most: float
    value: Callable[[Candidates], Array] = field(repr=False, compare=False)
    dimension: str = ""
    currency: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        return {"name": self.name, "most": self.most}


@dataclass(frozen=True)
class Question:
    """Which plan is best for an `objective`, of those that keep to the `limits`.

    `schedule` says how long training is. `serves` tells that plans are of inference. `currency` is
    that of all prices, "" where none is known.
    """

    objective: str
    limits: tuple[Limit, ...]
    schedule: Schedule
    serves: bool
    currency: str = ""

    def samples(self, tokens: int | None) -> float:
        """Return how many samples times, costs and energies are of: of training, or a million.

        Of a net with `tokens` a sample it is a million of these.
        """
        if self.schedule.tokens is not None and tokens:
            return self.schedule.tokens / tokens
        return self.schedule.num_samples or MILLION / (tokens or 1)

    @property
    def is_whole(self) -> bool:
        """Whether it is known how long training is."""
        return self.schedule.tokens is not None or self.schedule.num_samples is not None

    def time(self, plans: Candidates) -> Array:
        """Return the seconds of these samples under each plan."""
        found: Array = self.samples(plans.tokens) * plans.seconds / plans.batch
        return found

    def cost(self, plans: Candidates) -> Array | None:
        """Return what these samples cost under each plan; None where no price is known."""
        price = plans.rates.price
        if price is None:
            return None
        found: Array = self.samples(plans.tokens) * plans.device_seconds * (price.amount / HOUR)
        return found

    def energy(self, plans: Candidates) -> Array | None:
        """Return the joules of these samples under each plan; None where no power is known."""
        power = plans.rates.power
        if power is None:
            return None
        found: Array = self.samples(plans.tokens) * plans.device_seconds * power
        return found

    def score(self, plans: Candidates) -> Array:
        """Return what is least of the best plan; NaN where it is not known."""
        if self.objective == "time":
            return self.time(plans)
        if self.objective == "latency":
            return plans.seconds
        if self.objective == "throughput":
            found: Array = plans.device_seconds / (plans.tokens or 1)
            return found
        return _known(self.cost if self.objective == "cost" else self.energy, plans)

    def scored(self, every: Sequence[Candidates]) -> Scored:
        """Return the scores of all plans, and which of them can be taken."""
        fits, keeps = [], []
        for plans in every:
            room = plans.capacity
            fits.append(np.full(len(plans), True) if room is None else plans.memory <= room)
            own = [
                limit.value(plans) <= limit.most * (1 + _ROUNDING)  # false for NaN
                for limit in self.limits
            ]
            keeps.append(np.reshape(own, (len(self.limits), len(plans))).astype(bool))
        columns = [[self.score(plans), plans.seconds, plans.memory] for plans in every]
        scores, seconds, memory = (np.concatenate(each) for each in zip(*columns, strict=True))
        keys = np.stack([scores, seconds, memory.astype(float)])
        return Scored(scores, np.concatenate(fits), np.concatenate(keeps, axis=1), keys)


class Scored(NamedTuple):
    """Of all plans: what is least of the best, which fit a device, and which keep each limit.

    `keys` are what plans are put in order by: that, then seconds of a step, then memory.
    """

    scores: Array
    fits: Array
    keeps: Array
    keys: Array

    @property
    def feasible(self) -> Array:
        """Which plans can be taken."""
        found: Array = self.fits & self.keeps.all(axis=0) & ~np.isnan(self.scores)
        return found

    def ordered(self) -> Array:
        """Return the places of all plans that can be taken, best first."""
        return self._in_order(np.flatnonzero(self.feasible))

    def _in_order(self, places: Array) -> Array:
        found: Array = places[np.lexsort(_rounded(self.keys[::-1, places]))]
        return found

    def best(self) -> int | None:
        """Return the place of the first of these, None if there are none."""
        feasible = self.feasible
        if not feasible.any():
            return None
        near = self.scores <= self.scores[feasible].min() * (1 + _ALIKE)
        return int(self._in_order(np.flatnonzero(feasible & near))[0])

    def is_best(self, place: int) -> bool:
        """Tell whether a plan can be taken and none is better, but for what rounding makes."""
        feasible = self.feasible
        if not feasible[place]:
            return False
        return bool(self.scores[place] <= self.scores[feasible].min() * (1 + _ALIKE))


def _rounded(values: Array) -> Array:
    """Return numbers without the digits in which equal ones may differ."""
    mantissas, exponents = np.frexp(values)
    found: Array = np.ldexp(np.round(mantissas * _DIGITS) / _DIGITS, exponents)
    return found


def found_limits(found: Mapping[str, Any], question: Question, currency: str) -> tuple[Limit, ...]:
    """Return the limits that settings ask for; raises SettingError for money of another kind."""
    budget = found["budget"]
    if budget and budget.currency not in ("", currency):
        raise SettingError(
            f"budget: prices are in {currency or 'no currency'}, not {budget.currency}: give "
            "--price or --prices"
        )
    values: dict[str, tuple[Any, Callable[[Candidates], Array], str]] = {
        "latency": (found["latency"], lambda plans: plans.seconds, "s"),
        "ttft": (found["ttft"], lambda plans: plans.first_token, "s"),
        "tpot": (found["tpot"], lambda plans: plans.other_tokens, "s"),
        "deadline": (found["deadline"], question.time, "s"),
        "budget": (budget and budget.number, functools.partial(_known, question.cost), ""),
        "max_memory": (found["max_memory"], lambda plans: plans.memory, "bytes"),
        "max_batch": (_most_samples(found), lambda plans: plans.batch, ""),
        "max_devices": (found["max_devices"], lambda plans: plans.workers, ""),
    }
    return tuple(
        Limit(name, most, value, unit, currency if name == "budget" else "")
        for name, (most, value, unit) in values.items()
        if most is not None
    )


def _most_samples(found: Mapping[str, Any]) -> int | None:
    """Return how many samples a step may have: where nothing holds them, as many as were trained.

    (Y. You et al., "ImageNet training in minutes", arXiv:1709.05011, table 1: 32,768 is the largest
    batch by which ResNet-50 reached the accuracy of small ones.)
    """
    given: int | None = found["max_batch"]
    is_free = not (found["global_batch"] or found["batch_size"] or asks_inference(found))
    return given or (MOST_SAMPLES if is_free and found["parallel"] == DATA else None)


def _known(value: Callable[[Candidates], Array | None], plans: Candidates) -> Array:
    """Return a value of plans, NaN where it is not known."""
    found = value(plans)
    return np.full(len(plans), np.nan) if found is None else found
