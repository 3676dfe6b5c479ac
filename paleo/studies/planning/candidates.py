"""Plans to choose from, as arrays: what each takes, on what, and what it holds."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from paleo.core.attributes import Ends, at_ends
from paleo.core.errors import PaleoError
from paleo.core.frozen import dataclass
from paleo.core.quantity import Array, np
from paleo.costs.error_bands import Band
from paleo.step.memory import footprints
from paleo.step.parallelism import DataParallel
from paleo.step.parallelism.data import Worker
from paleo.step.pieces import Step
from paleo.step.plan import Plan
from paleo.step.scenario import Scenario
from paleo.step.utilization import tokens_of
from paleo.studies.planning.space import batches, mesh_axes, turns, worker_counts
from paleo.studies.plans import Plans, plans
from paleo.studies.training import Rates

#: What is no axis of `paleo.plans`: each combination of values is asked for by itself.
_APART = ("cp", "ep", "schedule", "sequence_parallel")
#: Why a batch of all devices cannot be.
_UNDIVIDED = "global_batch: the samples do not divide among devices and turns"
#: What a step is made of where devices have copies of a net.
_COMPUTATION, _EXCHANGE, _FORWARD = "computation", "exchange of gradients", "forward"
#: What the time of a request consists of.
FIRST, OTHERS = "first_token", "other_tokens"

#: What plans on a mesh have in common whose seconds are found together.
_FOUND_TOGETHER = ("num_workers", "tp", "pp", "interleave")
#: What candidates have as arrays, besides ends, settings and parts.
_ARRAYS = ("seconds", "communication", "batch", "memory")


@dataclass(frozen=True, eq=False)
class Candidates:
    """Plans of a scenario that can be, as arrays of one length; whether they fit is not asked yet.

    `settings` are by the name of an option what each plan has; what all have is the scenario's.
    `seconds` are those of a step, in inference of a batch, which consist of `parts`; of these
    `communication` is messages that nothing hides. `low` and `high` are the ends of the error band
    of `seconds`, None where that is not known. `batch` are samples in it, of `tokens` each, and
    `memory` bytes of the fullest device. `considered` counts plans with those that cannot be, of
    which `refused` says why, how often. `anew` finds the seconds of plans at some places if links
    had so many times the bandwidth; None where nothing is sent.
    """

    scenario: Scenario
    rates: Rates
    settings: Mapping[str, Array]
    seconds: Array = field(repr=False)
    parts: Mapping[str, Array] = field(repr=False)
    communication: Array = field(repr=False)
    ends: Ends[Array] = field(repr=False)
    band: Band | None
    batch: Array = field(repr=False)
    memory: Array = field(repr=False)
    tokens: int | None
    considered: int
    refused: Mapping[str, int] = field(default_factory=dict)
    anew: Callable[[float, Array], Array] | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.seconds)

    @functools.cached_property
    def workers(self) -> Array:
        """How many devices there are."""
        return self.settings["num_workers"]

    @functools.cached_property
    def device_seconds(self) -> Array:
        """Seconds of all devices together, for a sample."""
        found: Array = self.seconds * self.workers / self.batch
        return found

    @property
    def serves_requests(self) -> bool:
        """Whether they are deployments of a language model, whose samples are requests."""
        return FIRST in self.parts

    @property
    def first_token(self) -> Array:
        """Seconds to a request's first token; NaN where plans are no deployments."""
        return self._of_requests(FIRST)

    @property
    def other_tokens(self) -> Array:
        """Seconds of each other token of a request; NaN where plans are no deployments."""
        return self._of_requests(OTHERS) / max((self.tokens or 1) - 1, 1)

    def _of_requests(self, part: str) -> Array:
        # Where all takes longer, so does each part.
        whole = sum(self.parts.values(), np.zeros(len(self)))
        found = self.parts.get(part, np.full(len(self), np.nan))
        return found * self.seconds / np.where(whole > 0, whole, 1.0)

    @property
    def capacity(self) -> int | None:
        """Bytes of a device, None where that is not known."""
        return self.scenario.plan.device.memory_capacity

    @property
    def place(self) -> str:
        """What they run on: the name of a cluster, or of a device."""
        plan = self.scenario.plan
        return plan.cluster.name if plan.cluster else plan.device.name

    @property
    def dtype(self) -> str:
        """The type of elements."""
        return self.scenario.plan.dtype

    @functools.cached_property
    def ways(self) -> Array:
        """Numbers that are the same for plans whose seconds are found together."""
        if "tp" not in self.settings:
            return np.zeros(len(self), np.int64)
        columns = [self.settings[name] for name in _FOUND_TOGETHER]
        _, found = np.unique(columns, axis=1, return_inverse=True)
        return np.ravel(found)

    def only(self, places: Array) -> Candidates:
        """Return the plans at some places."""
        low, high = self.ends
        anew = self.anew
        return replace(
            self,
            settings={name: of[places] for name, of in self.settings.items()},
            parts={name: of[places] for name, of in self.parts.items()},
            ends=(None if low is None else low[places], None if high is None else high[places]),
            anew=anew and (lambda factor, own: anew(factor, places[own])),
            **{name: getattr(self, name)[places] for name in _ARRAYS},
        )

    def longer(self, factor: float) -> Candidates:
        """Return the plans as they are if all of a step takes so many times as long."""
        return replace(self, seconds=factor * self.seconds)

    def with_bandwidth(self, factor: float) -> Candidates:
        """Return the plans as they are if links have so many times the bandwidth."""
        if self.anew is None or not len(self):
            return self
        return replace(self, seconds=self.anew(factor, np.arange(len(self))))


def with_bandwidth(plan: Plan, factor: float) -> Plan:
    """Return a plan with links of so many times the bandwidth, and the latency that they have."""
    changed = operator.methodcaller("reaching", factor)
    return replace(
        plan,
        cluster=plan.cluster and plan.cluster.with_networks(changed),
        network=changed(plan.network),
    )


def on_mesh(
    scenario: Scenario, rates: Rates, given: Mapping[str, Any], most: int | None
) -> Iterator[Candidates]:
    """Yield the plans in which devices share the net, of settings that are given or usual.

    `most` devices there are at most. Each has a batch of all devices, the same for all numbers of
    them. Raises a PaleoError for settings that plans as arrays do not know.
    """
    workers = given.get("workers") or worker_counts(scenario, most, on_mesh=True)
    axes = mesh_axes(scenario, workers, given)
    apart = [axes.pop(name) for name in _APART]
    both = apart[_APART.index("sequence_parallel")]
    for values in itertools.product(*apart):
        chosen = dict(zip(_APART, values, strict=True))
        grid = dict(axes)
        if chosen["sequence_parallel"] and False in both and len(grid["tp"]) > 1:
            # One device alone divides no positions: the plan is the same as without.
            grid["tp"] = [tp for tp in grid["tp"] if tp > 1]
        yield _of_plans(scenario, rates, grid, chosen)


def _of_plans(
    scenario: Scenario, rates: Rates, grid: Mapping[str, list[Any]], chosen: Mapping[str, Any]
) -> Candidates:
    own = dict(grid)
    try:
        found = plans(scenario, own.pop("workers"), **own, **chosen)
    except PaleoError as error:
        count = math.prod(map(len, grid.values()))
        return none_of(scenario, rates, count, {str(error.mistakes[0]): count})
    can_be = found.valid
    kept = np.flatnonzero(can_be)
    settings = {
        "num_workers" if name == "workers" else name: values[can_be]
        for name, values in found.settings.items()
    }
    settings |= {name: np.full(can_be.sum(), value) for name, value in chosen.items()}
    seconds = found.step_s[can_be]
    # A scenario of itself has no degrees, which its band is of.
    band = replace(scenario.plan, tp=2).band
    return Candidates(
        scenario,
        rates,
        settings,
        seconds,
        {name: found[name][can_be] for name in found.parts},
        found.exposed_communication_s[can_be],
        at_ends(band.ends if band else (None, None), lambda factor: factor * seconds),
        band,
        settings["global_batch"],
        found.memory_bytes[can_be],
        found.tokens,
        len(found),
        _refused(found),
        lambda factor, places: found.seconds_under(
            with_bandwidth(found.scenario.plan, factor), kept[places]
        ),
    )


def _refused(found: Plans) -> Mapping[str, int]:
    counts = Counter(map(str, found.reasons.tolist()))
    del counts[""]
    return counts


def none_of(
    scenario: Scenario, rates: Rates, considered: int, refused: Mapping[str, int]
) -> Candidates:
    """Return no plans of some that were considered."""
    empty = np.zeros(0)
    names = {"num_workers": empty}
    return Candidates(
        scenario, rates, names, empty, {}, empty, (None, None), None, empty, empty, None,
        considered, refused,
    )  # fmt: skip


def data_parallel(
    scenario: Scenario, rates: Rates, given: Mapping[str, Any], most: int | None
) -> Iterator[Candidates]:
    """Yield the plans in which each device has a copy of the net.

    Each has so many samples; or all share a batch, in so many turns.
    """
    workers = given.get("workers") or worker_counts(scenario, most, on_mesh=False)
    shared = given.get("global_batch")
    sizes = list(shared) if shared else batches(given.get("batch_size"))
    again = given.get("recompute") or [scenario.plan.recompute]
    there, lacking = _there_are(scenario, workers, len(sizes))
    for recompute, accumulate in itertools.product(again, turns(given.get("accumulate"), shared)):
        plan = replace(scenario.plan, recompute=recompute, accumulate=accumulate)
        one = replace(scenario, plan=plan)
        batch, count = (each.ravel() for each in np.meshgrid(sizes, there, indexing="ij"))
        refused = dict(lacking)
        if shared:
            divides = batch % (count * accumulate) == 0
            if not divides.all():
                refused[_UNDIVIDED] = int((~divides).sum())
            batch, count = batch[divides], count[divides]
        considered = len(sizes) * len(workers)
        if not len(batch):
            yield none_of(one, rates, considered, refused)
            continue
        data = DataParallel(one.net, plan)
        step = data.step(batch, count, "strong" if shared else "weak")
        worker = data.worker(count, step.worker_batch_size)
        yield _of_steps(one, rates, step, worker, considered, refused)


def _there_are(
    scenario: Scenario, workers: Sequence[int], each: int
) -> tuple[list[int], dict[str, int]]:
    """Return the numbers of devices that there are, and why not of others, of `each` so many."""
    there, lacking = [], {}
    for count in workers:
        try:
            scenario.plan.group(count)
            there.append(count)
        except PaleoError as error:
            lacking[str(error.mistakes[0])] = each
    return there, lacking


def _of_steps(
    scenario: Scenario,
    rates: Rates,
    step: Step,
    worker: Worker,
    considered: int,
    refused: Mapping[str, int],
) -> Candidates:
    """Return plans of a step of arrays, each by the scheme that is quickest for it."""
    plan = scenario.plan
    own = np.asarray(step.worker_batch_size)
    shape = own.shape
    schemes = step.exact_schemes or list(step.exchanges)
    totals = np.stack([np.broadcast_to(step.total(scheme), shape) for scheme in schemes])
    best = np.argmin(totals, axis=0)

    def chosen(values: Sequence[Any]) -> Array:
        whole = np.stack([np.broadcast_to(each, shape) for each in values])
        found: Array = np.take_along_axis(whole, best[None], axis=0)[0]
        return found

    def anew(factor: float, places: Array) -> Array:
        exchanges = worker.under_plan(with_bandwidth(plan, factor)).exchanges()
        changed = replace(step, exchanges=exchanges)
        found = [np.broadcast_to(changed.total(scheme), shape) for scheme in schemes]
        return functools.reduce(np.minimum, found)[places]

    exposed = chosen([step.exposed_communication(scheme) for scheme in schemes])
    seconds = chosen(list(totals))
    settings = {
        "num_workers": np.asarray(step.workers),
        "batch_size": own,
        "global_batch": np.asarray(step.batch_size),
        "accumulate": np.full(shape, plan.accumulate),
        "recompute": np.full(shape, str(plan.recompute)),
        "scheme": np.array(schemes)[best],
    }
    return Candidates(
        scenario,
        rates,
        settings,
        seconds,
        {_COMPUTATION: seconds - exposed, _EXCHANGE: exposed},
        exposed,
        at_ends(step.ends, lambda end: chosen([end.total(scheme) for scheme in schemes])),
        step.band,
        settings["global_batch"],
        _memory(scenario, own, training=True),
        tokens_of(plan.trained(scenario.net)),
        considered,
        refused,
        anew,
    )


def _memory(scenario: Scenario, own: Array, *, training: bool) -> Array:
    """Return the bytes that a device needs at each of these batches; 0 where it is not known."""
    plan = scenario.plan
    of: Mapping[str, Any] = plan.in_memory if training else {"training": False, "dtype": plan.dtype}
    distinct = np.unique(own).tolist()
    try:
        found = footprints(scenario.net, distinct, **of)
    except PaleoError:  # a net that only the conventions of the cost model can take
        return np.zeros(own.shape, np.int64)
    peaks = np.array([int(found[batch].peak) for batch in distinct], np.int64)
    needed: Array = peaks[np.searchsorted(distinct, own)]
    return needed


def inference(scenario: Scenario, rates: Rates, given: Mapping[str, Any]) -> Iterator[Candidates]:
    """Yield the plans in which a device answers batches, of sizes that are given or usual."""
    plan = scenario.plan
    own = np.array(batches(given.get("batch_size")), np.int64)
    graph = plan.graph(scenario.net, own, training=False)
    seconds = np.broadcast_to(np.asarray(plan.inference(graph).upper, float), own.shape)
    band = plan.inference_band
    yield Candidates(
        scenario,
        rates,
        {"num_workers": np.ones(own.shape, np.int64), "batch_size": own},
        seconds,
        {_FORWARD: seconds},
        np.zeros(own.shape),
        at_ends(band.ends if band else (None, None), lambda factor: factor * seconds),
        band,
        own,
        _memory(scenario, own, training=False),
        tokens_of(scenario.net),
        len(own),
    )
