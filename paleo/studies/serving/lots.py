"""What closed forms of serving are about: requests that are alike, and servers by their steps.

Numbers may be arrays, of many deployments; then so are the seconds of a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from paleo.core.frozen import dataclass
from paleo.core.quantity import Quantity, ceil_div, maximum, minimum
from paleo.step.serving.engine import Engine
from paleo.step.serving.scheduling import Scheduling
from paleo.studies.serving.loads import Load
from paleo.studies.serving.server import Party

_ROUNDING = 1e-9


class StepSeconds(Protocol):
    """The seconds of a step in which all prompts are alike: numbers, or arrays of many."""

    def __call__(self, prompts: Any, tokens: Any, past: Any, decodes: Any, context: Any) -> Any:
        """Return the seconds of a step; none of the numbers has to be whole.

        It has `prompts` parts (perhaps 0) of prompts, each with `tokens` to compute and `past`
        before them, and `decodes`, whose caches hold `context` tokens together.
        """


def step_of(engine: Engine) -> StepSeconds:
    """Return the seconds of an engine's steps for numbers that need not be whole.

    Between whole numbers of prompts they are linear, as are those of one prompt below one.
    """

    def seconds(prompts: Any, tokens: Any, past: Any, decodes: Any, context: Any) -> float:
        whole = int(prompts + _ROUNDING)
        rest = prompts - whole
        part = max(1, round(tokens)), round(past)
        low: float = _of(engine, [part] * whole, decodes, context)
        if rest <= _ROUNDING:
            return low
        high = _of(engine, [part] * (whole + 1), decodes, context)
        return float(low + rest * (high - low))

    return seconds


def _of(engine: Engine, chunks: Sequence[tuple[int, int]], decodes: Any, context: Any) -> float:
    places = round(decodes)
    if not places:
        return engine.seconds(chunks, 0, 0) if chunks else 0.0
    return engine.seconds(chunks, places, round(context * places / decodes))


@dataclass(frozen=True)
class Lot:
    """Requests that are alike, in tokens; `cached` are those of the prompt that have a cache.

    Of requests that are not, they are means, and `longer` says how many more tokens are in the
    caches of those that decode, since the longer ones decode longer.
    """

    prompt: Quantity
    output: Quantity
    cached: Quantity = 0
    longer: Quantity = 0

    @classmethod
    def of(cls, load: Load) -> Lot:
        """Return the mean of the requests of a load."""
        prompt, output, cached = (
            float(array.mean()) for array in (load.prompt, load.output, load.cached)
        )
        steps = load.output - 1
        held = float((steps * (load.prompt + (steps - 1) / 2)).sum()) / max(int(steps.sum()), 1)
        lot = cls(prompt, output, cached)
        return replace(lot, longer=max(held - lot.context, 0.0))

    @property
    def computed(self) -> Quantity:
        """Tokens of the prompt to compute."""
        return self.prompt - self.cached

    @property
    def decodes(self) -> Quantity:
        """Steps in which a request decodes."""
        return self.output - 1

    @property
    def context(self) -> Quantity:
        """Tokens in the cache of a request that decodes, on average over its steps."""
        return self.prompt + maximum(self.decodes - 1, 0) / 2 + self.longer


@dataclass(frozen=True)
class Steady:
    """Means over requests of a load, in seconds, and how many are served.

    `queued` is the part of `ttft` before a request is let in; `running` are let in at once. Where
    servers would preempt requests (`preempts`), all of this is too good, and a simulation knows.
    """

    ttft: Any
    tpot: Any
    queued: Any
    requests_per_s: Any
    running: Any
    output: Quantity
    preempts: Any = False

    @property
    def latency(self) -> Any:
        """Seconds from a request's coming to its last token."""
        return self.ttft + (self.output - 1) * self.tpot

    @property
    def tokens_per_s(self) -> Any:
        """Tokens a second that are made."""
        return self.requests_per_s * self.output


@dataclass(frozen=True)
class Servers:
    """`replicas` servers that are alike, by the seconds of their steps. `capacity` is in tokens."""

    step: StepSeconds
    scheduling: Scheduling = Scheduling()
    capacity: Any = None
    replicas: Quantity = 1

    @classmethod
    def of(cls, party: Party) -> Servers:
        """Return those of a party of the simulation."""
        engine = party.engine
        return cls(step_of(engine), party.scheduling, engine.capacity, party.replicas)

    def slots(self, lot: Lot) -> Any:
        """Return how many requests run at once on a server: places, and room in the cache.

        Without a reserve, requests are let in as long as prompts fit: on average, half of what they
        will have made is there. They preempt one another then, which no closed form knows.
        """
        places = self.scheduling.max_requests
        if self.capacity is None:
            return places
        block = self.scheduling.block
        room = (1 - self.scheduling.watermark) * (self.capacity // block) // 1
        share = 1.0 if self.scheduling.is_static else self.scheduling.reserve
        tokens = lot.prompt + lot.decodes * (1 + share) / 2
        return maximum(1, minimum(places, room // ceil_div(tokens, block)))

    def preempts(self, clients: Any, lot: Lot) -> Any:
        """Tell whether so many clients of a server have caches that it has no room for in the end.

        Then requests are preempted, and a simulation is to be asked instead.
        """
        if self.capacity is None or self.scheduling.is_static or self.scheduling.reserve == 1:
            return False
        running = minimum(clients, self.scheduling.max_requests)
        block = self.scheduling.block
        return running * ceil_div(lot.prompt + lot.decodes, block) > self.capacity // block
