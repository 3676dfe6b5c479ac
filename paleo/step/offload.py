"""What devices keep in the memory of their host: the optimizer's state, activations.

J. Ren et al., "ZeRO-Offload: democratizing billion-scale model training", arXiv:2101.06840: a
block's gradients go to the host while the backward pass goes on, the host updates parameters in
full precision, and what devices compute with comes back while it updates the next. It is bound by
the host's memory, which all its devices share. Activations go to the host behind their block's
forward pass, and come back before its backward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from paleo.cluster.topology import Host
from paleo.core.errors import Mistakes, PaleoError
from paleo.core.frozen import NamedTuple
from paleo.core.operations import total_work
from paleo.core.quantity import Quantity, ceil_div, maximum, minimum
from paleo.core.tensor import find_precision
from paleo.costs import Time
from paleo.step.memory.stage import StageMemory
from paleo.step.mesh_settings import OFFLOADED
from paleo.step.optimizers import FUSED, OPTIMIZERS, find_optimizer
from paleo.step.passes import update_operations
from paleo.step.plan import Plan
from paleo.step.stage_work import Stage

#: What may be on the host.
OPTIMIZER, GRADIENTS, ACTIVATIONS = OFFLOADED
#: Passes over a gradient that the host makes to add it to those before: two read, one written.
_ADDED = 3
#: The share of a link to the host that copies of pinned memory reach: 55.63 of the 63.0 GB/s of 16
#: lanes of PCIe 5.0 (host_to_device_memcpy_ce, example of a tutorial on NVIDIA's NVbandwidth).
LINK_SHARE = 0.88
#: The share of its memory's rate that Adam on a host reaches: 1, 4 and 10 billion parameters of 30
#: bytes in 0.22, 1.03 and 2.57 s on a DGX-2 (ZeRO-Offload, table 4) are 0.53, 0.46 and 0.46 of
#: 255.9 GB/s.
MEMORY_SHARE = 0.45
#: Blocks whose tensors are on a device: one is computed while another is on its way.
_BUFFERED = 2


class Offload(NamedTuple):
    """The host of a device, and the bytes/s between them that are reached."""

    host: Host
    rate: Quantity

    def update(self, plan: Plan, num_params: Quantity, devices: int) -> Time:
        """Return what takes the host the time to update so many parameters of each of its devices.

        There are so many `devices` in all, which may be fewer than a host has.

        It reads and writes as one fused kernel does, and writes what devices compute with.
        """
        optimizer = find_optimizer(plan.optimizer, kernels_on_host(plan))
        rule = replace(plan.rule, optimizer=optimizer)
        work = total_work(update_operations(num_params, "fp32", rule))
        num_bytes = work.bytes_read + work.bytes_written
        precision = find_precision(plan.dtype)
        if precision.is_mixed:
            num_bytes = num_bytes + precision.element_size * num_params
        rate = self.share(devices)
        return Time(memory=num_bytes / rate, total=num_bytes / rate)

    def share(self, devices: int) -> Quantity:
        """Return the bytes/s of its memory that each of the devices in all has of it."""
        return MEMORY_SHARE * self.host.memory_bandwidth / min(self.host.devices, devices)

    def added(self, num_bytes: Quantity, devices: int) -> Quantity:
        """Return the seconds in which gradients come to the host, which adds them to those before.

        While some are on their way it adds those that came.
        """
        return maximum(num_bytes / self.rate, _ADDED * num_bytes / self.share(devices))


def kernels_on_host(plan: Plan) -> str | None:
    """Return by which kernels a host updates: by one of all, if the optimizer has that."""
    return FUSED if FUSED in OPTIMIZERS[plan.optimizer].kernels else None


def offload_of(plan: Plan) -> Offload:
    """Return to where a plan's devices offload; raises PaleoError with every mistake."""
    mistakes = Mistakes()
    host, cluster = None, plan.cluster
    there = cluster.host if cluster else None
    if plan.host is not None:
        devices = there.devices if there else 1
        host = Host(plan.host.memory_bandwidth, devices, plan.host.memory_capacity)
    elif there is not None:
        host = there
    else:
        name = cluster.name if cluster else plan.device.name
        mistakes.add(f"offload: nothing is known of the host of {name}: give --host")
    if OPTIMIZER in plan.offload and OPTIMIZERS[plan.optimizer].by_matrix:
        mistakes.add(f"offload: {plan.optimizer} goes by matrices, which is not for a host")
    rate = mistakes.check(getattr, plan.device, "host_bandwidth")
    mistakes.raise_as(PaleoError)
    assert host is not None
    assert rate is not None
    return Offload(host, LINK_SHARE * rate)


def can_offload(plan: Plan) -> bool:
    """Whether it is known what a plan's devices could offload to."""
    try:
        offload_of(replace(plan, offload=(OPTIMIZER,)))
    except PaleoError:
        return False
    return True


def offloaded(
    memory: StageMemory, plan: Plan, stage: Stage, own_params: int, batches: int
) -> StageMemory:
    """Return the memory at a moment of a device that has some of a stage's tensors on the host.

    The device has `own_params` of the parameters to update. Of activations it keeps those of two
    blocks, and so it does of gradients, unless it is the one that sums up those of several
    micro-batches.
    """
    precision = find_precision(plan.dtype)
    found, gradients = memory, memory.gradients
    if OPTIMIZER in plan.offload:
        each = precision.parameter_size + plan.encoding.size
        # Full precision of the parameters that it updates, whoever has the others.
        master = precision.parameter_size * own_params if precision.is_mixed else 0
        if batches == 1 or GRADIENTS in plan.offload:
            size = precision.parameter_size if precision.is_mixed else precision.element_size
            whole = size * (own_params if plan.zero >= 2 else stage.num_params)
            gradients = minimum(gradients, _buffered(whole, stage))
        found = replace(
            found,
            # A share that is gathered as halves is sent so.
            weights=precision.element_size * own_params
            if plan.zero >= 3 and precision.is_mixed
            else maximum(found.weights - master, 0),
            gradients=gradients,
            optimizer_state=0,
            host=found.host + found.optimizer_state + each * own_params,
        )
    if ACTIVATIONS in plan.offload:
        found = replace(
            found,
            activations=minimum(found.activations, _buffered(found.kept, stage)),
            host=found.host + found.kept,
        )
    return found


def _buffered(num_bytes: Quantity, stage: Stage) -> Quantity:
    """Return the bytes of the blocks that are on a device at once, of those of all its blocks."""
    return minimum(num_bytes, _BUFFERED * ceil_div(num_bytes, stage.blocks))


def fits(plan: Plan, stages: Sequence[StageMemory], devices: int) -> bool | None:
    """Return whether all stages fit, and what they have on hosts; None where that is not known.

    There are so many `devices` in all.
    """
    capacity = plan.device.memory_capacity
    if capacity is None:
        return None
    host = offload_of(plan).host if plan.offload else None
    if host and host.memory_capacity is not None:
        most = max(stage.host for stage in stages)
        if most * min(host.devices, devices) > host.memory_capacity:
            return False
    return bool(max(stage.total for stage in stages) <= capacity)
