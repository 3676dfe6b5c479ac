"""Pointwise operations that run in the kernel before them: what compilers of nets do.

Frameworks run one kernel for each operation, unless told to compile the net. Then (PyTorch's
TorchInductor, "Getting Started" of torch.compiler; XLA; Apache TVM, docs/arch/fusion) an operation
that takes each element by itself runs at the end of the kernel that makes its input: what is
between the two is neither written to memory nor read again, and a launch is saved. The rule here:

- A bias, an activation, a scale, dropout, an elementwise function of several tensors and, in
  inference, a batch normalization run in the kernel before. That is one of a convolution, a
  product, a normalization, a softmax or another of these, of the same size, on the same device.
- They do if nobody else reads what is between the two. An elementwise function of several
  tensors runs in the kernel of the one that is made last, and reads the others.
- In training, what is between is written all the same where the backward pass needs it
  (`Layer.keeps`), and not read again.
- In the backward pass the same holds of gradients: that of a pointwise layer runs in the kernel
  that makes the gradient of its output, if one layer alone reads that output. Where parameters'
  gradients need what is between, it is written. Batch normalizations in training and sums over
  elements begin a kernel.
- A batch normalization in training finds its statistics summed up by the kernel that made its
  input (cuDNN, CUDNN_FUSED_SCALE_BIAS_ACTIVATION_CONV_BNSTATS), and moves several elements at a
  time, as the kernels for channels last of NVIDIA's frameworks do.

The bytes that are left are those of the operations; cost models price them as Fused.

That is `Fusion.ALL`. Frameworks do less: a product of one of NVIDIA's libraries adds its own bias
(`Fusion.BIAS`: PyTorch's addmm by cuBLASLt's epilogue), and TorchInductor leaves products to those
libraries and fuses among all others (`Fusion.STREAMS`). XLA expands batch normalizations to
functions of elements, so that what follows them is in their kernels (`Fusion.NORMS`).
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from paleo.core.frozen import NamedTuple
from paleo.core.kinds import Fusion
from paleo.core.operations import PRODUCTS, Fused, Kind, MatMul, Operation, Pass, Stream
from paleo.core.quantity import product
from paleo.core.tensor import num_elements
from paleo.net.compiled import compiled_forward
from paleo.net.graph import Graph, Node
from paleo.net.handled import without_casts
from paleo.net.layers import Layer
from paleo.net.layers.base import MemoryNeeds, is_one
from paleo.net.layers.pointwise import Activation

#: What stands for a bias among the parts of a layer.
_BIAS = Activation(function="affine")


class FusedPass(NamedTuple):
    """The operations of each node in each direction of a pass.

    `into` says of the nodes of which something runs in another's kernel in which one's.
    """

    operations: Mapping[Pass, Sequence[tuple[Operation, ...]]]
    into: Mapping[int, int]


class _Taken(NamedTuple):
    """An operation that runs in the kernel of another.

    It still reads its operands at `others`, and gives its first result in the place of the kernel's
    own; if somebody wants what is between the two, which is as large as what the node `between`
    gives, that is written, too.
    """

    operation: Operation
    others: tuple[int, ...]
    between: Node | None

    @property
    def key(self) -> Hashable:
        """What equal ones have in common, if equal nodes share their operations."""
        between = self.between and self.between.like
        return id(self.operation), self.others, between

    def stream(self, element_size: int) -> Stream:
        """Return the operation with the bytes that are left of it."""
        operation = self.operation
        reads, writes = operation.reads, operation.writes[1:]
        if self.between:
            writes = (element_size * num_elements(self.between.output), *writes)
        roles = operation.read_roles
        assert isinstance(operation, Stream)  # as all pointwise ones are
        return replace(
            operation,
            reads=tuple(reads[place] for place in self.others),
            writes=writes,
            roles=tuple(roles[place] for place in self.others),
        )


@dataclass(eq=False, slots=True)
class _Kernel:
    """A kernel as it grows."""

    node: Node
    head: Operation
    tail: list[_Taken] = field(default_factory=list)


class _Kernels:
    """The kernels of a pass, by the node that begins them."""

    def __init__(self, graph: Graph) -> None:
        self._element_size = graph.element_size
        self._of: list[list[_Kernel]] = [[] for _ in graph.nodes]

    def begin(self, node: Node, operation: Operation) -> _Kernel:
        kernel = _Kernel(node, operation)
        self._of[node.index].append(kernel)
        return kernel

    def finished(self) -> list[tuple[Operation, ...]]:
        """Return the operations of each node; equal kernels are one and the same."""
        known: dict[Hashable, Operation] = {}

        def finished(kernel: _Kernel) -> Operation:
            if not kernel.tail:
                return kernel.head
            key = id(kernel.head), *(taken.key for taken in kernel.tail)
            if key not in known:
                tail = tuple(taken.stream(self._element_size) for taken in kernel.tail)
                known[key] = Fused(kernel.head, tail)
            return known[key]

        return [tuple(map(finished, own)) for own in self._of]


class _Traits(NamedTuple):
    """What of a node tells with which others it can be fused, in training or in inference.

    `is_view` tells whether it hands its input on as it is. `size` is the elements of a sample of
    what it gives, and whether it gives those of one sample alone.
    """

    is_view: bool
    is_pointwise: bool
    size: tuple[int, bool]


def _is_pointwise(layer: Layer, training: bool) -> bool:
    return layer.is_pointwise or (layer.takes_statistics and not training)


def _all_traits(graph: Graph, training: bool) -> list[_Traits]:
    """Return those of each node."""
    return [graph.of_equal(_traits, node, training) for node in graph.nodes]


def _traits(graph: Graph, node: Node, training: bool) -> _Traits:
    layer = node.layer
    return _Traits(
        layer.is_view or (layer.is_training_only and not training),
        _is_pointwise(layer, training),
        (int(product(node.output[1:])), is_one(node.output[0])),
    )


@dataclass(eq=False, slots=True)
class _Tensor:
    """What a node gives. Views of it are the same tensor."""

    node: Node
    #: The elements of it, as in `_Traits`.
    size: tuple[int, bool]
    #: The nodes that read it, by their indices.
    readers: list[int]

    def is_only_of(self, node: Node) -> bool:
        """Tell whether this node alone reads it, on the device where it is."""
        return self.readers == [node.index] and self.node.shard == node.shard


def _tensors(graph: Graph, training: bool) -> list[_Tensor]:
    """Return the tensor of each node, with those who read it."""
    found: list[_Tensor] = []
    for node, traits in zip(graph.nodes, graph.once(_all_traits, training), strict=True):
        if traits.is_view:
            found.append(found[node.parents[0]])
            continue
        index = node.index
        for parent in node.parents:
            readers = found[parent].readers
            if not readers or readers[-1] != index:  # once, however often it reads it
                readers.append(index)
        found.append(_Tensor(node, traits.size, []))
    return found


def inference_forward(graph: Graph) -> FusedPass:
    """Return the forward pass of inference, with nothing fused.

    Batch normalizations know their statistics, and read their input once; dropout does nothing.
    """
    kernels = _Kernels(graph)
    for node in graph.nodes:
        if not node.layer.is_training_only:
            for step in graph.of_equal(_steps, node, False):
                kernels.begin(node, step.operation)
    return FusedPass({Pass.FORWARD: kernels.finished()}, {})


def fused_forward(graph: Graph, *, training: bool = True, fusion: Fusion = Fusion.ALL) -> FusedPass:
    """Return the forward pass with pointwise operations in the kernels before them.

    Without `training` no backward pass follows: nothing is kept for it, and layers do what
    `inference_forward` says.
    """
    if fusion is Fusion.STREAMS and not training:
        found = graph.once(compiled_forward)
        return FusedPass({Pass.FORWARD: found.operations}, found.into)
    if fusion is Fusion.STREAMS:
        graph = graph.once(without_casts)
    return graph.once(_forward, training, fusion)


def _takes(kernel: _Kernel, fusion: Fusion) -> bool:
    """Tell whether a kernel takes on what reads its result."""
    if isinstance(kernel.head, PRODUCTS):
        return fusion is Fusion.ALL
    if fusion is Fusion.NORMS:
        return kernel.head.kind is Kind.BATCH_NORM
    return fusion is not Fusion.BIAS


def _takes_own(kernel: _Kernel, step: _Step, fusion: Fusion) -> bool:
    """Tell whether a kernel takes on what follows in the same layer."""
    adds = isinstance(kernel.head, MatMul) and not kernel.tail and step.is_bias
    return (adds and fusion is not Fusion.NORMS) or _takes(kernel, fusion)


def _forward(graph: Graph, training: bool, fusion: Fusion) -> FusedPass:
    kernels, tensors = _Kernels(graph), graph.once(_tensors, training)
    #: The kernels that take on more, by the node whose tensor they make, and the tensors that the
    #: backward pass of their own nodes needs.
    made_by: dict[int, _Kernel] = {}
    kept_outputs: set[int] = set()
    into: dict[int, int] = {}
    learning: list[bool] = []
    for node, traits in zip(graph.nodes, graph.once(_all_traits, training), strict=True):
        needed = tuple([training and learning[parent] for parent in node.parents])
        kept = graph.of_equal(_keeps, node, needed)
        learns = training and not kept.ends and (any(needed) or node.is_trained)
        learning.append(learns)
        if traits.is_view:
            continue
        inputs = [tensors[parent] for parent in node.parents]
        kernel: _Kernel | None = None
        for step in graph.of_equal(_steps, node, training):
            operation = step.operation
            if not step.is_pointwise:
                if node.layer.takes_statistics and fusion is Fusion.ALL:
                    is_summed = inputs[0].node.index in made_by
                    (operation,) = graph.of_equal(_in_wide_steps, node, Pass.FORWARD, is_summed)
                kernel = kernels.begin(node, operation)
            elif kernel and _takes_own(kernel, step, fusion):
                # Nobody else reads what is between the parts of a layer.
                kernel.tail.append(_Taken(operation, (), node if learns and step.is_kept else None))
            elif not kernel and (before := _before(node, traits, inputs, made_by)):
                kernel = made_by[before.node.index]
                own = [each is before for each in inputs]
                is_kept = learns and any(own[k] for k in kept.inputs)
                wanted = is_kept or before.node.index in kept_outputs
                others = tuple(k for k, is_own in enumerate(own) if not is_own)
                kernel.tail.append(_Taken(operation, others, before.node if wanted else None))
                into[node.index] = kernel.node.index
            else:
                kernel = kernels.begin(node, operation)
        if node.layer.leads and kernel and _takes(kernel, fusion):
            made_by[node.index] = kernel
            if learns and kept.output:
                kept_outputs.add(node.index)
    return FusedPass({Pass.FORWARD: kernels.finished()}, into)


class _Step(NamedTuple):
    """An operation of the forward pass of a node.

    `is_kept` tells whether the backward pass needs what it reads, if that is made in the node.
    """

    operation: Operation
    is_pointwise: bool
    is_kept: bool
    is_bias: bool = False


def _steps(graph: Graph, node: Node, training: bool) -> list[_Step]:
    """Return the operations of the forward pass of a node."""
    operations, parts = graph.operations(node, Pass.FORWARD), node.layer.parts
    before = node.num_weight_casts + (node.elements.num_casts if node.elements else 0)
    before += len(node.copied or ()) + (node.scaled.num_casts if node.scaled else 0)
    found = [_Step(operation, False, False) for operation in operations[:before]]
    operations = operations[before:]
    layers = [node.layer] * len(operations)
    if node.layer.adds_bias:
        layers = [parts[0], *[_BIAS] * (len(operations) - len(parts)), *parts[1:]]
    for layer, operation in zip(layers, operations, strict=True):
        if layer.takes_statistics and not training:  # nothing is read for statistics
            assert isinstance(operation, Stream)
            operation = replace(operation, reads=operation.reads[:1], roles=operation.roles[:1])
        pointwise = _is_pointwise(layer, training)
        kept = pointwise and found and layer is not _BIAS and _keeps_made(graph, node, layer).inputs
        found.append(_Step(operation, pointwise, bool(kept), layer is _BIAS))
    return found


def _in_wide_steps(
    graph: Graph, node: Node, direction: Pass, is_summed: bool, *wanted: tuple[bool, ...]
) -> tuple[Operation, ...]:
    """Return a pass of a normalization that moves several elements at a time.

    If its statistics were summed up before, it reads its input once.
    """
    found = []
    for operation in graph.operations(node, direction, *wanted):
        assert isinstance(operation, Stream)
        once = slice(1 if is_summed else None)
        reads, roles = operation.reads[once], operation.roles[once]
        found.append(replace(operation, reads=reads, roles=roles, width=0))
    return tuple(found)


def _keeps(graph: Graph, node: Node, needed: tuple[bool, ...]) -> MemoryNeeds:
    """Return what the first part of a node keeps of its inputs, and the last of its output."""
    parts = node.layer.parts
    first = last = parts[0].keeps(node.inputs, graph.element_size, needed)
    if len(parts) > 1:
        last = _keeps_made(graph, node, parts[-1])
    return MemoryNeeds(first.inputs, last.output, ends=first.ends)


def _keeps_made(graph: Graph, node: Node, part: Layer) -> MemoryNeeds:
    """Return what a later part of a node, which reads what the node made, keeps."""
    return part.keeps((node.output,), graph.element_size, (True,))


def _before(
    node: Node, traits: _Traits, inputs: list[_Tensor], made_by: Mapping[int, _Kernel]
) -> _Tensor | None:
    """Return what a node reads that a kernel makes in which it can run: the last of them."""
    found = [
        each
        for each in inputs
        if each.node.index in made_by and each.size == traits.size and each.is_only_of(node)
    ]
    return max(found, key=lambda each: each.node.index, default=None)


def fused_backward(
    graph: Graph, needed: Sequence[tuple[bool, ...]], fusion: Fusion = Fusion.ALL
) -> FusedPass:
    """Return the backward pass with gradients of pointwise layers in the kernels before them.

    `needed` tells for each node of which of its inputs somebody needs the gradient.
    """
    if fusion is Fusion.STREAMS:
        graph = graph.once(without_casts)
    return graph.once(_backward, tuple(needed), fusion)


def _backward(graph: Graph, needed: tuple[tuple[bool, ...], ...], fusion: Fusion) -> FusedPass:
    to_inputs, to_weights = _Kernels(graph), _Kernels(graph)
    all_traits, tensors = graph.once(_all_traits, True), graph.once(_tensors, True)
    #: The kernels that take on more, by the node the gradient of whose tensor they make.
    made_by: dict[int, _Kernel] = {}
    into: dict[int, int] = {}
    for node in reversed(graph.nodes):
        wanted = needed[node.index]
        inward = graph.operations(node, Pass.INPUT_GRADIENT, wanted)
        weights = graph.operations(node, Pass.WEIGHT_GRADIENT)
        if node.layer.takes_statistics and fusion is Fusion.ALL:
            inward = graph.of_equal(_in_wide_steps, node, Pass.INPUT_GRADIENT, False, wanted)
        # The kernel that makes the gradient of what the node gives.
        kernel = made_by.get(node.index)
        if kernel and _has_pointwise_gradient(node, wanted, inward, all_traits):
            (operation,) = inward
            kernel.tail.append(_Taken(operation, _but_first(operation), node if weights else None))
            into[node.index] = kernel.node.index
            made = [kernel]
        else:
            if kernel and any(part.is_pointwise for part in node.layer.parts[1:]):
                active = weights[1]  # it stands behind the filter's gradient
                weights = (weights[0], *weights[2:])
                kernel.tail.append(_Taken(active, _but_first(active), None))
                into[node.index] = kernel.node.index
            made = [to_inputs.begin(node, operation) for operation in inward]
        for operation in weights:
            to_weights.begin(node, operation)
        if node.layer.leads:
            inputs = [tensors[parent] for parent in node.parents]
            if node.scaled:  # casts to fp8 stand before the product
                inward, made = inward[-1:], made[-1:]
            read = list(itertools.compress(inputs, wanted))
            makers = _makers(node, read, inward, made)
            made_by.update({i: each for i, each in makers.items() if _takes(each, fusion)})
    return FusedPass(
        {Pass.INPUT_GRADIENT: to_inputs.finished(), Pass.WEIGHT_GRADIENT: to_weights.finished()},
        into,
    )


def _but_first(operation: Operation) -> tuple[int, ...]:
    """Return the places of all operands but the first."""
    return tuple(range(1, len(operation.reads)))


def _has_pointwise_gradient(
    node: Node,
    wanted: tuple[bool, ...],
    inward: tuple[Operation, ...],
    all_traits: Sequence[_Traits],
) -> bool:
    """Tell whether the gradient of a node's inputs is one operation, element by element."""
    own = all_traits[node.index]
    if len(inward) != 1 or not own.is_pointwise:
        return False
    first = node.parents[wanted.index(True)]
    return len(inward[0].writes) == sum(wanted) and own.size == all_traits[first].size


def _makers(
    node: Node, read: list[_Tensor], inward: tuple[Operation, ...], made: list[_Kernel]
) -> dict[int, _Kernel]:
    """Return which kernels make the gradients of what a node reads, where no other node does."""
    if len(inward) == 1 and len(inward[0].writes) == len(read):
        made = made * len(read)  # one makes all
    if len(made) != len(read):
        return {}
    return {
        tensor.node.index: kernel
        for tensor, kernel in zip(read, made, strict=True)
        if tensor.is_only_of(node) and sum(each is tensor for each in read) == 1
    }
