"""Model parallelism: the slices of a split net on devices of their own, one batch."""

from __future__ import annotations

from dataclasses import dataclass

from paleo.estimate import link_bandwidth
from paleo.netspec import NetSpec
from paleo.parallelism.fetch import fetch_times
from paleo.parallelism.plan import Plan
from paleo.quantity import Quantity

__all__ = ["ModelParallelPass", "model_parallel"]


@dataclass(frozen=True)
class ModelParallelPass:
    """Bounds of a pass in seconds: all branches and slices at once, or one after another."""

    name: str
    lower: Quantity
    upper: Quantity


def model_parallel(
    net: NetSpec, plan: Plan, batch_size: Quantity
) -> tuple[ModelParallelPass, ModelParallelPass]:
    """Return the forward and the backward pass. There is no update and no exchange.

    Pipelining has no effect. Every layer is charged for inputs from other devices in both
    passes. Raises SettingError or NetSpecError.
    """
    graph = plan.graph(net, batch_size)
    model = plan.cost_model
    if model.conventions.model_fetches_from_memory:
        bandwidth = plan.device.rates_2017.memory_bandwidth
    else:
        bandwidth = link_bandwidth(plan.network, model)
    fetches = fetch_times(graph, plan, bandwidth)
    forward, backward = plan.passes(graph, fetches, use_pipeline=False)
    return (
        ModelParallelPass("forward", forward.lower, forward.upper),
        ModelParallelPass("backward", backward.lower, backward.upper),
    )
