"""What is drawn of layers, updates and exchanges, before it is put on workers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paleo.cluster.collectives import AUTO, SWITCH, Round
from paleo.cluster.collectives import Operation as Collecting
from paleo.core.frozen import dataclass
from paleo.core.operations import Operation, Unpriced, total_work
from paleo.core.quantity import total
from paleo.costs import Time
from paleo.net.graph import Graph, Node
from paleo.step.matrices import Matrix
from paleo.step.passes import Fetch, PassTime, update_operations
from paleo.step.pieces import TRANSFER, Piece
from paleo.step.plan import Plan
from paleo.step.recompute import RECOMPUTATION
from paleo.step.timeline.drawing import Drawing, chain
from paleo.step.timeline.values import Flow


@dataclass(frozen=True)
class LayerPieces:
    """What one node does in a pass: `seconds` of what `pieces` show one after the other.

    `parents` says of each piece which parent it fetches the output of, or hands the gradient to;
    None where the node computes. `hidden` are fetches that run while it does.
    """

    node: Node
    seconds: float
    pieces: tuple[Piece, ...] = ()
    parents: tuple[int | None, ...] = ()
    hidden: tuple[Piece, ...] = ()


def pass_pieces(
    passed: PassTime,
    category: str,
    place: Callable[[Node], str] = lambda node: node.name,
    network: str = "",
) -> list[LayerPieces]:
    """Return what each node of a graph does in the pass "forward" or "backward".

    What nodes get from other devices is in the backward pass the gradient that is sent there, and
    takes as long. `place` names the device of a node, `network` what they are connected by.
    """
    forward = category == "forward"

    def fetched(node: Node, fetch: Fetch) -> Piece:
        parent = passed.graph.nodes[fetch.parent]
        seconds = float(fetch.time.total)
        return Piece(
            f"fetch {parent.name}" if forward else f"gradient of {parent.name}",
            TRANSFER,
            seconds,
            {
                "layer": node.name,
                "pass": category,
                "bytes": fetch.num_bytes,
                "from" if forward else "to": place(parent),
                "network": network,
                "bandwidth_bytes_per_s": fetch.num_bytes / seconds if seconds else 0.0,
                "seconds": seconds,
                "bound": "network",
            },
        )

    result = []
    for layer, local, operations in zip(
        passed.layers, passed.local.layers, passed.kernels.of, strict=True
    ):
        node, seconds = layer.node, float(layer.seconds)
        done = [each for _, each in operations if not isinstance(each, Unpriced)]
        computing = Piece(
            node.name if forward else f"{node.name} backward",
            category,
            float(local.seconds),
            {
                "layer": node.name,
                "type": node.type_name,
                "pass": category,
                **_arguments(done, local.time, local.seconds),
            },
        )
        done_by: list[tuple[Piece, int | None]] = [(computing, None)]
        fetches = passed.fetches.get(node.index, ())
        moved = [(fetched(node, fetch), fetch.parent) for fetch in fetches]
        hidden: tuple[Piece, ...] = ()
        if fetches and seconds < layer.time.total:  # they overlap
            done_by = [(computing._replace(seconds=seconds), None)]
            hidden = tuple(piece for piece, _ in moved)
        else:
            done_by = [*moved, *done_by] if forward else [*done_by, *moved]
        timed = [(piece, parent) for piece, parent in done_by if piece.seconds > 0]
        pieces, parents = zip(*timed, strict=True) if timed else ((), ())
        result.append(LayerPieces(node, seconds, pieces, parents, hidden))
    return result


def drawn_passes(plan: Plan, passes: tuple[PassTime, PassTime]) -> tuple[list[Piece], list[Piece]]:
    """Return what a device does in a forward pass, and in a backward pass with what is done again.

    What is computed again comes before the backward pass of the last of its layers.
    """
    forward, backward = map(pass_pieces, passes, ("forward", "backward"))
    again = plan.recomputed(passes[0].graph, passes[0]).before
    back: list[Piece] = []
    for layer in reversed(backward):
        for each in again.get(layer.node.index, ()):
            back += [
                piece._replace(
                    name=f"{piece.name} again",
                    category=RECOMPUTATION,
                    arguments={**piece.arguments, "pass": RECOMPUTATION},
                )
                for piece in forward[each.node.index].pieces
            ]
        back += layer.pieces
    return [piece for layer in forward for piece in layer.pieces], back


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


def whole_update(plan: Plan, graph: Graph) -> Piece:
    """Return the update of all parameters of a graph."""
    how = (graph.num_tensors, plan.matrices(graph))
    return update_piece(plan, graph.num_params, "update", *how)


def update_piece(
    plan: Plan,
    num_params: int,
    name: str = "update",
    tensors: int = 1,
    matrices: Sequence[Matrix] = (),
) -> Piece:
    """Return the update of so many parameters, in so many tensors, of which `matrices` are some."""
    time = plan.update_time(num_params, tensors, matrices)
    seconds = plan.seconds(time)
    operations = update_operations(num_params, plan.update_dtype, plan.rule, tensors, matrices)
    arguments = {"parameters": num_params, **_arguments(operations, time, seconds)}
    return Piece(name, "update", float(seconds), arguments)


def exchange(
    drawing: Drawing,
    plan: Plan,
    num_bytes: int,
    workers: Sequence[str],
    scheme: str,
    start: float,
    *,
    beside: bool = False,
    operation: Collecting = Collecting.ALL_REDUCE,
) -> None:
    """Draw the rounds in which workers exchange gradients of so many bytes, from `start` on.

    What a library chooses, switches do, or is no all-reduce is drawn as one. It is `beside`
    computation, or after.
    """
    seconds = plan.communication(num_bytes, len(workers), scheme, operation)
    collective = plan.collective(scheme)
    rounds = [
        (each, {"scheme": scheme, "carries": each.carried.value})
        for each in collective.rounds(len(workers))
    ]
    crossings = total(each.crossings for each, _ in rounds)
    if not seconds > 0:
        return
    if scheme == AUTO or not crossings or operation is not Collecting.ALL_REDUCE:
        _exchange_at_once(
            *(drawing, plan, num_bytes, workers, scheme, start, float(seconds), operation),
            beside=beside,
        )
        return
    once = float(seconds / crossings)
    said = _chosen(plan, num_bytes, workers, scheme, operation)
    said["bandwidth_bytes_per_s"] = float(num_bytes / once)
    between = collective.between
    draw_rounds(
        drawing, rounds, num_bytes, once, workers, start, beside=beside, between=between, **said
    )


def _chosen(
    plan: Plan, num_bytes: int, workers: Sequence[str], scheme: str, operation: Collecting
) -> dict[str, Any]:
    """Return by which algorithm a scheme exchanges so many bytes, and what bounds that."""
    choice = plan.choice(num_bytes, len(workers), scheme, operation)
    network = plan.cluster.name if plan.cluster else plan.network.name
    said = {
        "algorithm": str(choice.algorithm),
        "protocol": str(choice.protocol),
        "bound": str(choice.bound_by),
        "network": network,
    }
    return {key: value for key, value in said.items() if value}


def _exchange_at_once(
    drawing: Drawing,
    plan: Plan,
    num_bytes: int,
    workers: Sequence[str],
    scheme: str,
    start: float,
    seconds: float,
    operation: Collecting,
    *,
    beside: bool,
) -> None:
    """Draw on every worker that all of them sum up so many bytes, or send them."""
    bus_bytes = operation.bus_share(len(workers)) * num_bytes
    arguments = {
        "scheme": scheme,
        "bytes": num_bytes,
        "seconds": seconds,
        **_chosen(plan, num_bytes, workers, scheme, operation),
        "bus_bandwidth_bytes_per_s": bus_bytes / seconds,
    }
    piece = Piece(operation.value.replace("_", "-"), TRANSFER, seconds, arguments, start=start)
    for worker in range(len(workers)):
        drawing.add(worker, [piece], beside=beside)


def draw_rounds(
    drawing: Drawing,
    rounds: Sequence[tuple[Round, Mapping[str, Any]]],
    num_bytes: int,
    once: float,
    workers: Sequence[str],
    start: float,
    *,
    beside: bool = False,
    between: str = "",
    **said: Any,
) -> None:
    """Draw rounds one after the other, in which `num_bytes` cross a link in `once` seconds.

    With each come further arguments of its events; `said` are those of all. What stands `between`
    workers, if anything, is called so.
    """
    crossed: float = 0
    for number, (each, own) in enumerate(rounds, 1):
        seconds = once * each.crossings
        common = {
            **own,
            "round": number,
            "rounds": len(rounds),
            "bytes": round(num_bytes * each.crossings),
            "seconds": seconds,
            "bound": "network",
            **said,
        }
        begin = start + crossed * once
        added: dict[int, int] = {}
        for worker, name, ends in _moves(each, workers, between):
            piece = Piece(name, TRANSFER, seconds, {**common, **ends}, start=begin)
            (added[worker],) = drawing.add(worker, [piece], beside=beside)
        drawing.flows += [
            Flow(added[sender], added[receiver])
            for sender, receiver in each.pairs
            if SWITCH not in (sender, receiver)
        ]
        crossed += each.crossings


def _moves(
    each: Round, workers: Sequence[str], between: str
) -> list[tuple[int, str, dict[str, str]]]:
    """Return for each worker that has part in a round what it does, and with whom."""
    if not each.pairs:
        note = "charged to one worker too, which has nobody to send to"
        return [(0, "exchange with nobody", {"note": note})]
    partners = {
        "from": {receiver: sender for sender, receiver in each.pairs},
        "to": dict(each.pairs),
    }
    found = []
    for worker in sorted(set(itertools.chain(*each.pairs)) - {SWITCH}):
        ends = {
            end: between if others[worker] == SWITCH else workers[others[worker]]
            for end, others in partners.items()
            if worker in others
        }
        if ends.get("from") == ends.get("to"):
            name = f"swap with {ends['to']}"
        else:
            words = (("to", "send to"), ("from", "receive from"))
            name = ", ".join(f"{word} {ends[end]}" for end, word in words if end in ends)
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
            later, earlier = (node.index, parent) if forward else (parent, node.index)
            before[later].append(earlier)
    until = [0.0] * len(graph.nodes)
    found = []
    for layer in layers if forward else reversed(layers):
        index = layer.node.index
        begin = max((until[other] for other in before[index]), default=0.0)
        until[index] = begin + layer.seconds
        found.append((layer, chain(layer.pieces, start + begin)))
    return sorted(found, key=lambda pair: float(pair[1][0].start) if pair[1] else 0.0)


def flows_between(
    layers: list[LayerPieces], events: dict[int, list[int]], category: str
) -> list[Flow]:
    """Return who makes what is fetched, or takes the gradient that is sent.

    `events` are those of the layers' pieces, by the index of the node.
    """
    computes = {
        layer.node.index: events[layer.node.index][layer.parents.index(None)]
        for layer in layers
        if None in layer.parents
    }
    handed = [
        (computes[parent], event)
        for layer in layers
        for event, parent in zip(events[layer.node.index], layer.parents, strict=True)
        if parent in computes
    ]
    return [Flow(*(ends if category == "forward" else reversed(ends))) for ends in handed]
