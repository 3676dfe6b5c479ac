"""Making metrics of the runs of a simulation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from paleo.collectives import COLLECTIVES
from paleo.costs import ConvolutionChoice, CostModel
from paleo.datasets import Schedule
from paleo.errors import PaleoError, SettingError
from paleo.estimate import (
    BACKWARD,
    FORWARD,
    adapter,
    checked_target,
    estimate_pass,
    needed_gradients,
)
from paleo.graph import Graph, build
from paleo.hardware import Device, Price
from paleo.memory import Footprint, footprints, largest_batch
from paleo.metrics.values import Metrics, Storage
from paleo.netspec import NetSpec
from paleo.parallelism import divided
from paleo.quantity import Quantity, has_arrays
from paleo.rows import DataRow, HybridRow, Run, WholeStep
from paleo.tensor import find_precision
from paleo.work import Pass, total_work

__all__ = ["Case"]


class _Step(NamedTuple):
    """A training step of all workers, and what one of them has of it."""

    scheme: str | None
    own_batch: int
    whole: WholeStep
    compute: float
    communication: float


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
    """Everything but the net; makes the metrics of its runs."""

    device: Device
    cost_model: CostModel
    ppp_comp: float
    use_pipeline: bool
    scheme: str | None
    schedule: Schedule
    storage: Storage
    optimizer: str
    own_price: Price | None
    own_power: float | None
    dtype: str
    fuse: bool

    def metrics(self, net: NetSpec, run: Run) -> Iterator[Metrics]:
        """Return the metrics of each step of a run."""
        one = self._graph(net, 1)
        inference_flops = _flops(one, self.cost_model, FORWARD)
        training_flops = inference_flops + _flops(one, self.cost_model, BACKWARD)
        known_power = self.device.figures.get("power")
        power = self.own_power or (float(known_power.value) if known_power else None)
        price = self.own_price or self.device.newest_price
        apart = run.parallel == "hybrid" and bool(net.splits)
        steps = list(self._steps(run))
        batches = sorted({step.own_batch for step in steps})
        memories = self._memories(net, batches, apart)
        inference = self._inferences(net, batches, run)
        for step in steps:
            own, memory = step.own_batch, memories[step.own_batch]
            notes = [*run.notes, *self._notes(power, price), *memory.notes(self.device)]
            notes += memory.training.notes if memory.training else ()
            if apart:
                notes.append("memory in training is not known where layers are split over devices")
            yield Metrics(
                **run.conditions,
                scheme=step.scheme,
                worker_batch_size=own,
                inference_flops_per_sample=inference_flops,
                training_flops_per_sample=training_flops,
                params=one.num_params,
                storage=self.storage,
                peak=self._peak,
                inference=inference[own],
                step=step.whole,
                compute=step.compute,
                communication=step.communication,
                balance_workers=run.worth.balance.get(step.scheme) if step.scheme else None,
                schedule=self.schedule,
                power=power,
                price=price,
                optimizer=self.optimizer,
                inference_memory=memory.inference,
                training_memory=memory.training,
                memory_capacity=self.device.memory_capacity,
                largest_batch=memory.largest_batch,
                notes=tuple(notes),
            )

    @property
    def _peak(self) -> float | None:
        computing = find_precision(self.dtype).computing
        return float(self.device.peak(computing)) if self.device.peaks.get(computing) else None

    def _graph(self, net: NetSpec, batch: Quantity) -> Graph:
        return build(net, batch, self.dtype, adapter(self.cost_model))

    def _steps(self, run: Run) -> Iterator[_Step]:
        parts = [row for row in run.rows if isinstance(row, HybridRow)]
        if any(min(part.forward, part.backward) < 0 for part in parts):
            raise SettingError(
                f"{run.net}: {run.cost_model} gives a time below zero for {parts[0].workers} "
                "workers, from which no metrics follow"
            )
        if run.step:
            seconds = [part.forward + part.backward + part.update for part in parts]
            exchange = sum(part.sync for part in parts)
            yield _Step(None, run.batch_size, run.step, sum(seconds), exchange)
        for row in run.rows:
            if isinstance(row, DataRow):
                scheme = self.scheme or _best_scheme(run, row)
                own, _ = divided(run.batch_size, row.workers, str(run.scaling))
                yield _Step(scheme, own, row.whole(scheme), row.compute, row.communication[scheme])

    def _memories(self, net: NetSpec, batches: list[int], apart: bool) -> dict[int, _Memory]:
        """Return the memory of one device; with slices `apart`, it is not known in training."""
        capacity, largest = self.device.memory_capacity, None
        training: Mapping[int, Footprint] = {}
        of: Any = {"optimizer": self.optimizer, "dtype": self.dtype}
        try:
            if not apart:
                training = footprints(net, batches, **of)
            if capacity is not None and not apart:
                largest = largest_batch(net, capacity, **of)
            inference = footprints(net, batches, training=False, dtype=self.dtype)
        except PaleoError as error:  # a net that only the conventions of the cost model can take
            if len(batches) > 1:  # of which each has its message
                return {each: self._memories(net, [each], apart)[each] for each in batches}
            fault = f"memory is not known: {error.mistakes[0]}"
            return {batches[0]: _Memory(None, None, None, fault)}
        return {each: _Memory(inference[each], training.get(each), largest) for each in batches}

    def _inferences(self, net: NetSpec, batches: list[int], run: Run) -> dict[int, float]:
        """Return the seconds of inference at each batch."""
        if len(batches) > 1 and has_arrays():
            import numpy as np

            together = self._inference(net, np.array(batches), run.convolutions)
            return dict(zip(batches, np.broadcast_to(together, len(batches)).tolist(), strict=True))
        return {each: float(self._inference(net, each, run.convolutions)) for each in batches}

    def _inference(self, net: NetSpec, batch: Quantity, choice: ConvolutionChoice) -> Quantity:
        graph, model = self._graph(net, batch), self.cost_model
        target = checked_target(self.device, model, self.dtype, self.ppp_comp, choice)
        training = not self.fuse  # a plain one stays the training step's, as it has been
        found = estimate_pass(
            graph, FORWARD, target, model, self.use_pipeline, fuse=self.fuse, training=training
        )
        return found.upper

    def _notes(self, power: float | None, price: Price | None) -> list[str]:
        notes = []
        if power is None:
            notes.append(f"no energy: the file of {self.device.name} has no power")
        elif self.own_power is None:
            notes.append(
                f"energy is an upper bound: every device takes the {power:g} W of its board all "
                "the time"
            )
        if price and self.own_price is None:
            what = f", {price.what}" if price.what else ""
            notes.append(
                f"price: {price.amount:g} {price.currency} for an hour of a device, "
                f"{price.provider}{what}, {price.date}"
            )
        return notes


def _best_scheme(run: Run, row: DataRow) -> str:
    """Return the best scheme; for a worker alone the one whose communication catches up last."""
    if row.workers > 1:
        return row.best_scheme
    exact = [name for name in row.communication if COLLECTIVES[name].exact]
    return max(
        exact or row.communication,
        key=lambda scheme: math.inf if (most := run.worth.balance[scheme]) is None else most,
    )


def _flops(graph: Graph, cost_model: CostModel, directions: tuple[Pass, ...]) -> int:
    """Return the FLOPs of these passes, without gradients that nobody needs."""
    needed = needed_gradients(graph, cost_model)
    return sum(
        int(total_work(graph.operations(node, direction, needed[i])).flops)
        for i, node in enumerate(graph.nodes)
        for direction in directions
    )
