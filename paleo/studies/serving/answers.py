"""What there is to say of a served model: seconds to tokens, tokens a second, memory, money."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from paleo.cluster.servers import Server
from paleo.core.attributes import Ends, with_ends
from paleo.core.frozen import NamedTuple, dataclass
from paleo.core.results import Result
from paleo.costs import Time
from paleo.costs.error_bands import FIRST_TOKEN, INFERENCE, TOKEN, Band, Like
from paleo.net.spec import NetSpec
from paleo.step.plan import Plan
from paleo.step.serving.deployment import Deployment, Memory
from paleo.studies.serving.served import Percentiles, Served
from paleo.studies.training import Rates

_HOUR, _MILLION = 3600.0, 1e6
#: The values of a row that are times, and those that are rates.
_TIMES = ("ttft_s", "tpot_s", "latency_s")
_RATES = ("tokens_per_s", "tokens_per_s_per_gpu", "tokens_per_s_per_user", "requests_per_s")


class Phase(NamedTuple):
    """A step of prompts or of decoding: seconds of its parts, and what most of it waits for."""

    parts: dict[str, float]
    bound: str

    @property
    def seconds(self) -> float:
        return sum(self.parts.values())

    @classmethod
    def of(cls, times: dict[str, Time], host: float) -> Phase:
        """Return a phase of the times of its parts, with what the host adds."""
        parts = {name: float(time.total) for name, time in times.items() if time.total}
        if host:
            parts["host"] = host
        whole = sum((time for name, time in times.items() if name != "exchange"), Time())
        waits = {"compute": whole.compute, "memory": whole.memory, "overhead": whole.overhead}
        waits |= {"exchange": parts.get("exchange", 0.0), "host": host}
        return cls(parts, max(waits, key=lambda name: float(waits[name])))


class Missing(NamedTuple):
    """A setting that would make a model fit, with its value."""

    setting: str
    value: str


@dataclass(frozen=True, eq=False)
class Asked:
    """How a model is served: what all rows of one place have in common.

    `copies` are those of the model, each on `deployment.prices.degrees.devices`; `prefill` is the
    deployment of those that compute prompts, if they are others, and `prefill_copies` how many.
    """

    net: NetSpec
    plan: Plan
    server: Server
    settings: dict[str, Any]
    deployment: Deployment
    copies: int
    rates: Rates
    prefill: Deployment | None = None
    prefill_copies: int = 0
    notes: tuple[str, ...] = ()
    #: The net with one position a sample.
    alone: NetSpec | None = None

    @property
    def devices(self) -> int:
        """Devices in all."""
        found = self.copies * self.deployment.prices.degrees.devices
        if self.prefill:
            found += self.prefill_copies * self.prefill.prices.degrees.devices
        return found

    @property
    def memory(self) -> Memory:
        return self.deployment.memory

    @functools.cached_property
    def band(self) -> Band | None:
        """How far the truth may be from seconds a token; None where that is not known."""
        return served_band(self.plan, self.server.name, TOKEN)

    @functools.cached_property
    def first_band(self) -> Band | None:
        """The same of the time to a first token."""
        return served_band(self.plan, self.server.name, FIRST_TOKEN)


def served_band(plan: Plan, server: str, kind: str) -> Band | None:
    """Return the error band of seconds to a token; None where none is known."""
    return plan.cost_model.band(Like(kind, INFERENCE, software=server), plan.device)


@dataclass(frozen=True, eq=False)
class Serving(Result):
    """A model under one load: `concurrency` requests at a time, or a `rate` of them a second.

    `served` is None where the model, or a single request, does not fit: `missing` says what would
    make it; or where requests come quicker than they are served: `most_rate` says up to which rate
    they are. `simulate` serves the load again, with the steps in it if that is asked for by `log`.
    """

    asked: Asked
    concurrency: int | None
    rate: float | None
    length: int
    served: Served | None = None
    prefill: Phase | None = None
    decode: Phase | None = None
    missing: tuple[Missing, ...] = ()
    most_rate: float | None = None
    limits: tuple[float | None, float | None] = (None, None)
    notes: tuple[str, ...] = ()
    simulate: Callable[..., Served] | None = None

    @property
    def memory(self) -> Memory:
        """What a device holds, of those that decode."""
        return self.asked.memory

    @property
    def max_concurrency(self) -> int:
        """The most requests of the longest length for whose caches there is room, of all copies."""
        groups = self.asked.deployment.prices.degrees.attention_dp
        return self.memory.most_requests(self.length) * groups * self.asked.copies

    @property
    def lacking(self) -> Deployment | None:
        """The servers without room for the weights and one request, if there are such."""
        for each in (self.asked.deployment, self.asked.prefill):
            if each is not None and each.memory.most_requests(self.length) < 1:
                return each
        return None

    @property
    def fits(self) -> bool:
        """Whether the weights and one request fit."""
        return self.lacking is None

    @property
    def is_stable(self) -> bool:
        """Whether requests are served as quickly as they come."""
        return self.most_rate is None or self.rate is None or self.rate < self.most_rate

    @property
    def cache_bytes(self) -> float:
        """Bytes of a device's cache that the requests at hand take, at most what there is."""
        if self.served is None:
            return 0.0
        groups = self.asked.deployment.prices.degrees.attention_dp * self.asked.copies
        running = max(self.served.mean_running / groups, 1.0)
        return float(min(running * self.memory.of_request(self.length), max(self.memory.room, 0)))

    @property
    def memory_bytes(self) -> float:
        """Bytes of a device that weights, the largest step and those caches take."""
        return self.memory.weights + self.memory.activations + self.cache_bytes

    def _spread(self, name: str) -> Percentiles | None:
        return None if self.served is None else Percentiles.of(getattr(self.served, name))

    @functools.cached_property
    def ttft(self) -> Percentiles | None:
        """Seconds to first tokens."""
        return self._spread("ttft")

    @functools.cached_property
    def tpot(self) -> Percentiles | None:
        """Seconds for each other token."""
        return self._spread("tpot")

    @functools.cached_property
    def latency(self) -> Percentiles | None:
        """Seconds to the last token."""
        return self._spread("latency")

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens a second of all answers."""
        return None if self.served is None else self.served.tokens_per_s

    @property
    def cost_per_million(self) -> tuple[float, float] | None:
        """Money for a million tokens of prompts and of answers; None where no price is known.

        The seconds of all devices are divided as those of steps with prompts and without are.
        """
        price, served = self.asked.rates.price, self.served
        if price is None or served is None:
            return None
        whole = price.amount * self.asked.devices * served.seconds / _HOUR
        share = self._share_of_prompts
        prompts, answers = int(served.load.prompt.sum()), int(served.load.output.sum())
        return _MILLION * whole * share / prompts, _MILLION * whole * (1 - share) / answers

    @property
    def _share_of_prompts(self) -> float:
        """The share of all seconds of devices that prompts take."""
        served, prefill, decode = self.served, self.prefill, self.decode
        if served is None or prefill is None or decode is None:
            return 0.0
        asked = self.asked
        if asked.prefill:
            own = asked.prefill_copies * asked.prefill.prices.degrees.devices
            return own / asked.devices
        computed = float((served.load.prompt - served.load.cached).sum())
        of_prompts = prefill.seconds * computed / self._prompt
        return min(of_prompts / max(served.busy, of_prompts), 1.0)

    @property
    def _prompt(self) -> float:
        assert self.served is not None
        return float((self.served.load.prompt - self.served.load.cached).mean())

    @property
    def energy_per_token(self) -> float | None:
        """Joules for a token of an answer, at the power of the data sheet: an upper bound."""
        power, rate = self.asked.rates.power, self.tokens_per_s
        return None if power is None or not rate else power * self.asked.devices / rate

    def ends(self, name: str, value: float) -> Ends[float]:
        """Return the ends of a value's error band; None for one that is not known."""
        band = self.asked.first_band if name == "ttft" else self.asked.band
        return band.around(value) if band else (None, None)  # type: ignore[return-value]

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output, in SI units."""
        found = self._values(None)
        bands = (self.asked.first_band, self.asked.band)
        if any(bands):
            low, high = (self._values(end) for end in (0, 1))
            found = with_ends(found, (low, high), times=_TIMES, rates=_RATES)
        return found

    def _values(self, end: int | None) -> dict[str, Any]:
        """Return the values, all times at one end of their bands."""

        def at(band: Band | None, value: float | None) -> float | None:
            if end is None or band is None or value is None:
                return value
            factor = band.ends[end]
            return None if factor is None else value * factor

        band, served = self.asked.band, self.served
        rate = self.tokens_per_s
        own = at(band, 1.0)
        slower: float | None = 1.0 if end is None else own
        rated = None if rate is None or not slower else rate / slower
        requests = served.requests_per_s / slower if served and slower else None
        tpot = at(band, self.tpot.mean if self.tpot else None)
        cost = self.cost_per_million
        values: dict[str, Any] = {
            "net": self.asked.net.name,
            **self.asked.settings,
            "concurrency": self.concurrency,
            "rate": self.rate,
            "ttft_s": at(self.asked.first_band, self.ttft.mean if self.ttft else None),
            "tpot_s": tpot,
            "latency_s": at(band, self.latency.mean if self.latency else None),
            "tokens_per_s": rated,
            "tokens_per_s_per_gpu": None if rated is None else rated / self.asked.devices,
            "tokens_per_s_per_user": 1 / tpot if tpot else None,
            "requests_per_s": requests,
            "memory_bytes": self.memory_bytes,
            "weights_bytes": self.memory.weights,
            "cache_bytes": self.cache_bytes,
            "fits": self.fits,
            "max_concurrency": self.max_concurrency,
            "longest_tokens": self.memory.longest(),
            "stable": self.is_stable,
            "most_rate": self.most_rate,
            "cost_per_million_input": cost[0] if cost else None,
            "cost_per_million_output": cost[1] if cost else None,
            "currency": self.asked.rates.price.currency if self.asked.rates.price else None,
            "energy_per_token_j": self.energy_per_token,
        }
        for name in ("ttft", "tpot", "latency"):
            spread: Percentiles | None = getattr(self, name)
            own_band = self.asked.first_band if name == "ttft" else band
            for key, seconds in (spread.to_dict() if spread else {}).items():
                if key != "mean":
                    values[f"{name}_{key}_s"] = at(own_band, seconds)
        for name, phase in (("prefill", self.prefill), ("decode", self.decode)):
            if phase is not None:
                values[f"{name}_parts_s"] = phase.parts
                values[f"{name}_bound"] = phase.bound
        if served is not None and any(self.limits):
            ttft, tpot_limit = self.limits
            values["goodput_share"] = float(served.keeps(ttft, tpot_limit).mean())
            values["goodput_requests_per_s"] = served.goodput(ttft, tpot_limit)
        if self.missing:
            values["would_fit"] = {each.setting: each.value for each in self.missing}
        return values
