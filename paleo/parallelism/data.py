"""Data parallelism: every worker has the whole net and a share of the batch.

A step is the computation of one worker and an exchange of all gradients, one after the
other (Qi et al. 2017, section 4.3).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from paleo.costs import Time
from paleo.errors import SettingError
from paleo.estimate import checked_workers, not_counted
from paleo.graph import checked_batch, typical
from paleo.netspec import NetSpec
from paleo.parallelism.plan import Plan, check_together
from paleo.quantity import Quantity, ceil_div

__all__ = [
    "SCALINGS",
    "Computations",
    "DataParallel",
    "DataParallelStep",
    "data_parallel",
    "divided",
]

#: Weak scaling gives every worker the batch; strong scaling divides it among them.
SCALINGS = ("weak", "strong")


@dataclass(frozen=True)
class DataParallelStep:
    """A training step on `workers` workers, in seconds; every field may be an array.

    `batch_size` is the whole step's; `communication` has an entry for each scheme, `times` one
    each for "forward", "backward" and "update": what of them is computation, memory traffic
    and overhead.
    """

    workers: Quantity
    batch_size: Quantity
    forward: Quantity
    backward: Quantity
    update: Quantity
    communication: Mapping[str, Quantity]
    #: Steps in which `batch_size` samples are processed: always one.
    iterations: int = 1
    times: Mapping[str, Time] = field(default_factory=dict)

    @property
    def compute(self) -> Quantity:
        """Forward, backward and update together."""
        return self.forward + self.backward + self.update

    def total(self, scheme: str) -> Quantity:
        """Computation, then communication by this scheme."""
        return self.compute + self.communication[scheme]


class Computations:
    """What one worker computes of a net under a plan, by the samples that it has.

    It is kept, for it is asked for again and again, and the same on any network: plans that differ
    in `network`, `ppp_comm` or `schemes` alone may share it.
    """

    #: So many batch sizes are kept: about as many as share out a million samples (2 MB).
    MOST = 2048

    def __init__(self, net: NetSpec, plan: Plan) -> None:
        self.net = net
        self.plan = plan
        self._known: dict[int, _Computation] = {}

    def suit(self, net: NetSpec, plan: Plan) -> bool:
        """Tell whether they are those of this net under this plan too."""
        alike = replace(plan, **{name: getattr(self.plan, name) for name in _OF_EXCHANGES})
        return net == self.net and alike == self.plan

    def of(self, batch: Quantity) -> _Computation:
        """Return what a worker computes of so many samples, or of an array of such numbers."""
        known = self._known.get(batch) if isinstance(batch, int) else None
        if known is not None:
            return known
        plan = self.plan
        graph = plan.graph(self.net, batch)
        forward, backward = plan.passes(graph)
        num_params = graph.num_params
        found = _Computation(
            forward.upper,
            backward.upper,
            plan.update(num_params),
            graph.precision.parameter_size * num_params,
            {
                "forward": forward.time,
                "backward": backward.time,
                "update": plan.update_time(num_params),
            },
        )
        if isinstance(batch, int):
            self._keep(batch, found)
        return found

    def prepare(self, batches: Iterable[int]) -> None:
        """Compute those of these batches that are not known yet at once, as an array.

        For many batches or layers that is sooner done than one by one, and gives the same. All of
        them are known then, however many they are.
        """
        import numpy as np

        wanted = set(batches)
        for batch in wanted.intersection(self._known):
            self._known[batch] = self._known.pop(batch)  # the newest now, which stay
        asked = self.missing(wanted)
        array = np.array(asked, np.int64)
        found = self.of(array)

        def spread(seconds: Quantity) -> list[float]:
            filled: list[float] = np.broadcast_to(seconds, array.shape).tolist()
            return filled

        forward, backward, update = map(spread, (found.forward, found.backward, found.update))
        times = spread_times(found.times, spread)
        for i, batch in enumerate(asked):
            known = _Computation(forward[i], backward[i], update[i], found.num_bytes, times[i])
            self._keep(batch, known, len(wanted))

    def missing(self, batches: Iterable[int]) -> list[int]:
        """Return those of these batches that are not known yet, in order."""
        return sorted(set(batches).difference(self._known))

    @functools.cached_property
    def num_bytes(self) -> int:
        """The bytes of the gradients, which no batch changes."""
        known = next(iter(self._known.values()), None) or self.of(1)
        return known.num_bytes

    @functools.cached_property
    def left_out(self) -> tuple[str, ...]:
        """The names of operations that the cost model leaves out."""
        plan = self.plan
        return not_counted(typical(self.net, plan.dtype, plan.adapt), plan.cost_model)

    def _keep(self, batch: int, found: _Computation, least: int = 0) -> None:
        """Keep what is found, and of the others the newest; at least so many."""
        while len(self._known) >= max(self.MOST, least):
            self._known.pop(next(iter(self._known)))
        self._known[batch] = found


#: What of a plan is of the exchange alone.
_OF_EXCHANGES = ("network", "ppp_comm", "schemes")


class DataParallel:
    """A net under a plan, with data parallelism: gives the step for batches and workers.

    `computations` are those of a plan that differs in its exchanges alone, to be used again.
    """

    def __init__(self, net: NetSpec, plan: Plan, computations: Computations | None = None) -> None:
        self.net = net
        self.plan = plan
        self.computations = computations or Computations(net, plan)

    def step(
        self, batch_size: Quantity, workers: Quantity, scaling: str = "weak"
    ) -> DataParallelStep:
        """Return the step; see `data_parallel`."""
        if scaling not in SCALINGS:
            raise SettingError(f"scaling: expected weak or strong, got {scaling!r}")
        workers, batch = checked_workers(workers), checked_batch(batch_size)
        check_together(batch, workers)
        own, whole = divided(batch, workers, scaling)
        computation = self.computations.of(own)
        return DataParallelStep(
            workers,
            whole,
            computation.forward,
            computation.backward,
            computation.update,
            {
                scheme: self.plan.communication(computation.num_bytes, workers, scheme)
                for scheme in self.plan.schemes
            },
            times=computation.times,
        )

    def computing(self, own_batch: int) -> Quantity:
        """Return the seconds in which a worker computes a step of so many samples."""
        return self.computations.of(own_batch).seconds

    def exchange(self, workers: int, scheme: str) -> Quantity:
        """Return the seconds in which so many workers exchange all gradients."""
        return self.plan.communication(self.computations.num_bytes, workers, scheme)


class _Computation(NamedTuple):
    """What one worker computes in a step (seconds), and the bytes of its gradients."""

    forward: Quantity
    backward: Quantity
    update: Quantity
    num_bytes: int
    times: Mapping[str, Time]

    @property
    def seconds(self) -> Quantity:
        return self.forward + self.backward + self.update


def spread_times(
    times: Mapping[str, Time], spread: Callable[[Quantity], list[float]]
) -> list[dict[str, Time]]:
    """Return times of arrays as a list of times of numbers, made by `spread` of each part."""
    parts = {
        name: zip(*map(spread, (time.compute, time.memory, time.overhead, time.total)), strict=True)
        for name, time in times.items()
    }
    rows = zip(*parts.values(), strict=True)
    return [{name: Time(*each) for name, each in zip(parts, row, strict=True)} for row in rows]


def divided(batch_size: Any, workers: Any, scaling: str) -> tuple[Any, Any]:
    """Return the samples of one worker and of the whole step; see `data_parallel`."""
    if scaling == "weak":
        return batch_size, batch_size * workers
    return ceil_div(batch_size, workers), batch_size


def data_parallel(
    net: NetSpec, plan: Plan, batch_size: Quantity, workers: Quantity, scaling: str = "weak"
) -> DataParallelStep:
    """Return the step of `net` on `workers` workers.

    Weak scaling gives each worker `batch_size` samples; strong scaling gives each
    ceil(batch_size / workers), so at least one. Either count may be an array. Raises
    SettingError or NetSpecError.
    """
    return DataParallel(net, plan).step(batch_size, workers, scaling)
