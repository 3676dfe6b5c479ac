"""The contract of a cost model: an operation on a device becomes a time.

To add one: a subclass of CostModel in a file of this folder, registered by
`COST_MODELS.add(name, instance)`. The folder finds its files by itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, ClassVar, TypeAlias

from paleo.cluster import Device
from paleo.core.frozen import dataclass
from paleo.core.operations import Convolution, Fused, Operation
from paleo.core.quantity import Quantity, identity, is_array, maximum, np
from paleo.core.registry import Registry
from paleo.costs.convolutions.settings import CONTIGUOUS, ConvolutionChoice
from paleo.costs.convolutions.settings import DEFAULT as CHOICE
from paleo.costs.error_bands import Band, Like
from paleo.costs.times import Time, Times


def quicker(a: Time, b: Time) -> tuple[Any, Time]:
    """Return whether `b` is quicker than `a`, and the quicker of the two, element by element."""
    if not (is_array(a.total) or is_array(b.total)):
        second = b.total < a.total
        return second, b if second else a
    second = np.asarray(b.total < a.total)
    return second, Time(*(np.where(second, y, x) for x, y in zip(a, b, strict=True)))


def only_where(allowed: Any, time: Time) -> Time:
    """Return a time, of an array of them one that nobody takes where it is not allowed."""
    if not is_array(allowed):
        return time
    return time._replace(total=np.where(allowed, time.total, np.inf))


@dataclass(frozen=True)
class Target:
    """Where an operation runs: a device, the element type, and the share of peak reached.

    `share` (above 0, up to 1) is the share of peak of computation and memory alike.
    """

    device: Device
    dtype: str = "fp32"
    share: Quantity = 1.0
    #: Constants of the cost model in the place of those it has for the device: a fit's trial.
    constants: Mapping[str, Quantity] = field(default_factory=dict)
    #: Among which algorithms the quickest is taken for each convolution.
    convolutions: ConvolutionChoice = CHOICE
    #: Whether what is written is kept for a backward pass; else, its memory is used again soon.
    training: bool = True
    #: How images lie in memory: "contiguous" (N, C, H, W) or "channels_last" (N, H, W, C).
    memory_format: str = CONTIGUOUS
    #: Whose kernels compute attention, of paleo.costs.attention; None: no library's in particular.
    attention: str | None = None
    #: Whether the program asks for recurrent kernels that keep their weights on the chip.
    persistent: bool = False
    #: Whether kernels follow one another without end, which leaves a board no power for bursts.
    continuous: bool = False

    def of(self, operation: Operation) -> Target:
        """Return the target of this operation, which may have an element type of its own."""
        dtype = operation.dtype
        return replace(self, dtype=dtype) if dtype and dtype != self.dtype else self


#: What went into a time: a name, a value, and its SI unit ("" for a count, a share or a text).
Detail: TypeAlias = "tuple[str, Quantity | str, str]"


@dataclass(frozen=True)
class Explanation:
    """Why an operation takes what it takes.

    `algorithm` names how it is computed, `why` says in a sentence what limits it, and `details` are
    what went into it.
    """

    algorithm: str
    time: Time
    details: tuple[Detail, ...] = ()
    why: str = ""

    @property
    def bound(self) -> Any:
        """What limits it: "compute", "memory" or "overhead"; "" where it costs nothing."""
        return self.time.bound


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
    #: Gradients are exchanged over one link without latency, after the backward pass, by schemes of
    #: 2017; else, over the tiers of a cluster, beside it, by what a library chooses.
    exchanges_after_all: bool = False
    #: The update is plain gradient descent whatever the optimizer; else, it is the optimizer's.
    descends_plainly: bool = False


def priced_once(operations: Sequence[Operation], price: Callable[[Operation], Time]) -> Times:
    """Return what `price` says of each; equal ones are priced once."""
    keys = list(map(identity, operations))
    distinct = dict(zip(keys, operations, strict=True))
    times = {key: price(operation) for key, operation in distinct.items()}
    return Times([times[key] for key in keys])


class CostModel(ABC):
    """Turns operations into times. All quantities may be arrays."""

    name: ClassVar[str]
    #: One line for lists and help.
    summary: ClassVar[str]
    #: Whether hardware that the 2017 model knew has that model's figures.
    uses_2017_figures: ClassVar[bool] = False
    conventions: ClassVar[Conventions] = Conventions()

    #: The only element types that it knows; None for all that the device has a peak for.
    dtypes: ClassVar[tuple[str, ...] | None] = None
    #: Whether there is nothing that it leaves out: `counts` is always true.
    counts_all: ClassVar[bool] = False
    #: Whether a larger batch never takes less time.
    grows: ClassVar[bool] = True
    #: How convolutions are priced where nobody asks for a library: as "gemm", a matrix product, or
    #: by the "quickest" algorithm of the device's library.
    convolution_algorithm: ClassVar[str] = "gemm"
    #: Whether it knows the kernels of families of attention.
    knows_attention_kernels: ClassVar[bool] = False
    #: Whether `pipelined` makes a difference: computation and memory traffic are added up.
    pipelines: ClassVar[bool] = False

    @abstractmethod
    def price(self, operation: Operation, target: Target) -> Time:
        """Return the seconds that this operation takes; of one that is Fused, `price_fused`."""

    def price_all(self, operations: Sequence[Operation], target: Target) -> Times:
        """Return what `price` does of each; equal ones are priced once."""
        return priced_once(operations, lambda operation: self.price(operation, target))

    def price_by(self, algorithm: str, operation: Convolution, target: Target) -> Time | None:
        """Return the seconds of a convolution by an algorithm of `convolutions.ALGORITHMS`.

        None where the cost model has no price: the algorithm does not apply, or it is not known.
        """
        return None

    def price_fused(self, operation: Fused, price: Callable[[Operation], Time]) -> Time:
        """Return the seconds of a kernel that does pointwise operations behind its own.

        To those of the head, by a `price`, it adds what the tail computes, and what more bytes take
        in a kernel that moves the head's already: neither a launch nor a latency.
        """
        head, before = operation.head, price(operation.head)
        compute, memory = before.compute, before.memory
        for part in operation.tail:
            alone = replace(
                part, reads=head.reads, writes=head.writes, roles=head.read_roles, flops=0
            )
            together = replace(
                part,
                reads=head.reads + part.reads,
                writes=head.writes + part.writes,
                roles=head.read_roles + part.read_roles,
            )
            less, more = price(alone), price(together)
            compute = compute + (more.compute - less.compute)
            memory = memory + (more.memory - less.memory)
        if self.pipelines:
            longer = (compute + memory) - (before.compute + before.memory)
        else:
            longer = maximum(compute, memory) - maximum(before.compute, before.memory)
        return Time(compute, memory, before.overhead, before.total + longer)

    def explain(self, operation: Operation, target: Target) -> Explanation:
        """Return why `operation` takes what `price` says it does; for numbers, not arrays."""
        if isinstance(operation, Fused):
            return self.explain_fused(operation, target)
        return Explanation(operation.name, self.price(operation, target))

    def explain_fused(self, operation: Fused, target: Target) -> Explanation:
        """Return why a kernel with a tail takes what it does: what there is to say of its head."""
        head = self.explain(operation.head, target)
        time = self.price(operation, target)
        tail = ("in its kernel", ", ".join(each.name for each in operation.tail), "")
        why = head.why if time.bound == head.bound else ""
        return Explanation(head.algorithm, time, (*head.details, tail), why)

    def host(self, target: Target) -> Quantity:
        """Return the seconds in which the host hands over an operation; 0 where it is no matter."""
        return 0.0

    def band(self, asked: Like, device: Device) -> Band | None:
        """Return the error band of cases like these on a device; None if none is known.

        Their architecture is the device's, whatever `asked` says of it.
        """
        return None

    def counts(self, operation: Operation) -> bool:
        """Tell whether the model prices this operation at all, or leaves it out.

        It is not asked about what an importer did not understand, which nobody prices.
        """
        return True

    def fetch(
        self, num_bytes: Quantity, bandwidth: Quantity, target: Target, ppp_comm: Quantity
    ) -> Time:
        """Return the seconds to fetch activations from another device at `bandwidth`."""
        seconds = num_bytes / (bandwidth * ppp_comm)
        return Time(overhead=seconds, total=seconds)

    def rates(self, device: Device, dtype: str = "fp32") -> tuple[tuple[str, Quantity, str], ...]:
        """Return the figures of a device that the model uses for an element type.

        Each is a name, a value, and its SI unit; by default the data sheet's peak and bandwidth.
        """
        return (
            ("peak", device.peak(dtype), "FLOP/s"),
            ("memory bandwidth", device.memory_bandwidth, "bytes/s"),
        )

    def pipelined(self, time: Time) -> Quantity:
        """Return the seconds of a layer's pass if computation and memory traffic overlap."""
        return time.total


COST_MODELS: Registry[CostModel] = Registry("cost model", "paleo.cost_models")
