"""A mesh of devices: tensors, stages and data are shared at once.

Each device has a part of the net (paleo.net.division), of which each stage has the nodes of its
blocks. A step is the slowest stage's micro-batches, what it waits for in the pipeline, the exchange
of gradients, and the update.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from paleo.cluster.collectives import AUTO
from paleo.cluster.collectives import Operation as Collecting
from paleo.cluster.topology import Group
from paleo.core.errors import SettingError
from paleo.core.frozen import NamedTuple, dataclass
from paleo.core.operations import Pass
from paleo.core.quantity import Quantity, ceil_div, total
from paleo.core.tensor import num_elements
from paleo.costs import Time
from paleo.net.division import divided, divided_by_experts, divided_by_positions
from paleo.net.graph import Graph
from paleo.net.layers.exchanges import Exchange
from paleo.net.spec import NetSpec
from paleo.step.memory import Footprint, footprint
from paleo.step.memory.stage import StageMemory, stage_memory, stage_net
from paleo.step.mesh import Mesh
from paleo.step.parallelism.base import (
    BATCH_SIZE,
    PARALLELISMS,
    WORKERS,
    Asked,
    Parallelism,
    Prediction,
)
from paleo.step.passes import BACKWARD, exchange_time
from paleo.step.pieces import TRANSFER, WAIT, Field, Piece, Step
from paleo.step.pipelines import PIPELINES, Work
from paleo.step.plan import Plan
from paleo.step.recompute import RECOMPUTATION
from paleo.step.stages import Cut, cut
from paleo.step.timeline.drawing import Schedule


#: The kinds of groups that exchanges in a net name.
_KINDS = {"tensor": "tp", "context": "cp", "expert": "ep"}


class Seconds(NamedTuple):
    """What each node of a device's part takes for a micro-batch, in the order of the graph.

    `sent` are the messages of the group that shares tensors: forward, again in the backward pass,
    and backward.
    """

    forward: list[Quantity]
    backward: list[Quantity]
    weights: list[Quantity]
    again: list[Quantity]
    sent_forward: list[Quantity]
    sent_backward: list[Quantity]


class Part:
    """What one device has of a net that so many share, and what it takes for a micro-batch."""

    def __init__(self, net: NetSpec, plan: Plan, mesh: Mesh) -> None:
        self.plan, self.mesh = plan, mesh
        part = divided_by_positions(net, plan.cp, plan.context)
        part = divided_by_experts(part, plan.ep)
        self.net = divided(part, plan.tp, sequence=plan.sequence_parallel)
        self._known: dict[int, tuple[Graph, Seconds]] = {}

    def of(self, micro_batch: int) -> tuple[Graph, Seconds]:
        """Return the graph of a micro-batch, and the seconds of its nodes."""
        if micro_batch not in self._known:
            self._known[micro_batch] = self._found(micro_batch)
        return self._known[micro_batch]

    def _found(self, micro_batch: int) -> tuple[Graph, Seconds]:
        plan = self.plan
        graph = plan.graph(self.net, micro_batch)
        forward, backward = plan.passes(graph)
        weights = [0.0] * len(graph.nodes)
        if plan.schedule == "zero_bubble":
            apart = plan.estimate(graph, (Pass.WEIGHT_GRADIENT,))
            weights = [layer.seconds for layer in apart.layers]
        sent = [self._sent(graph, node.index) for node in graph.nodes]
        found = plan.recomputed(graph, forward)
        again = [0.0] * len(graph.nodes)
        for layer in found.layers:
            i = layer.node.index
            again[i] = again[i] + layer.seconds + sent[i][0]
        seconds = Seconds(
            [layer.seconds for layer in forward.layers],
            [layer.seconds for layer in backward.layers],
            weights,
            again,
            [ahead for ahead, _ in sent],
            [back for _, back in sent],
        )
        return graph, seconds

    def seconds(self, kind: str, num_bytes: Quantity, operation: Collecting) -> Quantity:
        """Return the seconds in which a group of a kind exchanges so many bytes."""
        return self.sending(self.mesh.group(self.plan.reached, kind), num_bytes, operation)

    def sending(self, group: Group, num_bytes: Quantity, operation: Collecting) -> Quantity:
        """Return the seconds in which a group exchanges so many bytes."""
        collective = self.plan.collective(AUTO)
        return exchange_time(num_bytes, group, collective, self.plan.cost_model, operation)

    def _sent(self, graph: Graph, index: int) -> tuple[Quantity, Quantity]:
        """Return the seconds of the messages of a node, forward and backward."""
        node = graph.nodes[index]
        if not isinstance(node.layer, Exchange):
            return 0.0, 0.0
        found = []
        for directions in ((Pass.FORWARD,), BACKWARD):
            seconds: Quantity = 0.0
            for direction in directions:
                for each in node.layer.messages(direction, node.inputs, graph.element_size):
                    operation = Collecting(each.operation)
                    kind = _KINDS[each.group]
                    seconds = seconds + self.seconds(kind, each.num_bytes, operation)
            found.append(seconds)
        return found[0], found[1]


@dataclass(frozen=True)
class Stage:
    """What one device of a stage does for each micro-batch, and what it has.

    Seconds are of all its chunks: computation forward, backward and again, the messages of those
    that share tensors, and those to the stages beside it.
    """

    forward: Quantity
    backward: Quantity
    weights: Quantity
    again: Quantity
    tensor_forward: Quantity
    tensor_backward: Quantity
    passed: Quantity
    num_params: int
    num_tensors: int

    @property
    def work(self) -> Work:
        """What the pipeline reckons with."""
        ahead = self.forward + self.tensor_forward + self.passed
        back = self.again + self.backward + self.tensor_backward + self.passed
        return Work(ahead, back, self.weights)


class Meshed:
    """A net under a plan, shared by the devices of a mesh: gives the step."""

    def __init__(self, net: NetSpec, plan: Plan, mesh: Mesh) -> None:
        self.net, self.plan, self.mesh = net, plan, mesh
        self.part = Part(net, plan, mesh)

    def stages(self, micro_batch: int) -> tuple[Cut, list[Stage]]:
        """Return how the net is dealt out, and each stage."""
        plan, mesh = self.plan, self.mesh
        graph, seconds = self.part.of(micro_batch)
        own = list(map(float, map(sum, zip(*seconds, strict=True))))
        found = cut(graph, mesh.pp, plan.interleave, plan.stages, own)
        sums = [found.sums(values) for values in seconds]
        params = found.sums([node.num_params for node in graph.nodes])
        tensors = found.sums([node.num_tensors for node in graph.nodes])
        passed = self._passed(graph, found)
        return found, [
            Stage(*(of[i] for of in sums), passed[i], int(params[i]), int(tensors[i]))
            for i in range(mesh.pp)
        ]

    def _passed(self, graph: Graph, found: Cut) -> list[Quantity]:
        """Return the seconds in which each stage hands on what its chunks make, one way.

        Of a boundary the sender has half of the message, the receiver the other.
        """
        spent: list[Quantity] = [0.0] * self.mesh.pp
        if self.mesh.pp == 1:
            return spent
        for boundary in range(1, len(found.bounds) - 1):
            sent = found.passed(graph, boundary)
            size = total(num_elements(graph.nodes[i].output) for i in sent)
            last, first = (boundary - 1) % self.mesh.pp, boundary % self.mesh.pp
            message = self._message(graph.element_size * size, min(last, first))
            spent[last] = spent[last] + message / 2
            spent[first] = spent[first] + message / 2
        return spent

    def _message(self, num_bytes: Quantity, first: int) -> Quantity:
        """Return the seconds of a message to the next stage.

        What all devices of a stage have whole, each sends its share of, and the next stage gathers
        (arXiv:2104.04473, section 4.1).
        """
        plan, mesh = self.plan, self.mesh
        gathered: Quantity = 0.0
        if mesh.tp > 1 and not plan.sequence_parallel:
            gathered = self.part.seconds("tp", num_bytes, Collecting.ALL_GATHER)
            num_bytes = num_bytes / mesh.tp
        group = mesh.neighbours(plan.reached, "pp", first)
        return self.part.sending(group, num_bytes, Collecting.POINT_TO_POINT) + gathered

    def step(self, global_batch: int) -> Step:
        """Return the step of so many samples; raises SettingError if they do not divide."""
        plan, mesh = self.plan, self.mesh
        micro = micro_batch_of(plan, mesh, global_batch)
        batches = global_batch // (mesh.dp * micro)
        _, stages = self.stages(micro)
        pipeline = PIPELINES[plan.schedule]
        running = pipeline.seconds([stage.work for stage in stages], batches, plan.interleave)
        slowest = max(stages, key=lambda stage: float(stage.work.seconds))
        bubble = running - batches * slowest.work.seconds
        exchange = max(self._exchanged(stage) for stage in stages)
        update = max((self._update(stage) for stage in stages), key=lambda time: float(time.total))
        sent = batches * (slowest.tensor_forward + slowest.tensor_backward)
        pieces = [
            Piece("forward", "forward", batches * slowest.forward),
            Piece(RECOMPUTATION, RECOMPUTATION, batches * slowest.again),
            Piece("backward", "backward", batches * slowest.backward),
            Piece("tensor_parallel", TRANSFER, sent),
            Piece("pipeline_parallel", TRANSFER, 2 * batches * slowest.passed),
            Piece("bubble", WAIT, bubble),
            Piece("update", "update", plan.seconds(update), time=update),
        ]
        return Step(
            mesh.size,
            global_batch,
            micro,
            tuple(pieces),
            (*_fields(mesh), *_memory_fields(plan, functools.cache(self._most), micro, batches)),
            exchanges={AUTO: Piece("data_parallel", TRANSFER, exchange)},
            band=plan.band,
        ).of_floats()

    def memory(self, micro_batch: int, batches: int) -> tuple[StageMemory, ...]:
        """Return what a device of each stage takes of memory."""
        plan, mesh = self.plan, self.mesh
        graph, _ = self.part.of(micro_batch)
        found, _ = self.stages(micro_batch)
        pipeline = PIPELINES[plan.schedule]
        known: dict[tuple[int, ...], Footprint] = {}
        memory = []
        for stage in range(mesh.pp):
            nodes = found.nodes(stage)
            alike = tuple(graph.nodes[i].like for i in nodes)
            if alike not in known:
                own = stage_net(self.part.net, graph, nodes)
                how: Any = {name: getattr(plan, name) for name in ("optimizer", "dtype", "recompute")}
                known[alike] = footprint(own, micro_batch, **how)
            in_flight = pipeline.in_flight(stage, mesh.pp, batches, plan.interleave)
            memory.append(stage_memory(stage, known[alike], in_flight, plan.zero, mesh.dp))
        return tuple(memory)

    def _most(self, micro_batch: int, batches: int) -> int:
        """Return the bytes of a device of the stage that takes most."""
        return int(max(each.total for each in self.memory(micro_batch, batches)))

    def _exchanged(self, stage: Stage) -> Quantity:
        """Return the seconds in which shares of the data exchange the gradients of a stage."""
        if self.mesh.dp == 1:
            return 0.0
        num_bytes = self.plan.encoding.size * stage.num_params
        return self.part.seconds("dp", num_bytes, Collecting.ALL_REDUCE)

    def _update(self, stage: Stage) -> Time:
        shards = self.mesh.dp if self.plan.zero else 1
        return self.plan.update_time(ceil_div(stage.num_params, shards), stage.num_tensors)


def micro_batch_of(plan: Plan, mesh: Mesh, global_batch: int) -> int:
    """Return how many samples a device computes at a time; raises SettingError."""
    if global_batch % mesh.dp:
        raise SettingError(
            f"global_batch: {global_batch} samples do not divide among {mesh.dp} shares of the data"
        )
    share = global_batch // mesh.dp
    micro = plan.micro_batch or (1 if mesh.pp > 1 else share)
    if share % micro:
        raise SettingError(
            f"micro_batch: {share} samples of a share of the data do not divide by {micro}"
        )
    return micro


def _part(key: str, names: Sequence[str], title: str, category: str = "time") -> Field:
    """Return a field with the seconds of pieces of these names."""
    return Field(
        key, lambda step: total(step.seconds_of(name) for name in names), title, "s", banded=category
    )


def _best(key: str, title: str, dimension: str = "", banded: str = "rate") -> Field:
    """Return a field with a value of the whole step."""
    return Field(
        key,
        lambda step: getattr(step.whole_step(step.best_scheme), key),
        title,
        dimension,
        place=1,
        banded=banded,
    )


def _parts(step: Step) -> dict[str, float]:
    """Return the seconds of each part, which add up to the step."""
    return {piece.name: float(piece.seconds) for piece in step.under(step.best_scheme)}


def _communication(step: Step) -> float:
    """Return the seconds of messages during which nothing is computed."""
    pieces = step.under(step.best_scheme)
    return float(total(piece.seconds for piece in pieces if piece.category == TRANSFER))


@functools.cache
def _fields(mesh: Mesh) -> tuple[Field, ...]:
    """Return the fields of steps on a mesh."""
    return (
        WORKERS,
        BATCH_SIZE,
        *(
            Field(kind, lambda step, count=getattr(mesh, kind): count, kind if shown else "")  # type: ignore[misc]
            for kind, shown in (
                ("dp", True), ("tp", mesh.tp > 1), ("pp", mesh.pp > 1), ("cp", mesh.cp > 1),
                ("ep", mesh.ep > 1),
            )
        ),
        Field("micro_batch", lambda step: step.worker_batch_size, "micro-\nbatch"),
        Field("compute_s", lambda step: step.compute, "compute", "s", banded="time"),
        Field("bubble_s", lambda step: step.seconds_of("bubble"), "bubble", "s", banded="time"),
        Field("exposed_communication_s", _communication, "exposed", "s"),
        Field("parts", _parts, is_nested=True),
        Field(
            "step_s",
            lambda step: step.total(step.best_scheme),
            "step",
            "s",
            place=1,
            banded="time",
        ),
        _best("throughput", "samples\n/s")._replace(key="throughput_per_s"),
        _best("tokens_per_s", "tokens\n/s"),
        _best("mfu", "MFU", "percent"),
        _best("hfu", "", "percent"),
    )


def _memory_fields(
    plan: Plan, most: Callable[[int, int], int], micro_batch: int, batches: int
) -> tuple[Field, ...]:
    """Return the fields of what a device of the fullest stage takes."""
    capacity = plan.device.memory_capacity

    def fits(_: Step) -> bool | None:
        return None if capacity is None else most(micro_batch, batches) <= capacity

    return (
        Field("memory_bytes", lambda _: most(micro_batch, batches), "memory", "bytes", place=2),
        Field("fits", fits, "fits", place=2),
    )


class MeshParallelism(Parallelism):
    """Tensors, stages and data shared at once."""

    name = "mesh"
    workers_setting = "workers"
    shares_net = True

    @property
    def title(self) -> str:
        return "on a mesh"

    def predict(self, asked: Asked) -> Prediction:
        """Return the step for each number of devices."""
        net, plan = asked.net, asked.plan
        one: Any = {
            "net": net.name,
            "sample": asked.computations.sample,
            "one_worker": 0.0,
        }
        steps = []
        for workers in asked.workers:
            mesh = Mesh.of(workers, plan.tp, plan.cp, plan.ep, plan.pp, plan.order)
            batch = plan.global_batch or asked.batch_size * mesh.dp
            steps.append(replace(Meshed(net, plan, mesh).step(batch), **one))
        return Prediction(tuple(steps), ())

    def schedule(
        self, net: NetSpec, plan: Plan, steps: Sequence[Step], scheme: str | None
    ) -> Schedule:
        """Return a step, stage by stage."""
        raise SettingError("there is no timeline of a mesh yet")


PARALLELISMS.add(MeshParallelism.name, MeshParallelism())
