"""The best of many plans by branch and bound.

The most promising come first, until as many plans are found as are asked for: first groups of one
mesh, as many chunks and one recomputation, by the samples a second that those may have at most that
may fit, then their plans, by what they have; only then is it looked how much memory these take.
What may be follows from bounds that hold of every plan
(paleo.studies.plan_bounds), those that are found soonest first: of what is computed alone, of
sharing parameters, of memory, then of all messages.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from paleo.core.errors import PaleoError
from paleo.core.frozen import NamedTuple
from paleo.core.quantity import Array, np
from paleo.step.plan_grid import Batches, Besides, Columns, Dealt
from paleo.step.recompute import Recompute
from paleo.studies.plan_bounds import Bounds
from paleo.studies.plan_evaluation import Evaluation, Group

#: Sums of floats in another order differ by less than this.
_ROUNDING = 1e-9


class _Bounded(NamedTuple):
    """Plans of a group, one recomputation and some `zeros`; by block, which `may_fit`.

    `same` are the places of what means that recomputation. By block there are the samples of a step
    and the seconds that it takes at `least`. `dealt` finds what steps are made of, once for all
    recomputations of a group.
    """

    group: Group
    bounds: Bounds
    dealt: Callable[[], Dealt]
    recompute: Recompute
    same: list[int]
    zeros: Sequence[int]
    samples: Sequence[Array]
    may_fit: Sequence[Array]
    least: Sequence[Array]

    def candidate(self, follow: Callable[[_Bounded], Iterator[_Candidate]]) -> _Candidate:
        """Return them with the most samples a second that any of those that may fit may have."""
        rates = (
            np.where(fits, samples / least, 0.0).max()
            for samples, fits, least in zip(self.samples, self.may_fit, self.least, strict=True)
        )
        most = float(max(rates))
        return _Candidate(most * (1 + _ROUNDING), self.group, functools.partial(follow, self))

    def with_besides(self, besides: Besides) -> _Bounded:
        """Return those of one ZeRO whose stages do this besides computing."""
        least = [
            self.bounds.seconds(self.recompute, batches, self.zeros[0], besides)
            for batches, _ in self.group.blocks
        ]
        return self._replace(least=least)

    def within(self, memory: Callable[[Recompute, int, Batches], Array], room: float) -> _Bounded:
        """Return those of one ZeRO whose memory, as far as it is known, is not more than this."""
        may_fit = [
            fits & (memory(self.recompute, self.zeros[0], batches) <= room)
            for (batches, _), fits in zip(self.group.blocks, self.may_fit, strict=True)
        ]
        return self._replace(may_fit=may_fit)


class _Candidate(NamedTuple):
    """Plans of a group of which none has more samples a second; `follow` yields fewer of them.

    Or, if there is a `place`, the plan there.
    """

    rate: float
    group: Group
    follow: Callable[[], Iterable[_Candidate]] = tuple
    place: int = -1
    values: Mapping[str, Array] = MappingProxyType({})

    @property
    def order(self) -> tuple[float, int]:
        """What sorts candidates: the most promising first, of equal plans the first in order."""
        return -self.rate, self.place


class _Priced(NamedTuple):
    """Plans of one recomputation and ZeRO whose steps are known; some `may_fit`.

    `places` are by recomputation that means the same, micro-batch and column.
    """

    dealt: Dealt
    recompute: Recompute
    zero: int
    batches: Batches
    part: slice
    places: Array
    may_fit: Array
    rates: Array
    columns: Columns


def fastest(evaluation: Evaluation, count: int) -> Array:
    """Return the places of the plans that fit with most samples a second, best first.

    Of equal ones the first in order come first. What follows of them is put in their places.
    """
    numbers = itertools.count()
    queue = [(*each.order, next(numbers), each) for each in _bounded(evaluation, count)]
    heapq.heapify(queue)
    best: list[int] = []
    while queue and len(best) < count:
        *_, candidate = heapq.heappop(queue)
        if candidate.place >= 0:
            best.append(candidate.place)
            evaluation.put(np.array([candidate.place]), candidate.values)
            continue
        try:
            found = [*candidate.follow()]
        except PaleoError as error:
            evaluation.note(candidate.group, error)
        else:
            for each in (each for each in found if each.rate > 0):
                heapq.heappush(queue, (*each.order, next(numbers), each))
    return np.array(best, np.int64)


def _bounded(evaluation: Evaluation, count: int) -> Iterator[_Candidate]:
    """Yield groups with plans that may fit, with the most samples a second that they may have."""
    capacity = evaluation.plan.device.memory_capacity
    room = math.inf if capacity is None else capacity
    follow = functools.partial(_sharing, room=room, count=count)
    for group in evaluation.groups:
        try:
            bounds = Bounds(evaluation.divided(group), evaluation.plan, group)
        except PaleoError as error:
            evaluation.note(group, error)
            continue
        zeros = [zero for zero in group.zeros if bounds.lasting(zero) <= room]
        if zeros:
            dealt = functools.cache(functools.partial(evaluation.dealt, group))
            of_all = [batches for batches, _ in group.blocks]
            samples = [each.counts * each.sizes[:, None] * group.mesh.dp for each in of_all]
            may_fit = [each.can_be for each in of_all]
            for recompute, same in evaluation.meant(bounds.divided).items():
                least = [bounds.seconds(recompute, each) for each in of_all]
                own = group, bounds, dealt, recompute, same, zeros
                found = _Bounded(*own, samples, may_fit, least)
                yield found.candidate(follow)


def _sharing(bounded: _Bounded, room: float, count: int) -> Iterator[_Candidate]:
    """Yield bounded plans by ZeRO, with what they have at most for what they share."""
    follow = functools.partial(_that_may_fit, room=room, count=count)
    for zero in bounded.zeros:
        found = bounded._replace(zeros=[zero])
        yield found.with_besides(bounded.dealt().dividing(zero)).candidate(follow)


def _that_may_fit(bounded: _Bounded, room: float, count: int) -> Iterator[_Candidate]:
    """Yield those bounded plans of one ZeRO that may fit."""
    found = bounded.within(bounded.bounds.memory, room)
    yield found.candidate(functools.partial(_handing_on, room=room, count=count))


def _handing_on(bounded: _Bounded, room: float, count: int) -> Iterator[_Candidate]:
    """Yield the same with what they have at most if all messages count, and on the way."""
    found = bounded.within(bounded.bounds.memory_on_the_way, room)
    found = found.with_besides(bounded.dealt().besides(bounded.zeros[0]))
    yield found.candidate(functools.partial(_priced, room=room, count=count))


def _priced(bounded: _Bounded, room: float, count: int) -> Iterator[_Candidate]:
    """Yield bounded plans of one ZeRO whose steps are known."""
    group, _, find, recompute, same, (zero,), *by_block, _ = bounded
    dealt = find()
    for (batches, places), samples, fits in zip(group.blocks, *by_block, strict=True):
        for _, part, found in dealt.columns([recompute], [zero], batches):
            those = fits[:, part]
            if those.any():
                columns = {name: of[0] for name, of in found.items()}
                seconds = sum(columns.values(), np.zeros(()))
                rates = np.where(those, samples[:, part] / seconds, 0.0)
                own = places[same, group.zeros[zero], :, part]
                priced = _Priced(dealt, recompute, zero, batches, part, own, those, rates, columns)
                follow = functools.partial(_that_fit, group, priced, room, count)
                yield _Candidate(float(rates.max()), group, follow)


def _that_fit(group: Group, priced: _Priced, room: float, count: int) -> Iterator[_Candidate]:
    """Yield the best of priced plans that fit."""
    dealt, recompute, zero, batches, part, places, fits, rates, columns = priced
    memory = dealt.memory(recompute, zero, batches, part, room)
    rows, columns_ = np.nonzero(fits & (memory <= room))
    for i in np.lexsort((places[0, rows, columns_], -rates[rows, columns_]))[:count].tolist():
        at = rows[i], columns_[i]
        values = {name: of[at] for name, of in columns.items()} | {"memory_bytes": memory[at]}
        for place in places[(slice(None), *at)].tolist():
            yield _Candidate(float(rates[at]), group, place=place, values=values)
