"""The metrics of a net under one plan, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paleo.datasets import Schedule
from paleo.errors import Mistakes, SettingError
from paleo.hardware import Price
from paleo.memory import Footprint
from paleo.quantity import ceil_div
from paleo.rows import Conditions, WholeStep
from paleo.training import Training, times
from paleo.values import is_number, is_whole, shown

__all__ = ["Metrics", "Storage"]

#: No weight, and no index of one, has more bits.
_MOST_BITS = 64


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


@dataclass(frozen=True, kw_only=True)
class Metrics(Conditions):
    """A net under one plan, in SI units. What cannot be said is None.

    Inference (seconds of a forward pass) and memory are those of one device, at the batch of one
    worker. A `step` is that of all workers, as are time, energy and cost of the training. `peak` is
    the dense peak of the data sheet for the type in FLOP/s, `power` watts of a device,
    `balance_workers` the least number of workers whose communication takes at least as long as
    their computation.
    """

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
    def training(self) -> Training:
        """The whole training."""
        return Training(self.step, self.schedule, self.price)

    @property
    def num_steps(self) -> float | None:
        """Steps of the whole training, of which the last may be part of one."""
        return self.training.num_steps

    @property
    def training_flops(self) -> float | None:
        """FLOPs of the whole training but for updates."""
        return times(self.schedule.num_samples, self.training_flops_per_sample)

    @property
    def training_time(self) -> float | None:
        """Seconds of the whole training."""
        return self.training.seconds

    @property
    def inference_energy_per_sample(self) -> float | None:
        """Joules of one sample in inference."""
        return times(self.power, self.inference / self.worker_batch_size)

    @property
    def training_energy_per_sample(self) -> float | None:
        """Joules of one sample in training, of all workers together."""
        return times(self.power, self.workers * self.step.seconds / self.batch_size)

    @property
    def training_energy(self) -> float | None:
        """Joules of the whole training, of all workers together."""
        return times(self.schedule.num_samples, self.training_energy_per_sample)

    @property
    def training_cost(self) -> float | None:
        """What the devices cost for the whole training, in the currency of the price."""
        return self.training.cost

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
