"""The memory of a stage of many equal blocks, from two shorter ones.

What is alive at a point in the i-th of n equal blocks grows by as much with i and with n, forward
and backward: i - 1 blocks have kept what they keep, or n - i have gradients. So it is most in the
first or the last blocks, and there a line in n: two lengths give every other, to the byte.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, TypeAlias

from paleo.core.frozen import NamedTuple
from paleo.core.quantity import Array, Quantity, np
from paleo.net.graph import Graph
from paleo.net.spec import NetSpec
from paleo.step.memory.footprint import step_for
from paleo.step.memory.moments import Moment
from paleo.step.memory.stage import (
    OF_MICRO_BATCHES,
    Following,
    Sizes,
    followed,
    sizes_of,
    stage_net,
)
from paleo.step.memory.usage import Step, Steps
from paleo.step.recompute import repeated_blocks

#: So many blocks at each end of a row of equal ones are looked at by themselves.
_ENDS = 2

#: The nodes of a block, or of what else is dealt out whole.
Unit: TypeAlias = tuple[int, ...]


class _Reduced(NamedTuple):
    """The most bytes of moments at which so many parameters have gradients that stay.

    `most` has a row for each of these counts, with a column for each micro-batch.
    """

    counts: tuple[int, ...]
    most: Array

    def taken(self, size: Callable[[int], int]) -> Array:
        """Return the most bytes with gradients, of which `size` has those of so many parameters."""
        own = np.array([size(count) for count in self.counts], np.int64)
        found: Array = (self.most + own[:, None]).max(axis=0)
        return found


class Peaks(NamedTuple):
    """What is most of the first micro-batch that comes back, of others, and at the last moment."""

    first: _Reduced
    later: _Reduced
    last: _Reduced


class _Points(NamedTuple):
    """Moments: bytes by moment and micro-batch, parameters with gradients, and the moments' places.

    Places are names by which moments of stages of other lengths are found.
    """

    places: Mapping[Any, int]
    bytes: Array
    counts: Array


class _Followed:
    """A step of a stage that is followed, and the places of its points."""

    def __init__(self, step: Steps, blocks: list[list[int]], names: Mapping[str, Any]) -> None:
        self._step, self._blocks = step, blocks
        nodes = step.graph.nodes
        seen: Counter[Any] = Counter()
        self._places: list[Any] = []
        for node, direction in step.schedule.points:
            name = nodes[node].name
            where = direction if direction == "update" else (names.get(name, name), direction)
            self._places.append((where, seen[where]))
            seen[where] += 1
        self.points = functools.cache(self._points)

    def _points(self, how: Following) -> tuple[_Points, _Points]:
        first, later = followed(self._step, self._blocks, how)
        points = self._of(later)
        return points if first is later else self._of(first), points

    def _of(self, moments: Sequence[Moment]) -> _Points:
        places: dict[Any, int] = {}
        for point, same in itertools.groupby(moments, key=lambda each: each.point):
            for nth, _ in enumerate(same):
                places[self._places[point], nth] = len(places)
        passing = np.concatenate([each.passing for each in moments]).reshape(len(moments), -1)
        buffers, counts = (
            np.array(list(map(attrgetter(name), moments)), np.int64)
            for name in ("buffers", "gradients")
        )
        return _Points(places, passing + buffers[:, None], counts)


class _Short:
    """A stage of which rows of equal blocks may be shorter, at several micro-batches.

    They are followed `joined`, or `apart` where tensors live otherwise.
    """

    def __init__(
        self, steps: Sequence[Step], blocks: list[list[int]], names: Mapping[str, Any]
    ) -> None:
        self._steps = steps
        self._made = blocks, names
        found = [sizes_of(step) for step in steps]
        counts = [np.size(step.graph.batch_size) for step in steps]
        joined: dict[str, Any] = {
            name: np.concatenate(
                [
                    np.broadcast_to(getattr(own, name), (count,))
                    for own, count in zip(found, counts, strict=True)
                ]
            )
            for name in OF_MICRO_BATCHES
        }
        self.sizes = found[-1]._replace(**joined)
        self.is_alike = all(step.schedule is steps[0].schedule for step in steps)

    @functools.cached_property
    def joined(self) -> list[_Followed]:
        """All of them, followed at once."""
        return [_Followed(Steps(self._steps), *self._made)]

    @functools.cached_property
    def apart(self) -> list[_Followed]:
        """Each followed for itself."""
        return [_Followed(Steps([step]), *self._made) for step in self._steps]


class RepeatedStage:
    """A stage of equal blocks, of which `more` are left out in `short`, in `longer` one less.

    None are left out if `longer` is None.
    """

    def __init__(self, short: _Short, longer: _Short | None, more: int) -> None:
        self._short, self._longer, self._more = short, longer, more
        self._peaks = functools.cache(self._found)

    @functools.cached_property
    def sizes(self) -> Sizes:
        """What the stage has, as arrays over micro-batches where it goes with them."""
        if self._longer is None:
            return self._short.sizes
        both = zip(self._short.sizes, self._longer.sizes, strict=True)
        return Sizes._make(self._at(one, two) for one, two in both)

    def taken(self, how: Following, size: Callable[[int], int]) -> tuple[Array, Array, Array]:
        """Return the most bytes of the first micro-batch that comes back, of others, and at last.

        They are arrays over micro-batches. `size` has the bytes of gradients of so many parameters.
        """
        found = [[each.taken(size) for each in peaks] for peaks in self._peaks(how)]
        first, later, last = (np.concatenate(each) for each in zip(*found, strict=True))
        return first, later, last

    def _at(self, one: Any, two: Any) -> Any:
        return one + self._more * (two - one)

    def _found(self, how: Following) -> list[Peaks]:
        """Return the moments at which most may be taken of memory."""
        stages = [self._short, *([self._longer] if self._longer else [])]
        is_alike = all(stage.is_alike for stage in stages)
        each = [stage.joined if is_alike else stage.apart for stage in stages]
        return [self._most([one.points(how) for one in same]) for same in zip(*each, strict=True)]

    def _most(self, found: Sequence[tuple[_Points, _Points]]) -> Peaks:
        first, later = itertools.starmap(self._line, zip(*found, strict=True))
        last = _reduced(later.bytes[-1:], later.counts[-1:])
        return Peaks(_reduced(first.bytes, first.counts), _reduced(later.bytes, later.counts), last)

    def _line(self, short: _Points, longer: _Points | None = None) -> _Points:
        if longer is None:
            return short
        same = [longer.places[place] for place in short.places]
        return _Points(
            short.places,
            self._at(short.bytes, longer.bytes[same]),
            self._at(short.counts, longer.counts[same]),
        )


def _reduced(taken: Array, counts: Array) -> _Reduced:
    order = np.argsort(counts, kind="stable")
    unique, starts = np.unique(counts[order], return_index=True)
    return _Reduced(tuple(unique.tolist()), np.maximum.reduceat(taken[order], starts, axis=0))


class RepeatedStages:
    """Stages of one net under one plan of memory: what was found of one holds for equal ones.

    `micro_batches` are numbers of samples, the least first, `settings` those of memory.
    """

    def __init__(
        self,
        net: NetSpec,
        graph: Graph,
        units: Sequence[Unit],
        micro_batches: Sequence[int],
        settings: Mapping[str, Any],
    ) -> None:
        self.net, self.graph = net, graph
        # Dimensions of 1 are repeated, but not those of an array: see `footprints`.
        one, others = ([each for each in micro_batches if (each == 1) == is_1] for is_1 in (1, 0))
        self._micro_batches: list[Quantity] = [*one, *([np.array(others)] if others else [])]
        self._settings = dict(settings)
        self._blocks = [[graph.nodes[i].name for i in block] for block in repeated_blocks(graph)]
        self._kinds = _kinds(graph, units)
        self._known: dict[Any, _Short] = {}
        self._stages: dict[Any, RepeatedStage] = {}

    def stage(self, chunks: Sequence[Sequence[Unit]]) -> RepeatedStage:
        """Return a stage of these chunks, each of units one behind the other.

        Of equal stages it is one object.
        """
        key = tuple(tuple(self._kinds[unit] for unit in units) for units in chunks)
        if key not in self._stages:
            self._stages[key] = self._found(chunks)
        return self._stages[key]

    def _found(self, chunks: Sequence[Sequence[Unit]]) -> RepeatedStage:
        rows = [self._row(units) for units in chunks]
        more = min(length for _, length in rows) - 2 * _ENDS
        if more < 2:
            return RepeatedStage(self._of(chunks, rows, 0), None, 0)
        short, longer = self._of(chunks, rows, more), self._of(chunks, rows, more - 1)
        return RepeatedStage(short, longer, more)

    def _row(self, units: Sequence[Unit]) -> tuple[int, int]:
        """Return where the longest row of equal units begins, and how many it has."""
        best = (0, 0)
        start = 0
        for _, same in itertools.groupby(units, key=self._kinds.__getitem__):
            length = len(list(same))
            best = max(best, (start, length), key=lambda row: row[1])
            start += length
        return best

    def _of(
        self, chunks: Sequence[Sequence[Unit]], rows: Sequence[tuple[int, int]], fewer: int
    ) -> _Short:
        """Return a stage whose rows of equal units have so many fewer."""
        names: dict[str, Any] = {}
        nodes: list[int] = []
        moved: dict[int, int] = {}
        kinds: list[Any] = []
        for number, (units, (start, length)) in enumerate(zip(chunks, rows, strict=True)):
            first = start + _ENDS  # the first that is left out
            kept = [*units[:first], *units[first + fewer :]] if fewer else list(units)
            if fewer:
                # The last of them has that before all of them in its place.
                gone, instead = units[first + fewer - 1], units[first - 1]
                moved |= dict(zip(gone, instead, strict=True))
            kinds.append((tuple(self._kinds[unit] for unit in kept), length > 0 and start))
            for place, unit in enumerate(kept):
                is_first = place < first
                where = number, is_first, place if is_first else len(kept) - place
                for offset, i in enumerate(unit):
                    names[self.graph.nodes[i].name] = where, offset
                nodes += unit
        key = tuple(kinds), bool(fewer)
        if key not in self._known:
            net = stage_net(self.net, self.graph, sorted(nodes), moved)
            steps = [step_for(net, each, **self._settings) for each in self._micro_batches]
            self._known[key] = _Short(steps, self._within(steps[0]), names)
        return self._known[key]

    def _within(self, step: Step) -> list[list[int]]:
        """Return the nodes of each block that a stage has."""
        places = {node.name: node.index for node in step.graph.nodes}
        own = ([places[each] for each in block if each in places] for block in self._blocks)
        return [block for block in own if block]


def _kinds(graph: Graph, units: Sequence[Unit]) -> dict[Unit, int]:
    """Return for each unit a number that equal ones have in common.

    They read alike, and do the same.
    """
    # Of each node its unit, and how far from the end of it.
    places = {
        node: (number, len(unit) - offset)
        for number, unit in enumerate(units)
        for offset, node in enumerate(unit)
    }

    def read(number: int, parent: int) -> tuple[bool, int, int]:
        """Return what is read by its place if it is near, or as it is."""
        before = number - places[parent][0]
        is_near = 0 <= before <= 1
        return (True, before, places[parent][1]) if is_near else (False, parent, 0)

    numbers: dict[Any, int] = {}
    found = {}
    for number, unit in enumerate(units):
        made = tuple(
            (graph.nodes[i].like, *(read(number, parent) for parent in graph.nodes[i].parents))
            for i in unit
        )
        found[unit] = numbers.setdefault(made, len(numbers))
    return found
