"""The memory of a stage of many equal blocks, from a few of them.

What is alive at a point in the i-th of n equal blocks grows by as much with i and with n, forward
and backward: i - 1 blocks have kept what they keep, or n - i have gradients. So it is most in the
first or the last blocks, which are followed with one between them that stands for all others. The
chunks of a stage are followed one by one, and put together by what each leaves there.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from paleo.core.frozen import NamedTuple
from paleo.core.quantity import Array, Quantity, np, total
from paleo.net.graph import Graph
from paleo.net.spec import NetSpec
from paleo.step.memory.chunk import AHEAD, BEHIND, FIRST, Chunk, Kinds, Left, Rows, Walked
from paleo.step.memory.footprint import step_for
from paleo.step.memory.moments import Beside
from paleo.step.memory.stage import Following, Sizes, stage_net
from paleo.step.memory.usage import OfMicroBatch, Step
from paleo.step.optimizers import find_optimizer
from paleo.step.recompute import repeated_blocks
from paleo.step.shortened import Unit, far_reads, kinds_of, longest_row

#: So many blocks at each end of a row of equal ones are looked at by themselves.
_ENDS = 2


class Peaks(NamedTuple):
    """What is most of the first micro-batch that comes back, of others, and at the last moment."""

    first: Rows
    later: Rows
    last: Rows


class _Place(NamedTuple):
    """A chunk of a stage, at some micro-batches, in which the middle stands for so many more."""

    chunk: Chunk
    more: int

    def left(self, kinds: Kinds) -> Left:
        """Return what is there of it."""
        own, of_middle = self.chunk.left(kinds)
        return own.plus(of_middle.times(self.more)) if self.more else own

    @property
    def middle(self) -> int:
        """How many parameters the unit in the middle has."""
        return sum(self.chunk.params[i] for i in self.chunk.of_middle)

    @property
    def params(self) -> int:
        """How many parameters it has."""
        return sum(self.chunk.params) + self.more * self.middle


class RepeatedStage:
    """A stage that is put together from chunks.

    `places` are those chunks, at micro-batches whose tensors live alike: once, or for each of
    several.
    """

    def __init__(self, places: Sequence[Sequence[_Place]]) -> None:
        self._places = places
        self._peaks = functools.cache(self._found)
        #: The bytes that are taken beside gradients of parameters.
        self.passing = functools.cache(functools.partial(self.taken, size=np.zeros_like))

    @functools.cached_property
    def sizes(self) -> Sizes:
        """What the stage has, as arrays over micro-batches where it goes with them."""
        of_all = [_waiting(places) for places in self._places]
        waiting = OfMicroBatch._make(map(np.concatenate, zip(*of_all, strict=True)))
        places = self._places[-1]
        step = places[0].chunk.step
        assert step.optimizer is not None
        params: list[int] = []
        matrices: list[Any] = []
        scaled = 0
        for chunk, more in places:
            nodes = [*range(len(chunk.params)), *(chunk.of_middle * more)]
            params += [chunk.params[i] for i in nodes]
            if step.optimizer.by_matrix:
                matrices += [chunk.step.matrices[i] for i in nodes]
            if step.graph.precision.scaling:
                weights = chunk.step.weights
                scaled += sum(weights[i] - step.weight_size * chunk.params[i] for i in nodes)
        return Sizes(
            sum(params),
            step.weight_size,
            step.copy_size,
            step.graph.element_size,
            scaled,
            *step.optimizer.at_update(params, step.weight_size, matrices),
            *waiting,
        )

    def taken(self, how: Following, size: Callable[[Array], Any]) -> tuple[Array, Array, Array]:
        """Return the most bytes of the first micro-batch that comes back, of others, and at last.

        They are arrays over micro-batches. `size` gives the bytes of gradients of numbers of
        parameters.
        """
        found = [[_taken(rows, size) for rows in peaks] for peaks in self._peaks(how)]
        first, later, last = (np.concatenate(each) for each in zip(*found, strict=True))
        return first, later, last

    def _found(self, how: Following) -> list[Peaks]:
        """Return the moments at which most may be taken of memory."""
        return [_peaks(places, how) for places in self._places]


def _waiting(places: Sequence[_Place]) -> OfMicroBatch:
    """Return what of all chunks waits of a micro-batch."""
    found = []
    for chunk, more in places:
        own, of_middle = chunk.waiting
        found.append([one + more * each for one, each in zip(own, of_middle, strict=True)])
    return OfMicroBatch._make(map(total, zip(*found, strict=True)))


def _taken(rows: Rows, size: Callable[[Array], Any]) -> Array:
    found: Array = (rows.most + size(rows.counts)[:, None]).max(axis=0)
    return found


def _peaks(places: Sequence[_Place], how: Following) -> Peaks:
    """Return the moments at which most may be taken of memory by a stage of these chunks."""
    step = places[0].chunk.step
    params = sum(place.params for place in places)
    is_mixed = step.copy_size > 0
    if how.zero < 2:
        kinds = Kinds(cast=how.zero > 0 and is_mixed)
        later = _joined(places, kinds, [place.chunk.moments(kinds, True) for place in places])
        later = later.added(params, 0)
        ended = _ended(places, kinds)
        last = Rows(np.array([params]), ended)
        first = later = Rows.joined((later, last))
        if not how.in_buckets:
            walked = [place.chunk.moments(kinds, False) for place in places]
            updating = Rows(np.array([_made(places, walked)]), ended)
            first = Rows.joined((_joined(places, kinds, walked), updating))
        return Peaks(first, later, last)
    read, summed = step.graph.element_size, step.weight_size
    if how.is_late:
        return _late(places, params, read, summed)
    return _gathered(places, how.zero == 2, params, read, summed)


def _late(places: Sequence[_Place], params: int, read: int, summed: int) -> Peaks:
    """Return those of a stage whose gathered parameters and whole gradients stay to the end."""
    kinds = Kinds(cast=True)
    sizes = [*itertools.chain(*(place.chunk.sizes for place in places))]
    most = max([*sizes, sum(place.chunk.rest for place in places)])
    ended = _ended(places, kinds)
    found: list[Rows] = []
    for there in (False, True):
        rows = _joined(places, kinds, [place.chunk.moments(kinds, there) for place in places])
        rows = rows.added(params * there, 0)
        buffers = read * params + summed * rows.counts
        dealt = (read + summed) * params + summed * most
        found.append(
            Rows.of(
                np.array([*np.zeros_like(rows.counts), most, params]),
                np.concatenate([rows.most + buffers[:, None], ended + dealt, ended]),
            )
        )
    first, later = found
    return Peaks(first, later, Rows(np.array([params]), ended))


def _gathered(places: Sequence[_Place], stays: bool, params: int, read: int, summed: int) -> Peaks:
    """Return those of a stage whose parameters are gathered unit by unit."""
    kinds = Kinds(gathered=True)
    rest = sum(place.chunk.rest for place in places)
    walked: list[Walked] = []
    left: tuple[int, int | None] = 0, None
    for number, (chunk, _) in enumerate(places):
        before, after = (
            next(itertools.chain(*sizes), 0)
            for sizes in (
                [reversed(place.chunk.sizes) for place in reversed(places[:number])],
                [place.chunk.sizes for place in places[number + 1 :]],
            )
        )
        gathered, buffer = left
        beside = Beside(0 if stays else gathered, buffer, before, after, rest)
        walked.append(chunk.gathered((stays, read, summed), beside))
        left = walked[-1].left
    rows = _joined(places, kinds, walked, read, stays)
    ended = _ended(places, kinds)
    dealt = Rows(np.array([_made(places, walked)]), ended + (read + summed) * rest)
    first = Rows.joined(
        (
            rows,
            dealt,
            Rows(np.array([params]), ended),
        )
    )
    later = Rows(np.array([params]), first.most.max(axis=0)[None])
    return Peaks(first, later, Rows(np.array([params]), ended))


def _made(places: Sequence[_Place], walked: Sequence[Walked]) -> int:
    """Return how many parameters have gradients behind the backward pass of these chunks."""
    return sum(
        each.made + place.more * place.middle * (each.made > 0)
        for place, each in zip(places, walked, strict=True)
    )


def _ended(places: Sequence[_Place], kinds: Kinds) -> Array:
    """Return as a row the bytes at the update."""
    found: Array = np.array([total(place.left(kinds).ended for place in places)])
    return found


def _joined(
    places: Sequence[_Place],
    kinds: Kinds,
    walked: Sequence[Walked],
    read: int = 0,
    stays: bool = False,
) -> Rows:
    """Return the moments of all chunks, each beside what the others leave there.

    Of gathered parameters `read` is what each takes; if it `stays`, until the backward pass.
    """
    found: list[Rows] = []
    left = [place.left(kinds) for place in places]
    for number, ((chunk, more), own) in enumerate(zip(places, walked, strict=True)):
        before, behind = left[:number], left[number + 1 :]
        after = walked[number + 1 :]
        ahead = total(each.kept for each in before) + total(each.sources for each in behind)
        back = total(each.begun for each in before) + total(each.ended for each in behind)
        if stays:
            held = read * sum(sum(p.chunk.sizes) + p.more * p.middle for p in places[:number])
            ahead, back = ahead + held, back + held
        back = back + read * sum(each.whole for each in after)
        made = _made(places[number + 1 :], after)
        of_middle = chunk.left(kinds)[1]
        size = places[number].middle
        for (place, part), rows in own.rows.items():
            if place == FIRST and after:
                continue  # the gradients of all results are made behind the last chunk
            count = 0 if place == AHEAD else made
            taken = ahead if place == AHEAD else back
            if part == BEHIND:
                taken = taken + more * (of_middle.kept if place == AHEAD else of_middle.begun)
                taken = taken + more * read * size * stays
            else:
                taken = taken + more * (of_middle.sources if place == AHEAD else of_middle.ended)
                count += more * size * (place != AHEAD and own.made > 0)
            found.append(rows.added(count, taken))
    return Rows.joined(found)


class LastUnit(NamedTuple):
    """The last unit of a stage as a stage `alone`, which has so many parameters.

    `beside` are the bytes, over micro-batches, that others keep at least of what is on its way,
    less those of what comes into it, which alone has that to the end.
    """

    alone: RepeatedStage
    params: int
    beside: Array


class RepeatedStages:
    """Stages of one net under one plan of memory: what was found of one holds for equal ones.

    `index` says of each unit of the whole net which of these `units` it is like, of which the net
    may have fewer: see paleo.step.shortened. `micro_batches` are numbers of samples, the least
    first, `settings` those of memory.
    """

    def __init__(
        self,
        net: NetSpec,
        graph: Graph,
        units: Sequence[Unit],
        index: Sequence[int],
        micro_batches: Sequence[int],
        settings: Mapping[str, Any],
    ) -> None:
        self.net, self.graph = net, graph
        # Dimensions of 1 are repeated, but not those of an array: see `footprints`.
        one, others = ([each for each in micro_batches if (each == 1) == is_1] for is_1 in (1, 0))
        self._micro_batches: list[Quantity] = [*one, *([np.array(others)] if others else [])]
        self._settings = dict(settings)
        self._blocks = [[graph.nodes[i].name for i in block] for block in repeated_blocks(graph)]
        again = {*itertools.chain(*settings["recompute"].regions(graph))}
        self._units, self._kinds = units, kinds_of(graph, units, again)
        self._index = index
        self._far = far_reads(graph, units)
        optimizer = find_optimizer(settings["optimizer"], settings["optimizer_kernels"])
        self._by_matrix = optimizer.by_matrix
        self._chunks: dict[Any, _Chunks] = {}
        self._kept_by_next = functools.cache(self._found_kept_by_next)
        self._stages: dict[Any, RepeatedStage] = {}

    def stage(self, chunks: Sequence[range]) -> RepeatedStage:
        """Return a stage of these chunks, each of units of the whole net one behind the other.

        Of equal stages it is one object.
        """
        is_apart = len(chunks) > 1 and self._are_apart(chunks)
        kinds = [[self._kinds[self._index[unit]] for unit in units] for units in chunks]
        key = is_apart, *map(tuple, kinds)
        if key not in self._stages:
            self._stages[key] = self._found(chunks, kinds, is_apart)
        return self._stages[key]

    def least_kept(self, chunks: Sequence[range]) -> Array:
        """Return the bytes that a stage keeps of a micro-batch at least, as `kept` of its sizes.

        A unit keeps wherever it stands what it keeps alone; what comes in order is copied no more
        than what does not. Of units of the kind that is most, what comes into a chunk of them
        counts, too, and what one makes that the next keeps.
        """
        kinds = [[self._kinds[self._index[unit]] for unit in units] for units in chunks]
        (kind, count), *_ = Counter(itertools.chain(*kinds)).most_common(1)
        pairs = sum(both == (kind, kind) for each in kinds for both in itertools.pairwise(each))
        one = self._of_kinds((kind,))
        found: Array = count * one.kept
        if pairs:
            found = found + pairs * self._kept_by_next(kind)
        if len(chunks) == 1 or self._are_apart(chunks):
            found = found + sum(each[0] == kind for each in kinds) * one.received
        return found

    def _found_kept_by_next(self, kind: int) -> Array:
        """Return the bytes that a unit makes which another of its kind, the next, keeps alone.

        A result is kept by who makes it, or by who reads it, or by nobody.
        """
        one, second = self._of_kinds((kind,)), self._place((kind, kind), 0) + 1
        own, before = set(self._units[second]), set(self._units[second - 1])
        nodes = self.graph.nodes
        read = {parent for i in own for parent in nodes[i].parents} - own
        if len(read) == 1 and read <= before.difference(*(nodes[i].parents for i in before)):
            found: Array = np.minimum(one.received, one.given)
        else:
            found = self._of_kinds((kind, kind)).kept - 2 * one.kept
        return found

    def last_unit(self, chunks: Sequence[range]) -> LastUnit | None:
        """Return a stage's last unit, and what the others keep while it is on its way.

        None if it is not gathered as one block, or may be followed otherwise by itself.
        """
        *_, (*_, last) = chunks
        one = self._of_kinds((self._kinds[self._index[last]],))
        if not one.is_block_behind_another:
            return None
        before = [*chunks[:-1], range(chunks[-1].start, last)]
        others = [units for units in before if units]
        kept = self.least_kept(others) if others else 0 * one.kept
        return LastUnit(one.alone, sum(one.followed[0].params), kept - one.coming_in)

    def _are_apart(self, chunks: Sequence[range]) -> bool:
        """Tell whether chunks of a stage have nothing in common, so that each passes by itself."""
        if self._by_matrix:  # which of them are hidden depends on what is behind
            return False
        if any(two.start == one.stop for one, two in itertools.pairwise(chunks)):
            return False
        own = [[self._index[unit] for unit in units] for units in chunks]
        far = [frozenset().union(*(self._far[unit] for unit in units)) for units in own]
        if not any(far):
            return True
        there = {i for units in own for unit in units for i in self._units[unit]}
        return there.isdisjoint(frozenset().union(*far)) and sum(map(len, far)) == len(
            frozenset().union(*far)
        )

    def _found(
        self, chunks: Sequence[range], kinds: Sequence[Sequence[int]], is_apart: bool
    ) -> RepeatedStage:
        if len(chunks) == 1 or is_apart:
            found = [self._chunk(each) for each in kinds]
            if is_apart and not all(each.has_gradients for each, _ in found):
                return self._found(chunks, kinds, False)
        else:
            units = [[self._index[unit] for unit in chunk] for chunk in chunks]
            found = [(self._followed([*itertools.chain(*units)]), 0)]
        is_alike = all(chunk.is_alike for chunk, _ in found)
        each = [chunk.joined if is_alike else chunk.apart for chunk, _ in found]
        mores = [more for _, more in found]
        return RepeatedStage([[*map(_Place, same, mores)] for same in zip(*each, strict=True)])

    def _chunk(self, kinds: Sequence[int]) -> tuple[_Chunks, int]:
        """Return a chunk of which the middle of a row of equal units stands for so many more."""
        start, length = longest_row(kinds)
        more = length - (2 * _ENDS + 1)
        middle = start + _ENDS
        if more > 0:
            ahead, behind = tuple(kinds[: middle + 1]), tuple(kinds[middle + 1 + more :])
            found = self._of_kinds(ahead, behind, middle)
            if found.is_even:
                return found, more
        return self._of_kinds(tuple(kinds)), 0

    def _of_kinds(
        self, kinds: tuple[int, ...], behind: tuple[int, ...] = (), middle: int | None = None
    ) -> _Chunks:
        """Return a chunk of units of these kinds, and of those `behind` the middle, if any."""
        key = kinds, behind, middle
        if key not in self._chunks:
            first = self._place(kinds, 0)
            units = [*range(first, first + len(kinds))]
            moved: dict[int, int] = {}
            if behind:
                # The unit before those behind is left out: it has the middle in its place.
                second = self._place(behind, units[-1] + 1)
                if second > units[-1] + 1:
                    gone, instead = self._units[second - 1], self._units[units[-1]]
                    moved = dict(zip(gone, instead, strict=True))
                units += range(second, second + len(behind))
            self._chunks[key] = self._followed(units, moved, middle)
        return self._chunks[key]

    def _place(self, kinds: tuple[int, ...], start: int) -> int:
        """Return where units of these kinds stand one behind the other, from a place on."""
        count = len(kinds)
        places = range(start, len(self._kinds) - count + 1)
        return next(i for i in places if tuple(self._kinds[i : i + count]) == kinds)

    def _followed(
        self,
        units: Sequence[int],
        moved: Mapping[int, int] = MappingProxyType({}),
        middle: int | None = None,
    ) -> _Chunks:
        """Return what is found of these units as a net; in the place of some nodes are others."""
        nodes = sorted(itertools.chain(*(self._units[unit] for unit in units)))
        net = stage_net(self.net, self.graph, nodes, moved)
        again = self._settings["recompute"].within(self.graph, set(nodes))
        settings = self._settings | {"recompute": again}
        steps = [step_for(net, each, **settings) for each in self._micro_batches]
        names = {
            self.graph.nodes[i].name: number
            for number, unit in enumerate(units)
            for i in self._units[unit]
        }
        return _Chunks(steps, self._within(steps[0]), names, middle)

    def _within(self, step: Step) -> list[list[int]]:
        """Return the nodes of each block that a stage has."""
        places = {node.name: node.index for node in step.graph.nodes}
        own = ([places[each] for each in block if each in places] for block in self._blocks)
        return [block for block in own if block]


class _Chunks:
    """A chunk at several micro-batches: `joined`, or `apart` where tensors live otherwise.

    `names` say in which unit a node is.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        blocks: Sequence[Sequence[int]],
        names: Mapping[str, int],
        middle: int | None,
    ) -> None:
        self._steps, self._names = steps, names
        nodes = steps[0].graph.nodes
        units = [names.get(node.name, len(names)) for node in nodes]
        for node in reversed(nodes):  # what comes in belongs to what reads it first
            for parent in node.parents:
                if nodes[parent].name not in names:
                    units[parent] = min(units[parent], units[node.index])
        self._made = blocks, units, middle
        self.is_alike = all(step.schedule is steps[0].schedule for step in steps)

    @functools.cached_property
    def joined(self) -> list[Chunk]:
        """All of them, followed at once."""
        return [Chunk(self._steps, *self._made)]

    @functools.cached_property
    def apart(self) -> list[Chunk]:
        """Each followed for itself."""
        return [Chunk([step], *self._made) for step in self._steps]

    @functools.cached_property
    def kept(self) -> Array:
        """The bytes that it keeps of a micro-batch, without what comes in."""
        own = [node.index for node in self._steps[0].graph.nodes if node.name in self._names]
        found = [(step.of_nodes(own).kept, np.size(step.graph.batch_size)) for step in self._steps]
        return np.concatenate([np.broadcast_to(*each) for each in found])

    @functools.cached_property
    def received(self) -> Array:
        """The bytes that it keeps of what comes in."""
        return np.concatenate([chunk.waiting[0].kept for chunk in self.followed]) - self.kept

    @functools.cached_property
    def given(self) -> Array:
        """The bytes of its results that it does not keep."""
        return np.concatenate([chunk.waiting[0].given for chunk in self.followed])

    @functools.cached_property
    def coming_in(self) -> Array:
        """The bytes of what comes in."""
        found = [chunk.of_nodes(self._foreign) for chunk in self.followed]
        return np.concatenate(found)

    @functools.cached_property
    def _foreign(self) -> list[int]:
        """The nodes of what comes in."""
        nodes = self._steps[0].graph.nodes
        return [node.index for node in nodes if node.name not in self._names]

    @functools.cached_property
    def alone(self) -> RepeatedStage:
        """A stage of nothing else."""
        return RepeatedStage([[_Place(chunk, 0)] for chunk in self.followed])

    @functools.cached_property
    def is_block_behind_another(self) -> bool:
        """Whether it reads one tensor alone, and all its parameters are gathered with a block's.

        It has a backward pass.
        """
        is_gathered = not any(chunk.rest for chunk in self.followed)
        return len(self._foreign) == 1 and is_gathered and self.has_gradients

    @property
    def followed(self) -> list[Chunk]:
        """Those, or this."""
        return self.joined if self.is_alike else self.apart

    @property
    def is_even(self) -> bool:
        """Whether the middle of all of them may stand for more."""
        return all(each.is_even for each in self.followed)

    @property
    def has_gradients(self) -> bool:
        """Whether all of them have a backward pass."""
        return all(each.has_gradients for each in self.followed)
