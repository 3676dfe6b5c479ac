"""What other counters count: parameters, and the FLOPs of convolutions and matrix products."""

from __future__ import annotations

import paleo
from paleo.core.operations import LAYER_PASSES, PRODUCTS, Pass
from paleo.costs import find_cost_model
from paleo.step.passes import needed_gradients


def counts(net: paleo.NetSpec, batch_size: int = 1) -> tuple[int, int, int]:
    """Return the parameters of a net, and the FLOPs of its products, forward and backward."""
    graph = paleo.build(net, batch_size)
    flops = dict.fromkeys(LAYER_PASSES, 0)
    needed = needed_gradients(graph, find_cost_model("roofline").conventions)
    for node, inputs in zip(graph.nodes, needed, strict=True):
        for direction in LAYER_PASSES:
            flops[direction] += sum(
                int(operation.flops)
                for operation in graph.operations(node, direction, inputs)
                if isinstance(operation, PRODUCTS)
            )
    backward = flops[Pass.INPUT_GRADIENT] + flops[Pass.WEIGHT_GRADIENT]
    return graph.num_params, flops[Pass.FORWARD], backward
