"""Closed forms of servers under closed loads, and the most that servers can serve.

A cycle, in which each of the requests that run is served once, is that of requests in step
(`cycles.py`) or of requests that are spread (`spread.py`). What does not run for want of places
waits in the queue for (C - R) / throughput, by Little's law.
"""

from __future__ import annotations

from typing import Any

from paleo.core.quantity import Quantity, maximum, minimum
from paleo.studies.serving import cycles, spread
from paleo.studies.serving.lots import Lot, Servers, Steady


def closed(
    servers: Servers,
    concurrency: Quantity,
    lot: Lot,
    *,
    requests: Quantity | None = None,
    in_step: bool = True,
) -> Steady:
    """Return the means of a closed load of so many clients.

    Without `requests` they are of steady state. Else they are of all of so many requests, of which
    the first come at once and the last have no others behind: what benchmarks print.

    Requests of exactly one length that begin together stay `in_step`; a few per cent of variation
    suffice to spread them within a cycle or two. (Static batches are in step anyway.)
    """
    step, scheduling = servers.step, servers.scheduling
    clients = maximum(concurrency / servers.replicas, 1)
    busy = concurrency / clients
    running = minimum(clients, servers.slots(lot))
    if in_step or scheduling.is_static:
        find = cycles.mixed if scheduling.is_mixed else cycles.alone
    else:
        find = spread.spread_mixed if scheduling.is_mixed else spread.spread_alone
    cycle = find(step, running, lot, scheduling)
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


def saturation(servers: Servers, lot: Lot) -> Any:
    """Return the requests a second that servers serve if there are always some that wait.

    It is what an open load may have at most: of more, more and more wait.
    """
    slots = servers.slots(lot) * servers.replicas
    return closed(servers, slots, lot, in_step=False).requests_per_s
