"""A net on a cluster seen from all sides: what the demo and the report show.

A `Study` is of one net on one device and keeps what it has computed, so that another network,
number of workers, dataset or price is answered at once. An `Overview` is what it says of one plan.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from paleo.collectives import COLLECTIVES
from paleo.costs import DEFAULT_COST_MODEL, CostModel, find_cost_model
from paleo.datasets import Schedule
from paleo.errors import Mistakes, PaleoError
from paleo.estimate import DeviceLike, NetworkLike, checked_share, checked_target, checked_workers
from paleo.graph import checked_batch
from paleo.hardware import Network, Price, find_device, find_network
from paleo.importers import ImportOptions
from paleo.load import load
from paleo.memory import OPTIMIZERS, Fit, fit
from paleo.parallelism import SCALINGS, Computations, Plan, divided
from paleo.rows import DataRow, Run
from paleo.simulate import DEFAULT_WORKERS, NetLike, simulate
from paleo.summary import NetSummary, summarize
from paleo.training import Training, checked_price
from paleo.values import check_choice, listed, python_int

__all__ = ["CheckedPlan", "Overview", "Study", "checked_plan", "overview"]

#: So many summaries and footprints of a net are kept: what is shown is taken away as a file next.
_KEPT = 1


class Study:
    """One net on one device by one cost model; `overview` says what it does in a cluster.

    Parameters mean what they do in `paleo.simulate`. Raises a PaleoError with every mistake.
    """

    def __init__(
        self,
        net: NetLike,
        *,
        device: DeviceLike = "TITAN_X",
        cost_model: str | CostModel = DEFAULT_COST_MODEL,
        dtype: str = "fp32",
        ppp_comp: float = 1.0,
        use_pipeline: bool = False,
        fuse: bool = False,
        importing: ImportOptions | None = None,
    ) -> None:
        mistakes = Mistakes()
        spec = mistakes.check(load, net, importing)
        found_device = mistakes.check(find_device, device)
        model = mistakes.check(find_cost_model, cost_model)
        if found_device and model:
            mistakes.check(checked_target, found_device, model, dtype, ppp_comp)
        else:
            mistakes.check(checked_share, ppp_comp, "ppp_comp")
        mistakes.raise_as(PaleoError)
        assert spec is not None
        assert found_device is not None
        assert model is not None
        self.net, self.device = spec, found_device
        self.settings: Mapping[str, Any] = MappingProxyType(
            {
                "cost_model": model,
                "dtype": dtype,
                "ppp_comp": ppp_comp,
                "use_pipeline": use_pipeline,
                "fuse": fuse,
            }
        )
        # Any network will do: computations are the same on all of them.
        plan = Plan(found_device, find_network("ethernet"), **self.settings)
        self._computations = Computations(spec, plan)
        # Not of methods: a study that holds itself is freed only when garbage is looked for.
        summary = functools.partial(summarize, spec, device=found_device, **self.settings)
        found_fit = functools.partial(fit, spec, device=found_device, dtype=dtype)
        self._summary = functools.lru_cache(_KEPT)(summary)
        self._fit = functools.lru_cache(_KEPT)(found_fit)

    def overview(
        self,
        *,
        network: NetworkLike = "ethernet",
        batch_size: int = 128,
        workers: int = 1,
        counts: int | Sequence[int] = DEFAULT_WORKERS,
        scaling: str = "weak",
        scheme: str | None = None,
        ppp_comm: float = 1.0,
        epochs: float | None = None,
        dataset: str | None = None,
        dataset_size: int | None = None,
        price: float | str | Price | None = None,
        optimizer: str = "sgd",
    ) -> Overview:
        """Return what there is to see of data-parallel training.

        `workers` is the number to look at; the curves have it and `counts`. `scheme` is the
        communication scheme to look at, None the best. The others are those of `paleo.metrics`.
        Raises a PaleoError with every mistake.
        """
        checked = checked_plan(
            network=network,
            batch_size=batch_size,
            workers=workers,
            counts=counts,
            scaling=scaling,
            scheme=scheme,
            ppp_comm=ppp_comm,
            epochs=epochs,
            dataset=dataset,
            dataset_size=dataset_size,
            price=price,
            optimizer=optimizer,
        )
        simulation = simulate(
            self.net,
            device=self.device,
            network=checked.network,
            batch_size=batch_size,
            workers=sorted({*checked.counts, checked.workers}),
            scaling=scaling,
            ppp_comm=ppp_comm,
            computations=self._computations,
            **self.settings,
        )
        return Overview(
            run=simulation.runs[0],
            workers=checked.workers,
            scheme=scheme,
            schedule=checked.schedule,
            price=checked.price or self.device.newest_price,
            optimizer=optimizer,
            study=self,
        )

    def summary(self, batch_size: int) -> NetSummary:
        """Return the layers of the net with their times at this batch of one worker."""
        return self._summary(batch_size)

    def fit(self, batch_size: int, optimizer: str = "sgd") -> Fit:
        """Return the memory of training at this batch of one worker, and what fits."""
        return self._fit(batch_size, optimizer=optimizer)


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
    optimizer: str
    study: Study = field(repr=False)

    @property
    def rows(self) -> tuple[DataRow, ...]:
        """The steps, by number of workers."""
        return tuple(row for row in self.run.rows if isinstance(row, DataRow))

    @property
    def row(self) -> DataRow:
        """The step on the number of workers to look at."""
        return next(row for row in self.rows if row.workers == self.workers)

    def scheme_of(self, row: DataRow) -> str:
        """Return the scheme to look at in a row."""
        return self.scheme or row.best_scheme

    def training(self, row: DataRow, scheme: str) -> Training:
        """Return the whole training by such steps."""
        return Training(row.whole(scheme), self.schedule, self.price)

    @property
    def worker_batch_size(self) -> int:
        """Samples of one worker, of the number of workers to look at."""
        own, _ = divided(self.run.batch_size, self.workers, str(self.run.scaling))
        return int(own)

    @property
    def summary(self) -> NetSummary:
        """The layers, with their times, at the batch of one worker. May raise a PaleoError."""
        return self.study.summary(self.worker_batch_size)

    @property
    def fit(self) -> Fit:
        """The memory of training at the batch of one worker. May raise a PaleoError."""
        return self.study.fit(self.worker_batch_size, self.optimizer)


class CheckedPlan(NamedTuple):
    """What of an overview is not the study's, found to be right."""

    network: Network
    workers: int
    counts: list[int]
    schedule: Schedule
    price: Price | None


def checked_plan(
    *,
    network: NetworkLike,
    batch_size: int,
    workers: int,
    counts: int | Sequence[int],
    scaling: str,
    scheme: str | None,
    ppp_comm: float,
    epochs: float | None,
    dataset: str | None,
    dataset_size: int | None,
    price: float | str | Price | None,
    optimizer: str,
) -> CheckedPlan:
    """Return the settings of `Study.overview`; raises a PaleoError with every mistake."""
    mistakes = Mistakes()
    check = mistakes.check
    workers = python_int(workers)
    several = [python_int(k) for k in check(listed, "counts", counts, int | float) or []]
    if workers not in several:
        check(checked_workers, workers, "workers")
    check(checked_batch, batch_size)
    check(check_choice, "scaling", scaling, SCALINGS)
    if scheme is not None:
        check(COLLECTIVES.__getitem__, scheme)
    check(checked_share, ppp_comm, "ppp_comm")
    found_network = check(find_network, network)
    schedule = check(Schedule, epochs, dataset, dataset_size)
    own_price = check(checked_price, price)
    check(OPTIMIZERS.__getitem__, optimizer)
    for count in several:
        check(checked_workers, count)
    mistakes.raise_as(PaleoError)
    assert found_network is not None
    assert schedule is not None
    return CheckedPlan(found_network, workers, several, schedule, own_price)


def overview(
    net: NetLike,
    *,
    device: DeviceLike = "TITAN_X",
    cost_model: str | CostModel = DEFAULT_COST_MODEL,
    dtype: str = "fp32",
    ppp_comp: float = 1.0,
    use_pipeline: bool = False,
    fuse: bool = False,
    importing: ImportOptions | None = None,
    **settings: Any,
) -> Overview:
    """Return what there is to see of a net on a cluster; see `Study` and `Study.overview`."""
    study = Study(
        net,
        device=device,
        cost_model=cost_model,
        dtype=dtype,
        ppp_comp=ppp_comp,
        use_pipeline=use_pipeline,
        fuse=fuse,
        importing=importing,
    )
    return study.overview(**settings)
