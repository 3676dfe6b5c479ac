"""Hybrid parallelism: unsplit layers data-parallel, split layers model-parallel.

After A. Krizhevsky, "One weird trick for parallelizing convolutional neural networks",
arXiv:1404.5997, 2014: K workers run the unsplit layers each on a batch of its own, then
work together on the slices of the split layers, for one worker's batch after another.
"""

from __future__ import annotations

from dataclasses import dataclass

from paleo.estimate import (
    BACKWARD,
    FORWARD,
    PassTime,
    estimate_pass,
    link_bandwidth,
    total_seconds,
)
from paleo.graph import Graph, build, checked_batch, longest_path
from paleo.netspec import NetSpec
from paleo.parallelism.fetch import fetch_times
from paleo.parallelism.plan import Plan, checked_workers
from paleo.quantity import Quantity
from paleo.tensor import num_elements
from paleo.units import GIB_PER_GB

__all__ = ["HybridPart", "hybrid_parallel"]

_SCHEME = "TreeAllReduce"


@dataclass(frozen=True)
class HybridPart:
    """One part of a hybrid step, in seconds. `batch_size` is that of all workers."""

    name: str
    workers: Quantity
    batch_size: Quantity
    forward: Quantity
    backward: Quantity
    update: Quantity
    sync: Quantity


def hybrid_parallel(
    net: NetSpec, plan: Plan, batch_size: Quantity, workers: Quantity
) -> tuple[HybridPart, HybridPart]:
    """Return the data-parallel and the model-parallel part of a step.

    `workers` need not equal the number of slices. The data part is pipelined if the plan
    says so and exchanges its gradients by a tree; the model part does neither. Raises
    SettingError or NetSpecError.
    """
    workers, batch = checked_workers(workers, "hybrid_workers"), checked_batch(batch_size)
    graph = build(net, batch, plan.dtype, plan.adapt)
    bandwidth = link_bandwidth(plan.network, plan.cost_model)
    fetches = fetch_times(graph, plan, bandwidth)

    def passes(use_pipeline: bool) -> list[PassTime]:
        return [
            estimate_pass(graph, directions, plan.target, plan.cost_model, use_pipeline, fetches)
            for directions in (FORWARD, BACKWARD)
        ]

    unsplit = [node.shard is None for node in graph.nodes]
    forward, backward = (
        total_seconds(layer for layer in each.layers if layer.node.shard is None)
        for each in passes(plan.use_pipeline)
    )
    num_params = sum(node.num_params for node in graph.nodes if node.shard is None)
    data = HybridPart(
        "data",
        workers,
        batch * workers,
        forward,
        backward,
        plan.update(num_params),
        plan.communication(graph.element_size * num_params, workers, _SCHEME),
    )

    gather = _gather_seconds(graph, plan, bandwidth, workers)
    forward, backward = (
        (_longest_slices(each, unsplit) - gather) * workers + gather for each in passes(False)
    )
    model = HybridPart(
        "model", workers, batch * workers, forward, backward, _slice_update(graph, plan), 0.0
    )
    return data, model


def _longest_slices(each: PassTime, unsplit: list[bool]) -> Quantity:
    """Return the longest path where only slices take time."""
    return longest_path(
        each.graph,
        [0.0 if skip else layer.seconds for layer, skip in zip(each.layers, unsplit, strict=True)],
    )


def _gather_seconds(graph: Graph, plan: Plan, bandwidth: Quantity, workers: Quantity) -> Quantity:
    """Return the seconds to bring the other workers' activations to the first slice.

    It is paid once: the batches after the first are fetched while slices compute.
    """
    first = next((node for node in graph.nodes if node.shard is not None), None)
    if first is None or not first.parents:
        return 0.0
    elements = num_elements(graph.nodes[first.parents[0]].output)
    if plan.cost_model.conventions.hybrid_counts_elements:
        # fetch() without its floor of a clock and without the percent of peak.
        return (workers - 1) * elements / (bandwidth * GIB_PER_GB)
    return (workers - 1) * graph.element_size * elements / (bandwidth * plan.ppp_comm)


def _slice_update(graph: Graph, plan: Plan) -> Quantity:
    slices: dict[int, int] = {}
    for node in graph.nodes:
        if node.shard is not None:
            slices[node.shard] = slices.get(node.shard, 0) + node.num_params
    if plan.cost_model.conventions.hybrid_updates_all_slices:
        return plan.update(sum(slices.values()), use_pipeline=False)
    return plan.update(max(slices.values(), default=0))
