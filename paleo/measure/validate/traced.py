"""Steps that vTrain composes of a trace of one layer on one GPU.

VIA-Research/vTrain, profiler/cupti.cpp, src/trainer.py and src/predictor.py: a model of one layer
takes a step on one GPU under a tracer that lets one kernel run after the other. The times from the
start of one to that of the next are those of the embedding, the layer, the scores and the loss. A
step is made of these: of layers with all-reduces behind them, of which nothing is computed again;
of stages, between which messages go; of an all-reduce of all gradients, and of an update. Loss and
last normalization are in it forward and not at all, the update is that of all but the scores.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from paleo.cluster.collectives import Operation as Collecting
from paleo.core.quantity import Quantity, ceil_div, total
from paleo.core.units import GIB
from paleo.measure.validate.mesh_nets import FIRST, LAST, LAYER, LOSS, part_of_gpt
from paleo.net.graph import Graph
from paleo.step.mesh import Mesh
from paleo.step.meshed import Meshed
from paleo.step.passes import BACKWARD, FORWARD
from paleo.step.pipelines import PIPELINES, Work
from paleo.step.plan import Plan

#: Bytes a second between stages, and how often a message goes there (`_compute_p2p_latency`).
_BETWEEN, _TIMES = 25 * GIB, 2
#: The loss takes positions for classes. So each thread of PyTorch's softmax walks along all of
#: them three times, for the largest, the sum and the result, and each load waits for memory
#: (aten/src/ATen/native/cuda/SoftMax.cu, cunn_SpatialSoftMaxForward): half a microsecond, as in
#: paleo.costs.tiled.gemm. A block has a thread for each of so many words; a multiprocessor two.
_WALKS, _LATENCY, _THREADS, _BLOCKS = 3, 0.5e-6, 1024, 2


def traced_step(one: Meshed, mesh: Mesh, layers: int, global_batch: int) -> Quantity:
    """Return the seconds of a step of so many layers and samples on a mesh.

    `one` is `paleo.measure.validate.mesh_nets.gpt` of one layer, under a plan that names the
    micro-batch, on a tensor-parallel group of the mesh alone.
    """
    plan = one.plan
    micro = int(plan.micro_batch or 1)
    _, graph, seconds = one.part.of(micro)
    parts = [part_of_gpt(node.name) for node in graph.nodes]

    def by_part(values: Sequence[Any]) -> dict[str, Any]:
        masks = {part: [own == part for own in parts] for part in (FIRST, LAYER, LAST, LOSS)}
        return {part: total(itertools.compress(values, mask)) for part, mask in masks.items()}

    ahead, back = map(by_part, _passes(graph, plan, micro))
    for computed, sent in zip((ahead, back), seconds.sent.get("tp", ()), strict=False):
        computed[LAYER] = computed[LAYER] + by_part(sent)[LAYER]
    params = by_part(graph.by_node(attrgetter("num_params")))
    tensors = by_part(graph.by_node(attrgetter("num_tensors")))
    share, stages = layers // mesh.pp, range(mesh.pp)
    message = _TIMES * graph.element_size * micro * _positions(graph) * _width(graph) / _BETWEEN

    def held(of: dict[str, Any], stage: int) -> Any:
        first, last = stage == 0, stage == mesh.pp - 1
        return share * of[LAYER] + first * of[FIRST] + last * (of[LAST] + of[LOSS])

    works = [
        Work(
            held(ahead, stage) + (stage < mesh.pp - 1) * message,
            held(back | {LOSS: 0.0}, stage) + (stage > 0) * message,
        )
        for stage in stages
    ]
    running = PIPELINES["1f1b"].seconds(works, global_batch // (mesh.dp * micro))
    summed: Quantity = 0.0
    if mesh.dp > 1:
        most = max(held(params, stage) for stage in stages)
        group = mesh.group(plan.reached, "dp")
        summed = one.part.sending(group, graph.element_size * most, Collecting.ALL_REDUCE)
    updated = (share * of[LAYER] + of[FIRST] for of in (params, tensors))
    return running + summed + plan.seconds(plan.update_time(*updated))


def _passes(graph: Graph, plan: Plan, micro: int) -> tuple[list[Quantity], list[Quantity]]:
    """Return the seconds of each node forward and backward, from a device that was idle.

    While the loss walks along the positions, the host runs ahead of the backward pass.
    """
    words = next(node.output[-1] for node in graph.nodes if part_of_gpt(node.name) == LAST)
    blocks = micro * ceil_div(words, _THREADS)
    resident = _BLOCKS * plan.device.figures["multiprocessors"].value
    walking = ceil_div(blocks, resident) * _WALKS * _positions(graph) * _LATENCY
    forward = plan.estimate(graph, FORWARD)
    backward = plan.estimate(graph, BACKWARD, ahead=forward.ahead + walking)
    ahead, back = ([layer.seconds for layer in each.layers] for each in (forward, backward))
    last = next(i for i, node in enumerate(graph.nodes) if node.layer.is_judge)
    ahead[last] = ahead[last] + walking
    return ahead, back


def _positions(graph: Graph) -> int:
    """Return the positions of a sample."""
    return int(graph.nodes[0].output[1])


def _width(graph: Graph) -> int:
    """Return the numbers of a position that pass from layer to layer."""
    return int(next(node.output[-1] for node in graph.nodes if node.layer.looks_up))
