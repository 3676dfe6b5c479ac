"""Hybrid parallelism: unsplit layers data-parallel, split layers model-parallel.

After A. Krizhevsky, "One weird trick for parallelizing convolutional neural networks",
arXiv:1404.5997, 2014: K workers run the unsplit layers each on a batch of its own, then
work together on the slices of the split layers, for one worker's batch after another.

Tables add up the two parts. In a timeline they stand in the order in which they are done: forward
the unsplit layers, the slices for all workers' batches, and the unsplit layers that depend on
slices; backward the other way round; then the updates and the exchange.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from paleo.core.errors import SettingError
from paleo.core.frozen import dataclass
from paleo.core.quantity import Quantity, maximum, total
from paleo.core.tensor import num_elements
from paleo.core.units import GIB_PER_GB
from paleo.net.asked import longest_path
from paleo.net.graph import Graph, checked_batch
from paleo.net.spec import NetSpec
from paleo.step.declarations import checked_workers
from paleo.step.parallelism.base import (
    BATCH_SIZE,
    COMPUTING,
    PARALLELISMS,
    WORKERS,
    Asked,
    Parallelism,
    Prediction,
)
from paleo.step.parallelism.fetch import fetches_of, num_slices
from paleo.step.passes import Fetches, PassTime
from paleo.step.pieces import TRANSFER, Field, Piece, Step, WholeStep
from paleo.step.plan import Plan, check_together
from paleo.step.timeline.drawing import Drawing, Schedule, Span, chain
from paleo.step.timeline.kernels import (
    LayerPieces,
    exchange,
    flows_between,
    pass_pieces,
    placed,
    update_piece,
)
from paleo.step.timeline.values import Flow

#: By which the unsplit layers' gradients are exchanged.
SCHEME = "TreeAllReduce"

_PASSES = ("forward", "backward")
_FIELDS = (
    Field("part", lambda step: step.label, "part"),
    WORKERS,
    BATCH_SIZE,
    *COMPUTING,
    Field("sync_s", lambda step: step["sync"], "Tree\nAllReduce", "s"),
    Field("total_s", lambda step: step.total(), "total", "s", banded="time"),
)


def hybrid_parallel(
    net: NetSpec, plan: Plan, batch_size: Quantity, workers: Quantity
) -> tuple[Step, Step]:
    """Return the data-parallel and the model-parallel part of a step.

    `workers` need not equal the number of slices. The data part is pipelined if the plan
    says so and exchanges its gradients by a tree; the model part does neither. Raises
    SettingError or NetSpecError.
    """
    workers, batch = checked_workers(workers, "hybrid_workers"), checked_batch(batch_size)
    check_together(batch, workers)
    return _Hybrid(plan.graph(net, batch), plan, workers).steps()


@dataclass(frozen=True)
class _Hybrid:
    """Both parts of a step on so many workers, each of which has a batch of the graph's size."""

    graph: Graph
    plan: Plan
    workers: Quantity

    def steps(self) -> tuple[Step, Step]:
        """Return the data part and the model part."""
        unsplit = [
            total(layer.seconds for layer in passed.layers if layer.node.shard is None)
            for passed in self.unsplit
        ]
        sync = self.plan.communication(self.unsplit_bytes, self.workers, SCHEME)
        return (
            self._step("data", unsplit, self.plan.update(self.unsplit_params), sync),
            self._step("model", self._slices_seconds(), self._slices_update(), 0.0),
        )

    def _step(self, label: str, passes: list[Quantity], update: Quantity, sync: Quantity) -> Step:
        pieces = (
            *(Piece(name, name, seconds) for name, seconds in zip(_PASSES, passes, strict=True)),
            Piece("update", "update", update),
            Piece("sync", TRANSFER, sync),
        )
        batch = self.graph.batch_size
        sizes = (self.workers, batch * self.workers, batch)
        return Step(*sizes, pieces, _FIELDS, label=label, band=self.plan.band)

    @functools.cached_property
    def bandwidth(self) -> Quantity:
        """Bytes/s of a link."""
        return self.plan.link_bandwidth(self.workers)

    @functools.cached_property
    def fetches(self) -> Fetches:
        """What nodes get from other devices."""
        return fetches_of(self.graph, self.plan, self.bandwidth)

    @functools.cached_property
    def unsplit(self) -> tuple[PassTime, PassTime]:
        """Both passes, of which the unsplit layers are the data part."""
        return self.plan.passes(self.graph, self.fetches)

    @functools.cached_property
    def slices(self) -> tuple[PassTime, PassTime]:
        """Both passes of one worker's batch, of which the slices are the model part."""
        fetches = self.fetches
        if not self.fetches_once:
            fetches = fetches_of(self.graph, self.plan, self.bandwidth, from_unsplit=False)
        return self.plan.in_turn.passes(self.graph, fetches)

    @property
    def fetches_once(self) -> bool:
        """Whether slices fetch as the implementation of 2017 has it."""
        return self.plan.cost_model.conventions.hybrid_fetches_elements_once

    def _slices_seconds(self) -> list[Quantity]:
        """Return the seconds of all workers' batches on the slices, forward and backward.

        In the 2017 implementation (Lo - t) K + t, where Lo is one batch with its fetches, and t the
        fetch of the other workers' activations: elements, not bytes, and at the full bandwidth.
        Else each batch is fetched while the last is computed: t + c + (K - 1) max(c, t), where c is
        one batch without the fetch t of its activations.
        """
        (_, fetch), workers = self.gathered, self.workers
        batches = (
            longest_path(
                self.graph,
                [0.0 if layer.node.shard is None else layer.seconds for layer in passed.layers],
            )
            for passed in self.slices
        )
        if self.fetches_once:
            return [(batch - fetch) * workers + fetch for batch in batches]
        return [fetch + batch + (workers - 1) * maximum(batch, fetch) for batch in batches]

    @functools.cached_property
    def gathered(self) -> tuple[Quantity, Quantity]:
        """The bytes that the slices get of a batch from the unsplit layers before, and seconds.

        These are what the fetch of one worker's batch takes; in the 2017 implementation, what it
        takes off every batch: the fetch of all other workers' activations.
        """
        graph = self.graph
        first = next((node for node in graph.nodes if node.shard is not None), None)
        elements: Quantity = 0
        if first is not None and first.parents:
            elements = num_elements(graph.nodes[first.parents[0]].output)
        num_bytes = graph.element_size * elements
        if self.fetches_once:
            return num_bytes, (self.workers - 1) * elements / (self.bandwidth * GIB_PER_GB)
        return num_bytes, num_bytes / (self.bandwidth * self.plan.ppp_comm)

    @functools.cached_property
    def unsplit_params(self) -> int:
        """The parameters of the unsplit layers."""
        return sum(node.num_params for node in self.graph.nodes if node.shard is None)

    @property
    def unsplit_bytes(self) -> int:
        """The bytes of their gradients."""
        return self.graph.precision.parameter_size * self.unsplit_params

    @functools.cached_property
    def slice_params(self) -> list[int]:
        """The parameters of each slice."""
        params = [0] * num_slices(self.graph)
        for node in self.graph.nodes:
            if node.shard is not None:
                params[node.shard] += node.num_params
        return params

    def _slices_update(self) -> Quantity:
        """Return the seconds in which the slices are updated."""
        if self.updates_all:
            return self.plan.in_turn.update(sum(self.slice_params))
        return self.plan.update(max(self.slice_params, default=0))

    @property
    def updates_all(self) -> bool:
        """Whether every device updates the slices of all, as in the implementation of 2017."""
        return self.plan.cost_model.conventions.hybrid_updates_all_slices

    # What the parts consist of, put on drawings

    @property
    def _each_worker(self) -> range:
        return range(int(self.workers))

    @property
    def _each_slice(self) -> range:
        return range(len(self.slice_params))

    def schedule(self, data: Step, model: Step) -> Schedule:
        """Return the spans of the step of these parts, one after the other."""
        workers, slices = self._each_worker, self._each_slice
        names = [
            ", ".join([f"worker {i}"] * (i in workers) + [f"slice {i}"] * (i in slices))
            for i in range(max(len(workers), len(slices)))
        ]
        forward, backward = (
            [
                self._unsplit_span(name, unsplit, False),
                self._slices_span(name, sliced, model[name]),
                self._unsplit_span(name, unsplit, True),
            ]
            for name, unsplit, sliced in zip(_PASSES, self.unsplit, self.slices, strict=True)
        )
        sync = Piece(f"exchange by {SCHEME}, data part", TRANSFER, data["sync"])
        last = [
            Span([Piece("update, data part", "update", data["update"])], self._update),
            Span([Piece("update, model part", "update", model["update"])], self._update_slices),
            Span([sync], self._exchange),
        ]
        spans = [*forward, *reversed(backward), *last]
        return Schedule(names, spans, {"workers": len(workers)})

    def _pieces(self, passed: PassTime, category: str) -> list[LayerPieces]:
        return pass_pieces(
            passed,
            category,
            lambda node: "unsplit layers" if node.shard is None else f"slice {node.shard}",
            self.plan.network.name,
        )

    def _unsplit_span(self, category: str, passed: PassTime, is_after: bool) -> Span:
        """Return the unsplit layers before or after the slices."""
        graph = self.graph
        after: list[bool] = []
        for node in graph.nodes:
            after.append(any(after[i] or graph.nodes[i].shard is not None for i in node.parents))
        layers = [
            layer
            for layer in self._pieces(passed, category)
            if layer.node.shard is None and after[layer.node.index] == is_after
        ]
        if category == "backward":
            layers.reverse()

        def draw(drawing: Drawing, start: float) -> None:
            until = 0.0
            for layer in layers:
                drawing.add_to_all(self._each_worker, chain(layer.pieces, start + until))
                for worker in self._each_worker:
                    drawing.add(worker, chain(layer.hidden, start + until), beside=True)
                until += layer.seconds

        seconds = total(layer.seconds for layer in layers)
        return Span([Piece(f"{category}, data part", category, seconds)], draw)

    def _slices_span(self, category: str, passed: PassTime, seconds: float) -> Span:
        """Return how the slices take all workers' batches, which is `seconds` long."""
        graph, workers, fetch = self.graph, self._each_worker, float(self.gathered[1])
        layers = [
            layer if layer.node.shard is not None else LayerPieces(layer.node, 0.0)
            for layer in self._pieces(passed, category)
        ]
        batch = placed(graph, layers, category, 0.0)
        longest = max((float(pieces[-1].end) for _, pieces in batch if pieces), default=0.0)

        def draw_batch(drawing: Drawing, start: float, number: int) -> None:
            events = {}
            for layer, pieces in placed(graph, layers, category, start):
                numbered = [
                    piece._replace(arguments={**piece.arguments, "batch": number})
                    for piece in pieces
                ]
                events[layer.node.index] = drawing.add(layer.node.shard or 0, numbered)
            drawing.flows += flows_between(layers, events, category)

        def draw_in_turn(drawing: Drawing, start: float) -> None:
            """Draw each batch being fetched while the one before is computed."""
            self._gather(drawing, category, 0, start)
            start += fetch
            for number in workers:
                draw_batch(drawing, start, number)
                if number + 1 in workers:
                    self._gather(drawing, category, number + 1, start)
                start += max(longest, fetch)

        def draw_once(drawing: Drawing, start: float) -> None:
            """Draw the first batch in full, and what the 2017 formula has for all others.

            (Lo - t) K + t takes from every further batch a fetch t that is none of its layers' own,
            so that the layers of those batches cannot be told apart.
            """
            rest, first, last = seconds - longest, 1, len(workers) - 1
            if rest >= 0:
                draw_batch(drawing, start, 0)
                start += longest
            else:
                rest, first = seconds, 0
            if first > last or not rest > 0:
                return
            name = f"batches {first} to {last}" if first < last else f"batch {last}"
            arguments = {
                "pass": category,
                "one_batch_s": longest,
                "taken_off_each_s": fetch,
                "seconds": rest,
                "note": "paleo2017 takes the fetch of all other workers' activations off every "
                "batch: what is left has no layers of its own",
            }
            drawing.add_to_all(self._each_slice, [Piece(name, category, rest, arguments, start)])

        draw = draw_once if self.fetches_once else draw_in_turn
        return Span([Piece(f"{category}, model part", category, seconds)], draw)

    def _gather(self, drawing: Drawing, category: str, number: int, start: float) -> None:
        """Draw how all slices get the batch of a worker, the first of them before they compute."""
        num_bytes, seconds = self.gathered[0], float(self.gathered[1])
        slices = self._each_slice
        if not (slices and seconds > 0):
            return
        events = {}
        for worker in sorted({number, *slices}):
            sends = worker == number
            piece = Piece(
                f"{'send' if sends else 'fetch'} batch {number}",
                TRANSFER,
                seconds,
                {
                    "pass": category,
                    "batch": number,
                    "bytes": num_bytes,
                    "to" if sends else "from": "all slices" if sends else f"worker {number}",
                    "network": self.plan.network.name,
                    "bandwidth_bytes_per_s": float(num_bytes / seconds),
                    "seconds": seconds,
                    "bound": "network",
                },
                start=start,
            )
            (events[worker],) = drawing.add(worker, [piece], beside=number > 0)
        drawing.flows += [
            Flow(events[number], event) for worker, event in events.items() if worker != number
        ]

    def _update(self, drawing: Drawing, start: float) -> None:
        update = update_piece(self.plan, self.unsplit_params, "update unsplit layers")
        drawing.add_to_all(self._each_worker, chain([update], start))

    def _update_slices(self, drawing: Drawing, start: float) -> None:
        for shard, num_params in enumerate(self.slice_params):
            if self.updates_all:
                every = sum(self.slice_params)
                piece = update_piece(self.plan.in_turn, every, "update all slices")
            else:
                piece = update_piece(self.plan, num_params, "update slice")
            drawing.add(shard, chain([piece], start))

    def _exchange(self, drawing: Drawing, start: float) -> None:
        names = [f"worker {i}" for i in self._each_worker]
        exchange(drawing, self.plan, self.unsplit_bytes, names, SCHEME, start)


class HybridParallelism(Parallelism):
    """Unsplit layers on every worker, split ones on devices of their own."""

    name = "hybrid"
    workers_setting = "hybrid_workers"
    splits = True
    total_label = ("part", "step")

    def predict(self, asked: Asked) -> Prediction:
        """Return both parts of the step."""
        net, plan, (workers,) = asked.net, asked.plan, asked.workers
        parts = hybrid_parallel(net, plan, asked.batch_size, workers)
        steps = tuple(part.of_floats() for part in parts)
        notes = []
        if not net.splits:
            notes.append("the net has no split layers: the model part is empty")
        elif net.splits != (workers,):
            ways = " and ".join(map(str, net.splits))
            notes.append(f"hybrid_workers is {workers}, the net's layers are split {ways} ways")
        if any(part.is_below_zero for part in steps):
            notes.append(
                f"a time is below zero: {plan.cost_model.name} subtracts the fetch of all workers' "
                f"activations from every batch, and for {workers} workers the fetch takes longer"
            )
        low, high = (
            None if None in ends else float(total(part.total() for part in ends))
            for ends in zip(*(part.ends for part in steps), strict=True)
        )
        whole = WholeStep(
            workers=workers,
            batch_size=asked.batch_size * workers,
            seconds=float(total(part.total() for part in steps)),
            one_worker=float(asked.computations.of(asked.batch_size).seconds),
            one_worker_batch=asked.batch_size,
            net=net.name,
            low=low,
            high=high,
            sample=asked.computations.sample.on(max(workers, *net.splits, 1) / workers),
        )
        return Prediction(steps, tuple(notes), whole)

    def schedule(
        self, net: NetSpec, plan: Plan, steps: Sequence[Step], scheme: str | None
    ) -> Schedule:
        """Return both parts in the order in which they are done."""
        data, model = steps
        graph = plan.graph(net, data.worker_batch_size)
        for name in _PASSES:
            if model[name] < 0:
                raise SettingError(
                    f"{plan.cost_model.name} predicts a {name} pass below zero for the slices with "
                    f"{model.workers} workers: there is no timeline of that"
                )
        return _Hybrid(graph, plan, data.workers).schedule(data, model)


PARALLELISMS.add(HybridParallelism.name, HybridParallelism())
