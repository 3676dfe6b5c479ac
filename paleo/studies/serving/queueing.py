"""Closed forms of servers under open loads that they keep up with, by queueing theory.

Requests come at a rate, at random. By Little's law n = rate * D * t decode at once, each step of t
seconds. After a step of s seconds the next one has prompts where any came meanwhile: 1 - exp(-rate
s) of them have (arrivals of a Poisson process), which says in what share f of steps there are
prompts and how many. A request waits for the rest of the step in which it comes, E[s^2] / 2 E[s];
for prompts before it that a step has no room for, as in an M/G/1 queue in which a prompt takes what
room it needs of a step (Pollaczek and Khinchine, 1930); and for the steps of its own prompt.
Arrivals in bursts, of a coefficient of variation c, wait c^2 times as long in that queue (Allen and
Cunneen's approximation for services of one length), and to what lengths of prompts add, likewise.

It holds for light loads: above some 70 % of what can be served, a simulation is to be asked.
"""

from __future__ import annotations

import math
from typing import Any

from paleo.core.errors import SettingError
from paleo.core.frozen import dataclass
from paleo.core.quantity import Quantity, is_array, maximum, minimum, np, where
from paleo.studies.serving.lots import Lot, Servers, Steady
from paleo.studies.serving.steady import closed

#: Rounds in which what decodes at once is found.
_ROUNDS = 40


@dataclass(frozen=True)
class OpenLoad:
    """What becomes of an open load of a `rate` of requests a second.

    `largest_rate` is what the servers can keep up with. Of a load that is not stable, `steady` has
    infinite waiting: the queue grows as long as the load lasts.
    """

    rate: Quantity
    largest_rate: Any
    steady: Steady

    @property
    def stable(self) -> Any:
        """Whether servers keep up with it."""
        return self.rate < self.largest_rate

    @property
    def utilization(self) -> Any:
        """The rate as a share of the largest."""
        return self.rate / self.largest_rate


def opened(
    servers: Servers, rate: Quantity, lot: Lot, *, cv: float = 1.0, prompt_cv: float = 0.0
) -> OpenLoad:
    """Return what becomes of an open load; each of the servers has its share of it.

    `cv` is the coefficient of variation of the times between requests, `prompt_cv` that of their
    prompts' lengths, of which `lot` has the mean. Raises SettingError for static batches.
    """
    scheduling, step = servers.scheduling, servers.step
    if scheduling.is_static:
        raise SettingError("batching: no closed form of static batches under an open load")
    limit = closed(servers, servers.slots(lot) * servers.replicas, lot, in_step=False)
    largest = limit.requests_per_s
    own = rate / servers.replicas
    stable = rate < largest
    own = where(stable, own, largest / servers.replicas * 0.99)  # for finite arithmetic
    count, slots = lot.decodes, servers.slots(lot)
    mixed = scheduling.is_mixed
    budget: Quantity = scheduling.token_budget
    if not scheduling.chunked:
        budget = maximum(budget, lot.computed)

    decodes: Any = own * count * step(0, 1, 0, 1, lot.context)
    share: Any = 0.0
    together: Any = 1.0
    mean = step(0, 1, 0, 1, lot.context)
    for _ in range(_ROUNDS):
        # A request sees the others as they are on average, and itself.
        seen = minimum(decodes + 1, slots)
        room = maximum(budget - seen * scheduling.shared_budget, 1)
        tokens = minimum(lot.computed, room)
        parts = maximum(lot.computed / room, 1)  # steps that a prompt is in
        past = lot.cached + (lot.computed - tokens) / 2
        with_decodes = seen - 1 if mixed else 0
        prompts = minimum(together, maximum(room / lot.computed, 1))
        prompt_s = step(prompts, tokens, past, with_decodes, with_decodes * lot.context)
        decode_s = step(0, 1, 0, seen, seen * lot.context)
        # What came in a step is in the next one, as far as there is room; so many steps it takes.
        again, begins = 1 - _exp(-own * prompt_s), 1 - _exp(-own * decode_s)
        comes = share * again + (1 - share) * begins
        together = maximum(own * mean / maximum(comes, 1e-12), 1)
        together = minimum(together, maximum(room / lot.computed, 1))
        each = own * parts / together
        share = each * decode_s / maximum(1 - each * (prompt_s - decode_s), 1e-3)
        share = minimum(share, 1)
        mean = share * prompt_s + (1 - share) * decode_s
        # A request begins to decode after a step with prompts, and others came in that.
        behind = (1 - share) * (again - begins) / maximum(1 - again + begins, 1e-12)
        behind = minimum(behind, count) * (prompt_s - decode_s * mixed) / maximum(count, 1)
        # Where prompts go alone, steps of decodes are as many, with those of prompts between them.
        between = mean if mixed else decode_s / maximum(1 - share * prompt_s / mean, 1e-3)
        between = minimum(between + behind, limit.tpot)
        decodes = minimum(own * count * between, slots)
    alone = step(1, tokens, past, 0, 0)
    busy = 1 - _exp(-(decodes + own * parts * alone))
    rest = (share * prompt_s**2 + (1 - share) * decode_s**2) / (2 * mean)
    # A prompt takes as much of a step's time as of its room.
    full = step(
        maximum(room / lot.computed, 1), tokens, past, with_decodes, with_decodes * lot.context
    )
    service = lot.computed / room * full
    load = minimum(own * service, 0.999)
    queue = load * service / (2 * (1 - load)) * (cv**2 + prompt_cv**2)
    queued = where(stable, busy * rest + queue, math.inf)
    steady = Steady(
        ttft=queued + parts * prompt_s,
        tpot=between,
        queued=queued,
        requests_per_s=minimum(rate, largest),
        running=(decodes + own * parts * prompt_s) * servers.replicas,
        output=lot.output,
        preempts=servers.preempts(decodes, lot),
    )
    return OpenLoad(rate, largest, steady)


def _exp(value: Any) -> Any:
    return np.exp(value) if is_array(value) else math.exp(value)
