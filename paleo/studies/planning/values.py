"""What a search for plans finds: the best of them, why others are behind, what changes that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from paleo.core.attributes import Ends, at_ends, with_ends
from paleo.core.frozen import dataclass
from paleo.core.results import Result
from paleo.costs.error_bands import FIRST_TOKEN, Band
from paleo.step.scenario import Scenario
from paleo.studies.planning.candidates import FIRST, OTHERS
from paleo.studies.planning.question import Question
from paleo.studies.serving.answers import served_band
from paleo.studies.training import HOUR, Rates, times

#: What changes what messages take beside computation.
BANDWIDTH, COMPUTATION = "bandwidth", "computation"
#: What of a plan is the longer, or the more, the longer its step is; and what is less.
_TIMES = ("step_s", "latency_s", "ttft_s", "tpot_s", "training_time_s", "cost", "energy_j")
_RATES = (
    *("samples_per_s", "samples_per_s_per_device"),
    *("tokens_per_s", "tokens_per_s_per_device", "requests_per_s"),
)


@dataclass(frozen=True)
class FoundPlan:
    """A plan of a scenario: its own `settings` by the names of options, and what it takes.

    `seconds` are those of a step, in inference of a batch, of `batch` samples with `tokens` each;
    `ends` are those of their error band. `memory` is bytes of the fullest device.
    """

    scenario: Scenario = field(repr=False)
    question: Question = field(repr=False)
    rates: Rates = field(repr=False)
    settings: Mapping[str, Any]
    seconds: float
    parts: Mapping[str, float] = field(repr=False)
    communication: float
    ends: Ends[float]
    band: Band | None = field(repr=False)
    batch: int
    tokens: int | None
    memory: int
    score: float

    @property
    def workers(self) -> int:
        """How many devices there are."""
        return int(self.settings["num_workers"])

    @property
    def capacity(self) -> int | None:
        """Bytes of a device, None where that is not known."""
        return self.scenario.plan.device.memory_capacity

    @property
    def place(self) -> str:
        """What it runs on: the name of a cluster, or of a device."""
        plan = self.scenario.plan
        return plan.cluster.name if plan.cluster else plan.device.name

    @property
    def serves_requests(self) -> bool:
        """Whether it is a deployment of a language model, whose samples are requests."""
        return FIRST in self.parts

    @property
    def ttft(self) -> float:
        """Seconds to a request's first token."""
        return self.parts[FIRST]

    @property
    def ttft_ends(self) -> Ends[float]:
        """The ends of the error band of that, which is another than that of all of a request."""
        band = served_band(self.scenario.plan, self.settings["server"], FIRST_TOKEN)
        return at_ends(band.ends if band else (None, None), lambda factor: factor * self.ttft)

    @property
    def tpot(self) -> float:
        """Seconds of each other token of a request."""
        return self.parts[OTHERS] / max((self.tokens or 1) - 1, 1)

    def rate(self, seconds: float | None = None) -> float:
        """Return tokens a second of a device, of a net without samples; at so many seconds."""
        return self.batch * (self.tokens or 1) / (seconds or self.seconds) / self.workers

    def time(self, seconds: float | None = None) -> float:
        """Return the seconds of training, or of the million that a question is of."""
        return self.question.samples(self.tokens) / self.batch * (seconds or self.seconds)

    def cost(self, seconds: float | None = None) -> float | None:
        """Return what these samples cost in the currency of the price, None if none is known."""
        price = self.rates.price
        hours = self.time(seconds) * self.workers / HOUR
        return times(hours, price.amount if price else None)

    def energy(self, seconds: float | None = None) -> float | None:
        """Return the joules of these samples at most, None where no power is known."""
        return times(self.time(seconds) * self.workers, self.rates.power)

    def grown(self, best: FoundPlan) -> tuple[str, float]:
        """Return which part of a step it has most more of than the best plan, by how many seconds.

        They are seconds for as many samples, where devices count of as many; "" and 0 if none is.
        """
        factor = best.batch / self.batch
        if self.question.objective in ("cost", "energy", "throughput"):
            factor *= self.workers / best.workers
        more = {
            name: factor * self.parts.get(name, 0.0) - best.parts.get(name, 0.0)
            for name in {**best.parts, **self.parts}
        }
        part = max(more, key=lambda name: more[name])
        return (part, more[part]) if more[part] > 0 else ("", 0.0)

    @property
    def options(self) -> str:
        """Its own settings as options of a command."""
        plan, given = self.scenario.plan, dict(self.settings)
        where = "cluster" if plan.cluster else "device"
        given.pop("dp", None)
        dtype = given.pop("dtype", plan.dtype)
        if "tp" not in given:  # a batch for each is strong scaling's, or weak scaling's
            turns, shared = given.get("accumulate", 1), given.pop("global_batch", None)
            if turns and turns > 1:
                given["batch_size"] = shared
                given["scaling"] = "strong"
        said = [f"--{where}={self.place}", f"--dtype={dtype}"]
        for name, value in given.items():
            if value is True:
                said.append(f"--{name}")
            elif value is not False and (name, value) not in _USUAL:
                said.append(f"--{name}={value}")
        return " ".join(said)

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output, with both ends of their bands."""
        values = self._values(self.seconds)
        if self.ends == (None, None):
            return values
        low, high = (None if end is None else self._values(end) for end in self.ends)
        if self.serves_requests:
            for end, seconds in zip((low, high), self.ttft_ends, strict=True):
                if end is not None:
                    end["ttft_s"] = seconds
        return with_ends(values, (low, high), times=_TIMES, rates=_RATES)

    def _values(self, seconds: float) -> dict[str, Any]:
        samples = self.batch / seconds
        rates = {"samples_per_s": samples, "samples_per_s_per_device": samples / self.workers}
        if self.tokens:
            rates |= {
                "tokens_per_s": self.tokens * samples,
                "tokens_per_s_per_device": self.tokens * samples / self.workers,
            }
        whole = {"training_time_s": self.time(seconds)} if self.question.is_whole else {}
        if self.serves_requests:
            share = seconds / self.seconds
            rates["requests_per_s"] = samples
            whole |= {"ttft_s": share * self.ttft, "tpot_s": share * self.tpot}
        return {
            "net": self.scenario.net.name,
            **self.scenario.plan.to_dict("device", "network", "cluster", "cost_model", "dtype"),
            **self.settings,
            "latency_s" if self.question.serves else "step_s": seconds,
            **rates,
            "memory_bytes": self.memory or None,  # which no plan needs, but one that is not known
            "memory_capacity_bytes": self.capacity,
            "cost": self.cost(seconds),
            "energy_j": self.energy(seconds),
            **whole,
            "exposed_communication_s": self.communication,
            "parts": dict(self.parts),
        }


#: Values of options that need not be given.
_USUAL = {
    *(("cp", 1), ("ep", 1), ("interleave", 1), ("zero", 0), ("accumulate", 1), ("pp", 1)),
    *(("recompute", "none"), ("schedule", "1f1b"), ("scheme", "auto"), ("tp", 1)),
    *(("attention_dp", 1), ("prefill", 0), ("hit_rate", 0.0), ("token_budget", 0)),
    *(("max_requests", 0), ("server", "vllm")),
}


@dataclass(frozen=True)
class Alternative:
    """The best plan with another value of a setting, by how much it is behind, and why.

    `plan` is None where no plan with another value can be taken; then the one with least memory
    needs `memory` bytes. `part` of a step is what grows most, by so many seconds a step of the best
    plan's samples.
    """

    setting: str
    plan: FoundPlan | None
    behind: float | None = None
    part: str = ""
    more: float = 0.0
    memory: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        return {
            "setting": self.setting,
            "plan": None if self.plan is None else dict(self.plan.settings),
            "place": None if self.plan is None else self.plan.place,
            "behind": self.behind,
            "part": self.part or None,
            "more_s": self.more,
            "memory_bytes": self.memory,
        }


@dataclass(frozen=True)
class Change:
    """What a factor on something does to which plan is best.

    `what` is "bandwidth" (of links), "computation" (its times), "device" (all times on the best
    plan's kind of device) or "price" (of that). From 1 to `end` was looked at; at `factor` and a
    bit beyond `plan` is best, None if the best plan stays the best, or none can be taken any more
    where `factor` is known.
    """

    what: str
    end: float
    factor: float | None = None
    plan: FoundPlan | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        return {
            "what": self.what,
            "end": self.end,
            "factor": self.factor,
            "plan": None if self.plan is None else dict(self.plan.settings),
            "place": None if self.plan is None else self.plan.place,
        }


@dataclass(frozen=True)
class Sureness:
    """How sure it is that the best way to divide a step is the best, given each error band.

    Each way is taken by its best plan. `lead` is by which share the next way is behind, `rivals` of
    how many ways the band begins below the end of the best one's. `chance` is how likely the best
    is ahead of all if their errors had nothing to do with each other: it is likelier, since those
    of plans of one net on one device go together. None where there is no band, or no other way.
    """

    lead: float | None
    rivals: int | None
    chance: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        return {"lead": self.lead, "rivals": self.rivals, "chance": self.chance}


@dataclass(frozen=True)
class Planning(Result):
    """The plans that a search found, best first.

    Of so many `considered`, `possible` can be, `fitting` fit their devices and `feasible` keep to
    every limit, too; `refused` says of the others why, how often. `front` are those that no other
    beats in time, money and memory at once, the quickest first. Plans that take and need exactly
    the same as one before are left out of `plans`.
    """

    question: Question
    plans: tuple[FoundPlan, ...]
    considered: int
    possible: int
    fitting: int
    feasible: int
    refused: Mapping[str, int]
    front: tuple[FoundPlan, ...]
    alternatives: tuple[Alternative, ...]
    changes: tuple[Change, ...]
    sureness: Sureness
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> FoundPlan:
        """The best plan."""
        return self.plans[0]

    @property
    def cost_of(self) -> str:
        """What costs, energies and times are of."""
        if self.question.is_whole:
            return "training"
        if self.best.serves_requests:
            return "a million tokens of answers"
        return "a million tokens" if self.best.tokens else "a million samples"

    @property
    def may_miss(self) -> dict[str, float]:
        """Of the limits that the best plan misses at the slow end of its error band, what it is.

        The values are by the names of the limits.
        """
        best, high = self.best, self.best.ends[1]
        if high is None:
            return {}
        slow = {"latency": high, "deadline": best.time(high), "budget": best.cost(high)}
        if best.serves_requests:
            share = high / best.seconds
            slow |= {"ttft": best.ttft_ends[1], "tpot": share * best.tpot}
        return {
            limit.name: value
            for limit in self.question.limits
            if (value := slow.get(limit.name)) is not None and value > limit.most
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        question = self.question
        return {
            "plans": [plan.to_dict() for plan in self.plans],
            "objective": question.objective,
            "limits": [limit.to_dict() for limit in question.limits],
            "cost_of": self.cost_of,
            "currency": question.currency or None,
            "considered": self.considered,
            "possible": self.possible,
            "fitting": self.fitting,
            "feasible": self.feasible,
            "refused": dict(self.refused),
            "front": [plan.to_dict() for plan in self.front],
            "alternatives": [each.to_dict() for each in self.alternatives],
            "sensitivity": [each.to_dict() for each in self.changes],
            "may_miss": self.may_miss,
            "sureness": self.sureness.to_dict(),
            "notes": list(self.notes),
        }
