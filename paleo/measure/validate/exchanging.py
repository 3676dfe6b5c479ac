"""What exchanges add to a measured step of several devices, by the software that ran it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

from paleo.cluster import Device, find_network
from paleo.cluster.collectives import AUTO, COLLECTIVES
from paleo.cluster.exchange import Exchange
from paleo.core.frozen import dataclass
from paleo.core.quantity import Quantity, maximum, total
from paleo.costs import CostModel
from paleo.measure.validate.wiring import Wiring
from paleo.step.parallelism.overlap import Made, buckets, overlapped
from paleo.step.parallelism.slowdown import slowdown
from paleo.step.passes import PassTime, exchange_time

#: How gradients come to the host, and how many devices share that way (DGX-1: two behind a switch;
#: K80: two dies behind one slot).
_TO_HOST, _SHARING = "pcie3", 2


@dataclass(frozen=True)
class Exchanging:
    """So many devices of a kind that exchange gradients over some wiring, as software does it."""

    device: Device
    workers: int
    wiring: Wiring
    exchange: Exchange
    model: CostModel

    def seconds(self, num_bytes: Quantity) -> Quantity:
        """Return the seconds of gradients of so many bytes by themselves."""
        if self.exchange.on_host:
            sharing = min(self.workers, _SHARING)
            return sharing * num_bytes / find_network(_TO_HOST).bandwidth
        group = self.wiring.cluster(self.device).group(self.workers)
        return exchange_time(num_bytes, group, COLLECTIVES[AUTO], self.model)

    def added(self, backward: PassTime, factor: Quantity = 1.0) -> Quantity:
        """Return the seconds by which exchanges make a step longer.

        Its backward pass takes `factor` times as long as said.
        """
        precision = backward.graph.precision
        in_halves = self.exchange.in_halves and precision.is_mixed
        size = precision.element_size if in_halves else precision.parameter_size
        made = tuple(_made(backward, size, factor))
        num_bytes = sum(one.num_bytes for one in made)
        copied = 2 * self.exchange.copies * num_bytes / self.device.memory_bandwidth
        seconds = functools.cache(self.seconds)
        if self.exchange.bucket is None or self.model.conventions.exchanges_after_all:
            return copied + seconds(num_bytes)
        slower: Quantity = 1.0
        if not self.exchange.on_host:
            typical = max(self.exchange.bucket, min(num_bytes, 1 << 24))
            slower = slowdown(self.device, typical, seconds(typical), self.workers)
        if self.exchange.cycle:
            return copied + _by_cycles(made, seconds, slower, self.exchange)
        parts = buckets(made, self.exchange.bucket, self.exchange.first or self.exchange.bucket)
        return copied + overlapped(parts, seconds, slower).exposed


def _made(backward: PassTime, size: int, factor: Quantity) -> Iterator[Made]:
    """Yield the gradients of a backward pass in its order, of parameters of `size` bytes."""
    seconds: Quantity = 0.0
    for layer in reversed(backward.layers):
        seconds = seconds + factor * layer.seconds
        if layer.node.num_params:
            yield Made(seconds, size * layer.node.num_params)
            seconds = 0.0
    yield Made(seconds, 0)


def _by_cycles(
    made: tuple[Made, ...],
    exchange: Callable[[Quantity], Quantity],
    slower: Quantity,
    software: Exchange,
) -> Quantity:
    """Return what a step takes longer where all that is there is sent whenever the links are free.

    Software looks for it in cycles: what has been made waits for half of one on average.
    """
    now: Quantity = 0.0
    free: Quantity = 0.0
    waiting = 0
    for one in made:
        busy = maximum(free - now, 0)
        beside = min(one.seconds, busy / slower)
        now = now + beside * slower + (one.seconds - beside)
        waiting += one.num_bytes
        if waiting and now >= free + software.cycle:
            free = now + exchange(waiting)
            waiting = 0
    if waiting:
        free = maximum(now, free) + software.cycle / 2 + exchange(waiting)
    return maximum(now, free) - total(one.seconds for one in made)
