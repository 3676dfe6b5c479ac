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

The bytes that are left are those of the operations; cost models price them as Fused.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from paleo.graph import Graph, Node
from paleo.layers import Layer
from paleo.layers.base import is_one
from paleo.layers.convolution import Filtered
from paleo.layers.dense import Einsum, InnerProduct, MatMul
from paleo.layers.normalization import BatchNorm, Scale
from paleo.layers.parts import made_of
from paleo.layers.pointwise import Activation, Dropout, Elementwise, Pointwise, PReLU, Sigmoid
from paleo.layers.shaping import Flatten, Reshape
from paleo.quantity import Quantity, product
from paleo.tensor import num_elements
from paleo.work import Fused, Operation, Pass, Stream

__all__ = ["FusedPass", "fused_backward", "fused_forward", "inference_forward"]

#: The layers that take each element by itself.
_POINTWISE = (Activation, Dropout, Elementwise, PReLU, Scale, Sigmoid)
#: The layers whose kernels take on what is behind them.
_LEADING = (Filtered, InnerProduct, MatMul, Einsum, Pointwise, Elementwise)
#: What stands for a bias among the parts of a layer.
_BIAS = Activation(function="affine")


class FusedPass(NamedTuple):
    """The operations of each node in each direction of a pass.

    `into` says of the nodes of which something runs in another's kernel in which one's.
    """

    operations: Mapping[Pass, Sequence[tuple[Operation, ...]]]
    into: Mapping[int, int]


@dataclass
class _Kernel:
    """A kernel as it grows."""

    node: Node
    head: Operation
    tail: list[Stream] = field(default_factory=list)

    def take(
        self, operation: Operation, others: tuple[Quantity, ...], between: Quantity | None
    ) -> None:
        """Run an operation in this kernel, which gives its first result in the place of its own.

        It still reads `others`, and writes its other results; and, if somebody wants what is
        `between` the two, so many bytes of that.
        """
        writes = operation.writes[1:] if between is None else (between, *operation.writes[1:])
        self.tail.append(Stream(operation.name, others, writes, operation.flops))


class _Kernels:
    """The kernels of a pass, by the node that begins them."""

    def __init__(self, graph: Graph) -> None:
        self._of: list[list[_Kernel]] = [[] for _ in graph.nodes]

    def begin(self, node: Node, operation: Operation) -> _Kernel:
        kernel = _Kernel(node, operation)
        self._of[node.index].append(kernel)
        return kernel

    def finished(self) -> list[tuple[Operation, ...]]:
        return [
            tuple(Fused(each.head, tuple(each.tail)) if each.tail else each.head for each in own)
            for own in self._of
        ]


@dataclass
class _Tensor:
    """What a node gives. Views of it are the same tensor."""

    node: Node
    #: The nodes that read it, by their indices.
    readers: list[int] = field(default_factory=list)
    #: The kernel that makes it, or its gradient, if that takes on more.
    kernel: _Kernel | None = None
    #: Whether the backward pass of its own node needs it.
    is_kept: bool = False

    def num_bytes(self, element_size: int) -> Quantity:
        return element_size * num_elements(self.node.output)

    def is_only_of(self, node: Node) -> bool:
        """Tell whether this node alone reads it, on the device where it is."""
        return self.readers == [node.index] and self.node.shard == node.shard


def _tensors(graph: Graph, training: bool) -> list[_Tensor]:
    """Return the tensor of each node, with those who read it."""
    found: list[_Tensor] = []
    for node in graph.nodes:
        if _is_view(node.layer, training):
            found.append(found[node.parents[0]])
            continue
        for index in dict.fromkeys(found[parent].node.index for parent in node.parents):
            found[index].readers.append(node.index)
        found.append(_Tensor(node))
    return found


def _is_view(layer: Layer, training: bool) -> bool:
    """Tell whether a layer hands its input on as it is."""
    return isinstance(layer, Reshape | Flatten) or (isinstance(layer, Dropout) and not training)


def _is_pointwise(layer: Layer, training: bool) -> bool:
    return isinstance(layer, _POINTWISE) or (isinstance(layer, BatchNorm) and not training)


def _leads(node: Node) -> bool:
    """Tell whether the kernels of a node take on what is behind them."""
    is_sum = isinstance(node.layer, Einsum) and len(node.parents) == 1
    return isinstance(node.layer, _LEADING) and not is_sum


def _alike(a: Node, b: Node) -> bool:
    """Tell whether two nodes give as many elements."""
    same: bool = product(a.output[1:]) == product(b.output[1:])
    return same and is_one(a.output[0]) == is_one(b.output[0])


def inference_forward(graph: Graph) -> FusedPass:
    """Return the forward pass of inference, with nothing fused.

    Batch normalizations know their statistics, and read their input once; dropout does nothing.
    """
    kernels = _Kernels(graph)
    for node in graph.nodes:
        if not isinstance(node.layer, Dropout):
            for _, operation in _steps(graph, node, made_of(node.layer), training=False):
                kernels.begin(node, operation)
    return FusedPass({Pass.FORWARD: kernels.finished()}, {})


def fused_forward(graph: Graph, *, training: bool = True) -> FusedPass:
    """Return the forward pass with its pointwise operations in the kernels before them.

    Without `training` no backward pass follows: nothing is kept for it, and layers do what
    `inference_forward` says.
    """
    size = graph.element_size
    tensors, kernels = _tensors(graph, training), _Kernels(graph)
    into: dict[int, int] = {}
    learning: list[bool] = []
    for node in graph.nodes:
        needed = tuple(training and learning[parent] for parent in node.parents)
        parts = made_of(node.layer)
        kept = parts[0].keeps(node.inputs, size, needed)
        learns = training and not kept.ends and (node.is_trained or any(needed))
        learning.append(learns)
        if _is_view(node.layer, training):
            continue
        inputs = [tensors[parent] for parent in node.parents]
        kernel: _Kernel | None = None
        for part, operation in _steps(graph, node, parts, training):
            if not _is_pointwise(part, training):
                kernel = kernels.begin(node, operation)
            elif kernel:  # nobody else reads what is between the parts of a layer
                wanted = learns and part is not _BIAS and _keeps_input(part, node, size)
                kernel.take(operation, (), size * num_elements(node.output) if wanted else None)
            elif before := _before(node, inputs):
                kernel = before.kernel
                assert kernel
                own = [each is before for each in inputs]
                wanted = before.is_kept or (learns and any(own[k] for k in kept.inputs))
                others = () if all(own) else _without(operation.reads, own)
                kernel.take(operation, others, before.num_bytes(size) if wanted else None)
                into[node.index] = kernel.node.index
            else:
                kernel = kernels.begin(node, operation)
        if _leads(node):
            if len(parts) > 1:
                kept = parts[-1].keeps((node.output,), size, (True,))
            tensors[node.index].kernel = kernel
            tensors[node.index].is_kept = learns and kept.output
    return FusedPass({Pass.FORWARD: kernels.finished()}, into)


def _steps(
    graph: Graph, node: Node, parts: tuple[Layer, ...], training: bool
) -> Iterator[tuple[Layer, Operation]]:
    """Yield the operations of the forward pass, each with the layer that it is of."""
    operations = graph.operations(node, Pass.FORWARD)
    layers = [node.layer] * len(operations)
    if isinstance(node.layer, Filtered | InnerProduct):
        num_biases = len(operations) - len(parts)
        layers = [parts[0], *[_BIAS] * num_biases, *parts[1:]]
    for layer, operation in zip(layers, operations, strict=True):
        if isinstance(layer, BatchNorm) and not training:  # nothing is read for statistics
            reads = operation.reads[:1]
            operation = Stream(operation.name, reads, operation.writes, operation.flops)
        yield layer, operation


def _keeps_input(part: Layer, node: Node, size: int) -> bool:
    """Tell whether the backward pass of a later part of a node needs what the part reads."""
    return bool(part.keeps((node.output,), size, (True,)).inputs)


def _before(node: Node, inputs: list[_Tensor]) -> _Tensor | None:
    """Return what a node reads that a kernel makes in which it can run: the last of them."""
    found = [
        each for each in inputs if each.kernel and each.is_only_of(node) and _alike(each.node, node)
    ]
    return max(found, key=lambda each: each.node.index, default=None)


def _without(sizes: tuple[Quantity, ...], own: list[bool]) -> tuple[Quantity, ...]:
    return tuple(size for size, is_own in zip(sizes, own, strict=True) if not is_own)


def fused_backward(graph: Graph, needed: Sequence[tuple[bool, ...]]) -> FusedPass:
    """Return the backward pass with gradients of pointwise layers in the kernels before them.

    `needed` tells for each node of which of its inputs somebody needs the gradient.
    """
    size = graph.element_size
    tensors = _tensors(graph, training=True)
    to_inputs, to_weights = _Kernels(graph), _Kernels(graph)
    into: dict[int, int] = {}
    for node in reversed(graph.nodes):
        own = tensors[node.index]
        wanted = needed[node.index]
        inward = graph.operations(node, Pass.INPUT_GRADIENT, wanted)
        weights = list(graph.operations(node, Pass.WEIGHT_GRADIENT))
        # The kernel that makes the gradient of what the node gives.
        kernel = own.kernel if own.node is node else None
        if kernel and _has_pointwise_gradient(graph, node, wanted, inward):
            (operation,) = inward
            between = own.num_bytes(size) if weights else None
            kernel.take(operation, operation.reads[1:], between)
            into[node.index] = kernel.node.index
            made = [kernel]
        else:
            if kernel and isinstance(node.layer, Filtered) and node.layer.activation:
                active = weights.pop(1)  # it stands behind the filter's gradient
                kernel.take(active, active.reads[1:], None)
                into[node.index] = kernel.node.index
            made = [to_inputs.begin(node, operation) for operation in inward]
        for operation in weights:
            to_weights.begin(node, operation)
        if _leads(node):
            inputs = [tensors[parent] for parent in node.parents]
            _note_gradients(node, list(itertools.compress(inputs, wanted)), inward, made)
    return FusedPass(
        {
            Pass.INPUT_GRADIENT: to_inputs.finished(),
            Pass.WEIGHT_GRADIENT: to_weights.finished(),
        },
        into,
    )


def _has_pointwise_gradient(
    graph: Graph, node: Node, wanted: tuple[bool, ...], inward: tuple[Operation, ...]
) -> bool:
    """Tell whether the gradient of a node's inputs is one operation, element by element."""
    if not isinstance(node.layer, _POINTWISE) or len(inward) != 1:
        return False
    first = graph.nodes[node.parents[wanted.index(True)]]
    return len(inward[0].writes) == sum(wanted) and _alike(node, first)


def _note_gradients(
    node: Node, read: list[_Tensor], inward: tuple[Operation, ...], made: list[_Kernel]
) -> None:
    """Note which kernels make the gradients of what a node reads, where no other node does."""
    if len(inward) == 1 and len(inward[0].writes) == len(read):
        made = made * len(read)  # one makes all
    if len(made) == len(read):
        for tensor, kernel in zip(read, made, strict=True):
            if tensor.is_only_of(node) and sum(each is tensor for each in read) == 1:
                tensor.kernel = kernel
