"""Data parallelism by one process that drives all devices, as PyTorch's nn.DataParallel does.

Device 0 has the batch of all devices, the parameters and the optimizer (PyTorch,
torch/nn/parallel/data_parallel.py, replicate.py, comm.py). In every step it

- scatters the batch: their share to each other device, one after another;
- replicates the net: parameters and buffers are broadcast, while the host sets each tensor of each
  replica in Python;
- has all devices compute, and gathers their outputs, from one after another;
- scatters the gradients of the outputs, and has all devices compute the backward pass;
- reduces the gradients, which nothing hides: those of all parameters are handed back together. The
  host lays out each tensor of each device in Python;
- updates the parameters by itself.

Threads of the process hand over the operations, one for each device: forward under the lock of the
interpreter, backward under that of the autograd engine's graph task (torch/csrc/autograd/
engine.cpp). So the host's time of an operation passes once for every device.

Broadcast and reduction are NCCL's, which send on what is still arriving: a message takes as long to
many devices as to one. The loss, which device 0 computes of all outputs, is not counted where the
net has none; one in the net is each device's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from paleo.cluster.collectives import Round
from paleo.core.frozen import NamedTuple
from paleo.core.quantity import Quantity, ceil_div, maximum, product, where_positive
from paleo.net.graph import Graph, checked_batch
from paleo.net.spec import NetSpec
from paleo.step.declarations import checked_workers
from paleo.step.parallelism.base import (
    BATCH_SIZE,
    COMPUTING,
    OF_RECOMPUTATION,
    OF_TOKENS,
    PARALLELISMS,
    SCALED,
    WORKERS,
    Asked,
    Parallelism,
    Prediction,
    with_titles,
)
from paleo.step.parallelism.computations import divided, recomputation
from paleo.step.pieces import TRANSFER, Field, Piece, Step
from paleo.step.plan import Plan
from paleo.step.recompute import RECOMPUTATION
from paleo.step.timeline.drawing import Drawing, Schedule, Span, chain
from paleo.step.timeline.kernels import draw_rounds, drawn_passes, whole_update

#: How gradients are exchanged, which is no choice.
SCHEME = "Reduce"


def _moving(name: str, title: str) -> Field:
    return Field(f"{name}_s", lambda step: step[name], title, "s")


_FIELDS = (
    WORKERS,
    BATCH_SIZE,
    _moving("scatter", "scatter"),
    _moving("replicate", "replicate"),
    COMPUTING[0],
    _moving("gather", "gather"),
    _moving("scatter_gradients", "scatter\ngradients"),
    *COMPUTING[1:3],
    Field("reduce_s", lambda step: step.exchanges[SCHEME].seconds, "reduce", "s"),
    COMPUTING[3],
    *SCALED,
)


class Move(NamedTuple):
    """What crosses the links of device 0 for a pass: `num_bytes`, in turn or to all at once.

    `part` is the pass, "forward" or "backward". `link` are the seconds of that, `host` those in
    which the process does its part meanwhile.
    """

    part: str
    num_bytes: Quantity
    link: Quantity
    host: Quantity = 0.0
    in_turn: bool = False
    to_first: bool = False

    @property
    def seconds(self) -> Quantity:
        """How long it takes."""
        return maximum(self.link, self.host)


def moves(
    graph: Graph, batch_size: Quantity, bandwidth: Quantity, host: Quantity = 0.0
) -> dict[str, Move]:
    """Return by name what moves in a step, in its order.

    `graph` is of the share of the first device; `batch_size` are the samples of all, `bandwidth`
    the bytes/s of a link, `host` the seconds that the process takes for an operation. One device
    moves nothing.
    """
    share = graph.batch_size
    others, devices = batch_size - share, ceil_div(batch_size, share)
    read = {parent for node in graph.nodes for parent in node.parents}
    trained = [node for node in graph.nodes if node.owner is None]
    buffers = [size for node in trained for size in node.layer.buffers(node.inputs)]
    tensors = sum(node.layer.num_tensors(node.inputs) for node in trained)
    size = graph.precision.parameter_size

    def in_turn(part: str, sizes: Sequence[Quantity], *, to_first: bool = False) -> Move:
        num_bytes = graph.element_size * sum(sizes) // share * others
        return Move(part, num_bytes, num_bytes / bandwidth, in_turn=True, to_first=to_first)

    def at_once(part: str, elements: int, held: int, *, to_first: bool = False) -> Move:
        seconds = size * elements / bandwidth, held * devices * host
        link, handling = (where_positive(devices - 1, each) for each in seconds)
        return Move(part, size * elements, link, handling, to_first=to_first)

    inputs = [product(node.output) for node in graph.nodes if node.layer.is_input]
    outputs = [product(node.output) for node in graph.nodes if node.index not in read]
    held = graph.num_params + sum(buffers)
    return {
        "scatter": in_turn("forward", inputs),
        "replicate": at_once("forward", held, tensors + len(buffers)),
        "gather": in_turn("forward", outputs, to_first=True),
        "scatter_gradients": in_turn("backward", outputs),
        "reduce": at_once("backward", graph.num_params, tensors, to_first=True),
    }


def single_process(net: NetSpec, plan: Plan, batch_size: int, workers: int) -> Step:
    """Return the step of `net`, of whose batch each of `workers` devices has a share, rounded up.

    Where that leaves none for the last devices, they have no part. Raises SettingError or
    NetSpecError.
    """
    count, batch = int(checked_workers(workers)), int(checked_batch(batch_size))
    share, _ = divided(batch, count, "strong")
    graph = plan.graph(net, share)
    moved = _moves(plan, graph, batch)
    forward, backward = _driving(plan, graph, batch).passes(graph)
    again = recomputation(plan.recomputed(graph, forward))
    update = plan.update_of(graph)
    *sent, reduced = (Piece(name, TRANSFER, move.seconds) for name, move in moved.items())
    scatter, replicate, gather, gradients = sent
    pieces = (
        scatter,
        replicate,
        Piece("forward", "forward", forward.upper, time=forward.time),
        gather,
        gradients,
        *again,
        Piece("backward", "backward", backward.upper, time=backward.time),
        Piece("update", "update", plan.seconds(update), time=update),
    )
    return Step(
        count, batch, share, pieces, _FIELDS, exchanges={SCHEME: reduced}, band=plan.band
    ).of_floats()


def _devices(graph: Graph, batch: int) -> int:
    """Return how many devices have samples of the batch, of which the graph is of a share."""
    return int(ceil_div(batch, graph.batch_size))


def _moves(plan: Plan, graph: Graph, batch: int) -> dict[str, Move]:
    bandwidth = plan.link_bandwidth(_devices(graph, batch)) * plan.ppp_comm
    return moves(graph, batch, bandwidth, plan.software.host_of(plan.device))


def _driving(plan: Plan, graph: Graph, batch: int) -> Plan:
    """Return the plan under which a device computes while the process drives all of them."""
    software = plan.software
    if plan.graphs or not software.host_of(plan.device):
        return plan
    return replace(plan, framework=software.driving(_devices(graph, batch)), compile=False)


class SingleProcess(Parallelism):
    """A copy of the net on each device, made anew in every step by the process of device 0."""

    name = "single_process"
    workers_setting = "workers"
    scaling = "strong"

    @property
    def title(self) -> str:
        return "data-parallel by one process"

    def predict(self, asked: Asked) -> Prediction:
        """Return the step for each number of devices."""
        net, plan, batch = asked.net, asked.plan, asked.batch_size
        one: Any = {
            "one_worker": float(asked.computations.of(batch).seconds),
            "one_worker_batch": batch,
            "net": net.name,
            "sample": asked.computations.sample,
        }
        tokens = OF_TOKENS if asked.computations.sample.tokens else {}
        again = OF_RECOMPUTATION if plan.recompute.mode != "none" else {}
        one["fields"] = with_titles(_FIELDS, **tokens, **again)
        steps = tuple(
            replace(single_process(net, plan, batch, workers), **one) for workers in asked.workers
        )
        idle = [
            step.workers - used
            for step in steps
            if (used := ceil_div(batch, step.worker_batch_size)) < step.workers
        ]
        notes = ["device 0 also holds the batch and outputs of all, which memory leaves out"]
        if idle:
            notes.append(f"{batch} samples leave up to {max(idle)} devices without any")
        return Prediction(steps, tuple(notes))

    def schedule(
        self, net: NetSpec, plan: Plan, steps: Sequence[Step], scheme: str | None
    ) -> Schedule:
        """Return a step: what moves is drawn between devices, what computes on each."""
        (step,) = steps
        workers = tuple(f"device {i}" for i in range(step.workers))
        graph = plan.graph(net, step.worker_batch_size)
        used = range(_devices(graph, step.batch_size))
        passes = _driving(plan, graph, step.batch_size).passes(graph)
        moved = _moves(plan, graph, step.batch_size)

        ahead, back = drawn_passes(plan, passes)
        again = [piece for piece in step.pieces if piece.name == RECOMPUTATION]

        def compute(pieces: Sequence[Piece], fine: Sequence[Piece]) -> Span:
            def draw(drawing: Drawing, start: float) -> None:
                drawing.add_to_all(used, chain(fine, start))

            return Span(pieces, draw)

        def move(name: str) -> Span:
            def draw(drawing: Drawing, start: float) -> None:
                _draw_move(drawing, plan, name, moved[name], workers[: len(used)], start)

            piece = step.exchanges[SCHEME] if name == "reduce" else step.piece(name)
            return Span([piece], draw)

        def update(drawing: Drawing, start: float) -> None:
            drawing.add(0, chain([whole_update(plan, graph)], start))

        spans = [
            move("scatter"),
            move("replicate"),
            compute([step.piece("forward")], ahead),
            move("gather"),
            move("scatter_gradients"),
            compute([*again, step.piece("backward")], back),
            move("reduce"),
            Span([step.piece("update")], update),
        ]
        return Schedule(workers, spans, {"workers": step.workers})


def _draw_move(
    drawing: Drawing, plan: Plan, name: str, move: Move, workers: Sequence[str], start: float
) -> None:
    """Draw a move between device 0 and the others: in turn, or from each to the next."""
    seconds = float(move.seconds)
    if not seconds > 0:
        return
    others = range(1, len(workers))
    pairs = [(0 if move.in_turn else other - 1, other) for other in others]
    if move.to_first:
        pairs = [(receiver, sender) for sender, receiver in pairs]
    share = 1 / len(pairs) if move.in_turn else 1
    rounds = [(pair,) for pair in pairs] if move.in_turn else [tuple(pairs)]
    draw_rounds(
        drawing,
        [(Round(each, crossings=share), {"move": name}) for each in rounds],
        int(move.num_bytes),
        seconds,
        workers,
        start,
        network=plan.network.name,
        bandwidth_bytes_per_s=float(move.num_bytes / seconds),
        bound="host" if move.host > move.link else "network",
    )


PARALLELISMS.add(SingleProcess.name, SingleProcess())
