"""A step under data parallelism, and both passes under model parallelism."""

from __future__ import annotations

from paleo.estimate import link_bandwidth
from paleo.graph import Graph, Node
from paleo.parallelism.fetch import fetches_of
from paleo.parallelism.plan import Plan
from paleo.rows import DataRow, ModelRow
from paleo.timeline.drawing import Drawing, chain
from paleo.timeline.layers import LayerPieces, exchange, pass_pieces, placed, update_piece
from paleo.timeline.values import Flow

__all__ = ["draw_data", "draw_model", "flows_between", "model_devices"]


def draw_data(
    graph: Graph, plan: Plan, row: DataRow, scheme: str, workers: tuple[str, ...]
) -> Drawing:
    """Draw a step of `row`: every worker computes all layers, then they exchange gradients."""
    drawing = Drawing(len(workers), row.step(scheme))
    forward, backward = (
        pass_pieces(graph, plan, category, use_pipeline=plan.use_pipeline)
        for category in ("forward", "backward")
    )
    layers = [piece for layer in [*forward, *reversed(backward)] for piece in layer.pieces]
    update = update_piece(plan, graph.num_params, row.update)
    drawing.add_to_all(range(len(workers)), chain([*layers, update], 0.0))
    end = drawing.part("forward", "forward", 0.0, row.forward)
    end = drawing.part("backward", "backward", end, row.backward)
    end = drawing.part("update", "update", end, row.update)
    exchange(drawing, plan, graph.precision.parameter_size * graph.num_params, workers, scheme, end)
    drawing.part(f"exchange by {scheme}", "transfer", end, row.communication[scheme])
    return drawing


def model_devices(graph: Graph, plan: Plan) -> tuple[str, ...]:
    """Return the names of the devices of a net under model parallelism, in order."""
    slices = 1 + max((node.shard for node in graph.nodes if node.shard is not None), default=-1)
    if plan.cost_model.conventions.slice_zero_is_remote:
        return ("unsplit layers", *(f"slice {i}" for i in range(slices)))
    first = "unsplit layers and slice 0" if slices else "unsplit layers"
    return (f"device 0, {first}", *(f"device {i}, slice {i}" for i in range(1, slices)))


def draw_model(
    graph: Graph, plan: Plan, rows: tuple[ModelRow, ...], devices: tuple[str, ...]
) -> Drawing:
    """Draw both passes, every node as early as what it depends on allows."""
    conventions = plan.cost_model.conventions
    drawing = Drawing(len(devices), sum(row.lower for row in rows))

    def device(node: Node) -> int:
        if conventions.slice_zero_is_remote:
            return 0 if node.shard is None else node.shard + 1
        return node.shard or 0

    bandwidth, network = link_bandwidth(plan.network, plan.cost_model), plan.network.name
    if conventions.model_fetches_from_memory:
        bandwidth, network = plan.device.rates_2017.memory_bandwidth, "at memory bandwidth"
    fetches = fetches_of(graph, plan, bandwidth)
    start = 0.0
    for row in rows:
        layers = pass_pieces(
            graph,
            plan,
            row.pass_name,
            fetches,
            place=lambda node: devices[device(node)],
            network=network,
        )
        events = {
            layer.node.index: drawing.add(device(layer.node), pieces)
            for layer, pieces in placed(graph, layers, row.pass_name, start)
        }
        drawing.flows += flows_between(layers, events, row.pass_name)
        start = drawing.part(f"{row.pass_name}, lower bound", row.pass_name, start, row.lower)
    return drawing


def flows_between(
    layers: list[LayerPieces], events: dict[int, list[int]], category: str
) -> list[Flow]:
    """Return who makes what is fetched, or takes the gradient that is sent.

    `events` are those of the layers' pieces, by the index of the node.
    """
    of = {layer.node.index: layer for layer in layers}
    found = []
    for layer in layers:
        for position, parent in layer.fetched:
            own = of[parent].own
            if own is not None:
                ends = (events[parent][own], events[layer.node.index][position])
                found.append(Flow(*ends) if category == "forward" else Flow(ends[1], ends[0]))
    return found
