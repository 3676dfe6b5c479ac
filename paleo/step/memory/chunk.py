"""A chunk of a stage followed by itself: what it takes from moment to moment, and leaves to others.

A stage's chunks that read nothing of each other pass one after the other, so that beside what a
chunk takes there is what the others keep: nothing of it changes while one is on its way. Of a row
of equal blocks a few are followed; the one in the middle stands for more, each of which adds what
that one is seen to add far from itself.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence

from paleo.core.frozen import NamedTuple
from paleo.core.quantity import Array, np
from paleo.step.memory.moments import (
    Beside,
    Gathered,
    Gathering,
    Held,
    gradients_made,
    unit_sizes,
    units_of,
)
from paleo.step.memory.usage import Alive, OfMicroBatch, Step

#: Where a moment is: on the way forward, where the first gradients are made, on the way back.
AHEAD, FIRST, BACK = range(3)
#: Whether what more is left out of a row comes behind it, or before it.
BEFORE, BEHIND = range(2)
#: So many blocks away from one it is far.
_FAR = 2


class Kinds(NamedTuple):
    """Which tensors there are: gradients of parameters aside, and copies of them."""

    cast: bool = False
    gathered: bool = False


class Rows(NamedTuple):
    """The most bytes of moments at which so many parameters have gradients that stay.

    `most` has a row for each of these counts, with a column for each micro-batch.
    """

    counts: Array
    most: Array

    @classmethod
    def of(cls, counts: Array, taken: Array) -> Rows:
        """Return those that none with as many gradients, or more, is above."""
        order = np.argsort(-counts, kind="stable")
        counts, taken = counts[order], taken[order]
        most = np.maximum.accumulate(taken, axis=0)
        stays = np.ones(len(counts), bool)
        stays[1:] = (taken[1:] > most[:-1]).any(axis=1)
        return cls(counts[stays], taken[stays])

    @classmethod
    def joined(cls, rows: Iterable[Rows]) -> Rows:
        """Return those of several."""
        counts, most = zip(*rows, strict=True)
        return cls.of(np.concatenate(counts), np.concatenate(most))

    def added(self, count: int, taken: Array | int) -> Rows:
        """Return those with more gradients, and more bytes."""
        return Rows(self.counts + count, self.most + taken)


class Left(NamedTuple):
    """The bytes that are there of a chunk while others are on their way, by micro-batch.

    `sources` from the start, `kept` behind its forward pass, `begun` once there are gradients of
    results, `ended` behind its backward pass.
    """

    sources: Array
    kept: Array
    begun: Array
    ended: Array

    def times(self, more: int) -> Left:
        """Return so many times as much."""
        return Left._make(more * each for each in self)

    def plus(self, other: Left) -> Left:
        """Return both together."""
        return Left._make(one + two for one, two in zip(self, other, strict=True))


class Walked(NamedTuple):
    """A chunk's moments, by where they are, and what of parameters it comes to behind them.

    Those with gradients that are `made` or dealt out, of them `whole` in no block; `left` see
    `Gathered`.
    """

    rows: Mapping[tuple[int, int], Rows]
    made: int
    whole: int = 0
    left: tuple[int, int] = (0, 0)


class Chunk:
    """Steps of a chunk that have one schedule, each at one number of samples or an array of them.

    `blocks` are the nodes whose parameters are gathered together, `units` says of each node which
    unit it is in, and `middle` is the unit that stands for more, if any.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        blocks: Sequence[Sequence[int]],
        units: Sequence[int],
        middle: int | None,
    ) -> None:
        self._steps, self._step, self._blocks = steps, steps[0], blocks
        self._alive = Alive(steps)
        self._middle = middle
        schedule = self._step.schedule
        self._last = len(schedule.points) - 1
        self._begin = schedule.last_forward + 1
        self._at = np.full(self._last + 1, BACK)
        self._at[: self._begin], self._at[self._begin] = AHEAD, FIRST
        self._units = np.array(units)
        self._unit_at = self._units[[node for node, _ in schedule.points]]
        #: Which nodes are of the unit in the middle.
        self._within = np.zeros(len(units), bool) if middle is None else self._units == middle
        self._made = np.array(gradients_made(self._step), np.int64)
        #: How many parameters each node has, each block, and what is in no block.
        self.params = schedule.num_params
        *self.sizes, self.rest = unit_sizes(self._step, blocks)
        self.left = functools.cache(self._left)
        self.moments = functools.cache(self._moments)
        self.gathered = functools.cache(self._gathered)

    @property
    def has_gradients(self) -> bool:
        """Whether there is a backward pass."""
        return self._begin < self._last

    @property
    def of_middle(self) -> list[int]:
        """The nodes of the unit in the middle."""
        found: list[int] = np.flatnonzero(self._within).tolist()
        return found

    @functools.cached_property
    def is_even(self) -> bool:
        """Whether far from the middle there is as much of it everywhere, each way."""
        if self._middle is None:
            return True
        in_no_block = np.array(units_of(self._step, self._blocks)) == len(self._blocks)
        if np.array(self.params)[self._within & in_no_block].any():
            return False
        there = self._at == AHEAD, (self._at != AHEAD) & (np.arange(self._last + 1) < self._last)
        far = self._unit_at <= self._middle - _FAR, self._unit_at >= self._middle + _FAR
        for kinds in (Kinds(), Kinds(gathered=True)):
            found = self._alive.at_points(self._which(kinds) & self._within[self._alive.nodes])
            sources, kept, begun, ended = self.left(kinds)[1]
            for (at, of), expected in zip(
                itertools.product(there, far), (sources, kept, ended, begun), strict=True
            ):
                if (found[at & of] != expected).any():
                    return False
        return True

    def _which(self, kinds: Kinds) -> Array:
        alive = self._alive
        which: Array = ~alive.are_gradients
        if kinds.gathered:
            which = which & ~alive.are_copies
        elif kinds.cast:
            which = which & ~(alive.are_copies & alive.in_forward)
        return which

    def _left(self, kinds: Kinds) -> tuple[Left, Left]:
        """Return what is there of the chunk, and what more there is for each more of the middle."""
        alive, which = self._alive, self._which(kinds)
        is_source = np.array([node.layer.is_source() for node in self._step.graph.nodes])
        # Copies of parameters are there to the end of the stage's forward pass.
        cached = alive.are_copies & (alive.dies == self._begin - 1)
        stays = (alive.born < self._begin) & ((alive.dies >= self._begin) | cached)
        begun = (alive.born <= self._begin) & (alive.dies >= self._begin)
        sources = is_source[alive.nodes] & (alive.born == 0) & (alive.dies == self._last)
        there = (sources, stays, begun, alive.dies == self._last)
        of_middle = self._within[alive.nodes]
        return (
            Left._make(alive.total(which & each) for each in there),
            Left._make(alive.total(which & each & of_middle) for each in there),
        )

    def _moments(self, kinds: Kinds, there: bool) -> Walked:
        """Return the moments where devices have all parameters; see paleo.step.memory.moments."""
        taken = self._alive.at_points(self._which(kinds))
        if there:
            taken = taken + self._step.weight_size * self._made[:, None]
        counts = np.zeros(len(taken), np.int64) if there else np.cumsum(self._made)
        made = 0 if there else int(counts[-1])
        return Walked(self._by_place(np.arange(self._last), taken, counts), made)

    def _gathered(self, how: tuple[bool, int, int], beside: Beside) -> Walked:
        """Return the moments where parameters are gathered."""
        walk = Gathered(self._step, Gathering(self._blocks, *how), beside)
        buffers, counts, points = np.array(walk.found, np.int64).reshape(-1, len(Held._fields)).T
        taken = self._alive.at_points(self._which(Kinds(gathered=True)))
        rows = self._by_place(points, taken[points] + buffers[:, None], counts)
        return Walked(rows, walk.done, walk.whole, walk.left)

    def _by_place(
        self, points: Array, taken: Array, counts: Array
    ) -> Mapping[tuple[int, int], Rows]:
        """Return the bytes and counts of moments by where they are."""
        found = {}
        taken, counts = taken[: len(points)], counts[: len(points)]
        at, unit = self._at[points], self._unit_at[points]
        for place in (AHEAD, FIRST, BACK):
            here = at == place
            parts = [here]
            if self._middle is not None:
                parts = [here & (unit <= self._middle), here & (unit >= self._middle)]
            for part, which in enumerate(parts):
                if which.any():
                    found[place, part] = Rows.of(counts[which], taken[which])
        return found

    @functools.cached_property
    def waiting(self) -> tuple[OfMicroBatch, OfMicroBatch]:
        """What of it waits of a micro-batch, and what more for each more of the middle."""
        within = self.of_middle
        return (
            self._of_all([step.of_micro_batch for step in self._steps]),
            self._of_all([step.of_nodes(within) for step in self._steps]),
        )

    def of_nodes(self, nodes: Sequence[int]) -> Array:
        """Return the bytes of all tensors that these nodes make."""
        return self._alive.total(np.isin(self._alive.nodes, nodes))

    def _of_all(self, found: Sequence[OfMicroBatch]) -> OfMicroBatch:
        """Return that of all steps as arrays over micro-batches."""
        counts = [np.size(step.graph.batch_size) for step in self._steps]
        return OfMicroBatch._make(
            np.concatenate([*map(np.broadcast_to, of, counts)]) for of in zip(*found, strict=True)
        )

    @property
    def step(self) -> Step:
        """One of the steps."""
        return self._step
