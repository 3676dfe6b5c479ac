"""The contract of a cost model: an operation on a device becomes a time.

To add one: a subclass of CostModel in a file of this folder, registered by
`COST_MODELS.add(name, instance)`, and the file imported in `paleo/costs/__init__.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from paleo.hardware import Device
from paleo.quantity import Quantity
from paleo.registry import Registry
from paleo.work import Operation

__all__ = ["COST_MODELS", "Conventions", "CostModel", "Target", "Time"]


@dataclass(frozen=True, slots=True)
class Time:
    """Seconds of computation, memory traffic and overhead, and of them together.

    `total` is what the model says they take together, by its own rule of what overlaps.
    """

    compute: Quantity = 0.0
    memory: Quantity = 0.0
    overhead: Quantity = 0.0
    total: Quantity = 0.0

    def __add__(self, other: Time) -> Time:
        return Time(
            self.compute + other.compute,
            self.memory + other.memory,
            self.overhead + other.overhead,
            self.total + other.total,
        )


@dataclass(frozen=True)
class Target:
    """Where an operation runs: a device, the element type, and the share of peak reached.

    `ppp_comp` (above 0, up to 1) is the percent of peak of computation and memory alike.
    """

    device: Device
    dtype: str = "fp32"
    ppp_comp: Quantity = 1.0


@dataclass(frozen=True)
class Conventions:
    """Where the 2017 reference implementation departs from what newer models do.

    Published figures contain these, so `paleo2017` keeps them; each is off elsewhere.
    """

    #: Only a convolution right after an Input needs no gradient of its input; else, every
    #: layer without parameters above it.
    only_first_convolutions_skip: bool = False
    #: A Sigmoid has one output a sample; else, its input's shape.
    sigmoid_has_one_output: bool = False
    #: Butterfly mixing costs one transfer for a single worker too; else, nothing.
    lone_worker_mixes: bool = False
    #: Unsplit layers and slice 0 are never one device; else, they are.
    slice_zero_is_remote: bool = False
    #: The halving of bandwidth between groups of four devices holds for the layer's later
    #: parents too; else, for that transfer.
    halving_stays: bool = False
    #: Model parallelism fetches at the device's memory bandwidth; else, over the network.
    model_fetches_from_memory: bool = False
    #: The hybrid scheme counts the activations of all other workers in elements, fetches
    #: them once, and takes that time off every batch (so that many workers may end below
    #: zero); else, each batch is fetched, in bytes, while the one before is computed.
    hybrid_fetches_elements_once: bool = False
    #: The hybrid scheme's update covers the slices of all devices, without pipelining;
    #: else, the largest slice.
    hybrid_updates_all_slices: bool = False


class CostModel(ABC):
    """Turns operations into times. All quantities may be arrays."""

    name: ClassVar[str]
    #: One line for lists and help.
    summary: ClassVar[str]
    #: Whether hardware that the 2017 model knew has that model's figures.
    uses_2017_figures: ClassVar[bool] = False
    conventions: ClassVar[Conventions] = Conventions()

    #: Whether `pipelined` makes a difference.
    pipelines: ClassVar[bool] = False

    @abstractmethod
    def price(self, operation: Operation, target: Target) -> Time:
        """Return the seconds that this operation takes."""

    @abstractmethod
    def counts(self, operation: Operation) -> bool:
        """Tell whether the model prices this operation at all, or leaves it out.

        It is not asked about what an importer did not understand, which nobody prices.
        """

    @abstractmethod
    def fetch(
        self, num_bytes: Quantity, bandwidth: Quantity, target: Target, ppp_comm: Quantity
    ) -> Time:
        """Return the seconds to fetch activations from another device at `bandwidth`."""

    @abstractmethod
    def rates(self, device: Device) -> tuple[tuple[str, Quantity, str], ...]:
        """Return the figures of a device that the model uses: name, value, SI unit."""

    def pipelined(self, time: Time) -> Quantity:
        """Return the seconds of a layer's pass if computation and memory traffic overlap."""
        return time.total


COST_MODELS: Registry[CostModel] = Registry("cost model")
