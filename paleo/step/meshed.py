"""A step of a net that the devices of a mesh share: its stages, its parts, and its memory."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter

from paleo.cluster.collectives import AUTO
from paleo.cluster.collectives import Operation as Collecting
from paleo.core.errors import SettingError
from paleo.core.frozen import dataclass
from paleo.core.quantity import Quantity, ceil_div, maximum, some, total
from paleo.core.tensor import find_precision, num_elements
from paleo.costs import Time
from paleo.net.graph import Graph, Node
from paleo.net.spec import NetSpec
from paleo.step.loss import NONE
from paleo.step.memory.footprint import step_for
from paleo.step.memory.stage import Sharing, StageMemory, stage_memory, stage_net
from paleo.step.memory.usage import Step as StepOfNet
from paleo.step.mesh import Mesh
from paleo.step.parallelism.jitter import expected_slowest
from paleo.step.part import KINDS_OF_GROUPS, Part
from paleo.step.pieces import TRANSFER, WAIT, Field, Piece, Step
from paleo.step.pipelines import PIPELINES, Work
from paleo.step.plan import Plan
from paleo.step.recompute import RECOMPUTATION, repeated_blocks
from paleo.step.stages import Cut, cut
from paleo.step.utilization import tokens_of

#: The step of a micro-batch on a stage, and the nodes of each of its blocks.
StageStep = tuple[StepOfNet, list[list[int]]]
#: Micro-batches for each stage, from which on a pipeline waits little.
_PER_STAGE = 4
#: What the messages of each kind are called as parts of a step.
_SENT = {kind: f"{name}_parallel" for name, kind in KINDS_OF_GROUPS.items()}


@dataclass(frozen=True)
class Stage:
    """What one device of a stage does for each micro-batch, and what it has.

    Seconds are of all its chunks: `times` of computation forward, backward, of that the gradients
    of parameters, and again; by kind the messages that nothing hides, forward and backward; and
    those to the stages beside it, one way. `experts` of its parameters are those of mixtures,
    `blocks` what it has of the net.
    """

    times: tuple[Quantity, ...]
    sent: Mapping[str, tuple[Quantity, Quantity]]
    passed: Quantity
    num_params: int
    num_tensors: int
    experts: int
    blocks: int
    gathered: tuple[Quantity, Quantity] = (0.0, 0.0)

    @property
    def forward(self) -> Quantity:
        """Seconds of the forward pass."""
        return self.times[0]

    @property
    def backward(self) -> Quantity:
        """Seconds of the backward pass, without what is computed again."""
        return self.times[1]

    @property
    def again(self) -> Quantity:
        """Seconds of what is computed again."""
        return self.times[3]

    @property
    def work(self) -> Work:
        """What the pipeline reckons with."""
        ahead, back = (
            total((0.0, *(each[place] for each in self.sent.values()))) for place in (0, 1)
        )
        return Work(
            self.forward + ahead + self.gathered[0] + self.passed,
            self.again + self.backward + back + self.gathered[1] + self.passed,
            self.times[2],
        )


class Meshed:
    """A net under a plan, shared by the devices of a mesh: gives the step."""

    def __init__(self, net: NetSpec, plan: Plan, mesh: Mesh) -> None:
        self.net, self.plan, self.mesh = net, plan, mesh
        plan.group(mesh.size)  # says if the cluster has not so many devices
        self.part = Part(net, plan, mesh)

    def stages(self, micro_batch: int) -> tuple[Cut, list[Stage]]:
        """Return how the net is dealt out, and each stage."""
        plan, mesh = self.plan, self.mesh
        graph, seconds = self.part.of(micro_batch)
        computing = zip(seconds.forward, seconds.again, seconds.backward, strict=True)
        own = [float(sum(each)) for each in computing]
        found = cut(graph, mesh.pp, plan.interleave, plan.stages, own)
        times = [found.sums(of) for of in seconds[:4]]
        sent = {kind: [found.sums(of) for of in both] for kind, both in seconds.sent.items()}
        params, tensors, experts = (
            found.sums([count(node) for node in graph.nodes])
            for count in (
                attrgetter("num_params"),
                attrgetter("num_tensors"),
                _experts,
            )
        )
        passed = self._passed(graph, found)
        stages = [
            Stage(
                times=tuple(of[i] for of in times),
                sent={kind: (ahead[i], back[i]) for kind, (ahead, back) in sent.items()},
                passed=passed[i],
                num_params=int(params[i]),
                num_tensors=int(tensors[i]),
                experts=int(experts[i]),
                blocks=found.units[i],
            )
            for i in range(mesh.pp)
        ]
        return found, [replace(stage, gathered=self._gathered(stage)) for stage in stages]

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

    def _gathered(self, stage: Stage) -> tuple[Quantity, Quantity]:
        """Return the seconds by which parameters that are gathered make both passes longer.

        Each block's are gathered while the one before is computed, forward and backward, and its
        gradients are summed and dealt out while the next is (Y. Zhao et al., "PyTorch FSDP:
        experiences on scaling fully sharded data parallel", arXiv:2304.11277, section 3.3).
        """
        if self.plan.zero < 3 or self.mesh.replicas == 1:
            return 0.0, 0.0
        read = find_precision(self.plan.dtype).element_size
        gather = self._among_replicas(stage, read, Collecting.ALL_GATHER) / stage.blocks
        reduce = self._reduced(stage) / stage.blocks
        ahead = self._exposed(gather, stage.forward / stage.blocks, stage.blocks)
        back = (stage.backward + stage.again) / stage.blocks
        return ahead, self._exposed(gather + reduce, back, stage.blocks)

    def _exposed(self, message: Quantity, computed: Quantity, count: int) -> Quantity:
        """Return by how much so many messages make as many computations longer.

        The first, or last, is beside none; of each other what is longer than a computation shows.
        """
        if not self.plan.overlaps:
            return count * message
        return message + (count - 1) * maximum(message - computed, 0.0)

    def _reduced(self, stage: Stage) -> Quantity:
        """Return the seconds in which gradients are summed up and dealt out."""
        return self._among_replicas(stage, self.plan.encoding.size, Collecting.REDUCE_SCATTER)

    def _among_replicas(self, stage: Stage, size: int, operation: Collecting) -> Quantity:
        """Return the seconds of an exchange of all parameters, of so many bytes each."""
        mesh, cluster = self.mesh, self.plan.reached
        seconds: Quantity = 0.0
        for count, experts in ((stage.num_params - stage.experts, False), (stage.experts, True)):
            group = mesh.replicated(cluster, experts=experts and mesh.ep > 1)
            if count and group.workers > 1:
                seconds = seconds + self.part.sending(group, size * count, operation)
        return seconds

    def step(self, global_batch: int) -> Step:
        """Return the step of so many samples; raises SettingError if they do not divide."""
        plan, mesh = self.plan, self.mesh
        micro, batches = (
            micro_batch_of(self.net, plan, mesh, global_batch),
            self.batches(global_batch),
        )
        _, stages = self.stages(micro)
        pipeline = PIPELINES[plan.schedule]
        running = pipeline.seconds([stage.work for stage in stages], batches, plan.interleave)
        slowest = max(stages, key=lambda stage: float(stage.work.seconds))
        adding = (batches - 1) * self._added(slowest)
        update = max((self._update(stage) for stage in stages), key=lambda time: float(time.total))
        pieces = (
            Piece("forward", "forward", batches * slowest.forward),
            Piece(RECOMPUTATION, RECOMPUTATION, batches * slowest.again),
            Piece("backward", "backward", batches * slowest.backward + adding),
            *(
                Piece(_SENT[kind], TRANSFER, batches * (ahead + back))
                for kind, (ahead, back) in slowest.sent.items()
            ),
            Piece("pipeline_parallel", TRANSFER, 2 * batches * slowest.passed),
            Piece("parameters_gathered", TRANSFER, batches * total(slowest.gathered)),
            Piece("bubble", WAIT, running - batches * slowest.work.seconds),
            Piece("update", "update", plan.seconds(update), time=update),
        )
        if some(plan.deviation > 0) and mesh.replicas > 1:
            # Shares of the data wait for the slowest of them.
            computed = total(
                piece.seconds for piece in pieces if piece.category not in (TRANSFER, WAIT)
            )
            late = expected_slowest(mesh.replicas, plan.deviation) - 1
            pieces += (Piece("wait", WAIT, late * computed),)
        exchange = max(self._exchanged(stage, batches) for stage in stages)
        return Step(
            mesh.size,
            global_batch,
            micro,
            pieces,
            self._memory_fields(micro, batches),
            exchanges={AUTO: Piece("data_parallel", TRANSFER, exchange)},
            band=plan.band,
        ).of_floats()

    def batches(self, global_batch: int) -> int:
        """Return how many micro-batches a device computes in a step; raises SettingError."""
        return global_batch // (
            self.mesh.dp * micro_batch_of(self.net, self.plan, self.mesh, global_batch)
        )

    def _added(self, stage: Stage) -> Quantity:
        """Return the seconds in which a micro-batch adds its gradients to those before."""
        num_bytes = self.plan.encoding.size * stage.num_params
        return self.plan.adding_time(num_bytes, stage.num_tensors).total

    def _exchanged(self, stage: Stage, batches: int) -> Quantity:
        """Return the seconds by which shares of the data exchanging gradients make a step longer.

        They exchange them beside the last micro-batch's backward pass, bucket by bucket; where the
        optimizer's state is shared they sum and deal out gradients, then gather parameters beside
        the next forward pass (arXiv:1910.02054, section 7).
        """
        plan, mesh = self.plan, self.mesh
        if mesh.replicas == 1 or plan.zero == 3:
            return 0.0
        beside = stage.backward + stage.again
        num_bytes = plan.encoding.size * stage.num_params
        bucket = plan.exchange.bucket
        count = max(1, num_bytes // bucket) if bucket else 1
        if not plan.zero:
            whole = self._among_replicas(stage, plan.encoding.size, Collecting.ALL_REDUCE)
            return self._exposed(whole / count, beside / count, count)
        turns = batches if plan.zero == 2 else 1
        reduce = self._reduced(stage)
        gather = self._among_replicas(
            stage, find_precision(plan.dtype).element_size, Collecting.ALL_GATHER
        )
        exposed = turns * self._exposed(reduce / count, beside / count, count)
        return exposed + self._exposed(gather / count, stage.forward / count, count)

    def _update(self, stage: Stage) -> Time:
        """Return what takes the time to update what a device has of a stage's parameters."""
        plan = self.plan
        params = self._own(stage, stage.num_params) if plan.zero else stage.num_params
        return plan.update_time(params, stage.num_tensors)

    def _own(self, stage: Stage, size: int) -> int:
        """Return a device's share of a stage's parameters, or of bytes that go with them.

        Those of experts are divided by fewer devices: by those that have the same experts.
        """
        mesh = self.mesh
        experts = size * stage.experts // max(stage.num_params, 1)
        shared = ceil_div(experts, mesh.replicas // mesh.ep)
        return int(ceil_div(size - experts, mesh.replicas) + shared)

    def memory(self, micro_batch: int, batches: int) -> tuple[StageMemory, ...]:
        """Return what a device of each stage takes of memory."""
        plan, mesh = self.plan, self.mesh
        graph, _ = self.part.of(micro_batch)
        found, stages = self.stages(micro_batch)
        pipeline = PIPELINES[plan.schedule]
        blocks = repeated_blocks(graph)
        known: dict[tuple[int, ...], StageStep] = {}
        memory = []
        for stage in range(mesh.pp):
            nodes = found.nodes(stage)
            alike = tuple(graph.nodes[i].like for i in nodes)
            if alike not in known:
                known[alike] = self._stage_step(graph, nodes, blocks, micro_batch)
            received, sent = self._boundary_bytes(graph, found, stage)
            sharing = Sharing(
                zero=plan.zero,
                own=functools.partial(self._own, stages[stage]),
                is_shared=mesh.replicas > 1,
                batches=batches,
                in_flight=pipeline.in_flight(stage, mesh.pp, batches, plan.interleave),
                received=received,
                sent=sent,
                receives_all=plan.software.receives_all and mesh.pp > 1,
                buckets_apart=plan.software.exchange.copies > 0,
                waiting=pipeline.waiting(stage, mesh.pp, batches),
            )
            memory.append(stage_memory(stage, *known[alike], sharing))
        return tuple(memory)

    def _stage_step(
        self,
        graph: Graph,
        nodes: Sequence[int],
        blocks: Sequence[Sequence[int]],
        micro_batch: int,
    ) -> StageStep:
        """Return the step of a micro-batch in these nodes, and the nodes of each block in it."""
        plan = self.plan
        step = step_for(
            stage_net(self.part.net, graph, nodes), micro_batch, **plan.in_memory | {"loss": NONE}
        )
        places = {node.name: node.index for node in step.graph.nodes}
        names = [[graph.nodes[i].name for i in block] for block in blocks]
        found = ([places[name] for name in block if name in places] for block in names)
        return step, [block for block in found if block]

    def _boundary_bytes(self, graph: Graph, found: Cut, stage: int) -> tuple[int, int]:
        """Return the bytes that a stage's chunks receive of a micro-batch, and send.

        What comes into the net is received, too.
        """
        size, chunks = self.mesh.pp, range(len(found.bounds) - 1)

        def size_of(nodes: Iterable[int]) -> int:
            return sum(graph.element_size * int(num_elements(graph.nodes[i].output)) for i in nodes)

        def passed(boundaries: Iterable[int]) -> int:
            inner = (each for each in boundaries if 0 < each < len(chunks))
            return sum(size_of(found.passed(graph, each)) for each in inner)

        own = chunks[stage::size]
        inputs = size_of(i for i in found.nodes(stage) if graph.nodes[i].layer.is_input)
        return passed(own) + inputs, passed(chunk + 1 for chunk in own)

    def _memory_fields(self, micro_batch: int, batches: int) -> tuple[Field, ...]:
        """Return the fields of what a device of the fullest stage takes: found when asked for."""
        capacity = self.plan.device.memory_capacity

        @functools.cache
        def most() -> int:
            return int(max(each.total for each in self.memory(micro_batch, batches)))

        def fits(_: Step) -> bool | None:
            return None if capacity is None else most() <= capacity

        return (
            Field("memory_bytes", lambda _: most(), "memory", "bytes", place=2),
            Field("fits", fits, "fits", place=2),
        )


def usual_micro_batch(net: NetSpec, share: int, stages: int) -> int:
    """Return how many samples pass a pipeline at a time where nobody says: one text.

    Of other samples as many as leave four micro-batches for each stage, so that it waits for less
    than a fifth (Huang et al., arXiv:1811.06965, section 2.3).
    """
    if tokens_of(net):
        return 1
    most = max(1, share // (_PER_STAGE * stages))
    return next(size for size in range(most, 0, -1) if share % size == 0)


def _experts(node: Node) -> int:
    """Return the parameters of a node that are experts'."""
    return node.num_params if node.layer.num_experts_held else 0


def micro_batch_of(net: NetSpec, plan: Plan, mesh: Mesh, global_batch: int) -> int:
    """Return how many samples a device computes at a time; raises SettingError."""
    if global_batch % mesh.dp:
        raise SettingError(
            f"global_batch: {global_batch} samples do not divide among {mesh.dp} shares of the data"
        )
    share = global_batch // mesh.dp
    micro = plan.micro_batch or (usual_micro_batch(net, share, mesh.pp) if mesh.pp > 1 else share)
    if share % micro:
        raise SettingError(
            f"micro_batch: {share} samples of a share of the data do not divide by {micro}"
        )
    return micro
