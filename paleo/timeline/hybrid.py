"""A step under hybrid parallelism.

The model adds up its two parts (paleo.parallelism.hybrid). Here they stand in the order in which
they are done: forward the unsplit layers, the slices for all workers' batches, and the unsplit
layers that depend on slices; backward the other way round; then the updates and the exchange.
"""

from __future__ import annotations

from dataclasses import replace

from paleo.errors import SettingError
from paleo.estimate import link_bandwidth
from paleo.graph import Graph, Node
from paleo.parallelism.fetch import fetches_of
from paleo.parallelism.hybrid import SCHEME, Gathered, gathered
from paleo.parallelism.plan import Plan
from paleo.rows import HybridRow
from paleo.timeline.drawing import Drawing, Piece, chain
from paleo.timeline.layers import LayerPieces, exchange, pass_pieces, placed, update_piece
from paleo.timeline.steps import flows_between
from paleo.timeline.values import Flow

__all__ = ["draw_hybrid", "hybrid_workers_of"]


def hybrid_workers_of(graph: Graph, workers: int) -> tuple[str, ...]:
    """Return the names of the workers, and of the devices of slices beyond them."""
    slices = _num_slices(graph)
    return tuple(
        ", ".join([f"worker {i}"] * (i < workers) + [f"slice {i}"] * (i < slices))
        for i in range(max(workers, slices))
    )


def draw_hybrid(
    graph: Graph, plan: Plan, data: HybridRow, model: HybridRow, names: tuple[str, ...]
) -> Drawing:
    """Draw a step of both parts."""
    for category, seconds in (("forward", model.forward), ("backward", model.backward)):
        if seconds < 0:
            raise SettingError(
                f"{plan.cost_model.name} predicts a {category} pass below zero for the slices with "
                f"{model.workers} workers: there is no timeline of that"
            )
    drawing = Drawing(len(names), data.total + model.total)
    part = _Parts(graph, plan, data.workers, drawing)
    start = 0.0
    for category, row, after_slices in (
        ("forward", data, False),
        ("forward", model, None),
        ("forward", data, True),
        ("backward", data, True),
        ("backward", model, None),
        ("backward", data, False),
    ):
        if after_slices is None:
            seconds = row.forward if category == "forward" else row.backward
            part.slices(category, start, seconds)
        else:
            seconds = part.unsplit(category, start, after_slices)
        start = drawing.part(f"{category}, {row.part} part", category, start, seconds)
    return part.finish(data, model, start)


class _Parts:
    """Draws what a step consists of."""

    def __init__(self, graph: Graph, plan: Plan, workers: int, drawing: Drawing) -> None:
        self.graph = graph
        self.plan = plan
        self.workers = workers
        self.drawing = drawing
        self.slices_of = range(_num_slices(graph))
        self.bandwidth = link_bandwidth(plan.network, plan.cost_model)
        self.fetches = fetches_of(graph, plan, self.bandwidth)
        after: list[bool] = []
        for node in graph.nodes:
            after.append(any(after[i] or graph.nodes[i].shard is not None for i in node.parents))
        self.after_slices = after
        self._unsplit = {
            category: pass_pieces(
                graph, plan, category, self.fetches, use_pipeline=plan.use_pipeline, place=_place
            )
            for category in ("forward", "backward")
        }

    def unsplit(self, category: str, start: float, after_slices: bool) -> float:
        """Draw the unsplit layers before or after the slices, and return their seconds."""
        layers = [
            layer
            for layer in self._unsplit[category]
            if layer.node.shard is None and self.after_slices[layer.node.index] == after_slices
        ]
        total, workers = 0.0, range(self.workers)
        for layer in layers if category == "forward" else reversed(layers):
            self.drawing.add_to_all(workers, chain(layer.pieces, start + total))
            for worker in workers:
                self.drawing.add(worker, chain(layer.hidden, start + total), beside=True)
            total += layer.seconds
        return total

    def slices(self, category: str, start: float, seconds: float) -> None:
        """Draw how the slices take all workers' batches, which is `seconds` long."""
        graph, plan = self.graph, self.plan
        once = plan.cost_model.conventions.hybrid_fetches_elements_once
        fetches = self.fetches if once else fetches_of(graph, plan, self.bandwidth, False)
        layers = [
            layer
            if layer.node.shard is not None
            else replace(layer, seconds=0.0, pieces=(), own=None, fetched=())
            for layer in pass_pieces(graph, plan, category, fetches, place=_place)
        ]
        batch = placed(graph, layers, category, 0.0)
        longest = max((pieces[-1].end for _, pieces in batch if pieces), default=0.0)
        gather = gathered(graph, plan, self.bandwidth, self.workers)
        if once:
            self._fetched_once(category, layers, start, seconds, longest, gather)
        else:
            self._fetched_in_turn(category, layers, start, longest, gather)

    def _fetched_in_turn(
        self,
        category: str,
        layers: list[LayerPieces],
        start: float,
        longest: float,
        gather: Gathered,
    ) -> None:
        """Draw each batch being fetched while the one before is computed."""
        fetch = float(gather.seconds)
        if self.slices_of:
            self._gather(category, 0, start, gather)
        start += fetch
        for number in range(self.workers):
            self._batch(category, layers, start, number)
            if number + 1 < self.workers and self.slices_of:
                self._gather(category, number + 1, start, gather)
            start += max(longest, fetch)

    def _fetched_once(
        self,
        category: str,
        layers: list[LayerPieces],
        start: float,
        seconds: float,
        longest: float,
        gather: Gathered,
    ) -> None:
        """Draw the first batch in full, and what the 2017 formula has for all others.

        (Lo - t) K + t takes from every further batch a fetch t that is none of its layers' own, so
        that the layers of those batches cannot be told apart.
        """
        rest, first = seconds - longest, 0
        if rest >= 0:
            self._batch(category, layers, start, 0)
            start, first = start + longest, 1
        else:
            rest = seconds
        if first == self.workers:
            return
        last = self.workers - 1
        piece = Piece(
            f"batches {first} to {last}" if first < last else f"batch {last}",
            category,
            start,
            rest,
            {
                "pass": category,
                "one_batch_s": longest,
                "taken_off_each_s": float(gather.seconds),
                "seconds": rest,
                "note": "paleo2017 takes the fetch of all other workers' activations off every "
                "batch: what is left has no layers of its own",
            },
        )
        if rest > 0:
            self.drawing.add_to_all(self.slices_of, [piece])

    def _batch(self, category: str, layers: list[LayerPieces], start: float, number: int) -> None:
        """Draw one worker's batch on all slices."""
        events = {}
        for layer, pieces in placed(self.graph, layers, category, start):
            numbered = [
                piece._replace(arguments={**piece.arguments, "batch": number}) for piece in pieces
            ]
            events[layer.node.index] = self.drawing.add(layer.node.shard or 0, numbered)
        self.drawing.flows += flows_between(layers, events, category)

    def _gather(self, category: str, number: int, start: float, gather: Gathered) -> None:
        """Draw how all slices get the batch of a worker, the first of them before they compute."""
        seconds = float(gather.seconds)
        if not seconds > 0:
            return
        owner = number
        events = {}
        for worker in sorted({owner, *self.slices_of}):
            sends = worker == owner
            piece = Piece(
                f"{'send' if sends else 'fetch'} batch {number}",
                "transfer",
                start,
                seconds,
                {
                    "pass": category,
                    "batch": number,
                    "bytes": gather.num_bytes,
                    "to" if sends else "from": "all slices" if sends else f"worker {owner}",
                    "network": self.plan.network.name,
                    "bandwidth_bytes_per_s": float(gather.num_bytes / seconds),
                    "seconds": seconds,
                    "bound": "network",
                },
            )
            (events[worker],) = self.drawing.add(worker, [piece], beside=number > 0)
        self.drawing.flows += [
            Flow(events[owner], event) for worker, event in events.items() if worker != owner
        ]

    def finish(self, data: HybridRow, model: HybridRow, start: float) -> Drawing:
        """Draw the updates and the exchange."""
        graph, plan, drawing = self.graph, self.plan, self.drawing
        unsplit = sum(node.num_params for node in graph.nodes if node.shard is None)
        update = update_piece(plan, unsplit, data.update, "update unsplit layers")
        drawing.add_to_all(range(self.workers), chain([update], start))
        start = drawing.part("update, data part", "update", start, data.update)
        own = [0 for _ in self.slices_of]
        for node in graph.nodes:
            if node.shard is not None:
                own[node.shard] += node.num_params
        for shard, num_params in enumerate(own):
            if plan.cost_model.conventions.hybrid_updates_all_slices:
                piece = update_piece(plan, sum(own), model.update, "update all slices")
            else:
                seconds = float(plan.update(num_params))
                piece = update_piece(plan, num_params, seconds, "update slice")
            drawing.add(shard, chain([piece], start))
        start = drawing.part("update, model part", "update", start, model.update)
        exchange(
            drawing,
            plan,
            graph.precision.parameter_size * unsplit,
            [f"worker {i}" for i in range(self.workers)],
            SCHEME,
            start,
        )
        drawing.part(f"exchange by {SCHEME}, data part", "transfer", start, data.sync)
        return drawing


def _num_slices(graph: Graph) -> int:
    return 1 + max((node.shard for node in graph.nodes if node.shard is not None), default=-1)


def _place(node: Node) -> str:
    return "unsplit layers" if node.shard is None else f"slice {node.shard}"
