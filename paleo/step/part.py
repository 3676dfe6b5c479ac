"""What one device has of a net that the devices of a mesh share, and what it takes.

The net is divided by positions, by experts and by tensors (paleo.net.division). What its nodes
compute a cost model prices, what they exchange the cluster.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from paleo.cluster import Device
from paleo.cluster.collectives import AUTO
from paleo.cluster.collectives import Operation as Collecting
from paleo.cluster.topology import Group
from paleo.core.frozen import NamedTuple
from paleo.core.operations import Pass
from paleo.core.quantity import Quantity, is_array, largest, maximum, np, total
from paleo.net.division import divided, divided_by_experts, divided_by_positions
from paleo.net.expert_load import with_expert_load
from paleo.net.graph import Graph
from paleo.net.scaled import messages
from paleo.net.spec import NetSpec
from paleo.step.mesh import Mesh
from paleo.step.passes import BACKWARD, FORWARD, PassTime, exchange_time
from paleo.step.pipelines import PIPELINES
from paleo.step.plan import Plan
from paleo.step.recompute import Recompute
from paleo.step.shortened import LongGraph, Row, shortened

#: Both passes, the seconds of each's nodes, and those of the gradients of parameters.
_Passes: TypeAlias = (
    "tuple[tuple[PassTime, PassTime], tuple[list[Quantity], list[Quantity]], list[Quantity]]"
)
#: The kinds of groups whose exchanges stand in a net, by their names there.
KINDS_OF_GROUPS = {"tensor": "tp", "context": "cp", "expert": "ep"}


class Seconds(NamedTuple):
    """What each node of a device's part takes for a micro-batch, in the order of the graph.

    `sent` are by kind the seconds by which messages make the forward and the backward pass longer;
    those of what is computed again are the forward ones once more. `casts` are those in which
    weights are cast to fp8, once a step.
    """

    forward: list[Quantity]
    backward: list[Quantity]
    weights: list[Quantity]
    again: list[Quantity]
    sent: dict[str, tuple[list[Quantity], list[Quantity]]]
    casts: list[Quantity]

    @property
    def lists(self) -> list[list[Quantity]]:
        """All of them."""
        return [*self[:4], *itertools.chain(*self.sent.values()), self.casts]

    def all(self, row: Row) -> Seconds:
        """Return those of the whole net of a short one."""
        sent = {kind: (row.all(ahead), row.all(back)) for kind, (ahead, back) in self.sent.items()}
        return Seconds(
            row.all(self.forward),
            row.all(self.backward),
            row.all(self.weights),
            row.all(self.again),
            sent,
            row.all(self.casts),
        )


class Priced(NamedTuple):
    """A device's part of a net at one micro-batch, its graph, and the seconds of its nodes.

    Of a long graph the net is the short one: see `Graph.net_of`.
    """

    net: NetSpec
    graph: Graph
    seconds: Seconds


class Part:
    """What one device has of a net that so many share, and what it takes for a micro-batch."""

    def __init__(self, net: NetSpec, plan: Plan, mesh: Mesh) -> None:
        self.mesh = mesh
        net = with_expert_load(plan.trained(net), plan.expert_load, plan.expert_capacity)
        part = divided_by_positions(net, plan.cp, plan.context)
        part = divided_by_experts(part, plan.ep)
        again = not plan.software.keeps_gathered
        self.net = divided(part, plan.tp, sequence=plan.sequence_parallel, again=again)
        self._graphs: dict[Quantity, Graph] = {}
        #: What was computed last: the device and the micro-batch, and its passes.
        self._computed: list[tuple[Device, Quantity, _Passes]] = []
        self._begin(plan)

    def _begin(self, plan: Plan) -> None:
        self.plan = plan
        self._known: dict[int, Priced] = {}
        self._sendings: dict[tuple[str, Quantity, Collecting], Quantity] = {}
        #: Seconds of adding gradients of so many bytes in so many tensors, found once.
        self.adding: dict[tuple[int, int], Quantity] = {}
        self._sent_by: dict[Hashable, Quantity] = {}
        #: Seconds of messages to the next stage, where several plans ask for them.
        self.handed_on: dict[Hashable, Quantity] = {}

    def under_plan(self, plan: Plan) -> Part:
        """Return the same under a plan that differs in figures of devices and links alone.

        Both have the same graphs.
        """
        found = copy.copy(self)
        found._begin(plan)
        return found

    def of(self, micro_batch: int) -> Priced:
        """Return what it is at a micro-batch."""
        if micro_batch not in self._known:
            self._known[micro_batch] = self._found(micro_batch)
        return self._known[micro_batch]

    def _found(self, micro_batch: int) -> Priced:
        graph, (seconds,) = self.under(micro_batch, (self.plan.recompute,))
        return Priced(self.net, graph, seconds)

    def _graph(self, micro_batch: Quantity) -> Graph:
        if is_array(micro_batch):
            return self.plan.graph(self.net, micro_batch)
        if micro_batch not in self._graphs:
            self._graphs[micro_batch] = self.plan.graph(self.net, micro_batch)
        return self._graphs[micro_batch]

    def under(
        self, micro_batch: Quantity, recomputes: Sequence[Recompute]
    ) -> tuple[Graph, list[Seconds]]:
        """Return the graph of micro-batches, and the seconds of its nodes under each of these.

        They are numbers, or arrays as the micro-batches are.
        """
        plan = self.plan
        graph = self._graph(micro_batch)
        passes, (forward, backward), weights = self._passes(graph, micro_batch)
        sent = self.sent(graph, forward, backward)
        casts = [time.total for time in plan.weight_casts(graph)]
        found = []
        for recompute in recomputes:
            again: list[Quantity] = [0.0] * len(graph.nodes)
            both = {kind: (ahead, [*back]) for kind, (ahead, back) in sent.items()}
            for layer in replace(plan, recompute=recompute).recomputed(graph, passes[0]).layers:
                i = layer.node.index
                again[i] = again[i] + layer.seconds
                for ahead, back in both.values():
                    back[i] = back[i] + ahead[i]
            found.append(Seconds(forward, backward, weights, again, both, casts))
        return graph, found

    def _passes(self, graph: Graph, micro_batch: Quantity) -> _Passes:
        """Return both passes, the seconds of their nodes, and those of parameters' gradients.

        Those of the last device and micro-batch are kept: a plan may differ in links alone.
        """
        plan = self.plan
        for device, batch, known in self._computed:
            if not is_array(micro_batch) and batch == micro_batch and device == plan.device:
                return known
        passes = plan.passes(graph)
        forward, backward = ([layer.seconds for layer in each.layers] for each in passes)
        weights: list[Quantity] = [0.0] * len(graph.nodes)
        if PIPELINES[plan.schedule].weights_apart:
            apart = plan.estimate(graph, (Pass.WEIGHT_GRADIENT,))
            weights = [layer.seconds for layer in apart.layers]
        found = passes, (forward, backward), weights
        if not is_array(micro_batch):
            self._computed[:] = [(plan.device, micro_batch, found)]
        return found

    def sent(
        self, graph: Graph, forward: list[Quantity], backward: list[Quantity]
    ) -> dict[str, tuple[list[Quantity], list[Quantity]]]:
        """Return by kind the seconds of each node's messages that nothing hides, of both passes.

        Of what is sent beside the products that read a tensor, as much is hidden as they take;
        backward beside one of the two gradients of each.
        """
        count = len(graph.nodes)
        kinds = [kind for kind in KINDS_OF_GROUPS.values() if getattr(self.mesh, kind) > 1]
        found: dict[str, tuple[list[Quantity], list[Quantity]]]
        found = {kind: ([0.0] * count, [0.0] * count) for kind in kinds}
        exchanges = [node for node in graph.nodes if node.layer.is_exchange]
        readers: dict[int, list[int]] = {node.index: [] for node in exchanges}
        feeding = [0] * count  # how many exchanges each node waits for
        for node in graph.nodes:
            for parent in readers.keys() & set(node.parents):
                readers[parent].append(node.index)
                feeding[node.index] += 1
        for node in exchanges:
            beside = [
                total(of[i] / feeding[i] for i in readers[node.index]) for of in (forward, backward)
            ]
            for place, directions in enumerate((FORWARD, BACKWARD)):
                hidden = beside[place] / len(directions) if self.plan.overlaps else 0.0
                for direction in directions:
                    for each in messages(graph, node, direction):
                        kind = KINDS_OF_GROUPS[each.group]
                        seconds = self.seconds(kind, each.num_bytes, Collecting(each.operation))
                        if each.beside:
                            seconds, hidden = (
                                maximum(seconds - hidden, 0.0), maximum(hidden - seconds, 0.0),
                            )  # fmt: skip
                        own = found[kind][place]
                        own[node.index] = own[node.index] + seconds
        return found

    def seconds(self, kind: str, num_bytes: Quantity, operation: Collecting) -> Quantity:
        """Return the seconds in which a group of a kind exchanges so many bytes, each once."""
        if is_array(num_bytes):
            return _each(lambda size: self.seconds(kind, size, operation), num_bytes)
        key = (kind, num_bytes, operation)
        if key not in self._sendings:
            group = self.mesh.group(self.plan.reached, kind)
            self._sendings[key] = self.sending(group, num_bytes, operation)
        return self._sendings[key]

    def sending(self, group: Group, num_bytes: Quantity, operation: Collecting) -> Quantity:
        """Return the seconds in which a group exchanges so many bytes, found once."""
        if is_array(num_bytes):
            return _each(lambda size: self.sending(group, size, operation), num_bytes)
        key = (group.key, num_bytes, operation)
        if key not in self._sent_by:
            collective = self.plan.collective(AUTO)
            self._sent_by[key] = exchange_time(
                num_bytes, group, collective, self.plan.cost_model, operation
            )
        return self._sent_by[key]


class _PartOfFew(Part):
    """A part of a net of which a few equal blocks are divided and priced, for all of them.

    Where what they take turns out to differ, all are: by a part that takes its place.
    """

    def __init__(self, net: NetSpec, plan: Plan, mesh: Mesh) -> None:
        self._whole, self._short = net, shortened(net)
        self._instead: Part | None = None
        #: The graph of all blocks at a micro-batch, None where few cannot stand for them.
        self._long: dict[int, LongGraph | None] = {}
        super().__init__(self._short.net, plan, mesh)

    def under_plan(self, plan: Plan) -> Part:
        return self._instead.under_plan(plan) if self._instead else super().under_plan(plan)

    def _found(self, micro_batch: int) -> Priced:
        if not self._instead and not waits_for_host(self.plan):
            _, graph, seconds = super()._found(micro_batch)
            if micro_batch not in self._long:
                row = Row.of(graph, self._short)
                self._long[micro_batch] = LongGraph.of(graph, row) if row else None
            found = self._long[micro_batch]
            if found and all(map(found.row.is_even, seconds.lists)):
                return Priced(self.net, found, seconds.all(found.row))
        self._instead = self._instead or Part(self._whole, self.plan, self.mesh)
        return self._instead.of(micro_batch)


def part_of(net: NetSpec, plan: Plan, mesh: Mesh) -> Part:
    """Return what one device has of a net, found of few of its equal blocks if it has many.

    Blocks that are named are looked for, and how far a host is ahead of one depends on how many are
    before: then all are looked at.
    """
    is_plain = not (plan.recompute.blocks or net.sweep or waits_for_host(plan))
    few = is_plain and shortened(net).like
    return (_PartOfFew if few else Part)(net, plan, mesh)


def waits_for_host(plan: Plan) -> bool:
    """Tell whether a device may wait for the host to hand over kernels."""
    start = 0.0 if plan.graphs else plan.software.start_on(plan.device, 1)
    return bool(largest(plan.cost_model.host(plan.target)) or largest(start))


def _each(seconds: Callable[[Any], Quantity], sizes: Any) -> Quantity:
    """Return the seconds of each of an array of sizes, as of numbers."""
    found: Quantity = np.array([seconds(size) for size in sizes.ravel().tolist()])
    return found.reshape(sizes.shape)  # type: ignore[union-attr]
