"""Gradients that are exchanged while the backward pass goes on.

The backward pass makes gradients from the last layer to the first. They are collected in buckets,
and a bucket is sent as soon as it is full (S. Li et al., "PyTorch Distributed: experiences on
accelerating data parallel training", VLDB 2020, section 3.2.3; A. Sergeev, M. Del Balso, "Horovod",
2018). Exchanges follow one another. Meanwhile computation is slower: an exchange takes
multiprocessors and memory traffic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from paleo.core.frozen import dataclass
from paleo.core.quantity import Quantity, maximum, minimum


class Made(NamedTuple):
    """What the backward pass does next: so many seconds, after which gradients are there."""

    seconds: Quantity
    num_bytes: int


@dataclass(frozen=True)
class Bucket:
    """Gradients that are exchanged together, once `seconds` more of the backward pass are done."""

    seconds: Quantity
    num_bytes: int


@dataclass(frozen=True)
class Overlapped:
    """A backward pass with its exchanges, in seconds from its start.

    `computed` is when the pass ends, `exchanged` when the last bucket has arrived; `alone` is what
    the pass takes without exchanges.
    """

    computed: Quantity
    exchanged: Quantity
    alone: Quantity
    spans: tuple[tuple[Quantity, Quantity], ...]

    @property
    def total(self) -> Quantity:
        """Seconds until both are done."""
        return maximum(self.computed, self.exchanged)

    @property
    def exposed(self) -> Quantity:
        """Seconds by which the exchanges make the pass longer."""
        return self.total - self.alone


def buckets(made: Iterable[Made], size: int, first: int) -> tuple[Bucket, ...]:
    """Return the buckets of a backward pass, of `size` bytes or more, the first of `first`.

    A layer's gradients are not divided. The last bucket has what is left, which may be no bytes.
    """
    found: list[Bucket] = []
    seconds: Quantity = 0.0
    num_bytes, limit = 0, first
    for one in made:
        seconds = seconds + one.seconds
        num_bytes += one.num_bytes
        if num_bytes >= limit:
            found.append(Bucket(seconds, num_bytes))
            seconds, num_bytes, limit = 0.0, 0, size
    return (*found, Bucket(seconds, num_bytes))


def overlapped(
    parts: Sequence[Bucket], exchange: Callable[[int], Quantity], slowdown: Quantity
) -> Overlapped:
    """Return a backward pass whose buckets are exchanged as they are filled.

    While an exchange is under way, computation takes `slowdown` times as long.
    """
    now: Quantity = 0.0  # when the pass has come so far
    free: Quantity = 0.0  # when the links are free
    alone: Quantity = 0.0
    spans = []
    for part in parts:
        busy = maximum(free - now, 0)
        beside = minimum(part.seconds, busy / slowdown)  # of the pass's own seconds
        now = now + beside * slowdown + (part.seconds - beside)
        alone = alone + part.seconds
        if part.num_bytes:
            start = maximum(now, free)
            free = start + exchange(part.num_bytes)
            spans.append((start, free))
    return Overlapped(now, free, alone, tuple(spans))
