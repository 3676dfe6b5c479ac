"""Gradients that are exchanged while the backward pass goes on.

The backward pass makes gradients from the last layer to the first. They are collected in buckets,
and a bucket is sent as soon as it is full (S. Li et al., "PyTorch Distributed: experiences on
accelerating data parallel training", VLDB 2020, section 3.2.3; A. Sergeev, M. Del Balso, "Horovod",
2018). Exchanges follow one another. Meanwhile computation is slower: an exchange takes
multiprocessors and memory traffic.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence

from paleo.cluster import Device
from paleo.cluster.gradient_exchange import Exchange
from paleo.core.frozen import NamedTuple, dataclass
from paleo.core.quantity import Quantity, maximum, minimum, some, spread, total, where_positive
from paleo.core.units import MIB
from paleo.step.parallelism.slowdown import slowdown

#: Bytes of PyTorch's first bucket, which is small so that exchanges begin soon
#: (torch/csrc/distributed/c10d/reducer.hpp, kDefaultFirstBucketBytes).
FIRST_BUCKET = MIB
#: Bytes of a message that is long enough to tell at which rate exchanges go on.
_TYPICAL = 16 * MIB


class Made(NamedTuple):
    """What the backward pass does next: so many seconds, after which gradients are there."""

    seconds: Quantity
    num_bytes: int

    def longer(self, seconds: Quantity, num_bytes: int) -> Made:
        """Return the same with its share of the seconds of what is done to so many bytes."""
        share = self.num_bytes / num_bytes if num_bytes else 0.0
        return self._replace(seconds=self.seconds + share * seconds)

    def spread(self, shape: tuple[int, ...]) -> list[Made]:
        """Return what has an array of seconds as many that have numbers."""
        return [Made(seconds, self.num_bytes) for seconds in spread(self.seconds * 1.0, shape)]


@dataclass(frozen=True)
class Bucket:
    """Gradients that are exchanged together, once `seconds` more of the backward pass are done."""

    seconds: Quantity
    num_bytes: int


class Sent(NamedTuple):
    """An exchange of so many bytes, from when to when."""

    start: Quantity
    end: Quantity
    num_bytes: Quantity


@dataclass(frozen=True)
class Overlapped:
    """A backward pass with its exchanges, in seconds from its start.

    `computed` is when the pass ends, `alone` what it takes without exchanges; `spans` say
    when each bucket is exchanged, `reached` says of points of the pass alone when they are.
    """

    computed: Quantity
    alone: Quantity
    spans: tuple[Sent, ...]
    reached: tuple[tuple[Quantity, Quantity], ...]

    def when(self, seconds: float) -> float:
        """Return when the pass is as far as it would be after so many seconds alone."""
        for (alone, now), (next_alone, next_now) in itertools.pairwise(self.reached):
            if seconds < next_alone:
                return float(now + (next_now - now) * (seconds - alone) / (next_alone - alone))
        return float(self.computed)

    @property
    def total(self) -> Quantity:
        """Seconds until both are done."""
        return maximum(self.computed, self.spans[-1].end) if self.spans else self.computed

    @property
    def exposed(self) -> Quantity:
        """Seconds by which the exchanges make the pass longer."""
        return self.total - self.alone

    @property
    def busy(self) -> Quantity:
        """Seconds of all exchanges."""
        return total(sent.end - sent.start for sent in self.spans)


def buckets(made: Iterable[Made], size: int, first: int = FIRST_BUCKET) -> tuple[Bucket, ...]:
    """Return the buckets of a backward pass, of `size` bytes or more, the first of `first`.

    A layer's gradients are not divided. The last bucket has what is left, which may be no bytes.
    """
    found: list[Bucket] = []
    seconds: Quantity = 0.0
    num_bytes, limit = 0, min(first, size)
    for one in made:
        seconds = seconds + one.seconds
        num_bytes += one.num_bytes
        if num_bytes >= limit:
            found.append(Bucket(seconds, num_bytes))
            seconds, num_bytes, limit = 0.0, 0, size
    return (*found, Bucket(seconds, num_bytes))


def overlapped(
    parts: Sequence[Bucket],
    exchange: Callable[[int], Quantity],
    slowdown: Quantity = 1.0,
    factor: Quantity = 1.0,
) -> Overlapped:
    """Return a backward pass whose buckets are exchanged as they are filled.

    `exchange` gives the seconds of so many bytes. Computation takes `factor` times as long as
    buckets say, and while an exchange is under way `slowdown` times that.
    """
    now: Quantity = 0.0  # when the pass has come so far
    free: Quantity = 0.0  # when the links are free
    alone: Quantity = 0.0
    spans = []
    reached = [(alone, now)]
    for part in parts:
        seconds = factor * part.seconds
        busy = maximum(free - now, 0)
        beside = minimum(seconds, busy / slowdown)  # of the pass's own seconds
        reached.append((alone + beside, now + beside * slowdown))
        now = now + beside * slowdown + (seconds - beside)
        alone = alone + seconds
        reached.append((alone, now))
        if part.num_bytes:
            start = maximum(now, free)
            free = start + exchange(part.num_bytes)
            spans.append(Sent(start, free, part.num_bytes))
    return Overlapped(now, alone, tuple(spans), tuple(reached))


def sent_in_cycles(
    made: Iterable[Made],
    exchange: Callable[[Quantity], Quantity],
    cycle: float,
    slowdown: Quantity = 1.0,
    factor: Quantity = 1.0,
) -> Overlapped:
    """Return a backward pass of which all gradients so far are sent when the links are free.

    So does Horovod (docs/tensor-fusion.rst): each `cycle` seconds, at the earliest when the last
    exchange has come to its end, it looks for gradients and sends them as one message. What comes
    last waits for half a cycle on average. Other parameters are those of `overlapped`.
    """
    now: Quantity = 0.0
    free: Quantity = 0.0
    alone: Quantity = 0.0
    waiting: Quantity = 0
    spans: list[Sent] = []
    reached: list[tuple[Quantity, Quantity]] = [(0.0, 0.0)]
    for one in made:
        seconds = factor * one.seconds
        beside = minimum(seconds, maximum(free - now, 0) / slowdown)
        reached.append((alone + beside, now + beside * slowdown))
        now = now + beside * slowdown + (seconds - beside)
        alone = alone + seconds
        reached.append((alone, now))
        waiting = waiting + one.num_bytes
        leaving = where_positive(now - free - cycle, waiting)
        if some(leaving > 0):
            end = where_positive(leaving, now + exchange(leaving))
            spans.append(Sent(where_positive(leaving, now), end, leaving))
            free, waiting = maximum(free, end), waiting - leaving
    if some(waiting > 0):
        start = maximum(now, free) + where_positive(waiting, cycle / 2)
        end = start + where_positive(waiting, exchange(waiting))
        spans.append(Sent(start, end, waiting))
    return Overlapped(now, alone, tuple(spans), tuple(reached))


def exchanged(
    software: Exchange,
    made: Sequence[Made],
    seconds: Callable[[Quantity], Quantity],
    device: Device,
    workers: Quantity,
    factor: Quantity = 1.0,
    carried: Callable[[Quantity], Quantity] = lambda num_bytes: num_bytes,
) -> Overlapped:
    """Return a backward pass on one of so many workers with the exchanges beside it, or after it.

    `made` are gradients in the order in which the pass makes them, `seconds` gives the time to
    exchange so many bytes, of which links carry as much as of an all-reduce of `carried` bytes.
    Computation takes `factor` times as long as said. Copies into buckets
    and out of them are not in it, see `Exchange.copying`.
    """
    num_bytes = sum(one.num_bytes for one in made)
    if software.bucket is None:
        alone = factor * total(one.seconds for one in made)
        spans = (Sent(alone, alone + seconds(num_bytes), num_bytes),)
        return Overlapped(alone, alone, spans, ((0.0, 0.0), (alone, alone)))
    slower: Quantity = 1.0
    if not software.on_host:
        typical = max(software.bucket, min(num_bytes, _TYPICAL))
        slower = slowdown(device, carried(typical), seconds(typical), workers)
    if software.cycle:
        return sent_in_cycles(made, seconds, software.cycle, slower, factor)
    parts = buckets(made, software.bucket, software.first or software.bucket)
    return overlapped(parts, seconds, slower, factor)
