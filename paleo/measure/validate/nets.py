"""Predicting rows of whole nets: passes, steps and rates, on one device or data-parallel."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from paleo.cluster import Device, find_network
from paleo.cluster.frameworks import FRAMEWORKS, Framework, running
from paleo.cluster.gradient_exchange import EXCHANGES, Exchange
from paleo.core.frozen import dataclass
from paleo.core.operations import Operation
from paleo.core.quantity import Quantity, product, total
from paleo.costs import ConvolutionChoice, CostModel, Target, Time
from paleo.costs.convolutions import DEFAULT
from paleo.costs.convolutions.settings import CONTIGUOUS
from paleo.measure.validate.measured import Measurement
from paleo.measure.validate.names import meant, net_of
from paleo.measure.validate.protocols import Copied, Protocol
from paleo.measure.validate.row_exchange import RowExchange
from paleo.measure.validate.sequences import length_of, with_length
from paleo.measure.validate.spellings import (
    UnmappedError,
    is_compiled,
    link_of,
    memory_format_of,
    pytorch_of,
)
from paleo.measure.validate.wiring import Wiring, wiring_of
from paleo.net.graph import Graph, build
from paleo.net.handled import with_composed_gelu
from paleo.net.layers import Layer
from paleo.net.spec import NetSpec
from paleo.step.matrices import all_matrices
from paleo.step.optimizers import Rule, find_optimizer
from paleo.step.parallelism.jitter import expected_slowest
from paleo.step.parallelism.single_process import Move, moves
from paleo.step.passes import (
    BACKWARD,
    FORWARD,
    adapter,
    checked_target,
    computed_by,
    estimate_pass,
    images_in,
    update_time,
    updated_in,
)


@dataclass(frozen=True)
class NetCase:
    """What is predicted for a row of a net.

    `parts` are of "forward", "backward", "update", "exchange"; the passes are done `passes` times
    over `batch` samples each. The network `link`, a name or "" for none, connects the `workers`,
    or `wiring` does, over which they exchange gradients as `exchange`, one of EXCHANGES, says;
    `copied` says what passes between the host and each. `image` is the height and width of images,
    None for the net's own. `memory_format` is that of image tensors, "contiguous" or
    "channels_last", "" where nothing is said; `compiled` tells whether the framework, one of
    paleo.cluster.frameworks or "", compiled the net, `one_process` whether one process drives all
    devices, as paleo.step.parallelism.single_process says. The `optimizer` updates parameters;
    `clips` tells whether gradients are clipped to a norm before, `scales_loss` whether in mixed
    precision they are of a scaled loss;
    `trains` tells whether the passes are those of training, a forward pass by itself as well, and
    `image_gradient` whether the backward pass makes the gradient of what comes in. By which
    algorithms `convolutions` are computed holds unless another choice is asked for.
    `composes_gelu` tells whether the model's code composes GELU of elementary functions.
    """

    net: str
    source_id: str
    sequence: int | None
    batch: int
    parts: tuple[str, ...]
    passes: int = 1
    workers: int = 1
    link: str = ""
    copied: Copied = Copied()
    image: int | None = None
    memory_format: str = ""
    compiled: bool = False
    framework: str = ""
    one_process: bool = False
    optimizer: str = "sgd"
    clips: bool = False
    scales_loss: bool = False
    trains: bool = True
    image_gradient: bool = False
    convolutions: ConvolutionChoice = DEFAULT
    wiring: Wiring | None = None
    exchange: str = ""
    composes_gelu: bool = False
    kernels: str | None = None

    @property
    def samples(self) -> int:
        """Samples of all workers in all passes."""
        return self.batch * self.passes * self.workers

    def seconds(
        self,
        device: Device,
        dtype: str,
        remembering: Remembering,
        constants: Mapping[str, Quantity],
        factor: float = 1.0,
    ) -> Quantity:
        """Return the predicted seconds, with computation that takes `factor` times as long."""
        model = remembering.model
        if "exchange" in self.parts and not model.conventions.exchanges_after_all:
            factor *= float(expected_slowest(self.workers, self.software.jitter))
        spec = _spec(self.net, self.source_id, self.sequence, self.image)
        software = self.software
        graph = _graph(spec, self.batch, dtype, adapter(model))
        graph = graph.once(with_composed_gelu) if self.composes_gelu else graph
        graph = computed_by(software, graph)
        asked = remembering.convolutions
        convolutions = self.convolutions if asked == DEFAULT else asked
        target = checked_target(device, model, dtype, convolutions=convolutions)
        in_order = images_in(software, graph, self.memory_format or CONTIGUOUS)
        driving = software.driving(self.workers) if self.one_process else software
        host = driving.host_of(device)
        hosted = {"host": host, **constants} if host else constants
        target = replace(
            target, constants=hosted, memory_format=in_order, persistent=software.persistent
        )
        moved = self._moved(graph, software.host_of(device))
        times = [move.seconds for move in moved if move.part in self.parts]
        ahead: Quantity = -1.0 * software.start_on(device, graph.num_tensors)
        for part, directions in (("forward", FORWARD), ("backward", BACKWARD)):
            if part in self.parts:
                passed = estimate_pass(
                    graph,
                    directions,
                    target,
                    remembering,
                    fusion=software.fusion,
                    training=self.trains,
                    of_inputs=self.image_gradient,
                    ahead=ahead,
                )
                ahead = passed.ahead
                times.append(factor * self.passes * passed.upper)
        if "update" in self.parts:
            unscaled = self.scales_loss and graph.precision.is_mixed
            optimizer = find_optimizer(self.optimizer, self.kernels)
            how = (updated_in(software, dtype), Rule(optimizer, software, self.clips, unscaled))
            of = (graph.num_tensors, all_matrices(graph) if optimizer.by_matrix else ())
            updated = update_time(graph.num_params, target, model, *how, *of)
            times.append(factor * updated.total / self._shards)
        if "exchange" in self.parts:
            assert self.wiring
            by = self.exchanges
            exchanging = RowExchange(device, self.workers, self.wiring, by, model)
            times.append(exchanging.added(passed, factor))
        if self.copied.network:
            bandwidth = find_network(self.copied.network).bandwidth
            copies = self.passes * (self.workers if self.one_process else 1)
            num_bytes = _input_bytes(graph, self.copied.size) + self.batch * self.copied.besides
            times.append(copies * num_bytes / bandwidth)
        return total(times)

    def _moved(self, graph: Graph, host: Quantity) -> Iterable[Move]:
        """Return what one process, whose host takes so long, moves between devices."""
        if not self.one_process:
            return ()
        bandwidth = find_network(self.link).bandwidth
        return moves(graph, self.workers * self.batch, bandwidth, host).values()

    @property
    def exchanges(self) -> Exchange:
        """How gradients are exchanged."""
        return EXCHANGES[self.exchange] if self.exchange else self.software.exchange

    @property
    def _shards(self) -> int:
        """Devices that share the update of the parameters."""
        return self.wiring.inside if self.wiring and self.exchanges.in_shards else 1

    @property
    def software(self) -> Framework:
        """What runs the net."""
        return running(FRAMEWORKS[self.framework] if self.framework else None, self.compiled)


class Remembering(CostModel):
    """A cost model that prices equal operations on equal targets once."""

    name = "remembering"
    summary = "another cost model"

    def __init__(self, model: CostModel, convolutions: ConvolutionChoice = DEFAULT) -> None:
        self.model = model
        #: By which algorithms cases have convolutions computed.
        self.convolutions = convolutions
        self._prices: dict[Any, Time] = {}
        self.conventions = model.conventions  # type: ignore[misc]

    def price(self, operation: Operation, target: Target) -> Time:
        key = (
            id(target.device),
            target.dtype,
            tuple(target.constants.items()),
            target.convolutions,
            operation,
            target.training,
            target.memory_format,
            target.persistent,
        )
        known = self._prices.get(key)
        if known is None:
            known = self._prices[key] = self.model.price(operation, target)
        return known

    def counts(self, operation: Operation) -> bool:
        return self.model.counts(operation)

    def host(self, target: Target) -> Quantity:
        return self.model.host(target)


@functools.lru_cache(maxsize=256)
def _graph(spec: NetSpec, batch: int, dtype: str, adapt: Callable[[Layer], Layer] | None) -> Graph:
    return build(spec, batch, dtype, adapt)


@functools.cache
def _spec(net: str, source_id: str, sequence: int | None, image: int | None) -> NetSpec:
    """Return the net, of sequences of that length and images of that size."""
    spec = net_of(net, source_id, image, sequence)
    return spec if sequence is None else with_length(spec, sequence)


def _input_bytes(graph: Graph, size: int) -> int:
    return (size or graph.element_size) * sum(
        int(product(node.output)) for node in graph.nodes if node.layer.is_input
    )


#: The parts of what a quantity of a net is, where its direction does not say otherwise.
_PARTS = {
    "forward": ("forward",),
    "backward": ("backward",),
    "step": ("forward", "backward", "update"),
}
_INFERENCE = ("inference", "eval")
_FORWARD = ("forward", *_INFERENCE)
_BOTH = ("forward+backward", "fwd+bwd")
_TRAIN = ("", "train", "training")


def net_case(row: Measurement, protocol: Protocol, device: Device) -> tuple[NetCase, float]:
    """Return what to predict for a row of a net, and the seconds that were measured.

    A rate is turned into the time of what it counts: a step, or a forward pass.
    Raises UnmappedError.
    """
    if "/layer:" in row.network or " layer:" in row.network:
        raise UnmappedError("single layers of nets")
    if protocol.mingled:
        raise UnmappedError(protocol.mingled)
    sequence = protocol.length
    if row.seq_len is not None:
        sequence = _whole(row.seq_len, "seq_len")
    is_inference = row.direction.casefold() in _INFERENCE
    network = meant(row.network, row.source_id, row.framework, not is_inference)
    spec = _spec(network, row.source_id, sequence, row.image)
    if row.parameters is not None:
        _check_parameters(spec, row)
    parts = _parts(row)
    if not protocol.updates and row.quantity.kind == "time":
        parts = tuple(part for part in parts if part != "update")
    batch, passes = _batch(row)
    link, wiring = "", None
    if row.n_devices > 1:
        _check_parallel(row)
        if _is_one_process(row):
            link = link_of(row.interconnect, device, row.n_devices, row.devices_per_node).name
        else:
            wiring = wiring_of(row, device)
        if "update" in parts and not _is_one_process(row):
            parts = (*parts, "exchange")
        elif not _is_one_process(row) and row.quantity.kind == "time":
            raise UnmappedError("passes of several devices without the update")
    case = NetCase(
        network, row.source_id, sequence, batch, parts, passes, row.n_devices, link,
        protocol.copied, row.image, memory_format_of(row.memory_format, row.notes),
        is_compiled(row.framework, row.notes), _framework(row, protocol, parts),
        _is_one_process(row), row.optimizer or protocol.optimizer, protocol.clips,
        protocol.scales_loss and not _STATIC.search(row.notes),
        parts != ("forward",) or (protocol.trains and not is_inference),
        protocol.image_gradient, protocol.convolutions, wiring, protocol.exchange,
        protocol.composes_gelu, protocol.kernels,
    )  # fmt: skip
    if row.quantity.kind == "time":
        return case, row.value * row.quantity.scale
    counted = case.samples * (sequence or length_of(spec) if row.quantity.things == "tokens" else 1)
    return case, counted / row.value


#: Headings of tables of runs in which the loss has one scale, so that nobody looks for infinities.
_STATIC = re.compile(r"static loss scale|without dynamic_loss_scaling", re.IGNORECASE)


def _check_parameters(net: NetSpec, row: Measurement) -> None:
    """Raise UnmappedError unless a net has as many parameters as the row says, as it rounds."""
    assert row.parameters is not None
    _, _, decimals = str(row.parameters).partition(".")
    if abs(build(net).num_params / 1e6 - row.parameters) > 0.51 * 10.0 ** -len(decimals):
        package, mark, _ = row.network.partition(":")
        builder = f"{package} as installed builds" if mark else "Paleo has"
        raise UnmappedError(f"{builder} another net by this name, of other parameters")


def _parts(row: Measurement) -> tuple[str, ...]:
    direction, part = row.direction.casefold(), row.quantity.part
    if part == "run":
        part = "forward" if direction in _FORWARD else "step"
    if part not in _PARTS:
        raise UnmappedError(f"{row.quantity.name} of a net")
    if part == "step" and direction in _BOTH:
        return ("forward", "backward")
    if part == "step" and direction not in _TRAIN:
        raise UnmappedError(f"{row.quantity.name} of direction {row.direction!r}")
    return _PARTS[part]


def _batch(row: Measurement) -> tuple[int, int]:
    """Return the samples of one pass on one device, and the passes before an update."""
    own = row.micro_batch or row.batch_per_device
    if own is None and row.global_batch is not None:
        own = row.global_batch / row.n_devices
    if own is None:
        raise UnmappedError("no batch size")
    batch = _whole(own, "batch")
    if row.global_batch is None:
        return batch, 1
    passes = row.global_batch / (batch * row.n_devices)
    if passes < 1 or passes != int(passes):
        raise UnmappedError("a global batch that is no multiple of the devices' batches")
    return batch, int(passes)


#: Frameworks that rows name, in whatever they say of them.
_FRAMEWORKS = ("pytorch", "tensorflow", "mxnet", "paddle", "mindspore")


def _framework(row: Measurement, protocol: Protocol, parts: tuple[str, ...]) -> str:
    """Return which of the frameworks that there are ran a net, "" for none of them."""
    if protocol.is_tuned or re.search(r"\btuned\b", row.framework):
        return "tuned"
    if protocol.inference and parts == ("forward",):
        return protocol.inference
    named = next((name for name in _FRAMEWORKS if name in row.framework.casefold()), "")
    if named == "pytorch":
        release = pytorch_of(row.framework, row.library_version, protocol.library)
        release = release or protocol.pytorch
        if "torchscript" in row.framework.casefold():
            return "torchscript"
        return "pytorch0" if release < (1, 5) else "pytorch1" if release < (2, 0) else named
    if named == "tensorflow":
        said = re.search(r"tensorflow ?(\d)", row.framework, re.IGNORECASE)
        version = int(said[1]) if said else protocol.tensorflow
        return "tensorflow1" if version < 2 else named
    return named


def _whole(value: float, name: str) -> int:
    if value != int(value) or value < 1:
        raise UnmappedError(f"a {name} that is no whole number")
    return int(value)


#: Words of `parallelism` that mean a copy of the net on every device.
_DATA_PARALLEL = ("", "dp", "ddp", "data", "data parallel")


def _is_one_process(row: Measurement) -> bool:
    """Return whether one process drives several devices, by PyTorch's nn.DataParallel."""
    return row.n_devices > 1 and "nn.DataParallel" in row.framework


def _check_parallel(row: Measurement) -> None:
    """Raise UnmappedError unless several devices train copies of the net, or one process does."""
    if row.parallelism.casefold() not in _DATA_PARALLEL:
        raise UnmappedError(f"parallelism {row.parallelism!r}")
    is_pass = row.quantity.part != "step" and row.direction.casefold() in (*_FORWARD, *_BOTH)
    if is_pass and not _is_one_process(row):
        raise UnmappedError(f"{row.direction} on several devices")
