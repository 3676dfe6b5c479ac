"""The best of many plans by branch and bound.

The most promising come first, until as many plans are found as are asked for: first groups of one
mesh, as many chunks and one recomputation, by the samples a second that those may have at most that
may fit, then their plans, by what they have; only then is it looked how much memory these take.
What may be follows from bounds that hold of every plan
(paleo.studies.plan_bounds): first of what is computed alone, then of messages, too.
"""

from __future__ import annotations

import functools
import heapq
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

from paleo.core.errors import PaleoError
from paleo.core.frozen import NamedTuple
from paleo.core.quantity import Array, np
from paleo.step.plan_grid import Batches, Columns, Dealt
from paleo.step.recompute import Recompute
from paleo.studies.plan_bounds import Bounds
from paleo.studies.plan_evaluation import Evaluation, Group

#: Sums of floats in another order differ by less than this.
_ROUNDING = 1e-9


class _Bounded(NamedTuple):
    """Plans of a group and one recomputation, of which `may_fit` tells by block and ZeRO.

    `same` are the places of what means that recomputation. `dealt` finds what steps are made of,
    once for all recomputations of a group.
    """

    group: Group
    bounds: Bounds
    dealt: Callable[[], Dealt]
    recompute: Recompute
    same: list[int]
    may_fit: Sequence[Mapping[int, Array]]

    def most_samples(self, seconds: Callable[[Batches], Array]) -> float:
        """Return the most samples a second that any may have whose steps take so long at least."""
        most = 0.0
        for (batches, _), fits in zip(self.group.blocks, self.may_fit, strict=True):
            samples = batches.counts * batches.sizes[:, None] * self.group.mesh.dp
            which = functools.reduce(np.logical_or, fits.values(), np.zeros((), bool))
            most = max(most, float(np.where(which, samples / seconds(batches), 0.0).max()))
        return most * (1 + _ROUNDING)


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


class _Candidate(NamedTuple):
    """Plans of which none has more samples a second, or, if there is a `place`, the one there.

    Those are `bounded` ones whose steps are still to be found, or `priced` ones without memory.
    """

    rate: float
    bounded: _Bounded | None = None
    exchanges: bool = False
    priced: _Priced | None = None
    place: int = -1
    values: Mapping[str, Array] = MappingProxyType({})

    @property
    def order(self) -> tuple[float, int]:
        """What sorts candidates: the most promising first, of equal plans the first in order."""
        return -self.rate, self.place


def fastest(evaluation: Evaluation, count: int) -> Array:
    """Return the places of the plans that fit with most samples a second, best first.

    Of equal ones the first in order come first. What follows of them is put in their places.
    """
    numbers = itertools.count()
    queue = [(*each.order, next(numbers), each) for each in _bounded(evaluation)]
    heapq.heapify(queue)
    best: list[int] = []
    while queue and len(best) < count:
        *_, candidate = heapq.heappop(queue)
        if candidate.place >= 0:
            best.append(candidate.place)
            evaluation.put(np.array([candidate.place]), candidate.values)
            continue
        try:
            found = [*_followed_up(evaluation, candidate, count)]
        except PaleoError as error:
            assert candidate.bounded
            evaluation.note(candidate.bounded.group, error)
        else:
            for each in found:
                heapq.heappush(queue, (*each.order, next(numbers), each))
    return np.array(best, np.int64)


def _followed_up(evaluation: Evaluation, candidate: _Candidate, count: int) -> Iterator[_Candidate]:
    """Yield what comes of bounded plans, or of priced ones: as many as are asked for, at most."""
    if candidate.bounded and not candidate.exchanges:
        yield from _exchanging(candidate.bounded, evaluation.plan.device.memory_capacity)
    elif candidate.bounded:
        yield from _priced(candidate.bounded)
    if candidate.priced:
        yield from _that_fit(evaluation, candidate.priced, count)


def _bounded(evaluation: Evaluation) -> Iterator[_Candidate]:
    """Yield groups with plans that may fit, with the most samples a second that they may have."""
    capacity = evaluation.plan.device.memory_capacity
    for group in evaluation.groups:
        try:
            bounds = Bounds(evaluation.divided(group), evaluation.plan, group)
        except PaleoError as error:
            evaluation.note(group, error)
            continue
        zeros = [z for z in group.zeros if capacity is None or bounds.lasting(z) <= capacity]
        if zeros:
            dealt = functools.cache(functools.partial(evaluation.dealt, group))
            may_fit = [dict.fromkeys(zeros, batches.can_be) for batches, _ in group.blocks]
            for recompute, same in evaluation.meant(bounds.divided).items():
                found = _Bounded(group, bounds, dealt, recompute, same, may_fit)
                rate = found.most_samples(functools.partial(bounds.seconds, recompute))
                yield _Candidate(rate, found)


def _exchanging(bounded: _Bounded, capacity: float | None) -> Iterator[_Candidate]:
    """Yield bounded plans that may fit by ZeRO, with what they have at most if messages count."""
    group, bounds, dealt, recompute, _, may_fit = bounded
    for zero in may_fit[0]:
        own = []
        for batches, _ in group.blocks:
            fits = batches.can_be
            if capacity is not None:
                fits = fits & (bounds.memory(recompute, zero, batches) <= capacity)
            own.append({zero: fits} if fits.any() else {})
        if any(own):
            only = bounded._replace(may_fit=own)
            besides = dealt().besides(zero)
            least = functools.partial(bounds.seconds, recompute, zero=zero, besides=besides)
            yield _Candidate(only.most_samples(least), only, exchanges=True)


def _priced(bounded: _Bounded) -> Iterator[_Candidate]:
    """Yield the plans of a group and recomputation that may fit, by ZeRO, with their steps."""
    group, _, find, recompute, same, may_fit = bounded
    dealt = find()
    for (batches, places), fits in zip(group.blocks, may_fit, strict=True):
        samples = batches.counts * batches.sizes[:, None] * group.mesh.dp
        for zero, part, found in dealt.columns([recompute], [*fits], batches):
            those = fits[zero][:, part]
            if those.any():
                columns = {name: of[0] for name, of in found.items()}
                seconds = sum(columns.values(), np.zeros(()))
                rates = np.where(those, samples[:, part] / seconds, 0.0)
                yield _Candidate(
                    float(rates.max()),
                    priced=_Priced(
                        *(dealt, recompute, zero, batches, part),
                        *(places[same, group.zeros[zero], :, part], those, rates, columns),
                    ),
                )


def _that_fit(evaluation: Evaluation, priced: _Priced, count: int) -> Iterator[_Candidate]:
    """Yield the best of priced plans that fit."""
    capacity = evaluation.plan.device.memory_capacity
    dealt, recompute, zero, batches, part, places, fits, rates, columns = priced
    memory = dealt.memory(recompute, zero, batches, part, capacity)
    fits = fits if capacity is None else fits & (memory <= capacity)
    rows, columns_ = np.nonzero(fits)
    for i in np.lexsort((places[0, rows, columns_], -rates[rows, columns_]))[:count].tolist():
        at = rows[i], columns_[i]
        values = {name: of[at] for name, of in columns.items()} | {"memory_bytes": memory[at]}
        for place in places[(slice(None), *at)].tolist():
            yield _Candidate(float(rates[at]), place=place, values=values)
