"""A step at a batch size: the bytes that are alive at each of its points."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

from paleo.core.quantity import Quantity, np, total
from paleo.core.tensor import num_elements
from paleo.net.graph import Graph
from paleo.step.matrices import matrices
from paleo.step.memory.liveness import Schedule, Tensor, scheduled
from paleo.step.optimizers import OPTIMIZERS, Matrices, Optimizer
from paleo.step.recompute import NOTHING, Recompute


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
        return total(self._size(tensor) for tensor in self._kept())

    def _kept(self) -> list[Tensor]:
        last = self.schedule.last_forward
        layers = [node.layer for node in self.graph.nodes]
        return [
            tensor
            for tensor in self.schedule.tensors
            if tensor.is_activation and not tensor.is_result and tensor.born <= last < tensor.dies
            if layers[tensor.node].is_input or not layers[tensor.node].is_source()
        ]

    @property
    def given(self) -> Quantity:
        """The bytes of results that the backward pass does not need."""
        return total(self._size(each) for each in self.schedule.tensors if each.is_result)

    @property
    def kept_for_weights(self) -> Quantity:
        """The bytes of `kept` that gradients of parameters may need: all but what losses judge."""
        read: dict[int, bool] = {}
        for node in self.graph.nodes:
            for parent in node.parents:
                read[parent] = read.get(parent, True) and node.layer.is_judge
        judged = {node for node, by_judges in read.items() if by_judges}
        judged |= {node.index for node in self.graph.nodes if node.layer.is_judge}
        return total(self._size(each) for each in self._kept() if each.node not in judged)

    @property
    def gradients_for_weights(self) -> Quantity:
        """The bytes of the gradients that parameters' gradients are computed from."""
        size = self.graph.element_size
        return total(
            size * num_elements(node.output)
            for node in self.graph.nodes
            if node.num_params and not node.layer.is_source()
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


class Steps(Step):
    """Steps at several batch sizes whose tensors live alike: bytes are arrays over all of them."""

    def __init__(self, steps: Sequence[Step]) -> None:
        """Join steps, each at one batch size or at an array of them, that have one schedule."""
        self.__dict__.update(steps[-1].__dict__)
        tensors = self.schedule.tensors
        widths = [np.size(step.graph.batch_size) for step in steps]
        self._rows = np.empty((len(tensors), sum(widths)), np.int64)
        start = 0
        for step, width in zip(steps, widths, strict=True):
            rows = self._rows[:, start : start + width]
            for i, tensor in enumerate(tensors):
                rows[i] = step._size(tensor)
            start += width
        self._row = {id(tensor): i for i, tensor in enumerate(tensors)}
        self._born = np.array([tensor.born for tensor in tensors])
        self._gone = np.array([tensor.dies + 1 for tensor in tensors])

    def alive(self, tensors: Iterable[Tensor]) -> list[Any]:
        """Return the bytes of those of these tensors that are alive at each point."""
        rows = [self._row[id(tensor)] for tensor in tensors]
        changes = np.zeros((len(self.schedule.points) + 1, self._rows.shape[1]), np.int64)
        np.add.at(changes, self._born[rows], self._rows[rows])
        np.subtract.at(changes, self._gone[rows], self._rows[rows])
        return list(np.cumsum(changes[:-1], axis=0))


def peak(graph: Graph, *, training: bool) -> int:
    """Return the bytes of a net's tensors where most of them are alive, trained by plain SGD."""
    return int(max(Step(graph, OPTIMIZERS["sgd"] if training else None).sums()))
