"""What a step is planned on: device, network, cost model, and how well they are used."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from paleo.cluster import Cluster, Device, Network
from paleo.cluster.collectives import COLLECTIVES
from paleo.cluster.device import OTHER_MAKERS
from paleo.cluster.frameworks import Framework
from paleo.core.attributes import attributes
from paleo.core.checks import MAX_COUNT, shown
from paleo.core.errors import Mistakes, PaleoError, SettingError
from paleo.core.frozen import dataclass
from paleo.core.kinds import Fusion
from paleo.core.operations import Pass, Stream
from paleo.core.quantity import Quantity, is_array, largest
from paleo.core.tensor import find_precision
from paleo.core.units import MIB
from paleo.costs import ConvolutionChoice, CostModel, Target, Time, convolution_choice
from paleo.costs.convolutions.settings import CONTIGUOUS
from paleo.costs.error_bands import INFERENCE, MOST_DIGITS, NET, ON_MESH, TRAINING, Band
from paleo.net.graph import Graph, build, cached_for_net
from paleo.net.layers import Layer
from paleo.net.parameters import sum_of
from paleo.net.spec import NetSpec
from paleo.step.declarations import check_names, checked_share, declared, found_default
from paleo.step.distributed_settings import NETWORK
from paleo.step.exchange_plan import ExchangePlan
from paleo.step.gradients import Compression
from paleo.step.loader import LoaderRate
from paleo.step.loss import NONE, composed, with_loss
from paleo.step.matrices import Matrix, all_matrices
from paleo.step.mesh import ORDER
from paleo.step.mesh_settings import SLACK, of_mesh
from paleo.step.optimizers import OPTIMIZERS, Rule, find_optimizer
from paleo.step.passes import (
    BACKWARD,
    FORWARD,
    Fetches,
    Kernels,
    PassTime,
    Recomputed,
    adapter,
    checked_target,
    computed_by,
    estimate_pass,
    images_in,
    kernels,
    net_band,
    update_time,
    updated_in,
)
from paleo.step.plan_keys import DEGREES, MESH, OF_DATA_PARALLEL, TRAINED, UPDATED
from paleo.step.recompute import NOTHING, Recompute
from paleo.step.settings import (
    DEVICE,
    OF_CLUSTER,
    PlanSettings,
    found_settings,
)

#: Those that say what prices it, and at what share of peak.
RATED = ("device", "cost_model", "ppp_comp")
#: Those that say what a worker computes in training besides the passes of the net alone.
COMPUTED = (*UPDATED, *TRAINED)
#: The shares of peak.
SHARES = ("ppp_comp", "ppp_comm")


@dataclass(frozen=True)
class Plan(ExchangePlan):
    """The cluster and how it is used; everything of a step but net, batch and workers.

    Fields are settings of paleo.step.settings, found. Where there is a `cluster`, `device` and
    `network` are its device, and the network of its outermost tier. Raises SettingError or
    HardwareError for what does not go together.
    """

    device: Device
    network: Network
    cost_model: CostModel
    dtype: str = "fp32"
    use_pipeline: bool = False
    ppp_comp: Quantity = 1.0
    ppp_comm: Quantity = 1.0
    schemes: tuple[str, ...] | None = None
    fuse: bool = False
    framework: Framework | None = None
    compile: bool = False
    graphs: bool = False
    memory_format: str = CONTIGUOUS
    attention: str | None = None
    conv_library: str | None = None
    workspace: int | str | None = None
    use_only_gemm: bool = False
    optimizer: str = "sgd"
    optimizer_kernels: str | None = None
    clip_gradients: bool = False
    scale_loss: bool = False
    recompute: Recompute = NOTHING
    loss: str = NONE
    cluster: Cluster | None = None
    overlap: bool | None = None
    bucket: int | None = None
    accumulate: int = 1
    gradient_dtype: str | None = None
    compress: Compression | None = None
    num_servers: int | None = None
    jitter: Quantity | None = None
    nccl: str | None = None
    other_devices: tuple[tuple[Device, int], ...] = ()
    tp: int = 1
    pp: int = 1
    cp: int = 1
    context: str = "ring"
    ep: int = 1
    zero: int = 0
    shard_degree: int | None = None
    offload: tuple[str, ...] = ()
    host: Device | None = None
    micro_batch: int | None = None
    global_batch: int | None = None
    schedule: str = "1f1b"
    interleave: int = 1
    stages: str | tuple[int, ...] = "even"
    sequence_parallel: bool = False
    order: tuple[str, ...] = ORDER
    loader_rate: LoaderRate | None = None
    expert_load: str | float | None = None
    expert_capacity: float | None = None
    allocator_slack: float | None = None

    def __post_init__(self) -> None:
        for name, kind, find in (
            ("device", Device, "find_device"),
            ("network", Network, "find_network"),
            *([("cluster", Cluster, "find_cluster")] if self.cluster is not None else []),
            ("cost_model", CostModel, "find_cost_model"),
        ):
            if not isinstance(getattr(self, name), kind):
                raise SettingError(
                    f"{name}: expected a {kind.__name__}, such as paleo.{find} returns, "
                    f"got {shown(getattr(self, name))}"
                )
        priced = (self.ppp_comp, self.convolutions, self.attention)
        checked_target(self.device, self.cost_model, self.dtype, *priced)
        checked_share(self.ppp_comm, "ppp_comm")
        find_optimizer(self.optimizer, self.optimizer_kernels)  # says which there are
        for name in self.schemes or ():
            if name != "all":
                COLLECTIVES[name].check(self.topology.tiers)
        self.check_sent()
        if self.framework and not self.framework.runs_on(self.device):
            raise SettingError(
                f"framework: {self.framework.name} runs on GPUs of NVIDIA, not on "
                f"{self.device.name}"
            )
        if self.graphs and (self.device.kind != "gpu" or self.device.architecture in OTHER_MAKERS):
            raise SettingError(
                f"graphs: CUDA graphs run on GPUs of NVIDIA, not on {self.device.name}"
            )
        if self.compile and self.framework and not self.framework.compiled:
            raise SettingError(
                f"compile: the framework {self.framework.name} has no compiler of nets"
            )

    @property
    def target(self) -> Target:
        """Where operations run."""
        return Target(
            self.device,
            find_precision(self.dtype).computing,
            self.ppp_comp,
            self._host,
            self.convolutions,
            memory_format=self.images,
            attention=self.attention,
            persistent=self.software.persistent,
        )

    @property
    def _host(self) -> dict[str, Quantity]:
        """What is stated of the host: that a framework takes so long, or graphs none."""
        if self.graphs:
            return {"host": 0.0}
        host = self.software.host_of(self.device)
        return {"host": host} if is_array(host) or host else {}

    @property
    def images(self) -> str:
        """How images lie in memory: as the framework has them by itself, or as asked."""
        size = find_precision(self.dtype).element_size
        return self.software.images(size) or self.memory_format

    @property
    def fusion(self) -> Fusion:
        """Which pointwise operations run in the kernel before them."""
        return Fusion.ALL if self.fuse else self.software.fusion

    @property
    def convolutions(self) -> ConvolutionChoice:
        """Among which algorithms the quickest is taken for each convolution."""
        return convolution_choice(self.conv_library, self.workspace, self.use_only_gemm)

    @property
    def convolution_algorithm(self) -> str:
        """How convolutions are computed: as "gemm", by the "quickest" of several, as "cudnn"."""
        return self.convolutions.algorithm(self.cost_model.convolution_algorithm)

    @property
    def convolution_note(self) -> str:
        """What a reader should know of how convolutions are priced; "" for nothing."""
        return self.convolutions.note(self.cost_model.convolution_algorithm)

    @property
    def adapt(self) -> Callable[[Layer], Layer] | None:
        """How the cost model wants layers changed when the graph is built."""
        return adapter(self.cost_model)

    @functools.cached_property
    def band(self) -> Band | None:
        """How far the truth may be from times of training; None where that is not known."""
        return self._band(TRAINING)

    @functools.cached_property
    def inference_band(self) -> Band | None:
        """How far the truth may be from times of inference; None where that is not known."""
        return self._band(INFERENCE)

    def _band(self, direction: str) -> Band | None:
        kind = ON_MESH if self.is_mesh and direction == TRAINING else NET
        # Steps on meshes were measured in fp8, and with kernels of attention of their time.
        is_other = find_precision(self.dtype).scaling is not None or self.attention is not None
        is_plain = not (self.fuse or self.use_pipeline or (is_other and kind == NET))
        how = {"software": self.software.family, "direction": direction, "kind": kind}
        return net_band(self.cost_model, self.target, is_plain, **how)

    @property
    def digits(self) -> int:
        """How many significant digits of a time the band supports."""
        return self.band.digits if self.band else MOST_DIGITS

    @property
    def ratio_digits(self) -> int:
        """How many digits a ratio of two times has, such as a speedup: their errors go together."""
        return min(MOST_DIGITS, self.digits + 1)

    @property
    def notes(self) -> tuple[str, ...]:
        """What of the settings has no effect."""
        if self.use_pipeline and not self.cost_model.pipelines:
            return (f"{self.cost_model.name} overlaps by itself: use_pipeline has no effect",)
        return ()

    @property
    def is_mesh(self) -> bool:
        """Whether devices share a net by more than its data, or a step by micro-batches."""
        return any(getattr(self, name) != usual for name, usual in of_mesh().items())

    @property
    def of_data_parallel(self) -> tuple[str, ...]:
        """The settings that were given and that data parallelism alone has."""
        return tuple(
            name for name, usual in OF_DATA_PARALLEL.items() if getattr(self, name) != usual
        )

    @property
    def in_turn(self) -> Plan:
        """The plan in which a layer's computation and memory traffic do not overlap."""
        return replace(self, use_pipeline=False) if self.use_pipeline else self

    @property
    def settings(self) -> dict[str, Any]:
        """The fields by their names, as a scenario is found from."""
        of_cluster = OF_CLUSTER if self.cluster else ()
        names = (field.name for field in fields(self) if field.name not in of_cluster)
        return attributes(self, *names)

    def said(self, *, on_network: bool = True) -> dict[str, str]:
        """Return what a title says of how a step is priced, by setting; "" for nothing."""
        return {
            "cost_model": f"cost model {self.cost_model.name}",
            "ppp_comp": f"ppp_comp {self.ppp_comp:g}",
            "ppp_comm": f"ppp_comm {self.ppp_comm:g}" if on_network else "",
            "optimizer": "" if self.optimizer == "sgd" else self.optimizer,
            "optimizer_kernels": f"{self.optimizer_kernels} kernels" * bool(self.optimizer_kernels),
            "use_pipeline": "pipelined" if self.use_pipeline else "",
            "fuse": "fused" if self.fuse else "",
            "framework": self.framework.name if self.framework else "",
            "compile": "compiled" if self.compile else "",
            "graphs": "CUDA graphs" if self.graphs else "",
            "memory_format": "" if self.images == CONTIGUOUS else "channels last",
            "attention": f"attention by {self.attention}" if self.attention else "",
            "convolutions": str(self.convolutions),
            "overlap": {None: "", True: "overlapped", False: "not overlapped"}[self.overlap],
            "bucket": "" if self.bucket is None else f"buckets of {self.bucket / MIB:g} MiB",
            "accumulate": f"{self.accumulate} batches a step" if self.accumulate > 1 else "",
            "gradient_dtype": f"gradients in {self.gradient_dtype}" if self.gradient_dtype else "",
            "compress": f"gradients by {self.compress}" if self.compress else "",
            "num_servers": f"{self.num_servers} servers" if self.num_servers else "",
            "other_devices": " and ".join(
                f"{count} {device.name}" for device, count in self.other_devices
            ),
            "jitter": f"jitter {self.jitter:g}" if self.jitter else "",
            "nccl": f"NCCL {self.nccl}" if self.nccl else "",
            "clip_gradients": "gradients clipped" if self.clip_gradients else "",
            "scale_loss": "loss scaled" if self.scale_loss else "",
            **{
                name: f"{name} {getattr(self, name)}" for name in DEGREES if getattr(self, name) > 1
            },
            "zero": f"ZeRO {self.zero}" if self.zero else "",
            "shard_degree": f"in groups of {self.shard_degree}" if self.shard_degree else "",
            "offload": f"{' + '.join(self.offload)} on the host" if self.offload else "",
            "schedule": "" if self.schedule == "1f1b" else self.schedule,
            "interleave": f"{self.interleave} chunks a stage" if self.interleave > 1 else "",
            "sequence_parallel": "positions divided, too" if self.sequence_parallel else "",
            "loss": "" if self.loss in (NONE, "cross_entropy") else f"loss {self.loss}",
            "expert_load": f"load of experts {self.expert_load}" * (self.expert_load is not None),
            "expert_capacity": f"capacity {self.expert_capacity:g}" if self.expert_capacity else "",
            "allocator_slack": ""
            if self.allocator_slack is None
            else f"slack {self.allocator_slack:g}",
            "loader_rate": f"loader {self.loader_rate}" if self.loader_rate else "",
            "recompute": f"recomputation {self.recompute}" if self.recompute.mode != "none" else "",
        }

    def to_dict(self, *keys: str) -> dict[str, Any]:
        """Return the values under these keys of the JSON output, or under all that there are."""
        values = {
            "device": self.device.name,
            "network": self.network.name,
            "cluster": self.cluster.name if self.cluster else None,
            "cost_model": self.cost_model.name,
            "dtype": self.dtype,
            "use_pipeline": self.use_pipeline,
            "fuse": self.fuse,
            "framework": self.framework.name if self.framework else None,
            "compile": self.compile,
            "graphs": self.graphs,
            "memory_format": self.images,
            "attention": self.attention,
            **self.convolutions.to_dict(),
            "convolution_algorithm": self.convolution_algorithm,
            **attributes(self, *UPDATED),
            "loss": self.loss,
            "recompute": str(self.recompute),
            "overlap": self.overlaps,
            "bucket_bytes": self.exchange.bucket,
            "accumulate": self.accumulate,
            "gradient_dtype": self.encoding.sent,
            "compress": str(self.compress) if self.compress else None,
            "num_servers": self.num_servers,
            "nccl": self.nccl,
            "jitter": _plain(self.deviation),
            "other_devices": {device.name: count for device, count in self.other_devices},
            **attributes(self, *MESH),
            "allocator_slack": self.slack,
            "loader_rate": str(self.loader_rate) if self.loader_rate else None,
            "ppp_comp": _plain(self.ppp_comp),
            "ppp_comm": _plain(self.ppp_comm),
        }
        return {key: values[key] for key in keys or values}

    def graph(self, net: NetSpec, batch_size: Quantity | None, *, training: bool = True) -> Graph:
        """Return the graph of a net as the cost model sees it; None takes the file's batch.

        In `training` it has the loss.
        """
        found = self.computable(self.trained(net) if training else self.composed(net))
        graph = build(found, batch_size, self.dtype, self.adapt)
        return computed_by(self.software, graph)

    def trained(self, net: NetSpec) -> NetSpec:
        """Return the net with the loss that training makes smaller, as the framework has it."""
        return self.composed(with_loss(net, self.loss))

    def composed(self, net: NetSpec) -> NetSpec:
        """Return the net with the layers that its framework's models compose in steps."""
        return composed(net, self.software)

    def computable(self, net: NetSpec) -> NetSpec:
        """Return the net with layers computed in types of their own only as far as they can be."""
        unknown = self.unknown_dtypes(net)
        return cached_for_net(NetSpec.without_dtypes, net, unknown) if unknown else net

    def unknown_dtypes(self, net: NetSpec) -> tuple[str, ...]:
        """Return the element types of a net's layers that device or cost model do not have."""
        known = self.cost_model.dtypes
        return tuple(
            dtype
            for dtype in sorted(net.dtypes)
            if not self.device.peaks.get(dtype) or not (known is None or dtype in known)
        )

    def notes_on(self, net: NetSpec) -> tuple[str, ...]:
        """What a reader should know of how this net is priced on the device."""
        notes, unknown = self.notes, self.unknown_dtypes(net)
        is_fused = not self.software.in_steps and any(
            each.layer.is_attention for each in net.few.layers
        )
        if self.attention and not is_fused:
            notes = (*notes, f"no attention is one kernel: {self.attention} has no effect")
        if not unknown:
            return notes
        of_model = f"cost model {self.cost_model.name} does not know"
        who = (
            f"device {self.device.name} has no peak for"
            if self.cost_model.dtypes is None
            else of_model
        )
        count = sum(spec.dtype in unknown for spec in net.layers)
        computing = find_precision(self.dtype).computing
        said = f"{who} {', '.join(unknown)}: layers of it ({count}) are priced in {computing}"
        return (*notes, said)

    def kernels(
        self, graph: Graph, directions: tuple[Pass, ...], *, training: bool = True
    ) -> Kernels:
        """Return what the device does for each node in these passes; see `passes.kernels`."""
        return kernels(graph, directions, self.cost_model, fusion=self.fusion, training=training)

    def estimate(
        self,
        graph: Graph,
        directions: tuple[Pass, ...],
        fetches: Fetches | None = None,
        *,
        training: bool = True,
        ahead: Quantity = 0.0,
    ) -> PassTime:
        """Return the time of these passes together; see `passes.estimate_pass`."""
        in_order = images_in(self.software, graph, self.memory_format)
        target = replace(self.target, memory_format=in_order)
        if Pass.FORWARD in directions and not self.graphs:
            ahead = ahead - self.software.start_on(self.device, graph.num_tensors)
        how = (target, self.cost_model, self.use_pipeline, fetches)
        return estimate_pass(
            graph, directions, *how, fusion=self.fusion, training=training, ahead=ahead
        )

    def passes(self, graph: Graph, fetches: Fetches | None = None) -> tuple[PassTime, PassTime]:
        """Return the time of the forward and of the backward pass."""
        forward = self.estimate(graph, FORWARD, fetches)
        return forward, self.estimate(graph, BACKWARD, fetches, ahead=forward.ahead)

    @property
    def slack(self) -> float:
        """The share of the memory that an allocator holds which no tensor has."""
        if self.allocator_slack is not None:
            return self.allocator_slack
        return SLACK if self.device.kind == "gpu" else 0.0

    def delivered(self, samples: Quantity, workers: Quantity, tokens: Any) -> Quantity:
        """Return the seconds in which the data loader delivers a step; 0 if it is not limited."""
        return self.loader_rate.seconds(samples, workers, tokens) if self.loader_rate else 0.0

    def recomputed(self, graph: Graph, forward: PassTime) -> Recomputed:
        """Return what of a forward pass is done again in the backward pass."""
        layers = forward.layers
        return Recomputed(
            {max(region): [layers[i] for i in region] for region in self.recompute.regions(graph)}
        )

    def waits(self, graph: Graph) -> list[Quantity]:
        """Return the seconds that the device waits for its host in both passes of each node."""
        return [
            sum(waits) for waits in zip(*(each.waits for each in self.passes(graph)), strict=True)
        ]

    def inference(self, graph: Graph) -> PassTime:
        """Return the time of a forward pass alone, in which a plain one is the training step's."""
        return self.estimate(graph, FORWARD, training=self.fusion is Fusion.NONE)

    def kernel_time(self, operations: Iterable[Stream]) -> Time:
        """Return what these take, one after the other."""
        return sum((self.cost_model.price(each, self.target) for each in operations), Time())

    @property
    def rule(self) -> Rule:
        """How parameters are updated."""
        optimizer = find_optimizer(self.optimizer, self.optimizer_kernels)
        return Rule(optimizer, self.software, self.clip_gradients, self.scale_loss)

    @property
    def in_memory(self) -> dict[str, Any]:
        """The settings of paleo.footprint that it has."""
        kernels = self.optimizer_kernels or OPTIMIZERS[self.optimizer].kernels_of(
            self.software, self.device.kind == "gpu"
        )
        return {
            **attributes(self, "dtype", "loss", "recompute", "optimizer"),
            "framework": self.framework if self.software.runs_transformers else None,
            "optimizer_kernels": kernels,
        }

    def update(self, num_params: Quantity, tensors: Quantity = 1) -> Quantity:
        """Return the seconds to update so many parameters, in so many tensors."""
        return self.seconds(self.update_time(num_params, tensors))

    def update_time(
        self, num_params: Quantity, tensors: Quantity = 1, matrices: Sequence[Matrix] = ()
    ) -> Time:
        """Return what takes the time to update so many parameters, in so many tensors.

        `matrices` are those that they are, for optimizers by matrix.
        """
        how = (self.target, self.cost_model, self.update_dtype, self.rule)
        return update_time(num_params, *how, tensors, matrices)

    def matrices(self, graph: Graph) -> tuple[Matrix, ...]:
        """Return the matrices that parameters are, where the optimizer goes by them."""
        if not OPTIMIZERS[self.optimizer].by_matrix:
            return ()
        return all_matrices(graph)

    def update_of(self, graph: Graph) -> Time:
        """Return what takes the time to update all parameters of a graph, and to cast them."""
        time = self.update_time(graph.num_params, graph.num_tensors, self.matrices(graph))
        return sum(self.weight_casts(graph), time)

    def weight_casts(self, graph: Graph) -> list[Time]:
        """Return what takes the time to cast the weights of each node to fp8, once a step."""
        if not graph.precision.scaling:
            return [Time()] * len(graph.nodes)
        from paleo.net.scaled import weight_casts  # here: most steps have none

        return [self.kernel_time(weight_casts(graph, node)) for node in graph.nodes]

    def summing_time(self, num_bytes: int, tensors: int) -> Time:
        """Return what takes the time to add gradients to those of turns before, if any."""
        return Time() if self.accumulate == 1 else self.adding_time(num_bytes, tensors)

    def adding_time(self, num_bytes: int, tensors: int) -> Time:
        """Return what takes the time to add gradients, tensor by tensor, to those there are.

        Frameworks that add them up in every step do so by themselves.
        """
        if self.software.handling.is_added:
            return Time()
        one = sum_of(num_bytes // max(tensors, 1))
        return self.cost_model.price(one, self.target).times(tensors)

    @property
    def update_dtype(self) -> str:
        """The type of the update, which casts parameters unless the passes do."""
        return updated_in(self.software, self.dtype)

    def seconds(self, time: Time) -> Quantity:
        """Return the seconds of a layer's pass, or of the update, that takes this time."""
        return self.cost_model.pipelined(time) if self.use_pipeline else time.total


def _plain(share: Quantity) -> Quantity:
    return share if is_array(share) else float(share)


def plan_of(found: Mapping[str, Any], mistakes: Mistakes) -> Plan | None:
    """Return the plan of settings that were found; None, which is noted, if they do not go."""
    parts = {field.name: found[field.name] for field in fields(Plan)}
    cluster = parts["cluster"]
    if cluster is not None:
        for name, setting in zip(OF_CLUSTER, (DEVICE, NETWORK), strict=True):
            same = cluster.device if name == "device" else None
            if parts[name] not in (None, same, found_default(setting)):
                mistakes.add(f"{name}: a cluster has its own: leave out {name}, or cluster")
        parts |= {"device": cluster.device, "network": cluster.tiers[-1].network}
    return mistakes.check(lambda: Plan(**parts))


def found_plan(kind: type, given: Mapping[str, Any], **others: Any) -> Plan:
    """Return the plan of settings of a kind, and of others; numbers may be arrays.

    Raises a PaleoError with every mistake.
    """
    mistakes = Mistakes()
    check_names(declared(kind), given, mistakes)
    found = found_settings(PlanSettings, {**given, **others}, mistakes, arrays=True)
    mistakes.raise_as(PaleoError)
    plan = plan_of(found, mistakes)
    mistakes.raise_as(PaleoError)
    assert plan
    return plan


def check_together(batch_size: Quantity, workers: Quantity) -> None:
    """Raise SettingError if the batches of all workers are too many samples to count."""
    if largest(batch_size) * largest(workers) > MAX_COUNT:
        raise SettingError("batch_size: with so many workers, too large to mean anything")
