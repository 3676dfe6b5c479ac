"""Making metrics of the runs of a simulation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from paleo.cluster import Device, Price
from paleo.core.errors import PaleoError, SettingError
from paleo.core.frozen import NamedTuple, dataclass
from paleo.core.operations import Pass, total_work
from paleo.core.quantity import Quantity, has_arrays, total
from paleo.core.tensor import find_precision
from paleo.costs import CostModel
from paleo.net.graph import Graph
from paleo.step.memory import Footprint, footprints, largest_batch
from paleo.step.parallelism import PARALLELISMS
from paleo.step.passes import BACKWARD, FORWARD, needed_gradients
from paleo.step.pieces import Step, WholeStep
from paleo.step.results import Run
from paleo.step.scenario import Scenario
from paleo.studies.datasets import Schedule
from paleo.studies.metrics.values import Metrics, Storage
from paleo.studies.training import rates_of


class _Step(NamedTuple):
    """A training `step` of all workers, and what one of them has of it: fields of Metrics."""

    scheme: str | None
    worker_batch_size: int
    step: WholeStep
    compute: float
    communication: float
    exposed_communication: float


class _Memory(NamedTuple):
    """What one device holds."""

    inference: Footprint | None
    training: Footprint | None
    largest_batch: int | None
    fault: str = ""

    def notes(self, device: Device) -> list[str]:
        """Return what does not fit, and why it is not known if it is not."""
        if self.fault:
            return [self.fault]
        most = math.inf if device.memory_capacity is None else device.memory_capacity
        return [
            f"{what} takes more memory than {device.name} has"
            for what, taken in (("inference", self.inference), ("training", self.training))
            if taken is not None and taken.peak > most
        ]


@dataclass(frozen=True)
class Case:
    """What is asked besides a scenario; makes the metrics of its run."""

    scheme: str | None
    schedule: Schedule
    storage: Mapping[str, Any]
    own_price: Price | None
    prices: Mapping[str, tuple[Price, ...]] | None
    own_power: float | None

    def metrics(self, run: Run) -> Iterator[Metrics]:
        """Return the metrics of each step of a run."""
        scenario, plan, net = run.scenario, run.plan, run.scenario.net
        device = plan.device
        one = plan.graph(net, 1)
        inference_flops = _flops(one, plan.cost_model, FORWARD)
        training_flops = inference_flops + _flops(one, plan.cost_model, BACKWARD)
        rates = rates_of(device, self.own_price, self.prices, self.own_power)
        apart = PARALLELISMS[run.parallel].splits and bool(net.splits)
        own_bits = self.storage["weight_bits"] or 8 * find_precision(plan.dtype).parameter_size
        storage = Storage(**{**self.storage, "weight_bits": own_bits})
        steps = list(self._steps(run))
        batches = sorted({step.worker_batch_size for step in steps})
        memories = self._memories(scenario, batches, apart)
        inference = _inferences(scenario, batches)
        for step in steps:
            own, memory = step.worker_batch_size, memories[step.worker_batch_size]
            notes = [*run.notes, *rates.notes, *memory.notes(device)]
            notes += memory.training.notes if memory.training else ()
            if apart:
                notes.append("memory in training is not known where layers are split over devices")
            yield Metrics(
                scenario=scenario,
                scaling=run.scaling,
                **step._asdict(),
                inference_flops_per_sample=inference_flops,
                training_flops_per_sample=training_flops,
                params=one.num_params,
                storage=storage,
                inference=inference[own],
                balance_workers=run.worth.balance.get(step.scheme) if step.scheme else None,
                schedule=self.schedule,
                power=rates.power,
                price=rates.price,
                inference_memory=memory.inference,
                training_memory=memory.training,
                largest_batch=memory.largest_batch,
                notes=tuple(dict.fromkeys(notes)),
            )

    def _steps(self, run: Run) -> Iterator[_Step]:
        for row in run.rows:
            if row.is_below_zero:
                raise SettingError(
                    f"{run.net}: {run.cost_model} gives a time below zero for {row.workers} "
                    "workers, from which no metrics follow"
                )
            if row.exchanges:
                scheme = row.scheme_of(self.scheme) if self.scheme else _best_scheme(run, row)
                step = self._step(row.whole_step(scheme), [row], scheme)
                yield step if scheme in run.plan.exchange_schemes else step._replace(scheme=None)
        if run.step:
            yield self._step(run.step, run.rows)

    @staticmethod
    def _step(whole: WholeStep, parts: Sequence[Step], scheme: str | None = None) -> _Step:
        compute = float(total(part.compute for part in parts))
        exposed = float(total(part.exposed_communication(scheme) for part in parts))
        hidden = float(
            total(
                part.communication[scheme] - part.exposed_exchanges[scheme]
                for part in parts
                if scheme is not None and scheme in part.exchanges
            )
        )
        own = parts[0].worker_batch_size
        return _Step(scheme, own, whole, compute, exposed + hidden, exposed)

    def _memories(self, scenario: Scenario, batches: list[int], apart: bool) -> dict[int, _Memory]:
        """Return the memory of one device; with slices `apart`, it is not known in training."""
        net, dtype = scenario.net, scenario.plan.dtype
        capacity, largest = scenario.plan.device.memory_capacity, None
        training: Mapping[int, Footprint] = {}
        of = scenario.plan.in_memory
        try:
            if not apart:
                training = footprints(net, batches, **of)
            if capacity is not None and not apart:
                largest = largest_batch(net, capacity, **of)
            inference = footprints(net, batches, training=False, dtype=dtype)
        except PaleoError as error:  # a net that only the conventions of the cost model can take
            if len(batches) > 1:  # of which each has its message
                return {each: self._memories(scenario, [each], apart)[each] for each in batches}
            fault = f"memory is not known: {error.mistakes[0]}"
            return {batches[0]: _Memory(None, None, None, fault)}
        return {each: _Memory(inference[each], training.get(each), largest) for each in batches}


def _inferences(scenario: Scenario, batches: list[int]) -> dict[int, float]:
    """Return the seconds of inference at each batch."""
    if len(batches) > 1 and has_arrays():
        import numpy as np

        together = _inference(scenario, np.array(batches))
        return dict(zip(batches, np.broadcast_to(together, len(batches)).tolist(), strict=True))
    return {each: float(_inference(scenario, each)) for each in batches}


def _inference(scenario: Scenario, batch: Quantity) -> Quantity:
    plan = scenario.plan
    return plan.inference(plan.graph(scenario.net, batch, training=False)).upper


def _best_scheme(run: Run, row: Step) -> str:
    """Return the best scheme; for a worker alone the one whose communication catches up last."""
    if row.workers > 1:
        return row.best_scheme
    return max(
        row.exact_schemes or row.exchanges,
        key=lambda scheme: math.inf if (most := run.worth.balance.get(scheme)) is None else most,
    )


def _flops(graph: Graph, cost_model: CostModel, directions: tuple[Pass, ...]) -> int:
    """Return the FLOPs of these passes, without gradients that nobody needs."""
    needed = needed_gradients(graph, cost_model.conventions)
    return sum(
        int(total_work(graph.operations(node, direction, needed[i])).flops)
        for i, node in enumerate(graph.nodes)
        for direction in directions
    )
