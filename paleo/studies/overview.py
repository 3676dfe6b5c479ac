"""A net on a cluster seen from all sides: what the demo and the report show.

A `Study` is of one net on one device and keeps what it has computed, so that another network,
number of workers, dataset or price is answered at once. An `Overview` is what it says of one plan.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import field, replace
from typing import Annotated, Any, Unpack

from paleo.cluster import Cluster, Price, find_cluster
from paleo.core.errors import Mistakes, PaleoError, SettingError
from paleo.core.frozen import dataclass
from paleo.net.importers import ImportOptions
from paleo.step.declarations import check_names, checked_number, declared, several
from paleo.step.distributed_settings import (
    SCHEMES,
    ExchangeSettings,
    NetworkSettings,
    SynchronousSettings,
)
from paleo.step.loader import LoaderSettings
from paleo.step.memory import Fit, fit
from paleo.step.mesh_settings import MeshSettings, of_mesh
from paleo.step.parallelism import PARALLELISMS, Computations
from paleo.step.pieces import Step, WholeStep
from paleo.step.plan import COMPUTED
from paleo.step.results import Run
from paleo.step.scenario import Scenario, ScenarioLike, asked, workers_of
from paleo.step.settings import (
    BATCH_SIZE,
    WORKERS,
    GradientSettings,
    OptimizerSettings,
    PricingSettings,
    RecomputeSettings,
    found_settings,
)
from paleo.studies.datasets import Schedule
from paleo.studies.fitting import Remedy, remedies
from paleo.studies.mesh_memory import MeshMemory, memory_of
from paleo.studies.mesh_stages import StageTime, meshed_of, stages_of
from paleo.studies.simulate import runs_of
from paleo.studies.summary import NetSummary, summarize
from paleo.studies.training import (
    TokenSettings,
    Training,
    TrainingSettings,
    check_tokens,
    price_of,
    schedule_of,
)

#: What of the settings changes what a worker computes: exchanges that overlap want to know
#: when gradients are there.
_COMPUTED = (*COMPUTED, "overlap", "accumulate")
#: So many summaries and footprints of a net are kept: what is shown is taken away as a file next.
_KEPT = 1


class StudySettings(PricingSettings, total=False):
    """Of a net on a device."""

    importing: ImportOptions | None


class OverviewSettings(
    TrainingSettings,
    TokenSettings,
    RecomputeSettings,
    GradientSettings,
    NetworkSettings,
    ExchangeSettings,
    SynchronousSettings,
    OptimizerSettings,
    MeshSettings,
    LoaderSettings,
    total=False,
):
    """Of training in a cluster. `schemes` are those to have, beside `scheme`."""

    schemes: Annotated[str | Sequence[str] | None, SCHEMES]

    batch_size: Annotated[int, BATCH_SIZE]
    workers: Annotated[int, replace(WORKERS, default=1, check=checked_number("workers"))]
    counts: Annotated[
        int | Sequence[int],
        replace(WORKERS, check=several("counts", checked_number("num_workers"), int | float)),
    ]


class _AllSettings(StudySettings, OverviewSettings, total=False):
    """Of both."""


class Study:
    """One net on one device by one cost model; `overview` says what it does in a cluster.

    Parameters mean what they do in `paleo.simulate`. Raises a PaleoError with every mistake.
    """

    def __init__(self, net: ScenarioLike, **settings: Unpack[StudySettings]) -> None:
        mistakes = Mistakes()
        scenarios, _ = asked(net, StudySettings, settings, mistakes)
        mistakes.raise_as(PaleoError)
        (scenario,) = scenarios
        self.scenario = scenario
        self.net, self.device = scenario.net, scenario.plan.device
        # Computations are the same on all networks.
        self._computations = functools.lru_cache(_KEPT)(functools.partial(_computations, scenario))
        # Not of methods: a study that holds itself is freed only when garbage is looked for.
        self._summary = functools.lru_cache(_KEPT)(functools.partial(summarize, scenario))
        self._fit = functools.lru_cache(_KEPT)(
            functools.partial(fit, scenario.net, device=self.device)
        )

    def overview(self, **settings: Unpack[OverviewSettings]) -> Overview:
        """Return what there is to see of data-parallel training, or of that on a mesh.

        `workers` is the number to look at; the curves have it and `counts`, by default as far as
        a `cluster` has devices, which are to be the study's. `scheme` is the communication scheme
        to look at, beside `schemes`, or those that the cost model takes by itself; None is the best
        of these. The others are those of `paleo.metrics`.
        Raises a PaleoError with every mistake.
        """
        mistakes = Mistakes()
        found, schedule = checked_plan(**settings)
        workers = found["workers"]
        of_step = {
            name: found[name]
            for name in (
                *("ppp_comm", "batch_size", "scaling", "schemes", *COMPUTED),
                *declared(SynchronousSettings),
                *declared(MeshSettings),
                *declared(LoaderSettings),
            )
        }
        own = None if "network" in settings else self.scenario.plan.cluster
        cluster = self._cluster(found["cluster"] or own)
        if cluster is not None:
            of_step["cluster"] = cluster
        if cluster is None or "network" in settings:  # to be refused beside a cluster
            of_step["network"] = found["network"]
        counts = found["counts"]
        if cluster is not None:
            counts = workers_of(cluster, counts)
        if "counts" not in settings and any(
            of_step[name] != usual for name, usual in of_mesh().items()
        ):
            counts = ()  # few divide so
        of_step["workers"] = tuple(sorted({*counts, workers}))
        scenario = self.scenario.changed(**of_step)
        if found["scheme"] is not None:
            schemes = (*scenario.plan.exchange_schemes, found["scheme"])
            scenario = scenario.changed(schemes=tuple(dict.fromkeys(schemes)))
        changes = tuple(getattr(scenario.plan, name) for name in _COMPUTED)
        computations = self._computations(*changes)
        mistakes.check(check_tokens, schedule, scenario)
        runs = list(runs_of(scenario, mistakes, computations))
        mistakes.raise_as(PaleoError)
        return Overview(
            run=runs[0],
            workers=workers,
            scheme=found["scheme"],
            schedule=schedule,
            price=price_of(self.device, found["price"], found["prices"]),
            study=self,
        )

    def _cluster(self, wanted: Cluster | None) -> Cluster | None:
        """Return the cluster that is wanted with the study's device, which may have own prices.

        Raises SettingError if the cluster has another.
        """
        if wanted is not None and wanted.device.name != self.device.name:
            raise SettingError(
                f"cluster: {wanted.name} has devices {wanted.device.name}, and this study is of "
                f"{self.device.name}"
            )
        return wanted and replace(wanted, device=self.device)

    def summary(self, batch_size: int) -> NetSummary:
        """Return the layers of the net with their times at this batch of one worker."""
        return self._summary(batch_size)

    def fit(self, batch_size: int, **settings: Any) -> Fit:
        """Return the memory of training at this batch of one worker, and what fits.

        `settings` are those of paleo.footprint.
        """
        return self._fit(batch_size, **settings)


@dataclass(frozen=True, eq=False)
class Overview:
    """What there is to see of a net under one plan.

    `run` has the steps by number of workers and scheme. `workers` and `scheme` (None: the best at
    every number of workers) are the ones to look at.
    """

    run: Run
    workers: int
    scheme: str | None
    schedule: Schedule
    price: Price | None
    study: Study = field(repr=False)

    @property
    def rows(self) -> tuple[Step, ...]:
        """The steps, by number of workers."""
        return self.run.rows

    @property
    def row(self) -> Step:
        """The step on the number of workers to look at."""
        return next(row for row in self.rows if row.workers == self.workers)

    @property
    def is_mesh(self) -> bool:
        """Whether devices share a net by more than its data."""
        return PARALLELISMS[self.run.parallel].shares_net

    def fits(self, row: Step) -> bool | None:
        """Return whether a device holds its part of a step, None where that is not known."""
        if self.is_mesh:
            fits: bool | None = next(e.value(row) for e in row.fields if e.key == "fits")
            return fits
        largest = self.run.worth.largest_batch
        return None if largest is None else bool(row.worker_batch_size <= largest)

    def scheme_of(self, row: Step) -> str:
        """Return the scheme to look at in a row."""
        return self.scheme or row.best_scheme

    def training(self, row: Step, scheme: str) -> Training:
        """Return the whole training by such steps."""
        return self.trained(row.whole_step(scheme))

    def trained(self, step: WholeStep) -> Training:
        """Return the whole training by steps like this one."""
        return Training(step, self.schedule, self.price)

    @property
    def worker_batch_size(self) -> int:
        """Samples of one worker, of the number of workers to look at."""
        return int(self.row.worker_batch_size)

    @property
    def summary(self) -> NetSummary:
        """The layers, with their times, at the batch of one worker. May raise a PaleoError."""
        return self.study.summary(self.worker_batch_size)

    @functools.cached_property
    def stages(self) -> tuple[StageTime, ...]:
        """The stages of a mesh: what they spend a step on, and their memory."""
        return stages_of(self.run, self.row)

    @functools.cached_property
    def remedies(self) -> list[Remedy]:
        """What would make a step on a mesh fit, the quickest first; nothing where it does."""
        if self.fits(self.row) is not False:
            return []
        return remedies(meshed_of(self.run, self.row), self.row.batch_size)

    @property
    def stage_memory(self) -> MeshMemory:
        """The memory of each stage of a mesh."""
        return memory_of(meshed_of(self.run, self.row), self.run.batch_size)

    @property
    def fit(self) -> Fit:
        """The memory of training at the batch of one worker. May raise a PaleoError."""
        return self.study.fit(self.worker_batch_size, **self.run.plan.in_memory)


def _computations(scenario: Scenario, *values: Any) -> Computations:
    """Return what a worker computes of the net, with these values of `_COMPUTED`."""
    changes = dict(zip(_COMPUTED, values, strict=True))
    return Computations(scenario.net, replace(scenario.plan, **changes))


def checked_plan(**settings: Unpack[OverviewSettings]) -> tuple[dict[str, Any], Schedule]:
    """Return what settings of `Study.overview` stand for, and how long is trained.

    Raises a PaleoError with every mistake.
    """
    mistakes = Mistakes()
    check_names(declared(OverviewSettings), settings, mistakes)
    found = found_settings(OverviewSettings, settings, mistakes, base=OverviewSettings)
    counts, workers = settings.get("counts"), settings.get("workers")
    if isinstance(counts, list | tuple) and workers in counts:
        # One of the counts, of which what is wrong is said under their name.
        mistakes = Mistakes()
        others = {key: value for key, value in settings.items() if key != "workers"}
        found = found_settings(OverviewSettings, others, mistakes, base=OverviewSettings)
        found |= {"workers": workers}
    schedule = schedule_of(found, mistakes)
    mistakes.raise_as(PaleoError)
    assert schedule
    return found, schedule


def overview(net: ScenarioLike, **settings: Unpack[_AllSettings]) -> Overview:
    """Return what there is to see of a net on a cluster; see `Study` and `Study.overview`.

    A `cluster` has its own device and networks.
    """
    known, given = declared(StudySettings), dict(settings)
    of_study: Any = {name: given.pop(name) for name in (*known, "importing") if name in given}
    if given.get("cluster") is not None and "device" not in of_study:
        of_study["device"] = find_cluster(settings["cluster"] or "").device
    of_plan: Any = given
    return Study(net, **of_study).overview(**of_plan)
