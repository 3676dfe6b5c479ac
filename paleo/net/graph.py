"""The layer graph: a net-spec with a batch size, every shape known, parents first."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from paleo.core.checks import MAX_COUNT, shown
from paleo.core.errors import Mistakes, NetSpecError, SettingError
from paleo.core.frozen import dataclass
from paleo.core.operations import PRODUCTS, Operation, Pass, Work, total_work
from paleo.core.quantity import Quantity, ceil_div, is_array, largest, np, whole_array
from paleo.core.scaling import Scaled
from paleo.core.tensor import (
    DTYPES,
    Precision,
    Shape,
    Shapes,
    are_identical,
    by_identity,
    find_precision,
    one_object,
)
from paleo.net import parameters, views
from paleo.net.layers import Layer, ShapeError
from paleo.net.limits import check_size
from paleo.net.parameters import Handling
from paleo.net.sorting import parents_first
from paleo.net.spec import NetSpec, Sweep

if TYPE_CHECKING:  # few nets are computed in several types
    from paleo.net.autocast import Elements

#: So many graphs are kept, with arrays of batch sizes if there are no more of them than this.
_KEPT, _FEW = 8, 64
#: So many things are kept of a net as long as it is there.
_MOST = 32
#: A count so far below the limit is not looked at again for another batch: it grows no quicker than
#: the batch does, save where a batch of 1 is a dimension that is repeated.
_FAR_BELOW = MAX_COUNT >> 10

_Found = TypeVar("_Found")


@dataclass(frozen=True)
class Node:
    """One layer in the graph. `parents` are indices of earlier nodes, `inputs` their shapes."""

    index: int
    name: str
    layer: Layer
    shard: int | None
    parents: tuple[int, ...]
    inputs: Shapes
    output: Shape
    #: The index of the first node of an equal layer and inputs, which does the same.
    like: int
    #: Parameters that are counted in the layer that it shares them with.
    shared_params: int = 0
    #: The index of that layer.
    owner: int | None = None
    #: The element type that its forward pass is computed in, "" for that of the graph.
    dtype: str = ""
    #: What it reads and computes with under autocast; None: elements are of the graph's size.
    elements: Elements | None = None
    #: What a framework does with its parameters.
    handling: Handling = Handling()
    #: Which inputs are copied into order before, where permutations are views; None: they are not.
    copied: tuple[int, ...] | None = None
    #: Whether each step of its gradients is a kernel.
    is_apart: bool = False
    #: Whether its images lie channels last, though those of the net do not: see paleo.net.orders.
    is_last: bool = False
    #: What of it is cast to fp8, where anything is: see paleo.net.fp8.
    scaled: Scaled | None = None

    @property
    def type_name(self) -> str:
        """The layer's type, as in a net file."""
        return self.layer.type_name

    @functools.cached_property
    def num_params(self) -> int:
        """Trainable parameters, of this slice if the layer is split; shared ones left out."""
        return self.layer.num_params(self.inputs) - self.shared_params

    @functools.cached_property
    def num_tensors(self) -> int:
        """Tensors that its parameters are, those of shared ones left out."""
        return self.layer.num_tensors(self.inputs) if self.num_params else 0

    def computing(self, graph: Graph) -> int:
        """Return the bytes of an element that it computes with."""
        return graph.element_size if self.elements is None else self.elements.computing

    @property
    def num_weight_casts(self) -> int:
        """How many kernels cast its parameters before those of its forward pass."""
        return self.num_tensors if self.handling.is_cast and not self.scaled else 0

    @functools.cached_property
    def is_trained(self) -> bool:
        """Whether it has parameters, its own or shared ones."""
        return self.layer.num_params(self.inputs) > 0


@dataclass(frozen=True)
class Graph:
    """A net at one batch size (or an array of them) and element type.

    `nodes` are sorted: parents come before children, else in the order of the file.
    """

    name: str
    nodes: Sequence[Node]
    dtype: str = "fp32"
    #: What was found by `once`.
    _known: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @functools.cached_property
    def precision(self) -> Precision:
        """The element types: what layers compute in, and what parameters are."""
        return find_precision(self.dtype)

    @functools.cached_property
    def element_size(self) -> int:
        """Bytes of one element of what layers read and write."""
        return self.precision.element_size

    @property
    def batch_size(self) -> Quantity:
        """Samples in a batch: the first dimension of every tensor made from an input."""
        return next(node.output[0] for node in self.nodes if node.layer.is_input)

    @property
    def num_params(self) -> int:
        """Trainable parameters of all layers and slices."""
        return sum(node.num_params for node in self.nodes)

    @property
    def num_tensors(self) -> int:
        """Tensors that the parameters of all layers are."""
        return sum(node.num_tensors for node in self.nodes)

    def operations(
        self, node: Node, direction: Pass, needed: tuple[bool, ...] | None = None
    ) -> tuple[Operation, ...]:
        """Return what a device does for this node in this pass.

        With `needed`, the input gradient is that of these inputs alone. Equal nodes share it.
        """
        return self.of_equal(_operations, node, direction, needed)

    def once(self, what: Callable[..., _Found], *arguments: Hashable) -> _Found:
        """Return `what(graph, *arguments)`, found once: graphs are kept and asked for again.

        What is found must not hold the graph, so that it is gone as soon as nobody has it.
        """
        return self._remembered((what, *arguments), what, *arguments)

    def of_equal(self, what: Callable[..., _Found], node: Node, *arguments: Hashable) -> _Found:
        """Return `what(graph, node, *arguments)`, found once for all equal nodes; as `once`."""
        return self._remembered((what, node.like, *arguments), what, node, *arguments)

    def _remembered(self, key: Hashable, what: Callable[..., _Found], *arguments: Any) -> _Found:
        found: _Found | None = self._known.get(key)
        if found is None:
            found = self._known[key] = what(self, *arguments)
        return found

    def by_node(self, what: Callable[[Node], _Found]) -> list[_Found]:
        """Return `what(node)` of each node, which does not depend on where the node is."""
        return [what(node) for node in self.nodes]

    def net_of(self, net: NetSpec, nodes: Sequence[int]) -> NetSpec:
        """Return a net that has these nodes, of the net that the graph was built of."""
        return net

    def work(self, node: Node, direction: Pass) -> Work:
        """Return the FLOPs and bytes of this node in this pass."""
        return total_work(self.operations(node, direction))


def _operations(
    graph: Graph, node: Node, direction: Pass, needed: tuple[bool, ...] | None
) -> tuple[Operation, ...]:
    """Return what a layer does in a pass, and what a framework does with its parameters."""
    found = _of_layer(graph, node, direction, needed)
    if node.is_last and node.layer.is_convolution:
        found = views.channels_last(found)
    if node.scaled is not None:
        from paleo.net import fp8  # here, as below: most nets have none

        found = tuple(fp8.operations(found, node.scaled, direction, node.computing(graph)))
    params, tensors = node.num_params, node.num_tensors
    full = graph.precision.parameter_size
    if node.num_weight_casts:
        half = graph.element_size
        if direction is Pass.FORWARD:
            found = (*parameters.cast(params, tensors, half, full), *found)
        if direction is Pass.WEIGHT_GRADIENT:
            found = (*found, *parameters.cast_back(params, tensors, half, full))
    if direction is Pass.WEIGHT_GRADIENT and node.handling.in_block and node.is_trained:
        every = node.layer.num_tensors(node.inputs)
        found = parameters.by_columns(found, every, node.computing(graph), node.handling)
    if direction is Pass.WEIGHT_GRADIENT and node.handling.is_added:
        found = (*found, *parameters.added(params, tensors, full))
    if node.handling.is_narrow:
        found = tuple(parameters.by_element(each, node.computing(graph)) for each in found)
    return found


def _of_layer(
    graph: Graph, node: Node, direction: Pass, needed: tuple[bool, ...] | None
) -> tuple[Operation, ...]:
    if direction is Pass.INPUT_GRADIENT and needed is not None:
        if not any(needed):
            return ()
        size = node.computing(graph)
        gradient = node.layer.gradients_apart if node.is_apart else node.layer.input_gradient
        found = gradient(node.inputs, size, needed)
        if node.elements is None:
            return found
        return _in_types(node, node.elements, direction, found, needed)
    if direction is Pass.WEIGHT_GRADIENT and not node.is_trained:
        return ()
    if direction is Pass.FORWARD and node.dtype:
        found = node.layer.operations(direction, node.inputs, DTYPES[node.dtype])
        return tuple(
            replace(each, dtype=node.dtype) if isinstance(each, PRODUCTS) else each
            for each in found
        )
    size = node.computing(graph)
    found = node.layer.operations(direction, node.inputs, size)
    if direction is Pass.FORWARD and node.copied is not None:
        own = () if views.is_view(node.layer, node.inputs) else found
        found = (*views.copies(node.inputs, node.copied, size), *own)
    if node.elements is None:
        return found
    return _in_types(node, node.elements, direction, found)


def _in_types(
    node: Node,
    elements: Elements,
    direction: Pass,
    found: Sequence[Operation],
    needed: tuple[bool, ...] | None = None,
) -> tuple[Operation, ...]:
    """Return what a layer does under autocast, in these element types."""
    from paleo.net import autocast

    return tuple(autocast.operations(node.inputs, elements, direction, found, needed))


def build(
    net: NetSpec,
    batch_size: Quantity | None = None,
    dtype: str = "fp32",
    adapt: Callable[[Layer], Layer] | None = None,
) -> Graph:
    """Return the graph of a net.

    `batch_size` replaces the first dimension of every tensor; None keeps the file's. An
    array of batch sizes gives a graph of array-valued shapes. `dtype` is one of
    paleo.core.tensor.PRECISIONS. `adapt` may put another layer in the place of each. Raises
    NetSpecError with every layer that does not fit, SettingError for an unknown dtype or a
    batch size that is not a whole number above 0.
    """
    find_precision(dtype)
    return _with_fp8(_built(net, batch_size, dtype, cached_for_net(_needed, net, adapt)))


def build_once(
    net: NetSpec, batch_size: int, dtype: str, adapt: Callable[[Layer], Layer] | None = None
) -> Graph:
    """Return what `build` does, sooner where nobody asks for the net at another batch size."""
    nodes = _inferred(net, batch_size, _needed(net, adapt)).nodes
    return _with_fp8(Graph(net.name, nodes, dtype))


def _with_fp8(graph: Graph) -> Graph:
    """Return a graph with products in fp8, if its element type says so."""
    return graph.once(_scaled) if graph.precision.scaling else graph


def _scaled(graph: Graph) -> Graph:
    from paleo.net import fp8

    assert graph.precision.scaling
    nodes: list[Node] = []
    first: dict[Any, int] = {}
    for node, scaled in zip(
        graph.nodes, fp8.marked(graph.nodes, graph.precision.scaling), strict=True
    ):
        like = first.setdefault((node.like, scaled), node.index)
        nodes.append(replace(node, like=like, scaled=scaled))
    return Graph(graph.name, tuple(nodes), graph.dtype)


def _built(
    net: NetSpec,
    batch_size: Quantity | None,
    dtype: str,
    adapt: Callable[[Layer], Layer] | None,
) -> Graph:
    batch: Any = None if batch_size is None else checked_batch(batch_size)
    if net.sweep:
        return Graph(net.name, _swept(net, net.sweep, batch, adapt), dtype)
    if not is_array(batch):
        return _known_graph(net, batch, dtype, adapt)
    if batch.ndim == 1 and batch.size <= _FEW:
        return _known_graph(net, tuple(batch.tolist()), dtype, adapt)
    return Graph(net.name, _nodes(net, batch, adapt), dtype)


#: What was found of nets by `cached_for_net`.
_known_of_nets: WeakKeyDictionary[NetSpec, dict[Any, Any]] = WeakKeyDictionary()


def cached_for_net(what: Callable[..., _Found], net: NetSpec, *arguments: Hashable) -> _Found:
    """Return `what(net, *arguments)`, found once as long as the net is there.

    It is for what every question about a net begins with, whatever the batch and the device. What
    is found must not hold the net, or both are there forever.
    """
    known = _known_of_nets.setdefault(net, {})
    key = (what, *arguments)
    if key not in known:
        if len(known) >= _MOST:
            known.pop(list(known)[0], None)  # noqa: RUF015 (at once, for there may be threads)
        known[key] = what(net, *arguments)
    return known[key]  # type: ignore[no-any-return]


def _needed(
    net: NetSpec, adapt: Callable[[Layer], Layer] | None
) -> Callable[[Layer], Layer] | None:
    """Return None for what leaves every layer of this net as it is."""
    if adapt and all(adapt(spec.layer) is spec.layer for spec in net.few.layers):
        return None
    return adapt


def typical(net: NetSpec, dtype: str, adapt: Callable[[Layer], Layer] | None = None) -> Graph:
    """Return the graph at a batch above 1, the net's own if it is: to find what no batch changes.

    (A batch of 1 is special, since dimensions of 1 are repeated.) Raises as `build`.
    """
    if net.sweep:
        own = cached_for_net(_inferred, net, None, cached_for_net(_needed, net, adapt)).batch_size
        return build(net, max(own, 2), dtype, adapt)
    return _with_fp8(_typical_graph(net, dtype, cached_for_net(_needed, net, adapt)))


@functools.lru_cache(maxsize=_KEPT)
def _typical_graph(net: NetSpec, dtype: str, adapt: Callable[[Layer], Layer] | None) -> Graph:
    return Graph(net.name, _typical(net, adapt).nodes, dtype)


@dataclass(frozen=True, eq=False)
class _Inferred:
    """The nodes of a net at one batch size, and the largest count of a layer."""

    nodes: tuple[Node, ...]
    largest_count: Quantity

    @functools.cached_property
    def batch_size(self) -> Any:
        """The batch of the inputs; without any it does not matter."""
        return next((node.output[0] for node in self.nodes if node.layer.is_input), 2)

    def at(self, batch: Quantity, layers: Mapping[str, Layer] | None = None) -> tuple[Node, ...]:
        """Return the nodes at another batch size, which differ in shapes alone.

        With `layers`, those of these names take their place: of a net that differs in sizes. Raises
        ShapeError if a layer does not fit there, or if nodes that are alike here are not.
        """
        is_small = self.largest_count * ceil_div(largest(batch), self.batch_size) <= _FAR_BELOW
        has_arrays = is_array(batch) or layers is not None
        known: dict[Any, Any] = {}
        nodes: list[Node] = []
        for old in self.nodes:
            layer, like = old.layer, old.like
            if layers and like == old.index:
                layer = layers[old.name]
            inputs = tuple([nodes[parent].output for parent in old.parents])
            if like < old.index:
                output, others = nodes[like].output, nodes[like].inputs
                if not (are_identical(inputs, others) if has_arrays else inputs == others):
                    raise ShapeError("it is like another at one batch size alone")
                inputs = others  # one value for both
            else:
                output = layer.infer_shape(inputs)
                if layer.is_input:
                    output = (batch, *output[1:])
                if layers:
                    output = tuple(one_object(size, known) for size in output)
                if not (is_small or layers):
                    check_size(layer, inputs, output)
            nodes.append(
                Node(
                    old.index, old.name, layer, old.shard, old.parents, inputs, output,
                    like, old.shared_params, old.owner, old.dtype,
                )
            )  # fmt: skip
        return tuple(nodes)


def _inferred(
    net: NetSpec, batch: Quantity | None, adapt: Callable[[Layer], Layer] | None
) -> _Inferred:
    """Return them as found layer by layer; raises NetSpecError with every mistake."""
    mistakes = Mistakes(net.file)
    found = _infer(net, batch, mistakes, adapt)
    mistakes.raise_as(NetSpecError)
    return found


def _typical(net: NetSpec, adapt: Callable[[Layer], Layer] | None) -> _Inferred:
    """Return the nodes at the net's own batch size, or at 2 if that is 1."""
    inputs = (spec.layer for spec in net.layers if spec.layer.is_input and not spec.parents)
    if {layer.infer_shape(())[0] for layer in inputs} == {1}:
        with contextlib.suppress(NetSpecError):  # what is wrong is said of the net's own batch
            return cached_for_net(_at_two, net, adapt)
    own = cached_for_net(_inferred, net, None, adapt)
    return own if own.batch_size > 1 else cached_for_net(_at_two, net, adapt)


def _at_two(net: NetSpec, adapt: Callable[[Layer], Layer] | None) -> _Inferred:
    """Return the nodes of a net of one sample at two: as its own where they are known and alike."""
    if (_inferred, None, adapt) in _known_of_nets.get(net, ()):
        own = cached_for_net(_inferred, net, None, adapt)
        with contextlib.suppress(ShapeError):
            nodes = own.at(2)
            most = [check_size(n.layer, n.inputs, n.output) for n in nodes if n.like == n.index]
            return _Inferred(nodes, max(most, default=0))
    return _inferred(net, 2, adapt)


def _swept(
    net: NetSpec, sweep: Sweep, batch: Any, adapt: Callable[[Layer], Layer] | None
) -> tuple[Node, ...]:
    """Return the nodes of a net with arrays of sizes: those of the largest, with other shapes.

    Raises NetSpecError for layers that do not fit the largest of all, SettingError for what takes
    no arrays.
    """
    names = ", ".join(sweep.sizes)
    own = cached_for_net(_inferred, net, None, adapt).batch_size
    batch = own if batch is None else batch
    shapes = [sizes.shape for sizes in sweep.sizes.values()]
    try:
        np.broadcast_shapes(*shapes, np.shape(batch))
    except ValueError:
        raise SettingError(
            f"batch_size: an array of shape {np.shape(batch)} does not go with dims of {shapes[0]}"
        ) from None
    most: Any = max(largest(batch), 2)
    top = cached_for_net(_inferred, net, most, adapt)
    layers = {name: adapt(layer) if adapt else layer for name, layer in sweep.layers.items()}
    try:
        nodes = top.at(batch, layers)
        is_plain = not any(is_array(node.num_params) for node in nodes if node.like == node.index)
    except (ShapeError, ValueError, TypeError) as error:
        raise SettingError(f"{net.name}: a layer takes no array of {names}: {error}") from error
    if not is_plain:
        raise SettingError(f"{net.name}: parameters depend on {names}, which is then no array")
    return nodes


def _nodes(
    net: NetSpec, batch: Quantity | None, adapt: Callable[[Layer], Layer] | None
) -> tuple[Node, ...]:
    """Return the nodes at a batch size, None the net's own; raises NetSpecError."""
    if batch is None:
        return cached_for_net(_inferred, net, None, adapt).nodes
    # What is wrong, and where, is found layer by layer.
    with contextlib.suppress(ShapeError, NetSpecError):
        return _typical(net, adapt).at(batch)
    return _inferred(net, batch, adapt).nodes


@functools.lru_cache(maxsize=_KEPT)
def _known_graph(
    net: NetSpec,
    batch: int | tuple[int, ...] | None,
    dtype: str,
    adapt: Callable[[Layer], Layer] | None,
) -> Graph:
    """Return the graph at one batch size, or an array of a few: it is asked for repeatedly."""
    sizes = np.array(batch, np.int64) if isinstance(batch, tuple) else batch
    return Graph(net.name, _nodes(net, sizes, adapt), dtype)


def checked_batch(batch_size: Any) -> Quantity:
    """Return a batch size as int or array of int64; raises SettingError."""
    if is_array(batch_size):
        array = whole_array(batch_size, MAX_COUNT)
        if array is not None:
            return array
    elif isinstance(batch_size, int) and not isinstance(batch_size, bool) and batch_size >= 1:
        return batch_size
    raise SettingError(f"batch_size: expected a whole number of 1 or more, got {shown(batch_size)}")


def infer_nodes(
    net: NetSpec, mistakes: Mistakes, batch: Quantity | None = None
) -> tuple[Node, ...]:
    """Return the nodes of a net in order, noting cycles and layers that do not fit.

    A layer below a mistake is left out, so that each mistake is noted once.
    """
    return _infer(net, batch, mistakes).nodes


def _infer(
    net: NetSpec,
    batch: Quantity | None,
    mistakes: Mistakes,
    adapt: Callable[[Layer], Layer] | None = None,
) -> _Inferred:
    nodes: dict[str, Node] = {}
    most: Quantity = 0
    known: dict[Any, Node] = {}
    # Layers by identity, each with the first equal one: most are the same object.
    firsts: dict[int, tuple[Layer, int]] = {}
    equal: dict[Layer, int] = {}
    noted: set[tuple[str, str]] = set()
    has_arrays = is_array(batch)
    for spec in parents_first(net, mistakes):
        try:
            parents = [nodes[parent] for parent in spec.parents]
        except KeyError:  # one with a mistake
            continue
        found = firsts.get(id(spec.layer))
        if found is None:
            layer = adapt(spec.layer) if adapt else spec.layer
            found = layer, equal.setdefault(layer, len(equal))
            firsts[id(spec.layer)] = found
        layer, number = found
        inputs = tuple([parent.output for parent in parents])
        key = (number, spec.dtype, tuple(map(by_identity, inputs)) if has_arrays else inputs)
        like = known.get(key)
        try:
            output = like.output if like else layer.infer_shape(inputs)
            if not like:
                if layer.is_input:
                    output = _with_batch(output, batch, nodes)
                most = max(most, check_size(layer, inputs, output))
        except ShapeError as error:
            # The slices of one layer share their mistake, as do the instances of a repeated block.
            in_file = net.in_file(spec.origin)
            mistake = (in_file, str(error))
            if mistake not in noted:
                noted.add(mistake)
                is_first = in_file.replace("/*/", "/0/") == spec.origin
                mistakes.add(str(error), in_file if is_first else spec.origin, error.key)
            continue
        indices = tuple([parent.index for parent in parents])
        index = len(nodes)
        node = Node(
            index, spec.name, layer, spec.shard, indices, inputs, output,
            like.index if like else index, dtype=spec.dtype,
        )  # fmt: skip
        if not like:
            known[key] = node
        nodes[spec.name] = node
    for spec in net.layers:
        if spec.shares in nodes and spec.name in nodes:
            nodes[spec.name] = _sharing(nodes[spec.name], nodes[spec.shares])
    return _Inferred(tuple(nodes.values()), most)


def _sharing(node: Node, owner: Node) -> Node:
    """Return the node without the parameters that are counted in their owner."""
    own, theirs = (each.layer.num_params(each.inputs) for each in (node, owner))
    return replace(node, shared_params=min(own, theirs), owner=owner.index)


def _with_batch(shape: Shape, batch: Quantity | None, nodes: dict[str, Node]) -> Shape:
    """Return an input's shape at this batch; raises ShapeError if other inputs have another."""
    if batch is not None:
        return (batch, *shape[1:])
    first = next((node for node in nodes.values() if node.layer.is_input), None)
    if first is not None and first.output[0] != shape[0]:
        raise ShapeError(
            f"its batch of {shape[0]} is not that of {first.name}, {first.output[0]}", "tensor"
        )
    return shape
