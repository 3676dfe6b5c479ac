"""Predicting training steps: nets on a cluster, under a plan, at many worker counts."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Unpack

from paleo.cluster import Price
from paleo.core.errors import Mistakes, PaleoError, SettingError
from paleo.core.frozen import dataclass
from paleo.core.quantity import has_arrays
from paleo.step.declarations import declared
from paleo.step.memory import largest_batch
from paleo.step.parallelism import (
    PARALLELISMS,
    Asked,
    Computations,
    DataParallel,
    Parallelism,
    divided,
)
from paleo.step.plan import Plan, check_together
from paleo.step.results import Recommendation, Run, Simulation
from paleo.step.scenario import Scenario, ScenarioLike, SimulateSettings, asked
from paleo.studies.datasets import Schedule
from paleo.studies.knee import Curve, balance, curve, knee, own_batches
from paleo.studies.training import (
    PowerSettings,
    TokenSettings,
    Training,
    TrainingSettings,
    check_tokens,
    rates_of,
    schedule_of,
)

#: Layers that differ, times batch sizes, from which arrays are quicker, NumPy's import and all.
_WORTH_ARRAYS = 300
#: So many are computed at once whether or not anybody will ask.
_FEW_BATCHES = 64


class SimulatedSettings(SimulateSettings, TokenSettings, PowerSettings, total=False):
    """Of steps at many worker counts, and of the whole training where its tokens are given."""

    price: Annotated[float | str | Price | None, declared(TrainingSettings)["price"]]
    prices: Annotated[str | os.PathLike[str] | None, declared(TrainingSettings)["prices"]]


def simulate(
    nets: ScenarioLike | Iterable[ScenarioLike],
    *,
    computations: Computations | None = None,
    **settings: Unpack[SimulatedSettings],
) -> Simulation:
    """Predict training steps of one net or several.

    `nets`, `device` and `network` are names, paths of files, or objects; a Scenario has settings
    already, of which those that are given replace some. `batch_size` is one worker's in weak
    scaling, all workers' in strong scaling, and replaces the file's. `scaling` and `schemes` are
    for `parallel` "data" alone, `workers` for "data" and "single_process", where the batch is all
    workers', `hybrid_workers` for "hybrid" alone.
    `ppp_comp` and `ppp_comm` are the shares of peak that computation and communication reach, above
    0 and up to 1. Each convolution takes the quickest algorithm that `conv_library` offers (one of
    paleo.costs.convolutions.LIBRARIES; None: what the cost model takes by itself) within a
    `workspace` of so many bytes, or a text such as "4 GiB"; with `use_only_gemm`, the quickest
    matrix product. `dtype` is one of paleo.core.tensor.PRECISIONS; with `fuse`, pointwise
    operations run in the kernels before them, as paleo.net.fusion says. `importing` is for files of
    other frameworks, as in `load`; `plan` is a plan file of one, whose settings hold where no
    others are given. With the `tokens` that are read it is said what the whole training takes and
    costs, at the `price` and the `power` of a device. `computations`, of this one net on this
    device and so on, are used again: what they know is not computed anew. Raises a PaleoError with
    every mistake in settings and files.

    >>> simulation = paleo.simulate("alex_v2", device="K40", workers=16, cost_model="paleo2017")
    >>> (step,) = simulation.runs[0].rows
    >>> step.best_scheme
    'ButterflyAllReduce'
    >>> round(1e3 * step.compute), round(1e3 * step.total("TreeAllReduce"))
    (175, 1463)
    """
    mistakes = Mistakes()
    scenarios, found = asked(nets, SimulatedSettings, settings, mistakes)
    schedule = schedule_of(found, mistakes)
    mistakes.raise_as(PaleoError)
    runs = [run for each in scenarios for run in runs_of(each, mistakes, computations)]
    if schedule and schedule.tokens is not None:
        for each in scenarios:
            mistakes.check(check_tokens, schedule, each)
        runs = [_with_training(run, schedule, found) for run in runs]
    mistakes.raise_as(PaleoError)
    return Simulation(tuple(runs))


def _with_training(run: Run, schedule: Schedule, found: Mapping[str, Any]) -> Run:
    """Return a run with what the whole training takes and costs.

    Neither cost nor energy is known of devices of several kinds.
    """
    device = run.plan.device
    if run.plan.other_devices:
        return replace(run, train=functools.partial(Training, schedule=schedule))
    rates = rates_of(device, found["price"], found["prices"], found["power"])
    train = functools.partial(Training, schedule=schedule, price=rates.price, power=rates.power)
    return replace(run, train=train, notes=(*run.notes, *rates.notes))


def runs_of(
    scenario: Scenario, mistakes: Mistakes, computations: Computations | None = None
) -> Iterator[Run]:
    """Yield the runs of a scenario, one for each scaling; notes what is wrong.

    On devices of several kinds there is one for each number of workers, too.
    """
    if computations and not computations.suit(scenario.net, scenario.plan):
        raise SettingError("computations: they are of another net, or under another plan")
    kind, case = PARALLELISMS[scenario.parallel], _Case(scenario, computations)
    # A step of devices of several kinds has a row for each kind: it is a run of its own.
    cases = [case]
    if kind.has_others:
        each = (replace(scenario, workers=(count,)) for count in scenario.workers)
        cases = [_Case(one, case.computed) for one in each]
    for scaling in scenario.scaling if kind.divides else [kind.scaling]:
        for one in cases:
            run = mistakes.check(one.run, kind, scaling)
            if run:
                yield run


@dataclass(frozen=True)
class _Case:
    """A scenario; each method makes a Run of it."""

    scenario: Scenario
    computations: Computations | None = None

    @property
    def batch_size(self) -> int:
        batch: Any = self.scenario.batch_size
        return int(batch)

    def _at_once(self, scaling: str) -> int:
        """Return the samples of a batch that one worker alone computes at a time."""
        own, _ = divided(self.batch_size, 1, scaling, self.scenario.plan.accumulate)
        return int(own)

    @functools.cached_property
    def _data(self) -> DataParallel:
        return DataParallel(self.scenario.net, self.scenario.plan, self.computations)

    @property
    def computed(self) -> Computations:
        """What one worker computes, which is kept."""
        return self._data.computations

    def run(self, kind: Parallelism, scaling: str | None = None) -> Run:
        """Return the run under a kind of parallelism."""
        scenario, plan = self.scenario, self.scenario.plan
        workers = scenario.workers_of(kind.workers_setting)
        if scaling is not None:
            check_together(self.batch_size * plan.accumulate, max(workers))
            one = self._at_once(scaling)
            batches = {divided(one, count, scaling)[0] for count in workers}
            if scaling == "strong":
                on_curve = own_batches(one)
                if kind.scales and len(on_curve) <= _FEW_BATCHES:  # curves will ask for them
                    batches.update(on_curve)
            self._prepare(batches)
        computations = self.computed
        found = kind.predict(
            Asked(scenario.net, plan, self.batch_size, workers, scaling, computations=computations)
        )
        notes, left_out = [*scenario.net.notes, *found.notes], computations.left_out
        if plan.convolution_note and scenario.has_convolutions:
            notes = [plan.convolution_note, *notes]
        notes += plan.notes_on(scenario.net)
        if plan.recompute.mode != "none":
            notes += plan.recompute.notes(plan.graph(scenario.net, None))
        if kind.scales or kind.has_others:
            every = [found.whole.workers] if kind.has_others and found.whole else workers
            notes += _notes_on_links(plan, every)
        if left_out:
            notes.append(f"not counted by {plan.cost_model.name}: {', '.join(left_out)}")
        notes += scenario.notes
        return Run(
            scenario=scenario,
            scaling=scaling,
            rows=found.steps,
            not_counted=left_out,
            notes=tuple(notes),
            step=found.whole,
            worth=Recommendation()
            if kind.shares_net
            else _Worth(self, scaling if kind.scales else None),
            data=self._data if kind.scales else None,
        )

    def _prepare(self, own_batches: Iterable[int]) -> None:
        """Compute these batches of one worker at once, if that is sooner done."""
        computations, batches = self.computed, list(own_batches)
        missing = computations.missing(batches)
        if len(missing) > 1 and (has_arrays() or self._is_much(len(missing))):
            with contextlib.suppress(PaleoError):  # which is then said of each by itself
                computations.prepare(batches)

    def _is_much(self, batches: int) -> bool:
        """Tell whether so many batch sizes of this net are sooner computed by NumPy."""
        layers = {spec.layer for spec in self.scenario.net.few.layers}
        return len(layers) * batches >= _WORTH_ARRAYS

    @functools.cached_property
    def largest_batch(self) -> int | None:
        """The largest batch that a worker trains, None where that is not known."""
        plan = self.scenario.plan
        capacity = plan.device.memory_capacity
        if capacity is None:
            return None
        try:
            return largest_batch(self.scenario.net, capacity, **plan.in_memory)
        except PaleoError:  # a net that only the conventions of this cost model can take
            return None

    def curves(self, scaling: str | None) -> dict[str, Curve]:
        """Return the curve of each scheme; without scaling there is none."""
        if scaling is None:
            return {}
        if scaling == "strong":
            self._prepare(own_batches(self._at_once(scaling)))
        schemes = self.scenario.plan.exchange_schemes
        return {name: curve(self._data, self.batch_size, scaling, name) for name in schemes}


class _Worth(Recommendation):
    """What is worth it of a case; without scaling, only what fits."""

    def __init__(self, case: _Case, scaling: str | None) -> None:
        self._case, self._scaling = case, scaling

    @functools.cached_property
    def _curves(self) -> dict[str, Curve]:
        return self._case.curves(self._scaling)

    @functools.cached_property
    def knee(self) -> dict[str, int | None]:
        return {scheme: knee(found) for scheme, found in self._curves.items()}

    @functools.cached_property
    def balance(self) -> dict[str, int | None]:
        return {scheme: balance(found) for scheme, found in self._curves.items()}

    @functools.cached_property
    def largest_batch(self) -> int | None:
        is_split = self._scaling is None and self._case.scenario.net.splits
        return None if is_split else self._case.largest_batch


def _notes_on_links(plan: Plan, workers: Sequence[int]) -> list[str]:
    """Return what a reader should know of the nodes and links that so many workers use."""
    if plan.cluster is None and plan.cost_model.conventions.exchanges_after_all:
        return []
    # Here, since the model of 2017 knows no nodes, and starts sooner without.
    from paleo.studies.explain_exchange import crowded_notes, unfilled_notes

    return [*unfilled_notes(plan, workers), *crowded_notes(plan, max(workers))]
