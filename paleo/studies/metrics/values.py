"""The metrics of a net under one plan, as values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from paleo.cluster import Price
from paleo.core.attributes import Ends, at_ends, attributes, with_ends
from paleo.core.checks import is_number, is_whole, shown
from paleo.core.errors import Mistakes, SettingError
from paleo.core.frozen import dataclass
from paleo.core.quantity import ceil_div
from paleo.core.results import Result
from paleo.core.tensor import find_precision
from paleo.step.memory import Footprint
from paleo.step.pieces import USED, WholeStep
from paleo.step.plan_keys import HOW, UPDATED
from paleo.step.results import Predicted
from paleo.step.scenario import Scenario
from paleo.studies.datasets import Schedule
from paleo.studies.training import HOUR, Training, times

#: The keys of what follows from a time, and of what is the less the longer that is.
TIMES = (
    *("inference_s", "step_s", "compute_s", "training_time_s", "device_hours", "training_cost"),
    *("inference_cost_per_million", "training_cost_per_million"),
    *(f"{name}_j" for name in ("inference_energy_per_sample", "training_energy")),
    "training_energy_per_sample_j",
)
RATES = ("inference_throughput_per_s", "training_throughput_per_s", *USED)

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
class Metrics(Predicted, Result):
    """A net under one plan, in SI units. What cannot be said is None.

    Inference (seconds of a forward pass) and memory are those of one device, at the batch of one
    worker. A `step` is that of all workers, as are time, energy and cost of the training. `power`
    is watts of a device, `balance_workers` the least number of workers whose communication takes
    at least as long as their computation.
    """

    scenario: Scenario
    scaling: str | None
    scheme: str | None
    worker_batch_size: int
    inference_flops_per_sample: int
    training_flops_per_sample: int
    params: int
    storage: Storage
    inference: float
    step: WholeStep
    compute: float
    communication: float
    exposed_communication: float
    balance_workers: int | None
    schedule: Schedule
    power: float | None
    price: Price | None
    inference_memory: Footprint | None
    training_memory: Footprint | None
    largest_batch: int | None
    notes: tuple[str, ...] = ()

    @property
    def optimizer(self) -> str:
        """The name of the optimizer."""
        return self.plan.optimizer

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
    def peak(self) -> float | None:
        """The dense peak of the data sheet for the type, in FLOP/s."""
        device, computing = self.plan.device, find_precision(self.dtype).computing
        return float(device.peak(computing)) if device.peaks.get(computing) else None

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
        return Training(self.step, self.schedule, self.price, self.power)

    def cost_per_million(self, per_second: float | None, devices: int = 1) -> float | None:
        """Return what a million samples cost at so many a second, in the currency of the price."""
        if not per_second or self.price is None:
            return None
        return 1e6 / per_second / HOUR * self.price.amount * devices

    @property
    def inference_cost_per_million(self) -> float | None:
        """What a million samples cost in inference, in the currency of the price."""
        return self.cost_per_million(self.inference_throughput)

    @property
    def training_cost_per_million(self) -> float | None:
        """What it costs to train with a million samples, in the currency of the price."""
        return self.cost_per_million(self.step.throughput, self.workers)

    @property
    def num_steps(self) -> float | None:
        """Steps of the whole training, of which the last may be part of one."""
        return self.training.num_steps

    @property
    def training_flops(self) -> float | None:
        """FLOPs of the whole training but for updates."""
        return times(self.training.num_samples, self.training_flops_per_sample)

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
        return self.training.energy

    @property
    def training_cost(self) -> float | None:
        """What the devices cost for the whole training, in the currency of the price."""
        return self.training.cost

    @property
    def ends(self) -> Ends[Metrics]:
        """The metrics at both ends of the error band of times."""
        plan = self.plan
        of_training: Ends[float] = plan.band.ends if plan.band else (None, None)
        of_inference: Ends[float] = plan.inference_band.ends if plan.inference_band else of_training

        def taking(factor: float, inference: float, step: WholeStep) -> Metrics:
            compute = factor * self.compute
            return replace(self, inference=inference * self.inference, compute=compute, step=step)

        low, high = (
            taking(factor, inference, step) if factor and inference and step else None
            for factor, inference, step in zip(
                of_training, of_inference, self.step.ends, strict=True
            )
        )
        return low, high

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output.

        What follows from a time that has an error band has both ends of it, too.
        """
        values = self._values()
        if not self.plan.band:
            return values
        ends = at_ends(self.ends, Metrics._values)
        return with_ends(values, ends, times=TIMES, rates=RATES)

    def _values(self) -> dict[str, Any]:
        price, memory = self.price, self.training_memory
        return {
            "net": self.net,
            **self.plan.to_dict("device", "network", "cluster", "cost_model", "dtype", *HOW[1:]),
            **attributes(self, "parallel", "scaling", "scheme"),
            **attributes(self, "workers", "batch_size", "worker_batch_size"),
            **attributes(self, "inference_flops_per_sample", "training_flops_per_sample"),
            **attributes(self, "params", "model_bytes"),
            **attributes(self.storage, "weight_bits", "index_bits", "sparsity"),
            "inference_s": self.inference,
            **attributes(self, "inference_throughput", "peak_throughput", unit="per_s"),
            "step_s": self.step.seconds,
            **attributes(self, "compute", "communication", "exposed_communication", unit="s"),
            **attributes(self, "computation_communication_ratio", "balance_workers"),
            "training_throughput_per_s": self.step.throughput,
            "speedup": self.step.speedup,
            **attributes(self.schedule, "epochs", "dataset"),
            "dataset_size": self.schedule.size,
            "tokens": self.schedule.tokens,
            **{key: getattr(self.step, key) for key in USED},
            **attributes(self, "num_steps", "training_flops"),
            "training_time_s": self.training_time,
            "device_hours": self.training.device_hours,
            "power_w": self.power,
            **attributes(
                self,
                "inference_energy_per_sample",
                "training_energy_per_sample",
                "training_energy",
                unit="j",
            ),
            "price_per_device_hour": price and price.amount,
            "price_currency": price and price.currency,
            "price_provider": price and (price.provider or None),
            "price_date": price and (price.date or None),
            "training_cost": self.training_cost,
            **attributes(self, "inference_cost_per_million", "training_cost_per_million"),
            "inference_memory_bytes": self.inference_memory and self.inference_memory.peak,
            "training_memory_bytes": memory and memory.peak,
            **attributes(memory, "weights", "gradients", "optimizer_state", unit="bytes"),
            **attributes(memory, "activations", "workspace", unit="bytes"),
            **self.plan.to_dict(*UPDATED[:2]),
            "memory_capacity_bytes": self.memory_capacity,
            "largest_batch_size": self.largest_batch,
            "notes": list(self.notes),
        }
