"""Closed forms of servers that compute prompts beside others that decode, under closed loads.

Each client is in one of four places: its prompt is computed, its cache moves, it decodes, or it
waits. Little's law over all of them: C = rate (first token + D t_d(n)), where n = rate D t_d(n) of
them decode. The rate is at most what the servers of prompts, the link, or those that decode do.
"""

from __future__ import annotations

from typing import Any

from paleo.core.quantity import Quantity, maximum, minimum, where
from paleo.studies.serving.cycles import mean_end
from paleo.studies.serving.lots import Lot, Servers, Steady

#: Rounds in which the number that decodes is found: seconds of a step grow less than with it.
_ROUNDS = 24


def disaggregated(
    prefill: Servers,
    decode: Servers,
    concurrency: Quantity,
    lot: Lot,
    transfer: Quantity,
    *,
    lanes: Quantity | None = None,
    shows_first: bool = False,
    requests: Quantity | None = None,
) -> Steady:
    """Return the means of a closed load of so many clients, of requests of at least two tokens.

    The cache of a prompt moves in `transfer` seconds, `lanes` at once (None: as many as there are);
    `shows_first` tells whether the first token is shown before. `requests` as in `closed`.
    """
    count, replicas = lot.decodes, prefill.replicas
    one, together, room = _prompts(prefill, lot, concurrency / replicas)
    most, slots = _rate(prefill, decode, lot, transfer, lanes)

    def step(decodes: Any) -> Any:
        each = maximum(minimum(decodes / decode.replicas, slots), 1)
        return decode.step(0, 1, 0, each, each * lot.context)

    decodes: Any = concurrency
    for _ in range(_ROUNDS):
        seconds = step(decodes)
        # A cache arrives in the middle of a step, but for one that comes alone.
        apart = seconds / 2 * maximum(1 - decode.replicas / maximum(decodes, 1e-9), 0)
        decoding = count * seconds + apart
        rate = minimum(concurrency / (one + together + transfer + decoding), most)
        decodes = minimum(rate * decoding, slots * decode.replicas)
    first = one + together
    # Whatever there is no time for is waiting: for prompts, or, where places are full, to decode.
    waiting = maximum(concurrency / rate - first - transfer - decoding, 0)
    full = rate * decoding >= slots * decode.replicas * (1 - 1e-9)
    queued, late = where(full, 0, waiting), where(full, waiting, 0)
    shown = transfer * (not shows_first)
    between = (decoding + late + transfer - shown) / count
    ttft = first + queued + shown
    if requests is not None:
        share = minimum(concurrency / requests, 1)
        clients = maximum(concurrency / replicas, 1)
        full_step = prefill.step(
            minimum(room / minimum(lot.computed, room), clients),
            minimum(lot.computed, room),
            lot.cached,
            0,
            0,
        )
        burst = full_step * mean_end(clients, lot.computed / room) + shown
        ttft = share * burst + (1 - share) * ttft
        # The first token of the last client that comes is how late they all are.
        rate = rate / (1 + rate * maximum(2 * burst - ttft, 0) / requests)
    return Steady(
        ttft, between, queued, rate, rate * (first + transfer + decoding), lot.output,
        decode.preempts(decodes / decode.replicas, lot),
    )  # fmt: skip


def saturation(
    prefill: Servers,
    decode: Servers,
    lot: Lot,
    transfer: Quantity,
    *,
    lanes: Quantity | None = None,
) -> Any:
    """Return the requests a second that are served if there are always some that wait."""
    return _rate(prefill, decode, lot, transfer, lanes)[0]


def _prompts(prefill: Servers, lot: Lot, clients: Any) -> tuple[Any, Any, Any]:
    """Return the seconds of a prompt that is alone, and how much longer they are on average.

    Those whose first tokens came from one step come again nearly together: one is computed alone,
    and then the others, who wait for it. Over some cycles they drift apart. Half of it is taken.
    The third is the room for prompts in a step.
    """
    room = _room(prefill, lot)
    tokens = minimum(lot.computed, room)
    whole, rest = lot.computed // tokens, lot.computed % tokens
    past = lot.cached + (lot.computed - rest - tokens) / 2
    one = whole * prefill.step(1, tokens, past, 0, 0)
    one = one + where(rest > 0, prefill.step(1, maximum(rest, 1), lot.prompt - rest, 0, 0), 0)
    group = maximum(minimum(room // lot.computed, clients // 1), 1)
    others = prefill.step(group - 1, tokens, past, 0, 0)
    return one, others * (group - 1) / group / 2, room


def _room(prefill: Servers, lot: Lot) -> Any:
    """Return the tokens of prompts in a full step."""
    budget = prefill.scheduling.token_budget
    if prefill.scheduling.chunked:
        return budget
    return maximum(budget // lot.computed, 1) * lot.computed


def _rate(
    prefill: Servers, decode: Servers, lot: Lot, transfer: Any, lanes: Any
) -> tuple[Any, Any]:
    """Return the largest rate, and how many decode at most on a server."""
    room = _room(prefill, lot)
    tokens = minimum(lot.computed, room)
    full = prefill.step(room / tokens, tokens, lot.cached + (lot.computed - tokens) / 2, 0, 0)
    most = prefill.replicas * room / lot.computed / full
    if lanes is not None:
        most = minimum(most, lanes / maximum(transfer, 1e-12))
    slots = decode.slots(lot)
    seconds = lot.decodes * decode.step(0, 1, 0, slots, slots * lot.context)
    return minimum(most, decode.replicas * slots / seconds), slots
