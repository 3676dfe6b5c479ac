"""Kernels that a compiler of nets makes of a forward pass of inference: TorchInductor's rules.

TorchInductor leaves products, convolutions and attention to libraries, and generates kernels for
all else (PyTorch, torch/_inductor/scheduler.py, ir.py, lowering.py). A generated kernel holds as
many operations as fit: it reads each tensor once, and writes what others read.

- An operation joins the kernel that makes what it reads, if both run over as many elements, and
  if what it sums up are rows of the same length: those of a normalization, a softmax, a mean.
- Several kernels that make what an operation reads become one with it.
- A kernel of which another has read something takes on only what needs nothing made since.
- What is smaller and takes each element by itself is computed again by its only reader.
- Casts are no kernels: what all others read in halves is written in halves. Copies into another
  order and what else moves elements are where a kernel reads or writes.
- Tensors that are joined are written into their places by the kernels that make them, if nothing
  else reads them; others are copied there.
- A pooling of windows reads what was written, and takes on what follows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from paleo.core.frozen import NamedTuple
from paleo.core.operations import (
    PRODUCTS,
    Convolution,
    Fused,
    Kind,
    MatMul,
    Operation,
    Pass,
    Pooling,
    Role,
    Stream,
)
from paleo.core.quantity import Quantity, is_array, largest, minimum, product, total
from paleo.core.tensor import Shape, num_elements
from paleo.net.graph import Graph, Node
from paleo.net.layers.base import is_one
from paleo.net.views import is_view


class _Size(NamedTuple):
    """Elements of a sample, and whether there are as many for each."""

    is_batched: bool
    elements: int


def _size(shape: Shape) -> _Size:
    return _Size(not is_one(shape[0]), int(product(shape[1:])))


@dataclass(eq=False, slots=True)
class _Tensor:
    """What a step gives: so many elements of `num_bytes` each, made by a kernel or a library.

    `at` is when it is there, of what no kernel makes. `wanted` are the bytes of an element as
    other kernels read it, 0 where none does.
    """

    size: _Size
    elements: Quantity
    num_bytes: int
    at: int = 0
    kernel: _Kernel | None = None
    wanted: int = 0
    is_used: bool = False

    @property
    def stored(self) -> int:
        """Bytes of an element in memory."""
        return min(self.num_bytes, self.wanted or self.num_bytes) if self.kernel else self.num_bytes


class _Part(NamedTuple):
    """What is read of a tensor: all or some of its elements, as `num_bytes` each."""

    tensor: _Tensor
    size: _Size
    elements: Quantity
    num_bytes: int


class _Domain(NamedTuple):
    """What a kernel or a step runs over, in rows of so many elements that it sums up, 0 for none.

    `left` is what the sums of these rows leave.
    """

    size: _Size
    row: int = 0
    left: _Size | None = None


@dataclass(eq=False, slots=True)
class _Kernel:
    """A generated kernel as it grows. `read_at` is when another first reads what it makes."""

    node: Node
    domain: _Domain
    steps: list[Operation] = field(default_factory=list)
    reads: list[_Part] = field(default_factory=list)
    again: list[Quantity] = field(default_factory=list)
    makes: list[_Tensor] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)
    read_at: int | None = None
    into: _Kernel | None = None

    def found(self) -> _Kernel:
        """Return the kernel that this one has become part of."""
        return self if self.into is None else self.into.found()

    def take(self, other: _Kernel) -> None:
        """Make another kernel, of which nobody else has read, part of this one."""
        other.into = self
        self.steps = other.steps + self.steps
        self.reads = other.reads + self.reads
        self.again += other.again
        self.makes = other.makes + self.makes
        self.nodes = other.nodes + self.nodes
        if other.domain.row:
            self.domain = self.domain._replace(row=other.domain.row, left=other.domain.left)


#: Times of a convolution channels last beside the other order, as TorchInductor weighs them: one of
#: groups, one with few channels, one of large windows that gives at most half of what it takes, and
#: any other (torch/_inductor/graph.py, decide_layout_opt).
_GROUPED, _SMALL, _NARROWING, _OTHER = 1.358, 0.783, 0.725, 0.823
#: Channels of a convolution with few.
_FEW = 64


def gains_channels_last(graph: Graph) -> bool:
    """Tell whether TorchInductor has a net's images lie channels last: if it weighs that as less.

    It weighs by FLOPs. Convolutions whose groups are single channels are not of groups there.
    """
    whole = weighed = 0.0
    for node in graph.nodes:
        for each in graph.operations(node, Pass.FORWARD):
            if isinstance(each, Convolution) and not each.transposed:
                flops = float(largest(each.flops))
                whole += flops
                weighed += flops * _weight(each)
    return weighed <= whole


def _weight(operation: Convolution) -> float:
    taken, given = operation.in_channels // operation.groups, operation.out_channels
    if operation.groups > 1 and taken > 1:
        return _GROUPED
    if max(taken, given) <= _FEW:
        return _SMALL
    return _NARROWING if 2 * given <= taken and operation.window_elements > 1 else _OTHER


class CompiledPass(NamedTuple):
    """The operations of each node, and of those that run in another's kernel in which one's."""

    operations: list[tuple[Operation, ...]]
    into: dict[int, int]


def compiled_forward(graph: Graph) -> CompiledPass:
    """Return the kernels of a forward pass of inference; see the module."""
    return _Compiler(graph).run()


class _Compiler:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._clock = 1
        self._kernels: list[_Kernel] = []
        self._of: list[list[Operation | _Kernel]] = [[] for _ in graph.nodes]
        self._results: list[_Part] = []
        self._readers = [0] * len(graph.nodes)
        for node in graph.nodes:
            for parent in set(node.parents):
                self._readers[parent] += 1

    def run(self) -> CompiledPass:
        for node in self._graph.nodes:
            self._results.append(self._node(node))
        known: dict[Operation, Operation] = {}
        keeps = not any(is_array(node.output[0]) for node in self._graph.nodes)

        def finished(own: Iterable[Operation | _Kernel]) -> Iterator[Operation]:
            for each in own:
                if isinstance(each, _Kernel):
                    if each.into is None:
                        made = _operation(each)
                        yield known.setdefault(made, made) if keeps else made
                else:
                    yield each

        operations = [tuple(finished(own)) for own in self._of]
        into = {
            index: kernel.node.index
            for kernel in self._kernels
            if kernel.into is None
            for index in kernel.nodes
            if index != kernel.node.index
        }
        return CompiledPass(operations, into)

    def _node(self, node: Node) -> _Part:
        """Add what a node does, and return what it gives."""
        layer, elements, count = node.layer, node.elements, num_elements(node.output)
        size = elements.computing if elements else self._graph.element_size
        if not node.parents:
            made = _Tensor(_size(node.output), count, size)
            return _Part(made, made.size, count, size)
        parts = list(self._parts(node, size))
        if layer.joins:
            return self._joined(node, parts, size)
        first = parts[0]
        if (node.copied is not None and is_view(layer, node.inputs)) or layer.is_view:
            return first._replace(size=_size(node.output), elements=minimum(count, first.elements))
        if layer.is_training_only:
            return first
        steps = self._graph.operations(node, Pass.FORWARD)
        self._of[node.index] += steps[: node.num_weight_casts]
        before = node.num_weight_casts + (elements.num_casts if elements else 0)
        steps = steps[before + len(node.copied or ()) :]
        if node.scaled:  # kernels of their own
            self._of[node.index] += steps[: node.scaled.num_casts]
            steps = steps[node.scaled.num_casts :]
        if any(isinstance(each, PRODUCTS) for each in steps):
            parts = [self._written(node, part, size) for part in parts]
        for step in steps:
            if isinstance(step, PRODUCTS):
                self._of[node.index].append(step)
                self._clock += 1
                made = _Tensor(_size(node.output), count, size, self._clock)
            elif self._ends_in_product(node) and step.kind is Kind.BIAS:
                own = self._of[node.index]
                own[-1] = Fused(own[-1], (_silent(step),))  # type: ignore[arg-type]
                continue
            else:
                made = self._step(node, step, parts, count, size)
            parts = [_Part(made, made.size, count, size)]
        return parts[0] if steps else first

    def _ends_in_product(self, node: Node) -> bool:
        own = self._of[node.index]
        return bool(own) and isinstance(own[-1], MatMul)

    def _parts(self, node: Node, size: int) -> Iterator[_Part]:
        """Yield what a node reads, cast and copied where a kernel has to."""
        elements, copied = node.elements, node.copied or ()
        is_moved = is_view(node.layer, node.inputs) or self._is_library(node)
        for place, parent in enumerate(node.parents):
            part = self._results[parent]
            if elements and elements.casts:
                part = part._replace(num_bytes=min(size, part.num_bytes))
            if place in copied and is_moved:
                part = self._moved(node, part, part.num_bytes)
            yield part

    def _is_library(self, node: Node) -> bool:
        found = self._graph.operations(node, Pass.FORWARD)
        return any(isinstance(each, PRODUCTS) for each in found)

    def _moved(self, node: Node, part: _Part, num_bytes: int) -> _Part:
        """Return what a kernel writes as other bytes or in another order."""
        moved = (part.elements * num_bytes,)
        step = Stream(Kind.COPY, moved, moved, label="copy")
        made = self._step(node, step, [part], part.elements, num_bytes, part.size)
        return _Part(made, made.size, part.elements, num_bytes)

    def _written(self, node: Node, part: _Part, size: int) -> _Part:
        """Return what a library reads, in the type in which it does."""
        tensor = part.tensor
        if tensor.kernel is None and tensor.num_bytes != size:
            part = self._moved(node, part, size)
        part = part._replace(num_bytes=size)
        self._read(part)
        return part

    def _joined(self, node: Node, parts: Sequence[_Part], size: int) -> _Part:
        for parent, part in zip(node.parents, parts, strict=True):
            tensor = part.tensor
            is_whole = part.size == tensor.size and self._readers[parent] == 1
            if not (is_whole and tensor.kernel and not tensor.wanted):
                part = self._moved(node, part, size)
            self._read(part)
        self._clock += 1
        count = num_elements(node.output)
        made = _Tensor(_size(node.output), count, size, self._clock)
        return _Part(made, made.size, count, size)

    def _read(self, part: _Part) -> None:
        """Note that something outside its kernel reads a tensor."""
        tensor = part.tensor
        tensor.wanted = max(tensor.wanted, part.num_bytes)
        if tensor.kernel is not None:
            kernel = tensor.kernel.found()
            if kernel.read_at is None:
                self._clock += 1
                kernel.read_at = self._clock

    def _step(
        self,
        node: Node,
        step: Operation,
        parts: Sequence[_Part],
        count: Quantity,
        num_bytes: int,
        size: _Size | None = None,
    ) -> _Tensor:
        """Add an operation to a kernel, new or old, and return what it gives."""
        made = _Tensor(size or _size(node.output), count, num_bytes)
        domain = _domain(step, parts, made.size, num_bytes)
        kernel = None if _has_windows(step) else self._fitting(node, domain, parts)
        if kernel is None:
            kernel = _Kernel(node, domain)
            self._kernels.append(kernel)
            self._of[node.index].append(kernel)
        if domain.row:
            kernel.domain = kernel.domain._replace(row=domain.row, left=domain.left)
        for part in parts:
            if part.tensor.kernel is None or part.tensor.kernel.found() is not kernel:
                self._read(part)
                kernel.reads.append(part)
            part.tensor.is_used = True
        kernel.again += [
            size
            for role, size in zip(step.read_roles, step.reads, strict=True)
            if role is Role.AGAIN
        ]
        if node.layer.takes_statistics:
            kernel.again.clear()
        kernel.steps.append(step)
        kernel.nodes.append(node.index)
        kernel.makes.append(made)
        made.kernel = kernel
        return made

    def _fitting(self, node: Node, domain: _Domain, parts: Sequence[_Part]) -> _Kernel | None:
        """Return the kernel that a step joins, one with all others that it can be; or None."""
        fitting: list[_Kernel] = []
        for parent, part in zip((*node.parents, *[-1] * len(parts)), parts, strict=False):
            if part.tensor.kernel is None or part.size != part.tensor.size:
                continue
            kernel = part.tensor.kernel.found()
            own = self._joins(kernel, domain, part)
            again = (
                not kernel.domain.row
                and kernel.read_at is None
                and self._readers[parent] == 1
                and kernel.domain.size <= domain.size
            )
            if (own or again) and kernel not in fitting:
                fitting.append(kernel)
        open_ones = [each for each in fitting if each.read_at is None]
        if not open_ones:
            return next((each for each in fitting if self._is_early(parts, each)), None)
        *others, kernel = open_ones
        rows = {each.domain.row for each in open_ones} | {domain.row}
        if len(rows - {0}) > 1:
            others = []
            if len({kernel.domain.row, domain.row} - {0}) > 1:
                return None
        for other in others:
            kernel.take(other)
        if kernel.domain.size < domain.size and domain.size != kernel.domain.left:
            kernel.domain = kernel.domain._replace(size=domain.size)
        return kernel

    def _joins(self, kernel: _Kernel, domain: _Domain, part: _Part) -> bool:
        own = kernel.domain
        if own.size == domain.size:
            return not (own.row and domain.row) or own.row == domain.row
        return domain.row == 0 and own.left == domain.size == part.size

    def _is_early(self, parts: Sequence[_Part], kernel: _Kernel) -> bool:
        """Tell whether all that a step reads besides is there before others read a kernel."""
        assert kernel.read_at is not None
        for part in parts:
            maker = part.tensor.kernel and part.tensor.kernel.found()
            if maker is kernel:
                continue
            at = part.tensor.at if maker is None else maker.read_at
            if at is None or at > kernel.read_at:
                return False
        return True


def _has_windows(step: Operation) -> bool:
    return isinstance(step, Pooling) and any(axis.output > 1 for axis in step.axes)


def _domain(step: Operation, parts: Sequence[_Part], made: _Size, num_bytes: int) -> _Domain:
    """Return what a step runs over: what it gives, or what it sums up."""
    largest = max((part.size for part in parts), default=made)
    if step.kind is Kind.REDUCTION or (isinstance(step, Pooling) and not _has_windows(step)):
        return _Domain(largest, max(largest.elements // max(made.elements, 1), 1), made)
    if isinstance(step, Stream) and step.passes > 1:
        return _Domain(made, int(step.row // num_bytes))
    if Role.AGAIN in step.read_roles and step.kind is not Kind.BATCH_NORM:
        return _Domain(made, made.elements)
    return _Domain(made)


def _silent(step: Operation) -> Stream:
    """Return an operation whose operands stay in its kernel."""
    if isinstance(step, Stream):
        return replace(step, reads=(), writes=(), roles=())
    return Stream(step.kind, (), (), flops=step.flops, label=step.name)


def _operation(kernel: _Kernel) -> Operation:
    """Return a kernel as an operation: one of its own, with what it reads and writes, and a tail.

    That one is what sums rows up, if something does.
    """
    taken: dict[int, list[_Part]] = {}
    for part in kernel.reads:
        if part.tensor.kernel is None or part.tensor.kernel.found() is not kernel:
            taken.setdefault(id(part.tensor), []).append(part)
    reads = []
    for parts in taken.values():
        tensor = parts[0].tensor
        whole = any(part.size == tensor.size for part in parts)
        some = tensor.elements if whole else total(part.elements for part in parts)
        reads.append(tensor.stored * minimum(some, tensor.elements))
    writes = tuple(
        tensor.stored * tensor.elements
        for tensor in kernel.makes
        if tensor.wanted or not tensor.is_used
    )
    head = next(
        (each for each in kernel.steps if isinstance(each, Stream) and each.passes > 1),
        kernel.steps[0],
    )
    tail = tuple(_silent(each) for each in kernel.steps if each is not head)
    if not isinstance(head, Stream):
        if tail:
            first = replace(tail[0], reads=tuple(reads[1:]), writes=writes[1:])
            return Fused(head, (first, *tail[1:]))
        return head
    roles = (Role.INPUT, *[Role.EARLIER_INPUT] * (len(reads) - 1))[: len(reads)]
    head = replace(
        head,
        reads=(*reads, *kernel.again),
        writes=writes,
        roles=(*roles, *[Role.AGAIN] * len(kernel.again)),
    )
    return Fused(head, tail) if tail else head
