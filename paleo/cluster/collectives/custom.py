"""All-reduce by a kernel of one's own, as serving frameworks have it for short messages.

In one shot every device reads the whole message of all others over their links and adds it up; in
two it adds up a K-th, which all then gather. Either is one kernel, without NCCL's hops, for devices
that reach each other's memory: inside of a node. Longer messages, those between nodes, and of more
than two devices on PCIe, are left to NCCL.
"""

from __future__ import annotations

from collections.abc import Iterator

from paleo.cluster.collectives import nccl
from paleo.cluster.collectives.base import COLLECTIVES, Collective, Operation, Round
from paleo.cluster.collectives.direct import ShardedServer
from paleo.cluster.collectives.paths import Path, is_modelled
from paleo.cluster.collectives.phases import Phases
from paleo.cluster.topology import Group, beyond_one
from paleo.core.errors import SettingError
from paleo.core.frozen import dataclass
from paleo.core.quantity import Quantity, ceil_log2, maximum, minimum, where
from paleo.core.units import KIB, MIB

#: Bytes that a kernel with barriers has on their way: 36 blocks of 512 threads, 16 bytes each.
_IN_FLIGHT = 36 * 512 * 16


@dataclass(frozen=True)
class Kernels:
    """How a framework's kernels do it, by shares and factors fitted on A100 and H100.

    `waits` is how many times as long as the shortest kernel (`kernel` of the link) it is, without
    bytes, on two devices, and `per_doubling` what a doubling of them adds; a second shot adds
    `hops` hops a doubling. One shot reaches `one_share` of the bandwidth, two `two_share`. With
    barriers (`has_barriers`) reads wait for their answers, `round_trip` hops each, one shot is for
    messages below the sizes that the source has, and two end as long as `ends` kernels. On PCIe
    they are for so many devices at the most (`most_on_pcie`).
    """

    name: str
    limit: int
    waits: float
    hops: float
    one_share: float
    two_share: float = 1.0
    per_doubling: float = 0.065
    has_barriers: bool = False
    round_trip: float = 1.42
    ends: float = 1.57
    most_on_pcie: int = 0


#: vLLM's, which SGLang had until 0.5.10: csrc/custom_all_reduce.cuh, one shot of two devices, of
#: four below 512 KiB, of eight below 256 KiB; messages below 8 MiB. Without NVLink for two devices
#: alone (vllm/distributed/device_communicators/custom_all_reduce.py).
BARRIERS = Kernels("barriers", 8 * MIB, 1.42, 4.36, 0.79, has_barriers=True, most_on_pcie=2)
#: TensorRT-LLM's (Lamport's flags in the data, cpp/tensorrt_llm/kernels/communicationKernels) and
#: SGLang's from 0.5.12 on: devices push their message to all others. Without NVLink TensorRT-LLM
#: leaves all to NCCL (AllreduceOp::selectImplementation, cpp/tensorrt_llm/thop/allreduceOp.cpp).
PUSHED = Kernels("pushed", 8 * MIB, 1.0, 5.9, 0.79, 0.62)


def seconds(group: Group, num_bytes: Quantity, kernels: Kernels = BARRIERS) -> Quantity:
    """Return the seconds of an all-reduce; raises SettingError where `kernel` is not known."""
    if not is_known(group):
        tier = group.levels[0].tier
        raise SettingError(
            f"scheme: custom_all_reduce is not known for {tier.network.name}, tier {tier.name}"
        )
    path = group.once(Path)
    on_pcie = path.links.kind == "pci"
    workers, doublings = path.workers, ceil_log2(path.workers)
    base = path.links.value("kernel") * (1 + kernels.per_doubling * (doublings - 1))
    base = kernels.waits * base
    hop = path.ring_hops[0]
    others = workers - 1
    read, shared = num_bytes * others, num_bytes * 2 * others / workers
    again = base + kernels.hops * doublings * hop
    if kernels.has_barriers:
        answered = _IN_FLIGHT / (kernels.round_trip * maximum(hop, 1e-9))
        inside = path.counted if on_pcie else path.inside
        reached = minimum(kernels.one_share * inside, maximum(others, 1) * answered)
        once = base + read / reached
        twice = maximum(again, kernels.ends * base + shared / answered)
        is_once = (workers == 2) | ((workers <= 4) & (num_bytes < 512 * KIB))
        is_once = is_once | (num_bytes < 256 * KIB)
        own = where(is_once, once, twice)
    else:
        once = base + read / (kernels.one_share * path.inside)
        own = minimum(once, again + shared / (kernels.two_share * path.inside))
    is_short = (num_bytes < kernels.limit) & (path.nodes == 1)
    if on_pcie:
        is_short = is_short & (workers <= kernels.most_on_pcie)
    found: Quantity = where(is_short, own, nccl.seconds(group, num_bytes))
    return found * beyond_one(workers)


def is_known(group: Group) -> bool:
    """Tell whether the seconds of such a kernel are known on the links inside of nodes."""
    links = group.levels[0].tier.network.nccl
    return links is not None and is_modelled(group) and "kernel" in links.figures


class CustomAllReduce(Collective):
    """Kernels with barriers, one shot or two by the size of the message (vLLM, SGLang).

    Its phases are the textbook's, everyone sends to everyone at once, and its seconds, too, where
    none are known of the kernel.
    """

    name = "custom_all_reduce"
    summary = "one kernel in which every device reads all others' memory, as serving has it"
    kernels = BARRIERS

    def seconds_on(
        self, group: Group, num_bytes: Quantity, operation: Operation = Operation.ALL_REDUCE
    ) -> Quantity:
        if operation in self.operations and is_known(group):
            return seconds(group, num_bytes, self.kernels)
        return super().seconds_on(group, num_bytes, operation)

    def transfers(self, workers: Quantity) -> Quantity:
        return 2 * (workers - 1) / workers

    def phases(self, group: Group, operation: Operation = Operation.ALL_REDUCE) -> Phases:
        return ShardedServer().phases(group, operation)

    def rounds(self, workers: int) -> Iterator[Round]:
        """Yield the rounds of two shots, of the messages of each to one other at a time."""
        return ShardedServer().rounds(workers)


class PushedAllReduce(CustomAllReduce):
    """Kernels without barriers, whose data says itself that it has come (TensorRT-LLM, SGLang)."""

    name = "pushed_all_reduce"
    summary = "one kernel in which every device pushes its message to all others, as serving has it"
    kernels = PUSHED


COLLECTIVES.add(CustomAllReduce.name, CustomAllReduce())
COLLECTIVES.add(PushedAllReduce.name, PushedAllReduce())
