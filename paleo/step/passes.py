"""Times of the parts of a training step: forward, backward, update, communication.

These are the pieces that `paleo.simulate` puts together, and from which a step of one's
own is written: each takes a graph, a device or a network and returns seconds. Batch
sizes, worker counts and rates may be arrays.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from paleo.collectives import COLLECTIVES, Collective
from paleo.costs import DEFAULT_COST_MODEL, CostModel, Target, Time, Times, find_cost_model
from paleo.costs.bands import NET, Band
from paleo.costs.convolutions import DEFAULT, ConvolutionChoice, check_library, convolution_choice
from paleo.errors import SettingError
from paleo.fusion import fused_backward, fused_forward, inference_forward
from paleo.graph import Graph, Node, longest_path, unpriced
from paleo.hardware import Device, Network, find_device, find_network
from paleo.layers import Layer
from paleo.layers.pointwise import Activation, Sigmoid
from paleo.quantity import Quantity, is_array, largest, smallest, where_positive, whole_array
from paleo.tensor import find_precision
from paleo.values import MAX_SIZE, shown
from paleo.work import Operation, Pass, Stream, Unpriced, Update

__all__ = [
    "BACKWARD",
    "FORWARD",
    "Kernels",
    "LayerTime",
    "PassTime",
    "adapter",
    "checked_share",
    "checked_target",
    "checked_workers",
    "estimate_backward",
    "estimate_communication",
    "estimate_forward",
    "estimate_pass",
    "estimate_update",
    "exchange_time",
    "keep_shape",
    "kernels",
    "link_bandwidth",
    "needed_gradients",
    "net_band",
    "not_counted",
    "update_operations",
    "update_time",
]

FORWARD = (Pass.FORWARD,)
BACKWARD = (Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT)

#: No share of peak is smaller; less would make times infinite.
_LEAST_SHARE = 1e-9

DeviceLike = str | os.PathLike[str] | Device
NetworkLike = str | os.PathLike[str] | Network


class LayerTime(NamedTuple):
    """What one layer takes in a pass; `seconds` is `time.total`, or less if pipelined."""

    node: Node
    time: Time
    seconds: Quantity


@dataclass(frozen=True)
class PassTime:
    """What a forward or backward pass takes, layer by layer and together.

    `times` are those of layers that differ; `places` says for each node which is its own. `seconds`
    are what comes of a time.
    """

    graph: Graph
    times: Times
    places: Sequence[int]
    seconds: Callable[[Time], Quantity]

    @functools.cached_property
    def layers(self) -> tuple[LayerTime, ...]:
        """The time of each layer, in the order of the graph."""
        own = [(time, self.seconds(time)) for time in self.times]
        return tuple(
            LayerTime(node, *own[place])
            for node, place in zip(self.graph.nodes, self.places, strict=True)
        )

    @property
    def upper(self) -> Quantity:
        """Seconds if one layer runs after the other: the sum over layers."""
        return self._of_layers.total(self.seconds)

    @property
    def lower(self) -> Quantity:
        """Seconds if parallel branches run at the same time: the longest path."""
        return longest_path(self.graph, [layer.seconds for layer in self.layers])

    @property
    def time(self) -> Time:
        """Computation, memory traffic and overhead of all layers."""
        return self._of_layers.time

    @functools.cached_property
    def _of_layers(self) -> Times:
        return self.times.at(self.places)


def checked_share(value: Quantity, name: str) -> Quantity:
    """Return a percent of peak; raises SettingError unless it is above 0, up to 1."""
    if is_array(value) or (isinstance(value, int | float) and not isinstance(value, bool)):
        low, high = smallest(value), largest(value)
        if low >= _LEAST_SHARE and high <= 1:  # false for NaN
            return value
        if 0 < low < _LEAST_SHARE:
            raise SettingError(f"{name}: {low} is too small to mean anything")
    raise SettingError(f"{name}: expected a number above 0, up to 1, got {shown(value)}")


def checked_target(
    device: Device,
    cost_model: CostModel,
    dtype: str = "fp32",
    ppp_comp: Quantity = 1.0,
    convolutions: ConvolutionChoice = DEFAULT,
) -> Target:
    """Return where operations of a net in this type run, by this cost model.

    Raises SettingError for an unknown dtype, or one that the cost model does not know, a wrong
    `ppp_comp`, or a library for `convolutions` that does not run on the device; HardwareError if
    the device has no figure for the type.
    """
    computing = find_precision(dtype).computing
    share = checked_share(ppp_comp, "ppp_comp")
    if cost_model.dtypes is None:
        device.peak(computing)  # says which types there are
    elif dtype not in cost_model.dtypes:
        known = ", ".join(cost_model.dtypes)
        raise SettingError(f"cost model {cost_model.name} knows {known} only, not {dtype}")
    check_library(convolutions.library, device)
    return Target(device, computing, share, convolutions=convolutions)


def net_band(cost_model: CostModel, target: Target, is_plain: bool = True) -> Band | None:
    """Return the error band of a net's times, None where none is known.

    The errors were those of nets as frameworks run them, at `ppp_comp` 1, convolutions by the
    device's own library; `is_plain` tells whether this one is (neither fused nor pipelined by
    hand).
    """
    is_plain = is_plain and target.convolutions == DEFAULT
    if not is_plain or is_array(target.ppp_comp) or target.ppp_comp != 1:
        return None
    return cost_model.band(NET, target.device)


def checked_workers(workers: Any, name: str = "num_workers") -> Quantity:
    """Return a worker count, or an array of them; raises SettingError."""
    if is_array(workers):
        array = whole_array(workers, MAX_SIZE)
        if array is not None:
            return array
    elif isinstance(workers, int) and not isinstance(workers, bool) and 1 <= workers <= MAX_SIZE:
        return workers
    raise SettingError(
        f"{name}: expected a whole number from 1 to {MAX_SIZE}, got {shown(workers)}"
    )


def _check_count(value: Quantity, name: str) -> None:
    if not smallest(value) >= 0:  # false for NaN
        raise SettingError(f"{name}: expected a number of 0 or more, got {shown(value)}")


def adapter(cost_model: CostModel) -> Callable[[Layer], Layer] | None:
    """Return the change of layers that a graph for this cost model needs, None if none."""
    return None if cost_model.conventions.sigmoid_has_one_output else keep_shape


def keep_shape(layer: Layer) -> Layer:
    """Return the layer; for a Sigmoid of 2017, which has one output, one that keeps its shape."""
    return Activation(function="sigmoid") if isinstance(layer, Sigmoid) else layer


def needed_gradients(graph: Graph, cost_model: CostModel) -> list[tuple[bool, ...]]:
    """Tell for each node of which of its inputs somebody needs the gradient."""
    if cost_model.conventions.only_first_convolutions_skip:
        return [
            (node.type_name != "Convolution" or not graph.nodes[node.parents[0]].layer.is_input,)
            * len(node.parents)
            for node in graph.nodes
        ]
    trained: list[bool] = []
    needed: list[tuple[bool, ...]] = []
    for node in graph.nodes:
        needed.append(tuple(trained[parent] for parent in node.parents))
        trained.append(any(needed[-1]) or node.is_trained)
    return needed


class Kernels(NamedTuple):
    """What a device does for each node of a graph in a pass; nodes that do the same share it.

    `into` says of the nodes of which something runs in another's kernel in which one's.
    """

    of: Sequence[Sequence[tuple[Pass, Operation]]]
    into: Mapping[int, int] = {}


def kernels(
    graph: Graph,
    directions: tuple[Pass, ...],
    cost_model: CostModel,
    *,
    fuse: bool = False,
    training: bool = True,
) -> Kernels:
    """Return the operations of the passes in `directions`, each with its pass.

    With `fuse`, pointwise ones run in the kernels before them, as paleo.fusion says; without
    `training`, the forward pass is that of inference.
    """
    needed = needed_gradients(graph, cost_model) if Pass.INPUT_GRADIENT in directions else None
    if not fuse and (training or needed):
        known: dict[Any, list[tuple[Pass, Operation]]] = {}
        for node in graph.nodes:
            own = needed[node.index] if needed else None
            if (node.like, own) not in known:
                known[node.like, own] = [
                    (direction, operation)
                    for direction in directions
                    for operation in graph.operations(node, direction, own)
                ]
        return Kernels(
            [known[node.like, needed[i] if needed else None] for i, node in enumerate(graph.nodes)]
        )
    if needed:
        found = fused_backward(graph, needed)
    elif fuse:
        found = fused_forward(graph, training=training)
    else:
        found = inference_forward(graph)
    shared: dict[Any, list[tuple[Pass, Operation]]] = {}
    of = []
    for each in zip(*(found.operations[direction] for direction in directions), strict=True):
        which = tuple(map(id, itertools.chain(*each)))
        if which not in shared:
            shared[which] = [
                (direction, operation)
                for direction, operations in zip(directions, each, strict=True)
                for operation in operations
            ]
        of.append(shared[which])
    return Kernels(of, found.into)


def estimate_pass(
    graph: Graph,
    directions: tuple[Pass, ...],
    target: Target,
    cost_model: CostModel,
    use_pipeline: bool = False,
    fetches: Mapping[int, Time] | None = None,
    *,
    fuse: bool = False,
    training: bool = True,
    found: Kernels | None = None,
) -> PassTime:
    """Return the time of the passes in `directions` together, layer by layer.

    `fetches` adds the time in which a node (by index) gets its inputs from other devices; `fuse`
    and `training` are those of `kernels`, whose answer may be at hand as `found`.
    """
    if found is None:
        found = kernels(graph, directions, cost_model, fuse=fuse, training=training)
    distinct = {id(own): own for own in found.of}
    priced = [
        [each for _, each in own if not isinstance(each, Unpriced)] for own in distinct.values()
    ]
    target = replace(target, training=training)
    prices = cost_model.price_all(list(itertools.chain(*priced)), target)
    times = prices.sums(list(map(len, priced)))
    where = {which: place for place, which in enumerate(distinct)}
    places = [where[id(own)] for own in found.of]
    if fetches:
        times = Times([_with(fetches.get(i), time) for i, time in enumerate(times.at(places))])
        places = list(range(len(places)))
    return PassTime(graph, times, places, cost_model.pipelined if use_pipeline else _in_all)


def _with(fetch: Time | None, time: Time) -> Time:
    return time if fetch is None else time + fetch


def _in_all(time: Time) -> Quantity:
    return time.total


def _estimate(
    graph: Graph,
    directions: tuple[Pass, ...],
    device: DeviceLike,
    cost_model: str | CostModel,
    ppp_comp: Quantity,
    use_pipeline: bool,
    fuse: bool,
    training: bool,
    convolutions: ConvolutionChoice,
) -> PassTime:
    model = find_cost_model(cost_model)
    target = checked_target(find_device(device), model, graph.dtype, ppp_comp, convolutions)
    return estimate_pass(
        graph, directions, target, model, use_pipeline, fuse=fuse, training=training
    )


def estimate_forward(
    graph: Graph,
    device: DeviceLike,
    *,
    cost_model: str | CostModel = DEFAULT_COST_MODEL,
    ppp_comp: Quantity = 1.0,
    use_pipeline: bool = False,
    fuse: bool = False,
    training: bool = True,
    conv_library: str | None = None,
    workspace: int | str | None = None,
    use_only_gemm: bool = False,
) -> PassTime:
    """Return the time of the forward pass on one device.

    `ppp_comp` is the share of the device's peak that is reached; with `use_pipeline`,
    computation and memory traffic of a layer overlap where the cost model adds them up; with
    `fuse`, pointwise operations run in the kernels before them (see paleo.fusion). Without
    `training` it is the pass of inference: batch normalizations read their input once, and
    dropout does nothing. The element type is the graph's. Each convolution takes the quickest
    algorithm that `conv_library` offers (one of paleo.costs.convolutions.LIBRARIES) within a
    `workspace` of so many bytes (or a text such as "4 GiB"); with `use_only_gemm`, the quickest
    matrix product. Raises UnknownNameError, HardwareError or SettingError.
    """
    choice = convolution_choice(conv_library, workspace, use_only_gemm)
    return _estimate(
        graph, FORWARD, device, cost_model, ppp_comp, use_pipeline, fuse, training, choice
    )


def estimate_backward(
    graph: Graph,
    device: DeviceLike,
    *,
    cost_model: str | CostModel = DEFAULT_COST_MODEL,
    ppp_comp: Quantity = 1.0,
    use_pipeline: bool = False,
    fuse: bool = False,
    conv_library: str | None = None,
    workspace: int | str | None = None,
    use_only_gemm: bool = False,
) -> PassTime:
    """Return the time of the backward pass on one device: both gradients of every layer.

    Parameters and errors are those of `estimate_forward`.
    """
    choice = convolution_choice(conv_library, workspace, use_only_gemm)
    return _estimate(
        graph, BACKWARD, device, cost_model, ppp_comp, use_pipeline, fuse, True, choice
    )


def estimate_update(
    num_params: Quantity,
    device: DeviceLike,
    *,
    cost_model: str | CostModel = DEFAULT_COST_MODEL,
    ppp_comp: Quantity = 1.0,
    use_pipeline: bool = False,
    dtype: str = "fp32",
) -> Quantity:
    """Return the seconds to add the gradients to `num_params` parameters, once for the net.

    In mixed precision it also takes two casts, of the gradients to fp32 and of the new
    parameters to the type that layers read. `paleo2017` prices it at the device's peak whatever
    `ppp_comp` is. Raises UnknownNameError, HardwareError or SettingError.
    """
    model = find_cost_model(cost_model)
    target = checked_target(find_device(device), model, dtype, ppp_comp)
    time = update_time(num_params, target, model, dtype)
    return model.pipelined(time) if use_pipeline else time.total


def update_time(
    num_params: Quantity, target: Target, cost_model: CostModel, dtype: str = "fp32"
) -> Time:
    """Return what `estimate_update` gives the seconds of; raises SettingError."""
    first, *casts = update_operations(num_params, dtype)
    time = cost_model.price(first, target)
    for cast in casts:
        time += cost_model.price(cast, target)
    return time


def update_operations(num_params: Quantity, dtype: str = "fp32") -> tuple[Operation, ...]:
    """Return what a device does to update so many parameters; raises SettingError."""
    _check_count(num_params, "num_params")
    precision = find_precision(dtype)
    update = Update(num_params, precision.parameter_size)
    if not precision.is_mixed:
        return (update,)
    half = (precision.element_size * num_params,)
    full = (precision.parameter_size * num_params,)
    return update, Stream("cast", half, full), Stream("cast", full, half)


def estimate_communication(
    num_bytes: Quantity,
    workers: Quantity,
    network: NetworkLike,
    *,
    scheme: str | Collective = "TreeAllReduce",
    ppp_comm: Quantity = 1.0,
    cost_model: str | CostModel = DEFAULT_COST_MODEL,
) -> Quantity:
    """Return the seconds in which `workers` exchange gradients of `num_bytes`.

    `scheme` is one of `paleo.COLLECTIVES`; `ppp_comm` the share of the network's bandwidth
    that is reached. Raises UnknownNameError, HardwareError or SettingError.
    """
    _check_count(num_bytes, "num_bytes")
    workers = checked_workers(workers, "workers")
    model = find_cost_model(cost_model)
    collective = COLLECTIVES[scheme] if isinstance(scheme, str) else scheme
    bandwidth = link_bandwidth(find_network(network), model) * checked_share(ppp_comm, "ppp_comm")
    return exchange_time(num_bytes, workers, bandwidth, collective, model)


def exchange_time(
    num_bytes: Quantity,
    workers: Quantity,
    bandwidth: Quantity,
    collective: Collective,
    cost_model: CostModel,
) -> Quantity:
    """Return what `estimate_communication` does, of what is known to be right.

    `bandwidth` are the bytes/s that are reached.
    """
    seconds = collective.seconds(num_bytes, workers, bandwidth)
    if cost_model.conventions.lone_worker_mixes:
        return seconds
    return where_positive(workers - 1, seconds)


def link_bandwidth(network: Network, cost_model: CostModel) -> Quantity:
    """Return the bytes/s of a network that this cost model reckons with."""
    return network.bandwidth_2017 if cost_model.uses_2017_figures else network.bandwidth


def not_counted(graph: Graph, cost_model: CostModel) -> tuple[str, ...]:
    """Return the names of operations in the graph that the cost model leaves out, sorted."""
    left_out = {operation.name for operation in unpriced(graph)}
    if cost_model.counts_all:
        return tuple(sorted(left_out))
    for node in graph.nodes:
        if node.like == node.index:
            left_out.update(
                operation.name
                for direction in (Pass.FORWARD, Pass.WEIGHT_GRADIENT)
                for operation in graph.operations(node, direction)
                if not isinstance(operation, Unpriced) and not cost_model.counts(operation)
            )
    return tuple(sorted(left_out))
