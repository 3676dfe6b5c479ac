"""What running and training a net takes: operations, time, energy, memory, money.

The metrics of table 2.2 of F. Iandola, "Exploring the Design Space of Deep Convolutional Neural
Networks at Large Scale" (UC Berkeley, 2016), for a net on a cluster under a plan.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from paleo.collectives import COLLECTIVES
from paleo.costs import DEFAULT_COST_MODEL, ConvolutionChoice, CostModel, find_cost_model
from paleo.costs.convolutions import DEFAULT
from paleo.datasets import Schedule
from paleo.errors import Mistakes, PaleoError, SettingError
from paleo.estimate import (
    BACKWARD,
    FORWARD,
    DeviceLike,
    NetworkLike,
    adapter,
    checked_target,
    estimate_pass,
    needed_gradients,
)
from paleo.graph import Graph, build
from paleo.hardware import Device, Price, find_device, parse_price
from paleo.importers import ImportOptions
from paleo.load import load
from paleo.memory import OPTIMIZERS, Footprint, footprint, largest_batch
from paleo.netspec import NetSpec
from paleo.parallelism import SCALINGS, divided
from paleo.quantity import ceil_div
from paleo.rows import DataRow, HybridRow, Run, WholeStep
from paleo.simulate import NetLike, simulate
from paleo.tensor import PRECISIONS, find_precision
from paleo.units import parse
from paleo.values import check_choice, is_number, is_whole, listed, python_int, shown
from paleo.work import Pass, total_work

__all__ = ["PARALLELISMS", "Metrics", "Storage", "metrics"]

#: The ways to divide a step among devices that make a whole step.
PARALLELISMS = ("data", "hybrid")
#: What a price is in that is a number alone.
_CURRENCY = "USD"
#: No weight, and no index of one, has more bits.
_MOST_BITS = 64
#: More watts, or money for an hour, mean nothing.
_MOST = 1e12
_HOUR = 3600


@dataclass(frozen=True)
class Storage:
    """How a model is stored: bits for each weight and for its index, and the share of zeros.

    Zeros are not stored; raises SettingError for what is out of range.
    """

    weight_bits: int = 32
    index_bits: int = 0
    sparsity: float = 0.0

    def __post_init__(self) -> None:
        mistakes = Mistakes()
        for name, least in (("weight_bits", 1), ("index_bits", 0)):
            bits = getattr(self, name)
            if not (is_whole(bits) and least <= bits <= _MOST_BITS):
                mistakes.add(
                    f"{name}: expected a whole number from {least} to {_MOST_BITS}, "
                    f"got {shown(bits)}"
                )
        if not (is_number(self.sparsity) and 0 <= self.sparsity < 1):  # false for NaN
            mistakes.add(
                f"sparsity: expected a number from 0 to below 1, got {shown(self.sparsity)}"
            )
        mistakes.raise_as(SettingError)

    def num_bytes(self, num_params: int) -> int:
        """Return the bytes of a model of so many weights."""
        stored = round(num_params * (1 - self.sparsity))
        return int(ceil_div(stored * (self.weight_bits + self.index_bits), 8))


@dataclass(frozen=True)
class Metrics:
    """A net under one plan, in SI units. What cannot be said is None.

    Inference (seconds of a forward pass) and memory are those of one device, at the batch of
    one worker. A `step` is that of all workers, as are time, energy and cost of the training.
    `peak` is the dense peak of the data sheet for the type in FLOP/s, `power` watts of a device,
    `balance_workers` the least number of workers whose communication takes at least as long as
    their computation.
    """

    net: str
    device: str
    network: str
    cost_model: str
    dtype: str
    parallel: str
    scaling: str | None
    scheme: str | None
    worker_batch_size: int
    inference_flops_per_sample: int
    training_flops_per_sample: int
    params: int
    storage: Storage
    peak: float | None
    inference: float
    step: WholeStep
    compute: float
    communication: float
    balance_workers: int | None
    schedule: Schedule
    power: float | None
    price: Price | None
    optimizer: str
    inference_memory: Footprint | None
    training_memory: Footprint | None
    memory_capacity: float | None
    largest_batch: int | None
    notes: tuple[str, ...] = ()
    fuse: bool = False
    #: How convolutions are computed, as in `Run`.
    convolutions: ConvolutionChoice = DEFAULT
    convolution_algorithm: str = "gemm"

    @property
    def workers(self) -> int:
        """How many workers train."""
        return self.step.workers

    @property
    def batch_size(self) -> int:
        """Samples of a step, of all workers."""
        return self.step.batch_size

    @property
    def model_bytes(self) -> int:
        """Bytes of the model as it is stored."""
        return self.storage.num_bytes(self.params)

    @property
    def inference_throughput(self) -> float | None:
        """Samples a second in inference, on one device."""
        return self.worker_batch_size / self.inference if self.inference else None

    @property
    def peak_throughput(self) -> float | None:
        """Samples a second in inference if the device ran at its peak."""
        if self.peak is None or not self.inference_flops_per_sample:
            return None
        return self.peak / self.inference_flops_per_sample

    @property
    def computation_communication_ratio(self) -> float | None:
        """The seconds of computation over those of communication in a step."""
        return self.compute / self.communication if self.communication else None

    @property
    def num_steps(self) -> float | None:
        """Steps of the whole training, of which the last may be part of one."""
        return _times(self.schedule.num_samples, 1 / self.batch_size)

    @property
    def training_flops(self) -> float | None:
        """FLOPs of the whole training but for updates."""
        return _times(self.schedule.num_samples, self.training_flops_per_sample)

    @property
    def training_time(self) -> float | None:
        """Seconds of the whole training."""
        return _times(self.num_steps, self.step.seconds)

    @property
    def inference_energy_per_sample(self) -> float | None:
        """Joules of one sample in inference."""
        return _times(self.power, self.inference / self.worker_batch_size)

    @property
    def training_energy_per_sample(self) -> float | None:
        """Joules of one sample in training, of all workers together."""
        return _times(self.power, self.workers * self.step.seconds / self.batch_size)

    @property
    def training_energy(self) -> float | None:
        """Joules of the whole training, of all workers together."""
        return _times(self.schedule.num_samples, self.training_energy_per_sample)

    @property
    def training_cost(self) -> float | None:
        """What the devices cost for the whole training, in the currency of the price."""
        if self.price is None:
            return None
        return _times(self.training_time, self.price.amount * self.workers / _HOUR)

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        price, memory = self.price, self.training_memory
        return {
            "net": self.net,
            "device": self.device,
            "network": self.network,
            "cost_model": self.cost_model,
            "dtype": self.dtype,
            "fuse": self.fuse,
            **self.convolutions.to_dict(),
            "convolution_algorithm": self.convolution_algorithm,
            "parallel": self.parallel,
            "scaling": self.scaling,
            "scheme": self.scheme,
            "workers": self.workers,
            "batch_size": self.batch_size,
            "worker_batch_size": self.worker_batch_size,
            "inference_flops_per_sample": self.inference_flops_per_sample,
            "training_flops_per_sample": self.training_flops_per_sample,
            "params": self.params,
            "model_bytes": self.model_bytes,
            "weight_bits": self.storage.weight_bits,
            "index_bits": self.storage.index_bits,
            "sparsity": self.storage.sparsity,
            "inference_s": self.inference,
            "inference_throughput_per_s": self.inference_throughput,
            "peak_throughput_per_s": self.peak_throughput,
            "step_s": self.step.seconds,
            "compute_s": self.compute,
            "communication_s": self.communication,
            "computation_communication_ratio": self.computation_communication_ratio,
            "balance_workers": self.balance_workers,
            "training_throughput_per_s": self.step.throughput,
            "speedup": self.step.speedup,
            "epochs": self.schedule.epochs,
            "dataset": self.schedule.dataset,
            "dataset_size": self.schedule.size,
            "num_steps": self.num_steps,
            "training_flops": self.training_flops,
            "training_time_s": self.training_time,
            "power_w": self.power,
            "inference_energy_per_sample_j": self.inference_energy_per_sample,
            "training_energy_per_sample_j": self.training_energy_per_sample,
            "training_energy_j": self.training_energy,
            "price_per_device_hour": price and price.amount,
            "price_currency": price and price.currency,
            "price_provider": price and (price.provider or None),
            "price_date": price and (price.date or None),
            "training_cost": self.training_cost,
            "inference_memory_bytes": self.inference_memory and self.inference_memory.peak,
            "training_memory_bytes": memory and memory.peak,
            "weights_bytes": memory and memory.weights,
            "gradients_bytes": memory and memory.gradients,
            "optimizer_state_bytes": memory and memory.optimizer_state,
            "activations_bytes": memory and memory.activations,
            "workspace_bytes": memory and memory.workspace,
            "optimizer": self.optimizer,
            "memory_capacity_bytes": self.memory_capacity,
            "largest_batch_size": self.largest_batch,
            "notes": list(self.notes),
        }


def _times(value: float | None, factor: float | None) -> float | None:
    """Return the product, None if one of them is not known."""
    return None if value is None or factor is None else value * factor


def metrics(
    nets: NetLike | Iterable[NetLike],
    *,
    device: DeviceLike = "TITAN_X",
    network: NetworkLike = "ethernet",
    batch_size: int = 128,
    workers: int | Sequence[int] = 1,
    scaling: str = "strong",
    parallel: str = "data",
    hybrid_workers: int = 1,
    use_pipeline: bool = False,
    ppp_comp: float = 1.0,
    ppp_comm: float = 1.0,
    cost_model: str | CostModel = DEFAULT_COST_MODEL,
    scheme: str | None = None,
    epochs: float | None = None,
    dataset: str | None = None,
    dataset_size: int | None = None,
    weight_bits: int | None = None,
    index_bits: int = 0,
    sparsity: float = 0.0,
    optimizer: str = "sgd",
    price: float | str | Price | None = None,
    power: float | str | None = None,
    importing: ImportOptions | None = None,
    dtype: str = "fp32",
    fuse: bool = False,
    conv_library: str | None = None,
    workspace: int | str | None = None,
    use_only_gemm: bool = False,
) -> tuple[Metrics, ...]:
    """Return the metrics of one net or several, each on every number of workers.

    Parameters that `paleo.simulate` has too mean the same. `scheme` is one communication
    scheme, None the best. Time, energy and cost of a training need `epochs` and either
    `dataset`, one of paleo.datasets.DATASETS, or `dataset_size`. `weight_bits`, `index_bits`
    and `sparsity` are those of `Storage`, the bits of a parameter's type unless given;
    `optimizer` is one of paleo.memory.OPTIMIZERS.
    `price` is what one device costs for an hour, in dollars or as a text such as
    "0.90 EUR/h", None the newest of the device's file; `power` what it takes, in watts or as
    a text such as "180 W", None that of the file. Raises a PaleoError with every mistake in
    the settings and files.
    """
    mistakes = Mistakes()
    check = mistakes.check
    many = check(listed, "nets", nets, str | os.PathLike | NetSpec) or []
    specs = [spec for spec in (check(load, net, importing) for net in many) if spec]
    check(check_choice, "parallel", parallel, PARALLELISMS)
    check(check_choice, "scaling", scaling, SCALINGS)
    check(_check_single, "scheme", scheme)
    simulation = check(
        lambda: simulate(
            specs or nets,
            device=device,
            network=network,
            batch_size=batch_size,
            workers=workers,
            scaling=scaling if scaling in SCALINGS else SCALINGS,
            parallel=parallel if parallel in PARALLELISMS else "data",
            hybrid_workers=hybrid_workers,
            use_pipeline=use_pipeline,
            ppp_comp=ppp_comp,
            ppp_comm=ppp_comm,
            cost_model=cost_model,
            schemes=scheme,
            dtype=dtype,
            fuse=fuse,
            conv_library=conv_library,
            workspace=workspace,
            use_only_gemm=use_only_gemm,
        )
    )
    schedule = check(Schedule, python_int(epochs), dataset, python_int(dataset_size))
    if weight_bits is None:
        weight_bits = _bits(dtype)
    storage = check(Storage, python_int(weight_bits), python_int(index_bits), sparsity)
    check(OPTIMIZERS.__getitem__, optimizer)
    own_price, own_power = check(_price, price), check(_power, power)
    mistakes.raise_as(PaleoError)

    assert simulation is not None
    assert schedule is not None
    assert storage is not None
    case = _Case(
        device=find_device(device),
        cost_model=find_cost_model(cost_model),
        ppp_comp=ppp_comp,
        use_pipeline=use_pipeline,
        scheme=scheme,
        schedule=schedule,
        storage=storage,
        optimizer=optimizer,
        own_price=own_price,
        own_power=own_power,
        dtype=dtype,
        fuse=fuse,
    )
    return tuple(
        found
        for spec, run in zip(specs, simulation.runs, strict=True)
        for found in case.metrics(spec, run)
    )


def _bits(dtype: Any) -> int:
    """Return the bits of a parameter; of a type that is none, which is noted elsewhere, some."""
    known = dtype if isinstance(dtype, str) and dtype in PRECISIONS else "fp32"
    return 8 * find_precision(known).parameter_size


def _check_single(name: str, value: Any) -> None:
    if not isinstance(value, str | None):
        raise SettingError(f"{name}: expected one, got {shown(value)}")


def _price(price: Any) -> Price | None:
    if isinstance(price, Price | None):
        return price
    if is_number(price) and 0 <= price <= _MOST:
        return Price(float(price), _CURRENCY)
    try:
        return Price(*parse_price(price))
    except ValueError:
        raise SettingError(
            f"price: expected a number from 0 to {_MOST:g}, or a text such as "
            f'"0.90 EUR/h", got {shown(price)}'
        ) from None


def _power(power: Any) -> float | None:
    if power is None:
        return None
    if is_number(power) and 0 < power <= _MOST:
        return float(power)
    try:
        if not isinstance(power, str):
            raise ValueError(
                f"expected watts, a number above 0, up to {_MOST:g}, got {shown(power)}"
            )
        return parse(power, "W")
    except ValueError as error:
        raise SettingError(f"power: {error}") from None


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
class _Case:
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
        for step in self._steps(run):
            own = step.own_batch
            memory = self._memory(net, own, apart)
            notes = [*run.notes, *self._notes(power, price), *memory.notes(self.device)]
            notes += memory.training.notes if memory.training else ()
            if apart:
                notes.append("memory in training is not known where layers are split over devices")
            yield Metrics(
                net=run.net,
                device=run.device,
                network=run.network,
                cost_model=run.cost_model,
                dtype=run.dtype,
                parallel=run.parallel,
                scaling=run.scaling,
                scheme=step.scheme,
                worker_batch_size=own,
                inference_flops_per_sample=inference_flops,
                training_flops_per_sample=training_flops,
                params=one.num_params,
                storage=self.storage,
                peak=self._peak,
                inference=self._inference(net, own, run.convolutions),
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
                fuse=run.fuse,
                convolutions=run.convolutions,
                convolution_algorithm=run.convolution_algorithm,
            )

    @property
    def _peak(self) -> float | None:
        computing = find_precision(self.dtype).computing
        return float(self.device.peak(computing)) if self.device.peaks.get(computing) else None

    def _graph(self, net: NetSpec, batch: int) -> Graph:
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

    def _memory(self, net: NetSpec, batch: int, apart: bool) -> _Memory:
        """Return the memory of one device; with slices `apart`, it is not known in training."""
        capacity, largest, training = self.device.memory_capacity, None, None
        of: Any = {"optimizer": self.optimizer, "dtype": self.dtype}
        try:
            if not apart:
                training = footprint(net, batch, **of)
            if capacity is not None and not apart:
                largest = largest_batch(net, capacity, **of)
            return _Memory(
                footprint(net, batch, training=False, dtype=self.dtype), training, largest
            )
        except PaleoError as error:  # a net that only the conventions of the cost model can take
            return _Memory(None, None, None, f"memory is not known: {error.mistakes[0]}")

    def _inference(self, net: NetSpec, batch: int, choice: ConvolutionChoice) -> float:
        graph, model = self._graph(net, batch), self.cost_model
        target = checked_target(self.device, model, self.dtype, self.ppp_comp, choice)
        training = not self.fuse  # a plain one stays the training step's, as it has been
        found = estimate_pass(
            graph, FORWARD, target, model, self.use_pipeline, fuse=self.fuse, training=training
        )
        return float(found.upper)

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
