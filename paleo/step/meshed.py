"""A step of a net that the devices of a mesh share: its stages, its parts, and its memory."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import field, replace
from operator import attrgetter
from typing import Any

from paleo.cluster.collectives import AUTO
from paleo.cluster.collectives import Operation as Collecting
from paleo.core.errors import SettingError
from paleo.core.frozen import dataclass
from paleo.core.quantity import Quantity, ceil_div, is_array, maximum, np, some, total
from paleo.core.tensor import find_precision, num_elements
from paleo.costs import Time
from paleo.net.graph import Graph, Node
from paleo.net.spec import NetSpec
from paleo.step.memory import Footprint
from paleo.step.memory.stage import Sharing, StageMemory, together
from paleo.step.mesh import Mesh
from paleo.step.mesh_checks import check_mesh
from paleo.step.offload import (
    ACTIVATIONS,
    GRADIENTS,
    OPTIMIZER,
    fits,
    offload_of,
    offloaded,
)
from paleo.step.parallelism.jitter import expected_slowest
from paleo.step.part import KINDS_OF_GROUPS, Part, part_of
from paleo.step.pieces import TRANSFER, WAIT, Field, Piece, Step
from paleo.step.pipelines import PIPELINES
from paleo.step.plan import Plan
from paleo.step.recompute import RECOMPUTATION
from paleo.step.replicas import Replicas
from paleo.step.shortened import shortened
from paleo.step.stage_steps import StageSteps, in_memory
from paleo.step.stage_work import Stage, joined
from paleo.step.stages import Cut, cut
from paleo.step.utilization import tokens_of

#: Micro-batches for each stage, from which on a pipeline waits little.
_PER_STAGE = 4
#: What parts of a step that are no messages count as.
_CATEGORIES = {name: name for name in ("forward", RECOMPUTATION, "backward")}
#: What the messages of each kind are called as parts of a step.
_SENT = {kind: f"{name}_parallel" for name, kind in KINDS_OF_GROUPS.items()} | {
    "pp": "pipeline_parallel"
}


@dataclass(frozen=True)
class MeshStep(Step):
    """A step on a mesh, which knows what it was made of: other questions need not find it again."""

    meshed: Meshed | None = field(default=None, compare=False, repr=False)


class Meshed:
    """A net under a plan, shared by the devices of a mesh: gives the step."""

    def __init__(self, net: NetSpec, plan: Plan, mesh: Mesh, part: Part | None = None) -> None:
        self.net, self.plan, self.mesh = net, plan, mesh
        check_mesh(plan, mesh)
        plan.group(mesh.size)  # says if the cluster has not so many devices
        self.pipeline = PIPELINES[plan.schedule]
        #: The stages of the net: as many as a pipeline has devices, or twice as many in a V.
        self.count = self.pipeline.cuts * mesh.pp
        self.part = part or part_of(net, plan, mesh)
        # What many questions about a step ask is found once. (Not by a cache of methods: what holds
        # itself is freed only when garbage is looked for.)
        self._stages: dict[int, tuple[Cut, list[Stage]]] = {}
        self._memory: dict[tuple[int, int], tuple[StageMemory, ...]] = {}
        self._updates: dict[tuple[int, int], Time] = {}

    def stages(self, micro_batch: int) -> tuple[Cut, list[Stage]]:
        """Return how the net is dealt out, and each stage."""
        if micro_batch not in self._stages:
            self._stages[micro_batch] = self._dealt(micro_batch)
        return self._stages[micro_batch]

    def _dealt(self, micro_batch: int) -> tuple[Cut, list[Stage]]:
        plan = self.plan
        _, graph, seconds = self.part.of(micro_batch)
        computing = zip(seconds.forward, seconds.again, seconds.backward, strict=True)
        own = [float(sum(each)) for each in computing]
        found = cut(graph, self.count, plan.interleave, plan.stages, own)
        times = [found.sums(of) for of in seconds[:4]]
        sent = {kind: [found.sums(of) for of in both] for kind, both in seconds.sent.items()}
        params, tensors, experts = (
            found.sums(graph.by_node(count))
            for count in (
                attrgetter("num_params"),
                attrgetter("num_tensors"),
                num_experts,
            )
        )
        casts = found.sums(seconds.casts)
        passed = self.passed(graph, found)
        stages = [
            Stage(
                i,
                times=tuple(of[i] for of in times),
                sent={kind: (ahead[i], back[i]) for kind, (ahead, back) in sent.items()},
                passed=passed[i],
                num_params=int(params[i]),
                num_tensors=int(tensors[i]),
                experts=int(experts[i]),
                blocks=found.units[i],
                overlaps=plan.overlaps,
                cast=casts[i],
            )
            for i in range(self.count)
        ]
        stages = [self.with_gathered(stage) for stage in stages]
        if {ACTIVATIONS, GRADIENTS} & set(plan.offload):
            kept: list[Quantity] = [0.0] * self.count
            if ACTIVATIONS in plan.offload:
                kept = [one.kept for one in self._footprints(micro_batch, found)]
            swapped = [self._swapped(*both) for both in zip(stages, kept, strict=True)]
            stages = [replace(stage, swapped=s) for stage, s in zip(stages, swapped, strict=True)]
        return found, stages

    def with_gathered(self, stage: Stage) -> Stage:
        """Return the stage with what gathers its parameters."""
        return replace(stage, gathered=self._gathered(stage))

    def devices(self, micro_batch: int) -> list[Stage]:
        """Return what each device of a pipeline has of the stages of the net."""
        _, stages = self.stages(micro_batch)
        held = (self.pipeline.held(device, self.count) for device in range(self.mesh.pp))
        return [
            joined(device, [stages[i] for i in own], self.pipeline.copies)
            for device, own in enumerate(held)
        ]

    def passed(self, graph: Graph, found: Cut) -> list[Quantity]:
        """Return the seconds in which each stage hands on what its chunks make, one way."""
        passing = found.passed(graph)[1:] if self.mesh.pp > 1 else ()
        sizes = [total(num_elements(graph.nodes[i].output) for i in sent) for sent in passing]
        return self.handed_on([graph.element_size * size for size in sizes])

    def handed_on(self, sizes: Sequence[Quantity]) -> list[Quantity]:
        """Return the same where so many bytes pass from each chunk to the next.

        Of a boundary the sender has half of the message, the receiver the other.
        """
        spent: list[Quantity] = [0.0] * self.count
        if self.mesh.pp == 1:
            return spent
        homes = [self.pipeline.home(stage, self.count) for stage in range(self.count)]
        known: dict[tuple[int, int], Quantity] = {}
        for boundary, size in enumerate(sizes, 1):
            last, first = (boundary - 1) % self.count, boundary % self.count
            if homes[last] == homes[first]:
                continue
            key = id(size), min(homes[last], homes[first])
            if key not in known:
                known[key] = self._message(size, key[1]) / 2
            half = known[key]
            spent[last] = spent[last] + half
            spent[first] = spent[first] + half
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
        if self.plan.zero < 3 or self._copies == 1:
            return 0.0, 0.0
        gather, within, _ = (each / stage.blocks for each in self.sharing(stage))
        ahead = self._exposed(gather, stage.forward / stage.blocks, stage.blocks)
        back = (stage.backward + stage.again) / stage.blocks
        return ahead, self._exposed(gather + within, back, stage.blocks)

    def _exposed(
        self, message: Quantity, computed: Quantity, count: int, after: Quantity = 0.0
    ) -> Quantity:
        """Return by how much so many messages make as many computations longer.

        The first, or last, is beside none; of each other what is longer than a computation shows.
        Another may go on `after` each, in a stream of its own, beside the next.
        """
        if not self.plan.overlaps:
            return count * (message + after)
        return message + after + (count - 1) * maximum(maximum(message, after) - computed, 0.0)

    def sharing(self, stage: Stage) -> tuple[Quantity, Quantity, Quantity]:
        """Return the seconds of gathering parameters, and of dealing out sums of gradients.

        Those in groups that divide them, and those across groups, if there are several.
        """
        whole = self._among_replicas(stage, self.plan.encoding.size, Collecting.REDUCE_SCATTER)
        gather, within = self.dividing(stage)
        return gather, within, whole - within

    def dividing(self, stage: Stage) -> tuple[Quantity, Quantity]:
        """Return the first two of them, of groups that divide parameters."""
        size, scatter = self.plan.encoding.size, Collecting.REDUCE_SCATTER
        read = find_precision(self.plan.dtype).element_size
        return (
            self._among_replicas(stage, read, Collecting.ALL_GATHER),
            self._among_replicas(stage, size, scatter, only=scatter),
        )

    def _swapped(self, stage: Stage, kept: Quantity) -> tuple[Quantity, Quantity]:
        """Return by how much activations on their way to the host and back make passes longer.

        Those of a block go while the next is computed, and come while the one before is. So do
        gradients that the host adds up, the other way.
        """
        host = offload_of(self.plan)
        gone = back = kept / host.rate
        if GRADIENTS in self.plan.offload:
            size = self.plan.encoding.size * self._own_params(stage)
            back = maximum(back, host.added(size, self.mesh.size))
        hidden = (stage.forward, stage.backward + stage.again) if self.plan.overlaps else (0.0, 0.0)
        return maximum(gone - hidden[0], 0.0), maximum(back - hidden[1], 0.0)

    @property
    def _copies(self) -> int:
        """How many devices have the same parameters, but for those of experts."""
        return self.mesh.replicas * self.pipeline.copies

    def _replicas(self, stage: Stage, *, experts: bool) -> Replicas:
        """Return the devices that have the same parameters of a stage as one, or of its experts."""
        plan, mesh = self.plan, self.mesh
        mirror = None
        if self.pipeline.copies > 1:
            mirror = mesh.neighbours(
                plan.reached, "pp", *self.pipeline.held(stage.number, self.count)
            )
        return Replicas.of(
            mesh,
            plan.reached,
            divides=plan.zero > 0,
            within=plan.shard_degree,
            experts=experts and mesh.ep > 1,
            mirror=mirror,
        )

    def _among_replicas(
        self, stage: Stage, size: int, operation: Collecting, only: Collecting | None = None
    ) -> Quantity:
        """Return the seconds of an exchange of all parameters, of so many bytes each.

        Of those of all groups, or of messages of one kind only.
        """
        seconds: Quantity = 0.0
        for count, experts in ((stage.num_params - stage.experts, False), (stage.experts, True)):
            replicas = self._replicas(stage, experts=experts) if count else Replicas(())
            for message in replicas.messages(size * count, operation):
                if only in (None, message[-1]):
                    seconds = seconds + self.part.sending(*message)
        return seconds

    def step(self, global_batch: int) -> Step:
        """Return the step of so many samples; raises SettingError if they do not divide."""
        plan, mesh = self.plan, self.mesh
        micro, batches = (
            micro_batch_of(self.net, plan, mesh, global_batch),
            self.batches(global_batch),
        )
        _, stages = self.stages(micro)
        works = [stage.work for stage in stages]
        running = self.pipeline.seconds(works, batches, plan.interleave)
        devices = self.devices(micro)
        busy = [batches * device.work.seconds - self._hidden(device, batches) for device in devices]
        place = max(range(mesh.pp), key=lambda i: float(busy[i]))
        update, moved = max(
            (self.updated(device) for device in devices),
            key=lambda both: float(both[0].total + both[1]),
        )
        passes = self.passes(devices[place], batches, moved)
        pieces = (
            *(
                Piece(name, _CATEGORIES.get(name, TRANSFER), seconds)
                for name, seconds in passes.items()
            ),
            # Of one stage it is none, but for the rounding of sums.
            Piece("bubble", WAIT, maximum(running - busy[place], 0.0)),
            Piece("weight_casts", "update", max(self.casts(each, batches) for each in devices)),
            Piece("update", "update", plan.seconds(update), time=update),
        )
        if self.waits:
            computed = total(
                piece.seconds for piece in pieces if piece.category not in (TRANSFER, WAIT)
            )
            pieces += (Piece("wait", WAIT, self.waited(computed)),)
        exchange = max(self.exchanged(device, batches) for device in devices)
        return MeshStep(
            mesh.size,
            global_batch,
            micro,
            pieces,
            self._memory_fields(micro, batches),
            exchanges={AUTO: Piece("data_parallel", TRANSFER, exchange)},
            band=plan.band,
            meshed=self,
        ).of_floats()

    @property
    def waits(self) -> bool:
        """Whether shares of the data wait for the slowest of them."""
        return some(self.plan.deviation > 0) and self.mesh.replicas > 1

    def waited(self, computed: Quantity) -> Quantity:
        """Return the seconds that they wait where they compute so many."""
        return (expected_slowest(self.mesh.replicas, self.plan.deviation) - 1) * computed

    def spent(self, device: Stage, batches: int) -> dict[str, Quantity]:
        """Return the seconds that a device is busy in a step, by the names of its parts.

        They are those of a step's pieces; of the device that works longest they are the same. What
        is left of a step it waits, for other stages or for shares of the data.
        """
        update, moved = self.updated(device)
        return self.passes(device, batches, moved) | {
            "weight_casts": self.casts(device, batches),
            "data_parallel": self.exchanged(device, batches),
            "update": self.plan.seconds(update),
        }

    def passes(
        self, device: Stage, batches: Quantity, moved: Quantity = 0.0
    ) -> dict[str, Quantity]:
        """Return the seconds of a device's micro-batches, by the names of parts of a step.

        Copies to the host and back count with those of its update, `moved`.
        """
        hidden = self._hidden(device, batches)
        messages = device.messages(hidden / batches if some(hidden != 0) else 0.0)
        adding = (batches / device.held - 1) * self.added(device)
        return {
            "forward": batches * device.forward,
            RECOMPUTATION: batches * device.again,
            "backward": batches * device.backward + adding,
            **{_SENT[kind]: batches * own for kind, own in messages.items()},
            "parameters_gathered": batches * total(device.gathered),
            **({"offloaded": batches * total(device.swapped) + moved} if self.plan.offload else {}),
        }

    def casts(self, device: Stage, batches: Quantity) -> Quantity:
        """Return the seconds in which weights are cast; those that are gathered anew, anew."""
        return device.cast * (batches if self.plan.zero == 3 else 1)

    def batches(self, global_batch: int) -> int:
        """Return how many micro-batches a device computes in a step; raises SettingError."""
        micro = micro_batch_of(self.net, self.plan, self.mesh, global_batch)
        batches = global_batch // (self.mesh.dp * micro)
        self.pipeline.check(self.mesh.pp, batches)
        return batches

    def _hidden(self, device: Stage, batches: Quantity) -> Quantity:
        """Return the seconds that a device saves where it computes two micro-batches at once."""
        pairs = self.pipeline.pairs(device.number, self.count, batches)
        return pairs * (device.work.seconds - device.work.together) if pairs else 0.0

    def added(self, stage: Stage) -> Quantity:
        """Return the seconds in which a micro-batch adds its gradients to those before."""
        key = self.plan.encoding.size * stage.num_params, stage.num_tensors
        if key not in self.part.adding:
            self.part.adding[key] = self.plan.adding_time(*key).total
        return self.part.adding[key]

    def exchanged(self, stage: Stage, batches: Quantity) -> Quantity:
        """Return the seconds by which shares of the data exchanging gradients make a step longer.

        They exchange them beside the last micro-batch's backward pass, bucket by bucket; where the
        optimizer's state is shared they sum and deal out gradients, then gather parameters beside
        the next forward pass (arXiv:1910.02054, section 7). Groups sum shares once a step, in a
        stream of its own (arXiv:2205.00119, section 3.4).
        """
        plan = self.plan
        if self._copies == 1:
            return 0.0
        beside = stage.held * (stage.backward + stage.again)
        num_bytes = plan.encoding.size * stage.num_params
        bucket = plan.exchange.bucket
        count = max(1, num_bytes // bucket) if bucket else 1
        if not plan.zero:
            whole = self._among_replicas(stage, plan.encoding.size, Collecting.ALL_REDUCE)
            return self._exposed(whole / count, beside / count, count)
        gather, within, across = self.sharing(stage)
        if plan.zero == 3:  # blocks have exchanged theirs as they were computed
            count, within = stage.blocks, gather + within
        alone, last = (
            self._exposed(within / count, beside / count, count, after / count)
            for after in (0.0, across)
        )
        if plan.zero == 3:
            return last - alone
        turns = batches / stage.held if plan.zero == 2 else 1
        ahead = self._exposed(gather / count, stage.held * stage.forward / count, count)
        return (turns - 1) * alone + last + ahead

    def updated(self, stage: Stage) -> tuple[Time, Quantity]:
        """Return what takes the time to update what a device has, and seconds to move it.

        Where the host does it, gradients go there beside the last backward pass, block by block,
        and parameters come back beside the update.
        """
        plan = self.plan
        params = self._own_params(stage)
        if OPTIMIZER not in plan.offload:
            key = params, stage.num_tensors
            if key not in self._updates:
                self._updates[key] = plan.update_time(*key)
            return self._updates[key], 0.0
        host = offload_of(plan)
        update = host.update(plan, params, self.mesh.size)
        beside = stage.held * (stage.backward + stage.again) / stage.blocks
        gone = plan.encoding.size * params / host.rate / stage.blocks
        back = find_precision(plan.dtype).element_size * params / host.rate
        shown = maximum(back - update.total, 0.0) if plan.overlaps else back
        if GRADIENTS not in plan.offload:  # else they have gone with each micro-batch
            gone = self._exposed(gone, beside, stage.blocks)
        return update, gone + shown

    def _own_params(self, stage: Stage) -> int:
        """Return how many of a stage's parameters a device updates."""
        return self.own(stage, stage.num_params) if self.plan.zero else stage.num_params

    def own(self, stage: Stage, size: Any) -> Any:
        """Return a device's share of a stage's parameters, or of bytes that go with them.

        Those of experts are divided by fewer devices: by those that have the same experts. `size`
        may be an array.
        """
        if not stage.experts:
            return ceil_div(size, self._replicas(stage, experts=False).shares)
        if is_array(size):  # products of such numbers are too large for those of arrays
            return np.array([self.own(stage, each) for each in size.tolist()])
        experts = size * stage.experts // max(stage.num_params, 1)
        parts = ((size - experts, False), (experts, True))
        return sum(
            ceil_div(part, self._replicas(stage, experts=of_experts).shares)
            for part, of_experts in parts
        )

    def memory(self, micro_batch: int, batches: int) -> tuple[StageMemory, ...]:
        """Return what a device of each stage takes of memory."""
        if (micro_batch, batches) not in self._memory:
            self._memory[micro_batch, batches] = self._taken(micro_batch, batches)
        return self._memory[micro_batch, batches]

    def _taken(self, micro_batch: int, batches: int) -> tuple[StageMemory, ...]:
        plan, mesh = self.plan, self.mesh
        found, stages = self.stages(micro_batch)
        steps = self._steps(micro_batch, found)
        memory = []
        for stage in stages:
            received, sent = steps.passed(stage.number)
            sharing = Sharing(
                zero=plan.zero,
                own=functools.partial(self.own, stage),
                is_shared=mesh.replicas > 1,
                batches=batches,
                in_flight=self.pipeline.in_flight(
                    stage.number, self.count, batches, plan.interleave
                ),
                received=received,
                sent=sent,
                receives_all=plan.software.receives_all and mesh.pp > 1,
                buckets_apart=plan.software.exchange.copies > 0,
                waiting=self.pipeline.waiting(stage.number, self.count, batches),
                copies_stay=OPTIMIZER in plan.offload,
            )
            changed = None
            if plan.offload:
                changed = functools.partial(
                    offloaded,
                    plan=plan,
                    stage=stage,
                    own_params=self._own_params(stage),
                    batches=batches,
                )
            memory.append(steps.memory(stage.number, sharing, changed))
        return tuple(
            together(
                device, [memory[i] for i in self.pipeline.held(device, self.count)]
            ).with_slack(plan.slack)
            for device in range(mesh.pp)
        )

    def _footprints(self, micro_batch: int, found: Cut) -> list[Footprint]:
        """Return what a single micro-batch takes of memory in each stage, without a host."""
        steps = self._steps(micro_batch, found)
        return [steps.footprint(stage) for stage in range(self.count)]

    def _steps(self, micro_batch: int, found: Cut) -> StageSteps:
        net, graph, _ = self.part.of(micro_batch)
        return StageSteps(net, graph, found, micro_batch, in_memory(self.plan))

    def _memory_fields(self, micro_batch: int, batches: int) -> tuple[Field, ...]:
        """Return the fields of what a device of the fullest stage takes: found when asked for."""

        @functools.cache
        def stages() -> tuple[StageMemory, ...]:
            return self.memory(micro_batch, batches)

        def most(name: str) -> int:
            return int(max(getattr(stage, name) for stage in stages()))

        on_host = Field("host_memory_bytes", lambda _: most("host"), "on\nhost", "bytes", place=2)
        return (
            Field("memory_bytes", lambda _: most("total"), "memory", "bytes", place=2),
            *(on_host for _ in self.plan.offload[:1]),
            Field("fits", lambda _: fits(self.plan, stages(), self.mesh.size), "fits", place=2),
        )


def usual_micro_batch(net: NetSpec, share: int, stages: int) -> int:
    """Return how many samples pass a pipeline at a time where nobody says: one text.

    Of other samples as many as leave four micro-batches for each stage, so that it waits for less
    than a fifth (Huang et al., arXiv:1811.06965, section 2.3).
    """
    if tokens_of(shortened(net).net):
        return 1
    most = max(1, share // (_PER_STAGE * stages))
    return next(size for size in range(most, 0, -1) if share % size == 0)


def num_experts(node: Node) -> int:
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
