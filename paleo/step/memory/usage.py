"""A step at a batch size: the bytes that are alive at each of its points."""

from __future__ import annotations

import functools
from collections.abc import Container, Iterable, Sequence
from itertools import accumulate
from typing import Any

from paleo.core.frozen import NamedTuple
from paleo.core.quantity import Array, Quantity, np, total
from paleo.core.tensor import num_elements
from paleo.net.graph import Graph
from paleo.step.matrices import matrices
from paleo.step.memory.liveness import Schedule, Tensor, scheduled
from paleo.step.optimizers import OPTIMIZERS, Matrices, Optimizer
from paleo.step.recompute import NOTHING, Recompute


class OfMicroBatch(NamedTuple):
    """Bytes of a micro-batch that has been forward, and of one that waits for gradients.

    `kept` are activations that the backward pass needs, `given` results that it does not. For
    gradients of parameters may be needed all that is kept but what losses judge, and the gradients
    that they are computed from.
    """

    kept: Quantity
    given: Quantity
    kept_for_weights: Quantity
    gradients_for_weights: Quantity


class Step:
    """One step: a forward pass and, with an `optimizer`, backward pass and update."""

    def __init__(
        self,
        graph: Graph,
        optimizer: Optimizer | None,
        schedule: Schedule | None = None,
        recompute: Recompute = NOTHING,
    ) -> None:
        """Find the sizes. `schedule`, of this net at another batch size, is used if it holds."""
        sizes = schedule.sizes(graph) if schedule else None
        if schedule is None or sizes is None:
            schedule = scheduled(graph, training=optimizer is not None, recompute=recompute)
            sizes = schedule.sizes(graph)
        assert sizes is not None
        self.graph, self.optimizer, self.schedule, self._sizes = graph, optimizer, schedule, sizes
        precision = graph.precision
        #: Bytes of a parameter, and of the copy that layers read in mixed precision: it is there
        #: from the layer's forward pass to its backward pass.
        self.weight_size, self.copy_size = precision.element_size, 0
        if optimizer and precision.is_mixed:
            self.weight_size, self.copy_size = precision.parameter_size, precision.element_size

    def sums(self, *, activations_only: bool = False) -> list[Any]:
        """Return the bytes that are alive at each point."""
        if activations_only:
            return self.alive(tensor for tensor in self.schedule.tensors if tensor.is_activation)
        weights = sum(self.weights)
        found = [weights + each for each in self.alive(self.schedule.tensors)]
        if not self.optimizer:
            return found
        return self.optimizer.added(
            found, self.schedule.num_params, self.weight_size, self.matrices
        )

    @property
    def matrices(self) -> Sequence[Matrices]:
        """The matrices that parameters are, node by node, where the optimizer goes by them."""
        by_matrix = self.optimizer is not None and self.optimizer.by_matrix
        return matrices(self.graph) if by_matrix else ()

    def alive(self, tensors: Iterable[Tensor]) -> list[Any]:
        """Return the bytes of those of these tensors that are alive at each point."""
        changes: list[Any] = [0] * (len(self.schedule.points) + 1)
        for tensor in tensors:
            size = self._size(tensor)
            changes[tensor.born] = changes[tensor.born] + size
            changes[tensor.dies + 1] = changes[tensor.dies + 1] - size
        return list(accumulate(changes[:-1]))

    @property
    def weights(self) -> list[int]:
        """The bytes of each node's parameters; in inference they may be stored in fewer bits."""
        params = self.schedule.num_params
        if self.optimizer:
            found = [self.weight_size * own for own in params]
            return self._with_copies(found) if self.graph.precision.scaling else found
        found = []
        for node, own in zip(self.graph.nodes, params, strict=True):
            whole = node.layer.num_params(node.inputs) if own else 1
            stored = node.layer.stored_bytes(node.inputs, self.weight_size) if own else 0
            found.append(stored * own // whole)  # without what is shared
        return found

    @property
    def copies(self) -> int:
        """The bytes of what layers read in the place of parameters, in fewer bits than these."""
        params = self.schedule.num_params
        return self.copy_size * sum(params) + sum(self.weights) - self.weight_size * sum(params)

    def _with_copies(self, sizes: list[int]) -> list[int]:
        from paleo.net.scaled import weight_copies  # here: most nets have no products in fp8

        return [size + more for size, more in zip(sizes, weight_copies(self.graph), strict=True)]

    def activations(self, point: Any) -> list[Quantity]:
        """Return the bytes of each node's activations at a point, or at each of an array."""
        found: list[Quantity] = [0] * len(self.graph.nodes)
        for tensor in self.schedule.tensors:
            if tensor.is_activation:
                alive = (tensor.born <= point) & (point <= tensor.dies)
                found[tensor.node] = found[tensor.node] + self._size(tensor) * alive
        return found

    @property
    def kept(self) -> Quantity:
        """The bytes of activations that the backward pass needs of the forward pass.

        Results that it does not need are whose who called. What is of parameters alone, such as a
        table of constants, is there once for all samples.
        """
        return total(map(self._size, self._kept()))

    def _kept(self) -> list[Tensor]:
        last = self.schedule.last_forward
        layers = [node.layer for node in self.graph.nodes]
        return [
            tensor
            for tensor in self.schedule.tensors
            if tensor.is_activation and not tensor.is_result and tensor.born <= last < tensor.dies
            if layers[tensor.node].is_input or not layers[tensor.node].is_source()
        ]

    @functools.cached_property
    def kept_alive(self) -> list[Any]:
        """The bytes of those that are there at each point."""
        return self.alive(self._kept())

    @property
    def of_micro_batch(self) -> OfMicroBatch:
        """What a micro-batch takes while it waits."""
        return self.of_nodes(range(len(self.graph.nodes)))

    def of_nodes(self, nodes: Container[int]) -> OfMicroBatch:
        """Return that of these nodes alone."""
        read: dict[int, bool] = {}
        for node in self.graph.nodes:
            for parent in node.parents:
                read[parent] = read.get(parent, True) and node.layer.is_judge
        judged = {node for node, by_judges in read.items() if by_judges}
        judged |= {node.index for node in self.graph.nodes if node.layer.is_judge}
        kept = [each for each in self._kept() if each.node in nodes]
        given = (each for each in self.schedule.tensors if each.is_result and each.node in nodes)
        size = self.graph.element_size
        return OfMicroBatch(
            total(map(self._size, kept)),
            total(map(self._size, given)),
            total(self._size(each) for each in kept if each.node not in judged),
            total(
                size * num_elements(node.output)
                for node in self.graph.nodes
                if node.index in nodes and node.num_params and not node.layer.is_source()
            ),
        )

    @property
    def moving(self) -> list[Any]:
        """The bytes at each point of what is not of parameters: activations, their gradients."""
        changes: list[Any] = [0] * (len(self.schedule.points) + 1)
        for tensor in self.schedule.tensors:
            if tensor.size is not None:
                changes[tensor.born] = changes[tensor.born] + self._size(tensor)
                changes[tensor.dies + 1] = changes[tensor.dies + 1] - self._size(tensor)
        return list(accumulate(changes[:-1]))

    def _size(self, tensor: Tensor) -> Quantity:
        """Return the bytes of a tensor."""
        if tensor.size is not None:
            return self._sizes[tensor.size]
        return tensor.num_params * (self.copy_size if tensor.is_copy else self.weight_size)


class Alive:
    """The bytes that are alive at each point, as arrays, of steps that have one schedule.

    Each of the `steps` is at one batch size or at an array of them: there is a column for each
    size, and a row for each point, or tensor.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        schedule = self.schedule = steps[0].schedule
        tensors = schedule.tensors
        counts = [np.size(step.graph.batch_size) for step in steps]
        sizes = np.empty((len(steps[0]._sizes) + 1, sum(counts)), np.int64)
        start = 0
        for step, count in zip(steps, counts, strict=True):
            for row, size in zip(sizes[:-1], step._sizes, strict=True):
                row[start : start + count] = size
            start += count
        of_params = np.array([each.size is None for each in tensors])
        copies = np.array([each.is_copy for each in tensors])
        params = np.array([each.num_params for each in tensors], np.int64)
        params *= np.where(copies, steps[0].copy_size, steps[0].weight_size)
        bytes_ = sizes[[-1 if each.size is None else each.size for each in tensors]]
        bytes_[of_params] = params[of_params][:, None]
        self._bytes = bytes_
        #: Of each tensor its node, the points that it is alive at, and what it is.
        self.nodes = np.array([each.node for each in tensors])
        self.born = np.array([each.born for each in tensors])
        self.dies = np.array([each.dies for each in tensors])
        last = len(schedule.points) - 1
        self.are_gradients = of_params & ~copies & (self.dies == last)
        directions = np.array([direction != "backward" for _, direction in schedule.points])
        self.are_copies, self.in_forward = copies, directions[self.born]
        #: The tensors in the order in which they come, and in that in which they go.
        self._coming, self._going = np.argsort(self.born), np.argsort(self.dies)
        points = np.arange(last + 1)
        self._come = np.searchsorted(self.born[self._coming], points, "right")
        self._gone = np.searchsorted(self.dies[self._going], points, "left")

    def total(self, which: Array) -> Array:
        """Return the bytes of all tensors for which this is true."""
        found: Array = self._bytes[which].sum(axis=0)
        return found

    def at_points(self, which: Array) -> Array:
        """Return the bytes at each point of the tensors for which this is true."""
        own = self._bytes * which[:, None]
        sums = np.zeros((2, len(own) + 1, own.shape[1]), np.int64)
        np.cumsum(own[self._coming], axis=0, out=sums[0, 1:])
        np.cumsum(own[self._going], axis=0, out=sums[1, 1:])
        found: Array = sums[0, self._come] - sums[1, self._gone]
        return found


def peak(graph: Graph, *, training: bool) -> int:
    """Return the bytes of a net's tensors where most of them are alive, trained by plain SGD."""
    return int(max(Step(graph, OPTIMIZERS["sgd"] if training else None).sums()))
