"""What a simulation answers: runs of rows, frozen values in seconds.

Each has `to_dict`, the keys of the JSON output, with the unit in the key.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from paleo.collectives import COLLECTIVES
from paleo.costs import ConvolutionChoice, Time
from paleo.costs.bands import Band
from paleo.costs.convolutions import DEFAULT
from paleo.errors import SettingError

__all__ = [
    "Conditions",
    "DataRow",
    "HybridRow",
    "ModelRow",
    "Run",
    "Simulation",
    "WholeStep",
    "Worth",
]


@dataclass(frozen=True)
class WholeStep:
    """How a step scales: all of it, communication or both hybrid parts included.

    `seconds` for `batch_size` samples on `workers` workers; `one_worker` is the seconds in
    which a single worker computes `one_worker_batch` samples, split layers and all.
    """

    workers: int
    batch_size: int
    seconds: float
    one_worker: float
    one_worker_batch: int

    @property
    def _time(self) -> float:
        if not self.seconds:
            raise SettingError("no layer takes any time: there is no throughput, and no speedup")
        return self.seconds

    @property
    def throughput(self) -> float:
        """Samples a second; raises SettingError if the step takes no time."""
        return self.batch_size / self._time

    @property
    def speedup(self) -> float:
        """How many times the throughput of one worker; raises as `throughput`."""
        return self.one_worker / self._time * (self.batch_size / self.one_worker_batch)

    @property
    def efficiency(self) -> float:
        """The speedup over the number of workers."""
        return self.speedup / self.workers

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        return {
            "step_s": self.seconds,
            "throughput_per_s": self.throughput,
            "speedup": self.speedup,
            "efficiency": self.efficiency,
        }


@dataclass(frozen=True)
class DataRow:
    """One worker count under data parallelism. Times are seconds of one step.

    `communication` has an entry for each scheme; `one_worker` is the seconds in which a
    single worker computes `one_worker_batch` samples, to which speedups relate. `times` says
    what of "forward", "backward" and "update" is computation, memory traffic and overhead.
    """

    workers: int
    batch_size: int
    iterations: int
    forward: float
    backward: float
    update: float
    communication: Mapping[str, float]
    one_worker: float
    one_worker_batch: int
    times: Mapping[str, Time] = field(default_factory=dict)

    @property
    def compute(self) -> float:
        """Forward, backward and update."""
        return self.forward + self.backward + self.update

    @property
    def best_scheme(self) -> str:
        """The scheme that takes least of those after which all workers have the sum.

        Butterfly mixing is one only where no other is asked for.
        """
        exact = [name for name in self.communication if COLLECTIVES[name].exact]
        return min(exact or self.communication, key=self.communication.__getitem__)

    def step(self, scheme: str) -> float:
        """Seconds of the step: computation, then communication."""
        return self.compute + self.communication[scheme]

    def throughput(self, scheme: str) -> float:
        """Samples a second."""
        return self.whole(scheme).throughput

    def speedup(self, scheme: str) -> float:
        """How many times the throughput of one worker."""
        return self.whole(scheme).speedup

    def efficiency(self, scheme: str) -> float:
        """The speedup over the number of workers."""
        return self.whole(scheme).efficiency

    def whole(self, scheme: str) -> WholeStep:
        """Return the step under this scheme, and how it scales."""
        return WholeStep(
            self.workers,
            self.batch_size,
            self.step(scheme),
            self.one_worker,
            self.one_worker_batch,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""

        def by_scheme(value: Callable[[str], float]) -> dict[str, float]:
            return {scheme: value(scheme) for scheme in self.communication}

        return {
            "workers": self.workers,
            "batch_size": self.batch_size,
            "iterations": self.iterations,
            "forward_s": self.forward,
            "backward_s": self.backward,
            "update_s": self.update,
            **{key: part for of in self.times for key, part in self.times[of].to_dict(of).items()},
            "compute_s": self.compute,
            "communication_s": dict(self.communication),
            "step_s": by_scheme(self.step),
            "throughput_per_s": by_scheme(self.throughput),
            "speedup": by_scheme(self.speedup),
            "efficiency": by_scheme(self.efficiency),
            "best_scheme": self.best_scheme,
        }


@dataclass(frozen=True)
class ModelRow:
    """One pass under model parallelism: bounds in seconds."""

    pass_name: str
    lower: float
    upper: float

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        return {"pass": self.pass_name, "lower_s": self.lower, "upper_s": self.upper}


@dataclass(frozen=True)
class HybridRow:
    """One part of a step under hybrid parallelism, in seconds."""

    part: str
    workers: int
    batch_size: int
    forward: float
    backward: float
    update: float
    sync: float

    @property
    def total(self) -> float:
        """All of the part; the step is both parts, one after the other."""
        return self.forward + self.backward + self.update + self.sync

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        return {
            "part": self.part,
            "workers": self.workers,
            "batch_size": self.batch_size,
            "forward_s": self.forward,
            "backward_s": self.backward,
            "update_s": self.update,
            "sync_s": self.sync,
            "total_s": self.total,
        }


@dataclass(frozen=True)
class Worth:
    """What is worth it under data parallelism, and what fits.

    `knee` has for each scheme how many workers are worth it, `balance` from how many on
    communication takes at least as long as computation; None if no count up to
    `paleo.scaling.LIMIT` does. `largest_batch` is the largest batch that the memory of one
    device holds in training with plain gradient descent: None if its capacity is not known, or
    layers are split.
    """

    knee: Mapping[str, int | None] = field(default_factory=dict)
    balance: Mapping[str, int | None] = field(default_factory=dict)
    largest_batch: int | None = None


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """What was predicted on what, and with which settings; `scaling` is data parallelism's."""

    net: str
    device: str
    network: str
    cost_model: str
    dtype: str
    parallel: str
    scaling: str | None
    use_pipeline: bool
    fuse: bool
    ppp_comp: float
    ppp_comm: float
    #: How convolutions are computed: as "gemm", by the "quickest" of several algorithms, or as the
    #: "cudnn" of this machine would.
    convolution_algorithm: str = "gemm"
    #: Of which library, and within which workspace.
    convolutions: ConvolutionChoice = DEFAULT

    @property
    def conditions(self) -> dict[str, Any]:
        """The fields of this class alone, for another that has them."""
        return {each.name: getattr(self, each.name) for each in fields(Conditions)}


@dataclass(frozen=True, kw_only=True)
class Run(Conditions):
    """One net under one parallelism (and scaling, for data parallelism).

    `not_counted` names the operations that the cost model leaves out; `notes` say what a
    reader of the rows should know; `step` is the sum of the rows under hybrid parallelism.

    `find_worth` finds what `worth` is, when somebody asks: not every run is asked.
    """

    batch_size: int
    rows: tuple[DataRow | ModelRow | HybridRow, ...]
    not_counted: tuple[str, ...]
    notes: tuple[str, ...]
    step: WholeStep | None = None
    memory_capacity: int | None = None
    #: How far the truth may be from the times of computation; None where that is not known.
    band: Band | None = None
    find_worth: Callable[[], Worth] = field(default=Worth, compare=False, repr=False)

    @functools.cached_property
    def worth(self) -> Worth:
        """How many workers, and which batch, are worth it."""
        return self.find_worth()

    @property
    def largest(self) -> DataRow | None:
        """The row of most workers under data parallelism, None under others."""
        rows = (row for row in self.rows if isinstance(row, DataRow))
        return max(rows, key=lambda row: row.workers, default=None)

    @property
    def best_scheme(self) -> str:
        """The best scheme on most workers; "" where nothing is exchanged by a chosen one."""
        return self.largest.best_scheme if self.largest else ""

    def only(self, scheme: str) -> Run:
        """Return the run as if it had been asked for with this communication scheme alone."""

        def found() -> Worth:
            knee, balance = self.worth.knee, self.worth.balance
            one = {name: value for name, value in knee.items() if name == scheme}
            other = {name: value for name, value in balance.items() if name == scheme}
            return Worth(one, other, self.worth.largest_batch)

        rows = tuple(
            replace(row, communication={scheme: row.communication[scheme]})
            if isinstance(row, DataRow)
            else row
            for row in self.rows
        )
        return replace(self, rows=rows, find_worth=found)

    def settings(self) -> dict[str, Any]:
        """Return what was predicted on and with, under the keys of the JSON output."""
        return {
            "net": self.net,
            "device": self.device,
            "network": self.network,
            "cost_model": self.cost_model,
            "dtype": self.dtype,
            "parallel": self.parallel,
            "scaling": self.scaling,
            "batch_size": self.batch_size,
            "use_pipeline": self.use_pipeline,
            "fuse": self.fuse,
            **self.convolutions.to_dict(),
            "convolution_algorithm": self.convolution_algorithm,
            "ppp_comp": self.ppp_comp,
            "ppp_comm": self.ppp_comm,
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        return {
            **self.settings(),
            "rows": [row.to_dict() for row in self.rows],
            **(self.step.to_dict() if self.step else {}),
            "knee": dict(self.worth.knee),
            "balance_workers": dict(self.worth.balance),
            "memory_capacity_bytes": self.memory_capacity,
            "largest_batch_size": self.worth.largest_batch,
            "band": self.band.to_dict() if self.band else None,
            "not_counted": list(self.not_counted),
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class Simulation:
    """The runs of one call: for each net, for each scaling."""

    runs: tuple[Run, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        return {"runs": [run.to_dict() for run in self.runs]}
