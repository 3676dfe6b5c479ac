"""What a simulation answers: runs of rows, frozen values in seconds.

Each has `to_dict`, the keys of the JSON output, with the unit in the key.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import operator
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Any, Protocol

from paleo.core.attributes import attributes
from paleo.core.errors import PaleoError
from paleo.core.frozen import dataclass
from paleo.core.results import Result
from paleo.costs.error_bands import Band
from paleo.step.memory import Footprint, footprint
from paleo.step.parallelism import PARALLELISMS, DataParallel
from paleo.step.pieces import Step, Steps, WholeStep
from paleo.step.plan import SHARES, Plan
from paleo.step.plan_keys import EXCHANGED, HOW, MESH, TRAINED, UPDATED
from paleo.step.scenario import Scenario


class Recommendation:
    """What is worth it under data parallelism, and what fits: found when somebody asks for it.

    Of other kinds of parallelism there is nothing to say.
    """

    @functools.cached_property
    def knee(self) -> Mapping[str, int | None]:
        """How many workers are worth it by each scheme.

        None if no count up to `paleo.studies.knee.LIMIT` is better than all before.
        """
        return {}

    @functools.cached_property
    def balance(self) -> Mapping[str, int | None]:
        """From how many workers on communication takes at least as long as computation.

        None if there are none up to `paleo.studies.knee.LIMIT`.
        """
        return {}

    @functools.cached_property
    def largest_batch(self) -> int | None:
        """The largest batch that one device trains with plain gradient descent.

        None if its memory is not known, or layers are split.
        """
        return None


class _OfScheme(Recommendation):
    """What of a recommendation is said of one scheme."""

    def __init__(self, whole: Recommendation, scheme: str) -> None:
        self._whole, self._scheme = whole, scheme

    @functools.cached_property
    def knee(self) -> Mapping[str, int | None]:
        return self._of(self._whole.knee)

    @functools.cached_property
    def balance(self) -> Mapping[str, int | None]:
        return self._of(self._whole.balance)

    @functools.cached_property
    def largest_batch(self) -> int | None:
        return self._whole.largest_batch

    def _of(self, counts: Mapping[str, int | None]) -> Mapping[str, int | None]:
        return {name: count for name, count in counts.items() if name == self._scheme}


class Predicted:
    """What says of a `scenario` what was predicted on what, and with which settings."""

    scenario: Scenario

    @property
    def plan(self) -> Plan:
        """The cluster, and how it is used."""
        return self.scenario.plan

    @property
    def net(self) -> str:
        """The net's name."""
        return self.scenario.net.name

    @property
    def device(self) -> str:
        """The device's name."""
        return self.plan.device.name

    @property
    def memory_capacity(self) -> int | None:
        """Bytes of the device's memory, None where that is not known."""
        return self.plan.device.memory_capacity

    @property
    def network(self) -> str:
        """The network's name."""
        return self.plan.network.name

    @property
    def cluster(self) -> str:
        """The cluster's name, "" where there is but a device behind a network."""
        return self.plan.cluster.name if self.plan.cluster else ""

    @property
    def cost_model(self) -> str:
        """The cost model's name."""
        return self.plan.cost_model.name

    @property
    def dtype(self) -> str:
        """The type of elements, one of paleo.core.tensor.PRECISIONS."""
        return self.plan.dtype

    @property
    def parallel(self) -> str:
        """How a step is divided: "data", "single_process", "model" or "hybrid"."""
        return self.scenario.parallel

    @property
    def division(self) -> str:
        """The same as output says it: "data-parallel"."""
        return PARALLELISMS[self.parallel].title


class WholeTraining(Protocol):
    """A training of many steps: see paleo.studies.training."""

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        ...


@dataclass(frozen=True, kw_only=True)
class Run(Predicted, Result):
    """One net under one parallelism (and scaling, for data parallelism).

    `not_counted` names the operations that the cost model leaves out; `notes` say what a
    reader of the rows should know; `step` is the sum of the rows under hybrid parallelism.

    `worth` says how many workers, and which batch, are worth it. `data` gives the steps again where
    they are of data parallelism.
    """

    scenario: Scenario
    scaling: str | None
    rows: tuple[Step, ...]
    not_counted: tuple[str, ...]
    notes: tuple[str, ...]
    step: WholeStep | None = None
    worth: Recommendation = field(default_factory=Recommendation, compare=False, repr=False)
    data: DataParallel | None = field(default=None, compare=False, repr=False)
    #: What gives the whole training by steps like one, where somebody said how long it is.
    train: Callable[[WholeStep], WholeTraining] | None = field(
        default=None, compare=False, repr=False
    )

    @property
    def batch_size(self) -> int:
        """Samples of a batch: in weak scaling and hybrid parallelism one worker's."""
        batch: Any = self.scenario.batch_size
        return int(batch)

    @property
    def band(self) -> Band | None:
        """How far the truth may be from the times of computation; None where it is not known."""
        return self.plan.band

    def footprint(self, row: Step) -> Footprint | None:
        """Return the memory of one worker in training, None where it is not known.

        It is not where layers are split, nor of nets that only the conventions of a cost model can
        take.
        """
        net = self.scenario.net
        if PARALLELISMS[self.parallel].splits and net.splits:
            return None
        with contextlib.suppress(PaleoError):
            return footprint(net, row.worker_batch_size, **self.plan.in_memory)
        return None

    def time_by_type(self, row: Step) -> dict[str, float]:
        """Return the seconds of both passes of one worker by type of layer, the most first."""
        spent: dict[str, float] = {}
        graph = self.scenario.graph(row.worker_batch_size)
        forward, backward = self.plan.passes(graph)
        again = self.plan.recomputed(graph, forward)
        for layer in (*forward.layers, *again.layers, *backward.layers):
            kind = layer.node.layer.type_name
            seconds = self.plan.accumulate * float(layer.seconds)
            spent[kind] = spent.get(kind, 0.0) + seconds
        return dict(sorted(spent.items(), key=lambda item: -item[1]))

    @property
    def largest(self) -> Step | None:
        """The row of most workers, None where there are no schemes to choose from."""
        rows = (row for row in self.rows if row.exchanges)
        return max(rows, key=lambda row: row.workers, default=None)

    @property
    def best_scheme(self) -> str:
        """The best scheme on most workers; "" where nothing is exchanged by a chosen one."""
        return self.largest.best_scheme if self.largest else ""

    def only(self, scheme: str) -> Run:
        """Return the run as if it had been asked for with this communication scheme alone."""
        rows = tuple(
            replace(row, exchanges={scheme: row.exchanges[scheme]}) if row.exchanges else row
            for row in self.rows
        )
        return replace(self, rows=rows, worth=_OfScheme(self.worth, scheme))

    def trained(self, row: Step) -> dict[str, Any]:
        """Return the values of the whole training by the best scheme of a row, {} if none is."""
        if self.train is None or not row.exchanges:
            return {}
        return self.train(row.whole_step(row.best_scheme)).to_dict()

    def settings(self) -> dict[str, Any]:
        """Return what was predicted on and with, under the keys of the JSON output."""
        return {
            "net": self.net,
            **self.plan.to_dict("device", "network", "cluster", "cost_model", "dtype"),
            "parallel": self.parallel,
            "scaling": self.scaling,
            "batch_size": self.batch_size,
            **self.plan.to_dict(*HOW, *UPDATED, *TRAINED, *EXCHANGED, *SHARES),
            **(self.plan.to_dict(*MESH) if self.plan.is_mesh else {}),
            **(self.plan.to_dict("loader_rate") if self.plan.loader_rate else {}),
            **(self.plan.to_dict("other_devices") if self.plan.other_devices else {}),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        rows = self.rows
        values = rows.to_dicts() if isinstance(rows, Steps) else [row.to_dict() for row in rows]
        return {
            **self.settings(),
            "rows": [value | self.trained(row) for value, row in zip(values, rows, strict=True)],
            **(self.step.to_dict() if self.step else {}),
            **(self.train(self.step).to_dict() if self.train and self.step else {}),
            "knee": dict(self.worth.knee),
            "balance_workers": dict(self.worth.balance),
            "memory_capacity_bytes": self.memory_capacity,
            "largest_batch_size": self.worth.largest_batch,
            "band": self.band.to_dict() if self.band else None,
            "not_counted": list(self.not_counted),
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class Simulation(Result):
    """The runs of one call: for each net, for each scaling."""

    runs: tuple[Run, ...]

    @property
    def plans(self) -> list[list[Run]]:
        """The runs of each plan: several where each number of workers has rows of its own."""
        is_same = operator.methodcaller("settings")
        groups = (list(runs) for _, runs in itertools.groupby(self.runs, is_same))
        return [
            part
            for runs in groups
            for part in ([runs] if runs[0].plan.other_devices else [[run] for run in runs])
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        return attributes(self, "runs")
