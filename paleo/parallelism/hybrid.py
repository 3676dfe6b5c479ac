"""Hybrid parallelism: unsplit layers data-parallel, split layers model-parallel.

After A. Krizhevsky, "One weird trick for parallelizing convolutional neural networks",
arXiv:1404.5997, 2014: K workers run the unsplit layers each on a batch of its own, then
work together on the slices of the split layers, for one worker's batch after another.
"""

from __future__ import annotations

from dataclasses import dataclass

from paleo.estimate import PassTime, checked_workers, link_bandwidth
from paleo.graph import Graph, checked_batch, longest_path
from paleo.netspec import NetSpec
from paleo.parallelism.fetch import fetch_times
from paleo.parallelism.plan import Plan, check_together
from paleo.quantity import Quantity, maximum, total
from paleo.tensor import num_elements
from paleo.units import GIB_PER_GB

__all__ = ["SCHEME", "Gathered", "HybridPart", "gathered", "hybrid_parallel"]

#: By which the unsplit layers' gradients are exchanged.
SCHEME = "TreeAllReduce"


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
    check_together(batch, workers)
    graph = plan.graph(net, batch)
    bandwidth = link_bandwidth(plan.network, plan.cost_model)
    fetches = fetch_times(graph, plan, bandwidth)
    forward, backward = (
        total(layer.seconds for layer in each.layers if layer.node.shard is None)
        for each in plan.passes(graph, fetches)
    )
    num_params = sum(node.num_params for node in graph.nodes if node.shard is None)
    data = HybridPart(
        "data",
        workers,
        batch * workers,
        forward,
        backward,
        plan.update(num_params),
        plan.communication(graph.precision.parameter_size * num_params, workers, SCHEME),
    )

    combine = _fetched_once
    if not plan.cost_model.conventions.hybrid_fetches_elements_once:
        combine = _fetched_in_turn
        fetches = fetch_times(graph, plan, bandwidth, from_unsplit=False)
    forward, backward = (
        combine(graph, plan, bandwidth, workers, _longest_slices(each))
        for each in plan.passes(graph, fetches, use_pipeline=False)
    )
    model = HybridPart(
        "model", workers, batch * workers, forward, backward, _slice_update(graph, plan), 0.0
    )
    return data, model


def _longest_slices(each: PassTime) -> Quantity:
    """Return the longest path where only slices take time."""
    return longest_path(
        each.graph, [0.0 if layer.node.shard is None else layer.seconds for layer in each.layers]
    )


@dataclass(frozen=True)
class Gathered:
    """What the slices get of each batch from the unsplit layers before.

    `seconds` is what the fetch of one worker's batch takes; in the 2017 implementation, what it
    takes off every batch: the fetch of all other workers' activations.
    """

    elements: Quantity
    num_bytes: Quantity
    seconds: Quantity


def gathered(graph: Graph, plan: Plan, bandwidth: Quantity, workers: Quantity) -> Gathered:
    """Return what the slices get of each of `workers` batches, over a link of `bandwidth`."""
    first = next((node for node in graph.nodes if node.shard is not None), None)
    elements: Quantity = 0
    if first is not None and first.parents:
        elements = num_elements(graph.nodes[first.parents[0]].output)
    num_bytes = graph.element_size * elements
    if plan.cost_model.conventions.hybrid_fetches_elements_once:
        seconds = (workers - 1) * elements / (bandwidth * GIB_PER_GB)
    else:
        seconds = num_bytes / (bandwidth * plan.ppp_comm)
    return Gathered(elements, num_bytes, seconds)


def _fetched_once(
    graph: Graph, plan: Plan, bandwidth: Quantity, workers: Quantity, one_batch: Quantity
) -> Quantity:
    """Return the seconds of all workers' batches as the 2017 implementation has it.

    (Lo - t) K + t, where Lo is one batch with its fetches, and t the fetch of the other
    workers' activations: elements, not bytes, and at the full bandwidth.
    """
    gather = gathered(graph, plan, bandwidth, workers).seconds
    return (one_batch - gather) * workers + gather


def _fetched_in_turn(
    graph: Graph, plan: Plan, bandwidth: Quantity, workers: Quantity, one_batch: Quantity
) -> Quantity:
    """Return the seconds of all workers' batches, each fetched while the last is computed.

    t + c + (K - 1) max(c, t), where c is one batch without the fetch t of its activations.
    """
    fetch = gathered(graph, plan, bandwidth, workers).seconds
    return fetch + one_batch + (workers - 1) * maximum(one_batch, fetch)


def _slice_update(graph: Graph, plan: Plan) -> Quantity:
    slices: dict[int, int] = {}
    for node in graph.nodes:
        if node.shard is not None:
            slices[node.shard] = slices.get(node.shard, 0) + node.num_params
    if plan.cost_model.conventions.hybrid_updates_all_slices:
        return plan.update(sum(slices.values()), use_pipeline=False)
    return plan.update(max(slices.values(), default=0))
