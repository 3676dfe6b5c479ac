"""What one worker computes, of every batch that a sweep asks for, each priced once.

Distinct batches are priced as arrays, some thousands at a time, and of each a few numbers are kept:
the seconds of each pass and of each bucket of gradients. Steps gather them, so that settings which
differ in workers, links or schemes alone take no more than what is sent takes to work out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any

from paleo.core.checks import MAX_COUNT
from paleo.core.errors import PaleoError
from paleo.core.quantity import Array, is_array, np
from paleo.net.spec import NetSpec
from paleo.step.memory import footprint
from paleo.step.parallelism.computations import Computation, Computations
from paleo.step.parallelism.overlap import Made, buckets
from paleo.step.plan import Plan

#: Batches that are priced at a time: arrays of them are in the processor's cache.
AT_ONCE = 8192
#: So many batches are kept at most, each some ten numbers; then others take their place.
_MOST = 1 << 20
#: The places of batches up to this are looked up in a table, of others by their order.
_LARGEST_IN_TABLE = 1 << 22


class Priced(Computations):
    """Computations of arrays of batches. Those of plans with other links or schemes are the same.

    With `memory` they know the bytes that a worker needs, too.
    """

    def __init__(self, net: NetSpec, plan: Plan, memory: bool = False) -> None:
        super().__init__(net, plan)
        self.memory = memory
        #: Distinct batches in order, what is known of each as columns, and one to be filled in.
        self._batches: Array = np.empty(0, np.int64)
        self._columns: Array = np.empty((0, 0))
        self._like: Computation | None = None
        self._table: Array = np.empty(0, np.int32)

    def suit(self, net: NetSpec, plan: Plan) -> bool:
        """Tell whether they are those of this net under this plan, with the same buckets."""
        mine = self.plan
        is_sent_alike = (mine.exchange, mine.encoding) == (plan.exchange, plan.encoding)
        return net is self.net and is_sent_alike and super().suit(net, plan)

    def of(self, batch: Any) -> Computation:
        """Return what a worker computes of an array of batches: seconds, not what bounds them."""
        if not is_array(batch):
            return super().of(batch)
        found = self._gathered(batch)
        assert self._like
        pieces, made = self._like.pieces, self._like.made
        return Computation(
            tuple(piece._replace(seconds=own) for piece, own in zip(pieces, found, strict=False)),
            self._like.num_bytes,
            tuple(
                one._replace(seconds=own)
                for one, own in zip(made, found[len(pieces) :], strict=False)
            ),
        )

    def memory_of(self, batch: Array) -> Array:
        """Return the bytes of a worker of these batches, NaN where they are not known."""
        found: Array = self._gathered(batch)[-1]
        return found

    def learn(self, batches: Iterable[Array], ahead: Sequence[int] = ()) -> None:
        """Price those of these batches that are not known yet; if there are, others `ahead`, too.

        Few at a time take each some ten times as long.
        """
        known = [np.unique(each) for each in batches]
        wanted: Array = np.unique(np.concatenate(known)) if known else np.empty(0, np.int64)
        if np.isin(wanted, self._batches, assume_unique=True).all():
            return
        wanted = np.union1d(wanted, np.asarray(ahead, np.int64))
        new = np.setdiff1d(wanted, self._batches, assume_unique=True)
        if len(self._batches) + len(new) > _MOST:
            self._batches, self._columns, new = np.empty(0, np.int64), np.empty((0, 0)), wanted
        columns = [self._columns] if len(self._batches) else []
        columns += [self._priced(new[i : i + AT_ONCE]) for i in range(0, len(new), AT_ONCE)]
        every = np.concatenate([self._batches, new])
        order = np.argsort(every)
        self._batches, self._columns = every[order], np.concatenate(columns, axis=1)[:, order]
        largest = int(self._batches[-1])
        self._table = np.empty(0, np.int32)
        if largest <= _LARGEST_IN_TABLE:
            self._table = np.full(largest + 1, -1, np.int32)
            self._table[self._batches] = np.arange(len(self._batches), dtype=np.int32)

    def _gathered(self, batch: Array) -> Array:
        """Return the columns of these batches, each of their shape."""
        places = self._places(batch)
        if places is None:
            self.learn([batch])
            places = self._places(batch)
        assert places is not None
        # With `take`, rows are gathered one after the other.
        return np.array([row.take(places) for row in self._columns])

    def _places(self, batch: Array) -> Array | None:
        """Return where batches stand; None if one is not known."""
        if not self._batches.size or batch.max() > self._batches[-1]:
            return None
        found: Array
        if self._table.size:
            found = self._table[batch]
            return None if found.min() < 0 else found
        found = np.searchsorted(self._batches, batch)
        return found if bool((self._batches[found] == batch).all()) else None

    def _priced(self, batches: Array) -> Array:
        """Return the columns of distinct batches: seconds of pieces and buckets, and memory."""
        whole = self._computed(batches, bounds=False)
        made = self._in_buckets(whole.made)
        if self._like is None:
            pieces = tuple(piece._replace(time=None) for piece in whole.pieces)
            self._like = Computation(pieces, whole.num_bytes, made)
            vars(self).setdefault("num_bytes", whole.num_bytes)
        seconds = [piece.seconds for piece in whole.pieces] + [one.seconds for one in made]
        columns = [np.broadcast_to(each, batches.shape) for each in seconds]
        if self.memory:
            columns.append(self._needed(batches))
        return np.array(columns, np.float64)

    def _in_buckets(self, made: tuple[Made, ...]) -> tuple[Made, ...]:
        """Return the gradients of each bucket as one, where a step would put them together.

        Who sends what there is at some time needs each, and so does what packs by bytes.
        """
        by = self.plan.exchange
        if by.bucket is None or by.cycle or not self.plan.encoding.is_plain:
            return made
        found = buckets(made, by.bucket, by.first or by.bucket)
        return tuple(Made(bucket.seconds, bucket.num_bytes) for bucket in found)

    def _needed(self, batches: Array) -> Array:
        """Return the bytes of a worker in training; NaN where they are not known."""
        found = np.full(batches.shape, np.nan)
        settings = self.plan.in_memory
        with contextlib.suppress(PaleoError):  # a net that only a cost model's conventions take
            most = footprint(self.net, int(batches[-1]), **settings).peak
            if most > MAX_COUNT:  # an array of counts may overflow
                return found
            found[-1] = most
            # Dimensions of 1 are repeated, but not those of an array.
            is_one = batches == 1
            if is_one.any():
                found[is_one] = footprint(self.net, 1, **settings).peak
            if not is_one.all():
                found[~is_one] = footprint(self.net, batches[~is_one], **settings).peak
        return found
