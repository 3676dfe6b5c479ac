"""What of a search is tried by default: the settings that somebody who knows would try.

Letters: a net of L blocks, with H heads of attention and E experts, on nodes of so many devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from paleo.net.graph import Graph, typical
from paleo.step.recompute import MODES, Recompute
from paleo.step.scenario import Scenario
from paleo.step.stages import units
from paleo.step.utilization import tokens_of

#: Numbers of devices by default, at most, of plans of a mesh: each has a grid of its own.
_MOST_ON_MESH = 128
#: A device has so many tokens at a time at most: more fill no products better.
_MOST_TOKENS = 32_768
#: Of samples without tokens so many, and in inference.
_MOST_SAMPLES = 1024
#: Batches that are summed up at most.
_MOST_TURNS = 64
#: Stages that are not of as many blocks have at least so many: one more is a quarter of that.
_LEAST_UNEVEN = 4
#: So many devices share a layer at most where all are joined by the same links.
_ALIKE = 16
#: Samples of a step for each device, where nobody says how many.
SAMPLES = 128


def powers(most: int, least: int = 1) -> list[int]:
    """Return the powers of two from `least`, one of them, up to `most`."""
    return [2**power for power in range(least.bit_length() - 1, most.bit_length())]


def divisors(number: int) -> list[int]:
    """Return the numbers that divide this one."""
    return [count for count in range(1, number + 1) if not number % count]


def worker_counts(scenario: Scenario, most: int | None, *, on_mesh: bool) -> list[int]:
    """Return numbers of devices: powers of two in a node, and of whole nodes, up to `most`.

    Devices that share a net are a node at least, where there are nodes.
    """
    cluster = scenario.plan.topology
    node = node_size(scenario)
    limit = min(cluster.size, most or cluster.size)
    if on_mesh or scenario.plan.cluster is None:
        limit = min(limit, _MOST_ON_MESH)
    within = [*powers(node - 1), node]
    across = [node * count for count in powers(max(1, limit // node))]
    every = {*within, *across} if not on_mesh or limit < node else {*across}
    return sorted(count for count in every if count <= limit)


def node_size(scenario: Scenario) -> int:
    """Return how many devices are joined by the innermost tier, 1 where each is a node."""
    cluster = scenario.plan.cluster
    return int(cluster.tiers[0].size) if cluster and len(cluster.tiers) > 1 else 1


def mesh_axes(
    scenario: Scenario, workers: Sequence[int], given: Mapping[str, Sequence[Any]]
) -> dict[str, list[Any]]:
    """Return the values of each setting of plans of a mesh: those given, else what is usual.

    Tensors are shared within a node, whose links are quickest, by devices that divide it and the
    heads of attention; stages are as many as divide the devices, of as many blocks each or of
    several; experts are shared by devices that divide them. A device has at most as many samples
    at a time as _MOST_TOKENS are.
    """
    net, plan = scenario.net, scenario.plan
    graph = typical(plan.computable(net), plan.dtype, plan.adapt)
    most = max(workers)
    heads, experts = _heads(graph), experts_of(graph)
    inner = node_size(scenario)
    node = min(inner if inner > 1 else _ALIKE, most)
    blocks = len(units(graph))
    global_batch = list(given.get("global_batch") or [SAMPLES * most])
    tokens = tokens_of(plan.trained(net))
    samples = max(4, _MOST_TOKENS // tokens) if tokens else _MOST_SAMPLES
    usual: dict[str, Iterable[Any]] = {
        "workers": workers,
        "tp": (count for count in divisors(node) if not heads % count),
        "pp": (
            count
            for count in sorted({count for each in workers for count in divisors(each)})
            if count <= blocks and (not blocks % count or count <= max(1, blocks // _LEAST_UNEVEN))
        ),
        "cp": [1],
        "ep": divisors(experts) if experts else [1],
        "micro_batch": powers(min(samples, max(global_batch))),
        "global_batch": global_batch,
        "zero": [0, 1, 2, 3] if most > 1 else [0],
        "interleave": [1, 2],
        "schedule": ["1f1b"],
        "sequence_parallel": [False, True],
        # Where attention is one kernel, selective recomputation has nothing to compute again.
        "recompute": [mode for mode in MODES if mode == "none" or Recompute(mode).regions(graph)],
    }
    return {name: list(given.get(name) or values) for name, values in usual.items()}


def _heads(graph: Graph) -> int:
    """Return the fewest heads of attention whose queries devices may share; 0 of a net without."""
    counts = [node.inputs[0][-3] for node in graph.nodes if node.layer.is_attention]
    return int(min(counts, default=0))


def experts_of(graph: Graph) -> int:
    """Return the fewest experts of a layer that has any; 0 of a net without."""
    counts = (node.layer.num_experts_held for node in graph.nodes)
    return int(min((count for count in counts if count), default=0))


def batches(given: Sequence[int] | None) -> list[int]:
    """Return the samples that a device has: those given, else powers of two."""
    return list(given or powers(_MOST_SAMPLES))


def turns(given: Sequence[int] | None, global_batch: Sequence[int] | None) -> list[int]:
    """Return how many batches are summed up for a step: those given, else powers of two.

    Without a batch of all devices each batch of one is a step.
    """
    return list(given or (powers(min(_MOST_TURNS, max(global_batch))) if global_batch else [1]))
