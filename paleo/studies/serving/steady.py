"""Closed forms of servers under closed loads of equal requests, and the most that they can serve.

Requests of one length that begin together stay in step: what had its first token in one step has
its last one in one step, and what comes after it comes in one step. So a cycle, in which each of
the requests that run is served once, has some steps with prompts and others without. With

    R  requests that run, n of them decoding in a step with prompts
    D  = output - 1, steps in which a request decodes
    q  tokens of prompts that a step has room for (budget - n where decodes count)
    x  prompts of a step with prompts, and `own` such steps of each prompt: one, or prompt / q
    m  = R / x steps with prompts in a cycle (of `t_p` seconds; others have `t_d`)

steps that mix prompts and decodes have cycles of own + D steps where m is less: the first token
takes own t_p, and the others (m - own) t_p + (D + own - m) t_d. Where m is more, prompts wait for
room in steps, all steps are full, and by Little's law n = D q / prompt and the first token takes
m - D steps. Where prompts go alone (or batches are static), all of a cycle's prompts are computed
first, then all decode: a request's first token waits for half of the prompts, and its second one
for the other half.

What does not run for want of places waits in the queue for (C - R) / throughput: Little's law.

Numbers may be arrays, of many deployments; then so are the seconds of a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from paleo.core.frozen import dataclass
from paleo.core.quantity import Quantity, ceil_div, maximum, minimum, where
from paleo.step.serving.engine import Engine
from paleo.step.serving.scheduling import Scheduling
from paleo.studies.serving.loads import Load
from paleo.studies.serving.server import Party

#: Rounds in which the number of decodes in a step with prompts is found.
_ROUNDS = 4
#: Prompts that begin together spread by a step a cycle or less, until no two are in one step that
#: has no room for both: where they have to by more than so many steps, and so large a share of
#: them, they do not within a benchmark of some cycles.
_SPREAD = 2
_SLACK = 0.05
#: Of so many prompts, each one's end is looked at.
_FEW = 16
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
class _Cycle:
    """A cycle of `running` requests: its `seconds`, and a request's first and other tokens in it.

    `first` and `between` are means of steady state. Of the first requests, which come at once,
    `burst` is the mean to the first token; of the last, behind which none come, `last` are the
    seconds between tokens. `ragged` is how much longer requests take than so many cycles.
    """

    running: Any
    seconds: Any
    first: Any
    between: Any
    burst: Any
    last: Any
    ragged: Any


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


def closed(
    servers: Servers, concurrency: Quantity, lot: Lot, *, requests: Quantity | None = None
) -> Steady:
    """Return the means of a closed load of so many clients.

    Without `requests` they are of steady state. Else they are of all of so many requests, of which
    the first come at once and the last have no others behind: what benchmarks print.
    """
    step, scheduling = servers.step, servers.scheduling
    clients = maximum(concurrency / servers.replicas, 1)
    busy = concurrency / clients
    running = minimum(clients, servers.slots(lot))
    cycle = (_mixed if scheduling.is_mixed else _alone)(step, running, lot, scheduling)
    rate = cycle.running / cycle.seconds
    queued = (clients - cycle.running) / rate
    ttft, tpot = cycle.first, cycle.between
    if requests is not None:
        # Of those that come at once, each waits for those before it; later ones for all others.
        share = minimum(concurrency / requests, 1)
        ttft = share * cycle.burst + (1 - share) * ttft
        tpot = share * cycle.last + (1 - share) * tpot
        queued = queued * (1 - share * (1 + cycle.running / clients) / 2)
        rate = rate / (1 + cycle.ragged * rate * busy / requests)
    preempts = servers.preempts(clients, lot)
    running = cycle.running * busy
    return Steady(ttft + queued, tpot, queued, rate * busy, running, lot.output, preempts)


def _part(lot: Lot, room: Any) -> tuple[Any, Any]:
    """Return the tokens of the parts of a prompt, and the mean of those before them."""
    tokens = minimum(lot.computed, room)
    return tokens, lot.cached + (lot.computed - tokens) / 2


def _mixed(step: StepSeconds, running: Any, lot: Lot, scheduling: Scheduling) -> _Cycle:
    """Return the cycle where steps have prompts and decodes."""
    budget: Any = scheduling.token_budget
    shared: Any = scheduling.shared_budget
    count, computed = lot.decodes, lot.computed
    if not scheduling.chunked:
        large = computed > budget  # which has a step's prompts to itself
        shared = where(large, 0, shared)
        budget = maximum(budget, computed)
        # Others wait until there are few enough decodes.
        running = where(shared, minimum(running, budget - computed + 1), running)

    def with_prompts(prompts: Any, decodes: Any) -> Any:
        return step(prompts, tokens, past, decodes, decodes * lot.context)

    # Where steps are full, n = D q / prompt.
    most = budget * count / (computed + count * shared)
    decodes: Any = 0
    for _ in range(_ROUNDS):
        room = maximum(budget - minimum(decodes, most) * shared, 1)
        length = computed / room  # steps of a prompt that has them to itself
        # Whole prompts in each step, or whole steps of each prompt,
        group = minimum(running, maximum(room // computed, 1))
        apart = where(length <= 1, 1 / group, ceil_div(length, 1))
        # unless that takes so much longer that those who began together stay packed.
        packed = (running * (apart - length) > _SPREAD) & (length < (1 - _SLACK) * apart)
        packed = packed & scheduling.chunked
        decodes = running - where(packed, maximum(1 / length, 1), group)
        decodes = maximum(decodes, 0)
    full = running * length >= maximum(apart, 1) + count
    decodes = where(full, minimum(most, running), decodes)
    packed = packed | full
    steps = where(packed, running * length, ceil_div(running * apart, 1))
    own = where(packed, (running - 1 + ceil_div(running * length, 1)) / running, maximum(apart, 1))
    own = where(full, maximum(running * length - count, own), own)
    parts = where(packed, maximum(1 / length, 1), group)
    tokens = where(packed, minimum(computed, room), computed / maximum(apart, 1))
    past = lot.cached + (computed - tokens) / 2
    in_prompts = with_prompts(parts, decodes)
    # The last group may be smaller.
    rest = where(packed | (length > 1), 0, running % group)
    in_rest = with_prompts(rest, running - rest) * (rest > 0)
    without = step(0, 1, 0, running, running * lot.context)
    first = where(
        rest > 0, ((running - rest) * in_prompts + rest * in_rest) / running, own * in_prompts
    )
    prompts = where(rest > 0, (steps - 1) * in_prompts + in_rest, steps * in_prompts)
    several = maximum(count, 1)
    waits = minimum(maximum(steps - own, 0), count)
    shorter = minimum(waits / maximum(steps - own, _ROUNDING), 1)
    between = ((prompts - first) * shorter + (count - waits) * without) / several
    between = where(full, in_prompts, between)
    # At the beginning nothing decodes.
    early = minimum(most, running) / 2
    early = early * (2 - minimum(1, count * (budget - early * shared) / (running * computed)))
    room = maximum(budget - early * shared, 1)
    tokens = minimum(computed, room)
    past = lot.cached + (computed - tokens) / 2
    parts = minimum(room / tokens, running)
    window = running * computed / (parts * tokens)
    burst = step(parts, tokens, past, early, early * lot.prompt)
    burst = burst * mean_end(running, computed / room)
    # They come again as closely, but then there are decodes, too.
    burst = burst + where(full, 0, maximum(steps - window, 0) / 2 * in_prompts)
    last = between - ((prompts - first) / steps - without) * waits / (2 * several)
    alone = step(0, 1, 0, 1, lot.context)
    return _Cycle(
        running=running,
        seconds=first + between * count,
        first=first,
        between=between,
        burst=burst,
        last=where(full, between, last),
        ragged=where(full, count, maximum(window - 1, 0)) * alone,
    )


def saturation(servers: Servers, lot: Lot) -> Any:
    """Return the requests a second that servers serve if there are always some that wait.

    It is what an open load may have at most: of more, more and more wait.
    """
    slots = servers.slots(lot) * servers.replicas
    return closed(servers, slots, lot).requests_per_s


def mean_end(running: Any, length: Any) -> Any:
    """Return after how many full steps prompts that take `length` of one end, on average.

    The last step has only what is left: running * length steps are enough.
    """
    steps = running * length
    whole = steps // 1
    few: Any = 0
    for number in range(1, _FEW + 1):
        few = few + minimum(ceil_div(number * length - _ROUNDING, 1), steps) * (number <= running)
    # Of many, ends are spread over the steps in which they are.
    in_last = running - (whole / length) // 1
    many = length * (running + 1) / 2 + (1 - minimum(length, 1 / running)) / 2
    many = many - in_last / running * (ceil_div(steps, 1) - steps)
    return where(steps <= 1, 1, where(running <= _FEW, few / running, minimum(many, steps)))


def _alone(step: StepSeconds, running: Any, lot: Lot, scheduling: Scheduling) -> _Cycle:
    """Return the cycle where prompts go in steps of their own, before decodes."""
    budget, computed = scheduling.token_budget, lot.computed
    whole = maximum(budget // computed, 1) * computed
    room = budget if scheduling.chunked else whole
    tokens, past = _part(lot, room)
    full = step(room / tokens, tokens, past, 0, 0)
    total = running * computed
    rest = total % room
    tokens = minimum(computed, maximum(rest, 1))
    window = total // room * full + step(rest / tokens, tokens, past, 0, 0)
    decode = step(0, 1, 0, running, running * lot.context)
    first = where(rest == total, window, full * mean_end(running, computed / room))
    between = (window - first + lot.decodes * decode) / maximum(lot.decodes, 1)
    return _Cycle(
        running=running,
        seconds=window + lot.decodes * decode,
        first=first,
        between=between,
        burst=first,
        last=between,
        ragged=0,
    )
