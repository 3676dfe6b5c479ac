"""How many workers are worth it: the knee of a scaling curve, and where it is mostly waiting.

K workers have a speedup S and an efficiency E = S / K. The knee is where E over the time of the
work is largest, that is S**2 / K (Eager, Zahorjan, Lazowska, "Speedup versus efficiency in
parallel systems", IEEE Transactions on Computers 38(3), 1989): below it another worker gains more
than it wastes, above it wastes more than it gains.
"""

from __future__ import annotations

import functools
import math
from bisect import bisect_left
from collections.abc import Callable, Iterator

from paleo.cluster.collectives import COLLECTIVES
from paleo.core.frozen import NamedTuple
from paleo.core.quantity import Quantity, ceil_div, has_arrays, np, some
from paleo.step.parallelism import DataParallel, Worker, divided

#: Workers are counted up to here: a power of 2, so that a binary tree of them is complete.
LIMIT = 65_536


class Curve(NamedTuple):
    """Training steps on 1, 2, 3, ... workers, in seconds.

    `compute` is what one worker takes for its own samples, no less for more of them where it
    `grows`; `communicate` what the exchange adds to that, no less for more workers where it is
    `steady`. Both are asked for a few whole numbers only, but for `compute` where it does not grow.
    There are `most` workers, of which the `slowest` takes so many times as long as one does on
    average. Where gradients are accumulated, `batch_size` is that of one turn.
    """

    compute: Callable[[int], float]
    communicate: Callable[[int], float]
    batch_size: int
    scaling: str
    grows: bool = True
    steady: bool = True
    most: int = LIMIT
    slowest: Callable[[int], float] = lambda workers: 1.0

    def own(self, workers: int) -> int:
        """Return the samples of each worker."""
        own, _ = divided(self.batch_size, workers, self.scaling)
        return int(own)

    def computing(self, workers: int) -> float:
        """Return the seconds in which the slowest worker computes."""
        return self.slowest(workers) * self.compute(self.own(workers))

    @property
    def end(self) -> int | None:
        """The worker count from which each computes a single sample, None in weak scaling."""
        return self.batch_size if self.scaling == "strong" else None


def doubled(limit: int) -> list[int]:
    """Return the worker counts up to a limit that are looked at where a curve is not steady."""
    return [2**power for power in range(limit.bit_length())]


def curve(data: DataParallel, batch_size: int, scaling: str, scheme: str) -> Curve:
    """Return the curve of a net under data parallelism and one scheme."""
    plan = data.plan
    if scaling == "strong":
        batch_size = ceil_div(batch_size, plan.accumulate)

    # Tiers have a step where they are full, and what overlaps hides more of it in some places.
    steady = (
        not (plan.overlaps or plan.cluster or some(plan.deviation > 0))
        and COLLECTIVES[scheme].is_of_2017
    )
    most = min(LIMIT, plan.topology.size)

    def worker(workers: Quantity) -> Worker:
        own, _ = divided(batch_size, workers, scaling)
        return data.worker(workers, own)

    @functools.cache
    def at_doubled() -> dict[int, float]:
        counts = doubled(most)
        added = np.broadcast_to(worker(np.array(counts)).added(scheme), len(counts))
        return dict(zip(counts, added.tolist(), strict=True))

    # A search asks for both ends of ranges, and so for many a number several times.
    @functools.cache
    def communicate(workers: int) -> float:
        # All that a search will ask for is sooner found at once than one by one.
        if not steady and has_arrays() and workers in at_doubled():
            return at_doubled()[workers]
        return float(worker(workers).added(scheme))

    return Curve(
        compute=functools.cache(lambda own: float(data.computing(own))),
        communicate=communicate,
        batch_size=batch_size,
        scaling=scaling,
        grows=plan.cost_model.grows,
        steady=steady,
        most=most,
        slowest=lambda workers: float(worker(workers).slowest),
    )


def own_batches(batch_size: int) -> list[int]:
    """Return the batches that one worker can have in strong scaling, up to LIMIT workers.

    There are about 2 sqrt(batch_size), the largest first.
    """
    found, workers = [], 1
    while workers <= LIMIT:
        own, _ = divided(batch_size, workers, "strong")
        found.append(own)
        if own == 1:
            break
        workers = ceil_div(batch_size, own - 1)  # the least that share out less
    return found


def knee(curve: Curve, limit: int = LIMIT) -> int | None:
    """Return the least worker count with the largest speedup**2 / workers.

    All counts up to `limit` are candidates, and the answer is exact; where the curve is not steady
    only those that are powers of 2. None if the last is the best: the curve may go on growing.
    """
    weak = curve.scaling == "weak"
    limit = min(limit, curve.most)
    last = limit if curve.end is None else min(limit, curve.end)
    if not curve.steady:
        return _of_doubled(curve, last)
    least = _least(curve)

    def most(low: int, high: int) -> float:
        """Return what no count from `low` to `high` exceeds, and what a count is worth itself.

        Speedups relate to a constant, so it is left out: they go with samples a second.
        """
        seconds = least(low, high) + curve.communicate(low)
        return (high if weak else 1 / low) / (seconds * seconds) if seconds else math.inf

    best, worth = 1, 0.0
    for power in range(last.bit_length()):  # a good guess, so that little is left to look at
        best, worth = max((best, worth), (2**power, most(2**power, 2**power)), key=lambda x: x[1])
    ranges = [(1, last)]
    while ranges:
        low, high = ranges.pop()
        ceiling = most(low, high)
        if ceiling < worth or (ceiling == worth and low >= best):
            continue
        if low == high:
            best, worth = low, ceiling
        else:
            middle = math.isqrt(low * high)
            ranges += [(middle + 1, high), (low, middle)]
    return None if best == limit and last != curve.end else best


def _of_doubled(curve: Curve, last: int) -> int | None:
    """Return the knee among powers of 2; None if the last of them is the best in weak scaling."""
    counts = doubled(last)

    def worth(count: int) -> float:
        seconds = curve.computing(count) + curve.communicate(count)
        return (count if curve.scaling == "weak" else 1 / count) / (seconds * seconds or math.inf)

    best = max(counts, key=worth)
    return None if best == counts[-1] and last != curve.end else best


def _least(curve: Curve) -> Callable[[int, int], float]:
    """Return what gives the least seconds of computation of any count from one to another."""
    if curve.grows or curve.scaling == "weak":
        return lambda _, high: curve.computing(high)
    batches = own_batches(curve.batch_size)
    position = {own: i for i, own in enumerate(batches)}
    # Row j has the least of 2^j batches from each on.
    table = [[curve.compute(own) for own in batches]]
    while len(table[-1]) > 2 ** (len(table) - 1):
        before, step = table[-1], 2 ** (len(table) - 1)
        table.append([min(pair) for pair in zip(before, before[step:], strict=False)])

    def least(low: int, high: int) -> float:
        first, last = position[curve.own(low)], position[curve.own(high)]
        row = (last - first + 1).bit_length() - 1
        found: float = min(table[row][first], table[row][last + 1 - 2**row])
        return found

    return least


def balance(curve: Curve, limit: int = LIMIT) -> int | None:
    """Return the least worker count whose exchange adds at least as much as computation takes.

    It is a power of 2 where the curve is not steady. None if there is none up to `limit`.
    """

    def catches_up(count: int) -> bool:
        return curve.communicate(count) >= curve.computing(count)

    limit = min(limit, curve.most)
    if not curve.steady:
        return next(filter(catches_up, doubled(limit)), None)
    for counts in _stretches(curve, limit):
        found = bisect_left(counts, True, key=catches_up)
        if found < len(counts):
            return counts[found]
    return None


def _stretches(curve: Curve, limit: int) -> Iterator[range]:
    """Yield the counts up to `limit` in ranges along which computation takes ever less."""
    if curve.grows or curve.scaling == "weak":
        yield range(1, limit + 1)
        return
    first = 1
    for own in own_batches(curve.batch_size):
        last = limit if own == 1 else min(limit, ceil_div(curve.batch_size, own - 1) - 1)
        yield range(first, last + 1)
        first = last + 1
