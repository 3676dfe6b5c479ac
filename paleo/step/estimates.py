"""Times of the parts of a training step: forward, backward, update, communication.

These are the pieces that `paleo.simulate` puts together, and from which a step of one's
own is written: each takes a graph, a device or a network and returns seconds. Batch
sizes, worker counts and rates may be arrays.
"""

from __future__ import annotations

from typing import Unpack

from paleo.cluster import find_network
from paleo.cluster.collectives import COLLECTIVES, Collective
from paleo.cluster.topology import flat_group
from paleo.core.quantity import Quantity
from paleo.costs import DEFAULT_COST_MODEL, CostModel, find_cost_model
from paleo.net.graph import Graph
from paleo.step.declarations import check_count, checked_share, checked_workers
from paleo.step.distributed_settings import NetworkLike
from paleo.step.passes import BACKWARD, FORWARD, PassTime, exchange_time
from paleo.step.plan import found_plan
from paleo.step.settings import (
    DeviceLike,
    EstimateSettings,
    UpdateSettings,
)


def estimate_forward(
    graph: Graph, device: DeviceLike, *, training: bool = True, **settings: Unpack[EstimateSettings]
) -> PassTime:
    """Return the time of the forward pass on one device.

    `ppp_comp` is the share of the device's peak that is reached; with `use_pipeline`,
    computation and memory traffic of a layer overlap where the cost model adds them up; with
    `fuse`, pointwise operations run in the kernels before them (see paleo.net.fusion). Without
    `training` it is the pass of inference: batch normalizations read their input once, and
    dropout does nothing. The element type is the graph's. Each convolution takes the quickest
    algorithm that `conv_library` offers (one of paleo.costs.convolutions.LIBRARIES) within a
    `workspace` of so many bytes (or a text such as "4 GiB"); with `use_only_gemm`, the quickest
    matrix product. Raises UnknownNameError, HardwareError or SettingError.
    """
    plan = found_plan(EstimateSettings, settings, device=device, dtype=graph.dtype)
    return plan.estimate(graph, FORWARD, training=training)


def estimate_backward(
    graph: Graph, device: DeviceLike, **settings: Unpack[EstimateSettings]
) -> PassTime:
    """Return the time of the backward pass on one device: both gradients of every layer.

    Parameters and errors are those of `estimate_forward`.
    """
    plan = found_plan(EstimateSettings, settings, device=device, dtype=graph.dtype)
    return plan.estimate(graph, BACKWARD)


def estimate_update(
    num_params: Quantity,
    device: DeviceLike,
    *,
    tensors: Quantity = 1,
    **settings: Unpack[UpdateSettings],
) -> Quantity:
    """Return the seconds to update `num_params` parameters, once for the net.

    They go by the `optimizer`, one of `paleo.OPTIMIZERS`, as the `framework` runs it: it may take
    the formula step by step, or the parameters tensor by tensor, of which there are `tensors`.
    In mixed precision it also takes two casts, of the gradients to fp32 and of the new
    parameters to the type that layers read. `paleo2017` prices it at the device's peak whatever
    `ppp_comp` is. Raises UnknownNameError, HardwareError or SettingError.
    """
    return found_plan(UpdateSettings, settings, device=device).update(num_params, tensors)


def estimate_communication(
    num_bytes: Quantity,
    workers: Quantity,
    network: NetworkLike,
    *,
    scheme: str | Collective = "TreeAllReduce",
    ppp_comm: Quantity = 1.0,
    cost_model: str | CostModel = DEFAULT_COST_MODEL,
) -> Quantity:
    """Return the seconds in which `workers` exchange gradients of `num_bytes`.

    `scheme` is one of `paleo.COLLECTIVES`; `ppp_comm` the share of the network's bandwidth
    that is reached. Raises UnknownNameError, HardwareError or SettingError.
    """
    check_count(num_bytes, "num_bytes")
    workers = checked_workers(workers, "workers")
    model = find_cost_model(cost_model)
    collective = COLLECTIVES[scheme] if isinstance(scheme, str) else scheme
    found = find_network(network)
    known = found.of_2017 if model.uses_2017_figures else found
    link = known.reaching(checked_share(ppp_comm, "ppp_comm"))
    group = flat_group(workers, link)
    collective.check([level.tier for level in group.levels])
    return exchange_time(num_bytes, group, collective, model)
