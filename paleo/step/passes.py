"""What a device does in the passes of a step, and how long that takes by a cost model.

Batch sizes, worker counts and rates may be arrays. What reads settings stands above: in
paleo.step.plan and paleo.step.estimates.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from operator import attrgetter
from typing import Any

from paleo.cluster import Device
from paleo.cluster.collectives import Collective
from paleo.cluster.collectives import Operation as Collecting
from paleo.cluster.frameworks import NO_FRAMEWORK, Framework
from paleo.cluster.topology import Group
from paleo.core.errors import SettingError
from paleo.core.frozen import NamedTuple, dataclass
from paleo.core.kinds import Fusion
from paleo.core.operations import Kind, Operation, Pass, Role, Stream, Unpriced, Update
from paleo.core.quantity import (
    Quantity,
    is_array,
    largest,
    maximum,
    smallest,
    total,
    where_positive,
)
from paleo.core.tensor import element_size, find_precision, num_elements
from paleo.costs import Conventions, CostModel, Target, Time, Times
from paleo.costs.attention import check_attention
from paleo.costs.convolutions import DEFAULT, ConvolutionChoice, check_library
from paleo.costs.error_bands import NET, TRAINING, Band, Like
from paleo.costs.host import handed_over
from paleo.net.asked import longest_path, unpriced
from paleo.net.graph import Graph, Node
from paleo.net.layers import Layer
from paleo.step.declarations import check_count, checked_share
from paleo.step.matrices import Matrix
from paleo.step.optimizers import PLAIN, Rule

FORWARD = (Pass.FORWARD,)
BACKWARD = (Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT)


class LayerTime(NamedTuple):
    """What one layer takes in a pass; `seconds` is `time.total`, or less if pipelined."""

    node: Node
    time: Time
    seconds: Quantity


class Fetch(NamedTuple):
    """What a node gets from another device: the output of a parent, given by its index."""

    parent: int
    num_bytes: Quantity
    bandwidth: Quantity
    time: Time


#: By the index of a node, what it gets from other devices, one after the other.
Fetches = Mapping[int, Sequence[Fetch]]


class Kernels(NamedTuple):
    """What a device does for each node of a graph in a pass; nodes that do the same share it.

    `into` says of the nodes of which something runs in another's kernel in which one's.
    """

    of: Sequence[Sequence[tuple[Pass, Operation]]]
    into: Mapping[int, int] = {}


@dataclass(frozen=True)
class PassTime:
    """What a forward or backward pass takes, layer by layer and together.

    `times` are those of layers that differ; `places` says for each node which is its own. `seconds`
    are what comes of a time. `kernels` is what the device does in it. With `fetches`, `times` are
    those with what nodes get from other devices, and `local` is the pass without. The host was done
    with handing over `ahead` seconds before the device.
    """

    graph: Graph
    times: Times
    places: Sequence[int]
    seconds: Callable[[Time], Quantity]
    kernels: Kernels
    fetches: Fetches = field(default_factory=dict)
    without_fetches: PassTime | None = None
    ahead: Quantity = 0.0
    host_waits: Sequence[Quantity] = ()

    @property
    def local(self) -> PassTime:
        """The pass as it would be if every input were at hand."""
        return self.without_fetches or self

    def fetching(self, fetches: Fetches) -> PassTime:
        """Return the pass in which nodes get these inputs from other devices first."""
        times = list(self.times.at(self.places))
        for i, those in fetches.items():  # one after the other
            times[i] += functools.reduce(Time.__add__, [fetch.time for fetch in those])
        return replace(
            self,
            times=Times(times),
            places=range(len(times)),
            fetches=fetches,
            without_fetches=self,
        )

    def handed_over(
        self, counts: Sequence[Quantity], host: Quantity, ahead: Quantity, backward: bool
    ) -> PassTime:
        """Return the pass with what each node waits for a host that takes so long for a kernel.

        `counts` are the kernels of each of `times`; nodes are done in their order, or `backward`.
        """
        nodes = range(len(self.places))
        order = nodes[::-1] if backward else nodes
        times = list(self.times.at(self.places))
        groups = [(times[i].total, counts[self.places[i]]) for i in order]
        waits, ahead = handed_over(groups, host, ahead)
        for i, wait in zip(order, waits, strict=True):
            times[i] += Time(overhead=wait, total=wait)
        in_order = waits[::-1] if backward else waits
        return replace(self, times=Times(times), places=nodes, ahead=ahead, host_waits=in_order)

    @property
    def waits(self) -> Sequence[Quantity]:
        """Seconds that the device waits for the host in each node."""
        return self.host_waits or [0.0] * len(self.places)

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


class Recomputed(NamedTuple):
    """The layers that the backward pass does forward again, by the node before whose they are."""

    before: Mapping[int, Sequence[LayerTime]]

    @property
    def time(self) -> Time:
        """Computation, memory traffic and overhead of all."""
        return sum((layer.time for layer in self.layers), Time())

    @property
    def seconds(self) -> Quantity:
        """Seconds of all, one after the other."""
        return total(layer.seconds for layer in self.layers)

    @property
    def layers(self) -> list[LayerTime]:
        """All of them."""
        return list(itertools.chain(*self.before.values()))


def checked_target(
    device: Device,
    cost_model: CostModel,
    dtype: str = "fp32",
    share: Quantity = 1.0,
    convolutions: ConvolutionChoice = DEFAULT,
    attention: str | None = None,
) -> Target:
    """Return where operations of a net in this type run, by this cost model.

    Raises SettingError for an unknown dtype, or one that the cost model does not know, a wrong
    `share` of peak, a library for `convolutions` or kernels of `attention` that do not run on the
    device; HardwareError if the device has no figure for the type.
    """
    precision = find_precision(dtype)
    computing = precision.computing
    checked_share(share, "ppp_comp")
    if cost_model.dtypes is None:
        device.peak(computing)  # says which types there are
    elif dtype not in cost_model.dtypes:
        known = ", ".join(cost_model.dtypes)
        raise SettingError(f"cost model {cost_model.name} knows {known} only, not {dtype}")
    if precision.scaling:
        device.peak(precision.multiplying)
        takes = precision.scaling.architectures
        if takes and device.architecture not in takes:
            raise SettingError(
                f"dtype: {dtype} takes matrix units that multiply blocks with scales, as those of "
                f"{' and '.join(takes)}, which {device.name} has not"
            )
    check_library(convolutions.library, device)
    check_attention(attention, device, computing, cost_model)
    return Target(device, computing, share, convolutions=convolutions, attention=attention)


def net_band(
    cost_model: CostModel,
    target: Target,
    is_plain: bool = True,
    *,
    software: str = "",
    direction: str = TRAINING,
    kind: str = NET,
) -> Band | None:
    """Return the error band of a net's times, or of steps on a mesh; None where none is known.

    The errors were those of nets as frameworks run them, at the peak, convolutions by the
    device's own library; `is_plain` tells whether this one is (neither fused nor pipelined by
    hand). `software` is the family of what runs it, the `direction` TRAINING or INFERENCE.
    """
    is_plain = is_plain and target.convolutions == DEFAULT
    if not is_plain or is_array(target.share) or target.share != 1:
        return None
    bits = 8 * element_size(target.dtype)
    return cost_model.band(Like(kind, direction, bits, software), target.device)


def adapter(cost_model: CostModel) -> Callable[[Layer], Layer] | None:
    """Return the change of layers that a graph for this cost model needs, None if none."""
    return None if cost_model.conventions.sigmoid_has_one_output else keep_shape


def computed_by(software: Framework, graph: Graph) -> Graph:
    """Return a graph with the element types, views, steps and sums of gradients of a framework."""
    if software is NO_FRAMEWORK:
        return graph
    # Here, since most commands name no framework.
    from paleo.net.handled import (
        in_elementary_steps,
        in_steps,
        with_autocast,
        with_gradients_apart,
        with_handling,
        with_views,
    )
    from paleo.net.orders import with_orders

    if software.in_steps:
        graph = graph.once(in_steps)
    if software.composes:
        graph = graph.once(in_elementary_steps)
    if software.autocast and graph.precision.is_mixed:
        graph = graph.once(with_autocast, software.autocast)
    if software.views:
        graph = graph.once(with_views)
    if software.views and not software.memory_format:
        graph = graph.once(with_orders)
    if software.gradients_apart:
        graph = graph.once(with_gradients_apart)
    handling = software.handling
    return graph.once(with_handling, handling) if any(handling) else graph


def updated_in(software: Framework, dtype: str) -> str:
    """Return the type of an update: of fp32 where a framework casts parameters in its passes."""
    return "fp32" if software.handling.is_cast and find_precision(dtype).is_mixed else dtype


def images_in(software: Framework, graph: Graph, given: str) -> str:
    """Return how a net's images lie in memory, `given` by the user or as a framework has them."""
    if software.weighs_groups:
        from paleo.net.compiled import gains_channels_last  # here, since most nets run eagerly

        return software.memory_format if graph.once(gains_channels_last) else given
    return software.images(graph.element_size) or given


def keep_shape(layer: Layer) -> Layer:
    """Return the layer; for a Sigmoid of 2017, which has one output, one that keeps its shape."""
    return layer.keeping_shape()


def _reads_samples(graph: Graph, node: Node) -> bool:
    """Tell whether a node is a convolution, no transposed one, of what comes into the net."""
    layer = node.layer
    if not layer.is_convolution or layer.is_transposed:
        return False
    return graph.nodes[node.parents[0]].layer.is_input


def needed_gradients(
    graph: Graph, conventions: Conventions, of_inputs: bool = False
) -> list[tuple[bool, ...]]:
    """Tell for each node of which of its inputs somebody needs the gradient.

    With `of_inputs` that of what comes into the net is asked for as well.
    """
    if conventions.only_first_convolutions_skip:
        return [(not _reads_samples(graph, node),) * len(node.parents) for node in graph.nodes]
    trained: list[bool] = []
    needed: list[tuple[bool, ...]] = []
    for node in graph.nodes:
        needed.append(tuple(trained[parent] for parent in node.parents))
        is_input = of_inputs and node.layer.is_input
        trained.append(any(needed[-1]) or node.is_trained or is_input)
    return needed


def kernels(
    graph: Graph,
    directions: tuple[Pass, ...],
    cost_model: CostModel,
    *,
    fusion: Fusion = Fusion.NONE,
    training: bool = True,
    of_inputs: bool = False,
) -> Kernels:
    """Return the operations of the passes in `directions`, each with its pass.

    By `fusion`, pointwise ones run in the kernels before them, as paleo.net.fusion says; without
    `training`, the forward pass is that of inference. `of_inputs` is that of `needed_gradients`.
    """
    is_backward = not {Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT}.isdisjoint(directions)
    needed = needed_gradients(graph, cost_model.conventions, of_inputs) if is_backward else None
    into: Mapping[int, int] = {}
    operations: Mapping[Pass, Sequence[tuple[Operation, ...]]]
    is_plain = fusion is Fusion.NONE or (needed and fusion is Fusion.BIAS)
    if is_plain and (training or needed):
        operations = {
            direction: [
                graph.operations(node, direction, needed[node.index] if needed else None)
                for node in graph.nodes
            ]
            for direction in directions
        }
    else:
        # Here, since most steps have no fused kernels.
        from paleo.net.fusion import fused_backward, fused_forward, inference_forward

        if needed:
            fused = fused_backward(graph, needed, fusion)
        elif is_plain:
            fused = inference_forward(graph)
        else:
            fused = fused_forward(graph, training=training, fusion=fusion)
        operations, into = fused.operations, fused.into
    if needed and Pass.INPUT_GRADIENT in directions:
        sums = graph.once(_gradient_sums, tuple(needed))
        inward = operations[Pass.INPUT_GRADIENT]
        with_sums = [(*sums.get(i, ()), *own) if i in sums else own for i, own in enumerate(inward)]
        operations = {**operations, Pass.INPUT_GRADIENT: with_sums}
    shared: dict[Any, list[tuple[Pass, Operation]]] = {}
    of = []
    for each in zip(*(operations[direction] for direction in directions), strict=True):
        which = tuple(map(id, itertools.chain(*each)))
        if which not in shared:
            shared[which] = [
                (direction, operation)
                for direction, done in zip(directions, each, strict=True)
                for operation in done
            ]
        of.append(shared[which])
    return Kernels(of, into)


def _gradient_sums(
    graph: Graph, needed: Sequence[tuple[bool, ...]]
) -> dict[int, tuple[Operation, ...]]:
    """Return what adds up the gradients of a node's output, where several layers give one.

    Slices give each a part of it, which are no sum.
    """
    given: dict[int, int] = {}
    in_parts: set[int] = set()
    for node in graph.nodes:
        for parent, wanted in zip(node.parents, needed[node.index], strict=True):
            is_part = node.layer.takes_part
            if wanted and not (is_part and parent in in_parts):
                given[parent] = given.get(parent, 0) + 1
                in_parts.update([parent] * is_part)
    known: dict[tuple[int, int], tuple[Operation, ...]] = {}
    found = {}
    for index, count in given.items():
        node = graph.nodes[index]
        if count > 1:
            key = (node.like, count)
            if key not in known:
                size = graph.element_size if node.elements is None else node.elements.computing
                add = gradient_sum(size * num_elements(node.output))
                known[key] = (add,) * (count - 1)
            found[index] = known[key]
    return found


def gradient_sum(num_bytes: Quantity) -> Stream:
    """Return what adds one gradient of so many bytes to another."""
    return Stream(
        Kind.ELEMENTWISE,
        (num_bytes, num_bytes),
        (num_bytes,),
        direction=Pass.INPUT_GRADIENT,
        roles=(Role.OUTPUT_GRADIENT, Role.OUTPUT_GRADIENT),
        label="sum of gradients",
    )


def estimate_pass(
    graph: Graph,
    directions: tuple[Pass, ...],
    target: Target,
    cost_model: CostModel,
    use_pipeline: bool = False,
    fetches: Fetches | None = None,
    *,
    fusion: Fusion = Fusion.NONE,
    training: bool = True,
    of_inputs: bool = False,
    ahead: Quantity = 0.0,
) -> PassTime:
    """Return the time of the passes in `directions` together, layer by layer.

    `fetches` adds the time in which nodes get their inputs from other devices; `fusion`,
    `training` and `of_inputs` are those of `kernels`. The host hands over kernels from `ahead`
    seconds before the device begins.
    """
    found = kernels(
        graph, directions, cost_model, fusion=fusion, training=training, of_inputs=of_inputs
    )
    distinct = {id(own): own for own in found.of}
    timed = [
        [each for _, each in own if not isinstance(each, Unpriced)] for own in distinct.values()
    ]
    target = replace(target, training=training, continuous=training)
    prices = priced(list(itertools.chain(*timed)), target, cost_model)
    lengths = list(map(len, timed))
    times = prices.sums(lengths)
    where = {which: place for place, which in enumerate(distinct)}
    places = [where[id(own)] for own in found.of]
    seconds = cost_model.pipelined if use_pipeline else attrgetter("total")
    passed = PassTime(graph, times, places, seconds, found)
    host = cost_model.host(target)
    if largest(host) or smallest(ahead) < 0:
        each = iter(prices)
        counts = [total(handed(one, next(each)) for one in own) for own in timed]
        is_backward = Pass.FORWARD not in directions
        passed = passed.handed_over(counts, host, ahead, is_backward)
    return passed.fetching(fetches) if fetches else passed


def handed(operation: Operation, time: Time) -> Quantity:
    """Return what the host hands over by itself, in operations that are layers.

    A bias comes with what it is added to, and what takes no time is no kernel.
    """
    count = operation.handed if isinstance(operation, Stream) else 1
    return where_positive(time.total, count * (operation.kind is not Kind.BIAS))


def priced(operations: Sequence[Operation], target: Target, cost_model: CostModel) -> Times:
    """Return the time of each operation, in its own element type."""
    if not any(each.dtype for each in operations):
        return cost_model.price_all(operations, target)
    times: dict[int, Time] = {}
    for dtype in dict.fromkeys(each.dtype for each in operations):
        alike = [i for i, each in enumerate(operations) if each.dtype == dtype]
        prices = cost_model.price_all(
            [operations[i] for i in alike], target.of(operations[alike[0]])
        )
        times |= zip(alike, prices, strict=True)
    return Times([times[i] for i in range(len(operations))])


def update_time(
    num_params: Quantity,
    target: Target,
    cost_model: CostModel,
    dtype: str = "fp32",
    rule: Rule = PLAIN,
    tensors: Quantity = 1,
    matrices: Sequence[Matrix] = (),
) -> Time:
    """Return what takes the time to update `num_params` parameters, in so many tensors.

    `matrices` are those that they are, for optimizers by matrix.

    Where gradients are unscaled the host waits for what says whether they are finite, and has no
    lead: the update takes as long as it takes to hand over its kernels.
    """
    if cost_model.conventions.descends_plainly:
        rule = PLAIN
    operations = update_operations(num_params, dtype, rule, tensors, matrices)
    first, *others = operations
    time = cost_model.price(first, target)
    counts: dict[Any, tuple[Operation, int]] = {}
    for each in others:
        if isinstance(each, Update):
            time += cost_model.price(each, target)
        else:  # there are many alike, and they have a type that a device may not have
            key = id(each) if is_array(num_params) else each  # arrays are not looked for
            counts[key] = each, counts.get(key, (each, 0))[1] + 1
    for each, count in counts.values():
        known = target.device.peaks.get(each.dtype)
        time += cost_model.price(each, target.of(each) if known else target).times(count)
    host = cost_model.host(target) if rule.unscaled else 0.0
    if largest(host):
        host = rule.software.update_host_of(target.device, host)
        kernels = total(each.kernels if isinstance(each, Update) else 1 for each in operations)
        wait = maximum(host * kernels - time.total, 0.0)
        time += Time(overhead=wait, total=wait)
    return time


def update_operations(
    num_params: Quantity,
    dtype: str = "fp32",
    rule: Rule = PLAIN,
    tensors: Quantity = 1,
    matrices: Sequence[Matrix] = (),
) -> tuple[Operation, ...]:
    """Return what a device does to update so many parameters; raises SettingError."""
    check_count(num_params, "num_params")
    precision = find_precision(dtype)
    update = rule.operations(num_params, precision.parameter_size, tensors, matrices)
    if not precision.is_mixed:
        return update
    half = (precision.element_size * num_params,)
    full = (precision.parameter_size * num_params,)
    cast = Stream(Kind.COPY, half, full, direction=Pass.UPDATE, label="cast")
    # The update has just written what is cast back.
    return (*update, cast, replace(cast, reads=full, writes=half, roles=(Role.AGAIN,)))


def exchange_time(
    num_bytes: Quantity,
    group: Group,
    collective: Collective,
    cost_model: CostModel,
    operation: Collecting = Collecting.ALL_REDUCE,
) -> Quantity:
    """Return the seconds in which a group of workers exchanges gradients of `num_bytes`.

    The model of 2017 knows one link, of several tiers the slowest that is used, and no latency.
    """
    conventions = cost_model.conventions
    if conventions.exchanges_after_all:
        seconds = collective.seconds(num_bytes, group.workers, group.link_bandwidth)
    else:
        seconds = collective.seconds_on(group, num_bytes, operation)
    if conventions.lone_worker_mixes:
        return seconds
    return where_positive(group.workers - 1, seconds)


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
