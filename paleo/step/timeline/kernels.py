"""What is drawn of layers, updates and exchanges, before it is put on workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from paleo.collectives import COLLECTIVES, Round
from paleo.costs import Time
from paleo.estimate import BACKWARD, FORWARD, kernels, link_bandwidth, update_operations
from paleo.graph import Graph, Node
from paleo.parallelism.fetch import Fetch, total_time
from paleo.parallelism.plan import Plan
from paleo.timeline.drawing import Drawing, Piece, chain
from paleo.timeline.values import Flow
from paleo.work import Operation, Unpriced, total_work

__all__ = ["LayerPieces", "exchange", "pass_pieces", "placed", "update_piece"]

Fetches = dict[int, tuple[Fetch, ...]]


@dataclass(frozen=True)
class LayerPieces:
    """What one node does in a pass: `seconds` of what `pieces` show one after the other.

    `own` is the place among them of the piece in which it computes; None if that takes no time.
    `hidden` are fetches that run while it computes. `fetched` has the places of fetches among the
    pieces, each with the parent that it is of.
    """

    node: Node
    seconds: float
    pieces: tuple[Piece, ...]
    own: int | None
    hidden: tuple[Piece, ...] = ()
    fetched: tuple[tuple[int, int], ...] = ()


def pass_pieces(
    graph: Graph,
    plan: Plan,
    category: str,
    fetches: Fetches | None = None,
    *,
    use_pipeline: bool = False,
    place: Callable[[Node], str] = lambda node: node.name,
    network: str = "",
) -> list[LayerPieces]:
    """Return what each node of a graph does in the pass "forward" or "backward".

    `fetches` says what nodes get from other devices: in the backward pass it is the gradient that
    is sent there, and takes as long. `place` names the device of a node, `network` what they are
    connected by.
    """
    forward = category == "forward"
    times = plan.passes(graph, use_pipeline=use_pipeline)[0 if forward else 1].layers
    found = kernels(graph, FORWARD if forward else BACKWARD, plan.cost_model, fuse=plan.fuse)
    result = []
    for layer, operations in zip(times, found.of, strict=True):
        node = layer.node
        done = [each for _, each in operations if not isinstance(each, Unpriced)]
        own = Piece(
            node.name if forward else f"{node.name} backward",
            category,
            0.0,
            float(layer.seconds),
            {
                "layer": node.name,
                "type": node.type_name,
                "pass": category,
                **_arguments(done, layer.time, layer.seconds),
            },
        )
        own_fetches = (fetches or {}).get(node.index, ())
        moved = [
            _fetch_piece(graph, plan, node, fetch, forward, place, network) for fetch in own_fetches
        ]
        both = layer.time + total_time(own_fetches) if own_fetches else layer.time
        seconds = plan.cost_model.pipelined(both) if use_pipeline else both.total
        if use_pipeline and own_fetches and seconds < both.total:  # they overlap
            alone = own._replace(seconds=float(seconds))
            result.append(_layer(node, float(seconds), [alone], 0, tuple(moved)))
        else:
            pieces = [*moved, own] if forward else [own, *moved]
            position = len(moved) if forward else 0
            result.append(_layer(node, float(seconds), pieces, position, (), own_fetches))
    return result


def _layer(
    node: Node,
    seconds: float,
    pieces: list[Piece],
    own: int,
    hidden: tuple[Piece, ...],
    fetches: Sequence[Fetch] = (),
) -> LayerPieces:
    """Return the pieces that take any time, knowing which of them is what."""
    parents = [fetch.parent for fetch in fetches]
    what = [*parents[:own], None, *parents[own:]]
    kept = [
        (piece, parent) for piece, parent in zip(pieces, what, strict=True) if piece.seconds > 0
    ]
    places = [i for i, (_, parent) in enumerate(kept) if parent is None]
    return LayerPieces(
        node,
        seconds,
        tuple(piece for piece, _ in kept),
        places[0] if places else None,
        hidden,
        tuple((i, parent) for i, (_, parent) in enumerate(kept) if parent is not None),
    )


def _arguments(operations: Sequence[Operation], time: Time, seconds: Any) -> dict[str, Any]:
    work = total_work(tuple(operations))
    return {
        "operations": ", ".join(dict.fromkeys(each.name for each in operations)),
        "flops": work.flops,
        "bytes_read": work.bytes_read,
        "bytes_written": work.bytes_written,
        "compute_s": float(time.compute),
        "memory_s": float(time.memory),
        "overhead_s": float(time.overhead),
        "seconds": float(seconds),
        "bound": time.bound,
    }


def _fetch_piece(
    graph: Graph,
    plan: Plan,
    node: Node,
    fetch: Fetch,
    forward: bool,
    place: Callable[[Node], str],
    network: str,
) -> Piece:
    parent = graph.nodes[fetch.parent]
    seconds = float(fetch.time.total)
    return Piece(
        f"fetch {parent.name}" if forward else f"gradient of {parent.name}",
        "transfer",
        0.0,
        seconds,
        {
            "layer": node.name,
            "pass": "forward" if forward else "backward",
            "bytes": fetch.num_bytes,
            "from" if forward else "to": place(parent),
            "network": network or plan.network.name,
            "bandwidth_bytes_per_s": fetch.num_bytes / seconds if seconds else 0.0,
            "seconds": seconds,
            "bound": "network",
        },
    )


def update_piece(plan: Plan, num_params: int, seconds: float, name: str = "update") -> Piece:
    """Return the update of so many parameters."""
    time = plan.update_time(num_params)
    operations = update_operations(num_params, plan.dtype)
    arguments = {"parameters": num_params, **_arguments(operations, time, seconds)}
    return Piece(name, "update", 0.0, seconds, arguments)


def exchange(
    drawing: Drawing,
    plan: Plan,
    num_bytes: int,
    workers: Sequence[str],
    scheme: str,
    start: float,
) -> None:
    """Draw the rounds in which workers exchange gradients of so many bytes, from `start` on."""
    if not plan.communication(num_bytes, len(workers), scheme) > 0:
        return
    bandwidth = link_bandwidth(plan.network, plan.cost_model) * plan.ppp_comm
    once = float(num_bytes / bandwidth)
    rounds = list(COLLECTIVES[scheme].rounds(len(workers)))
    crossed: float = 0
    for number, each in enumerate(rounds, 1):
        common = {
            "scheme": scheme,
            "round": number,
            "rounds": len(rounds),
            "carries": each.carried.value,
            "bytes": round(num_bytes * each.crossings),
            "network": plan.network.name,
            "bandwidth_bytes_per_s": float(bandwidth),
            "seconds": once * each.crossings,
            "bound": "network",
        }
        begin = start + crossed * once
        added: dict[int, int] = {}
        for worker, name, ends in _moves(each, workers):
            piece = Piece(name, "transfer", begin, once * each.crossings, {**common, **ends})
            (added[worker],) = drawing.add(worker, [piece])
        drawing.flows += [Flow(added[sender], added[receiver]) for sender, receiver in each.pairs]
        crossed += each.crossings


def _moves(each: Round, workers: Sequence[str]) -> list[tuple[int, str, dict[str, str]]]:
    """Return for each worker that has part in a round what it does, and with whom."""
    if not each.pairs:
        note = "charged to one worker too, which has nobody to send to"
        return [(0, "exchange with nobody", {"note": note})]
    to = dict(each.pairs)
    from_ = {receiver: sender for sender, receiver in each.pairs}
    found = []
    for worker in sorted(to.keys() | from_.keys()):
        ends = {}
        if worker in from_:
            ends["from"] = workers[from_[worker]]
        if worker in to:
            ends["to"] = workers[to[worker]]
        if ends.get("from") == ends.get("to"):
            name = f"swap with {ends['to']}"
        else:
            said = [f"send to {ends['to']}"] if "to" in ends else []
            said += [f"receive from {ends['from']}"] if "from" in ends else []
            name = ", ".join(said)
        found.append((worker, name, ends))
    return found


def placed(
    graph: Graph, layers: Sequence[LayerPieces], category: str, start: float
) -> list[tuple[LayerPieces, list[Piece]]]:
    """Return the layers with their pieces, each as early as what it depends on allows.

    Forward, a node depends on its parents; backward, on those that read it.
    """
    forward = category == "forward"
    before: list[list[int]] = [[] for _ in graph.nodes]
    for node in graph.nodes:
        for parent in node.parents:
            if forward:
                before[node.index].append(parent)
            else:
                before[parent].append(node.index)
    until = [0.0] * len(graph.nodes)
    found = []
    for layer in layers if forward else reversed(layers):
        index = layer.node.index
        begin = max((until[other] for other in before[index]), default=0.0)
        until[index] = begin + layer.seconds
        found.append((layer, chain(layer.pieces, start + begin)))
    return sorted(found, key=lambda pair: pair[1][0].start if pair[1] else 0.0)
