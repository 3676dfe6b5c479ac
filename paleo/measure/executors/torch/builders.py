"""What a builder of PyTorch layers is given, and the table of them.

A layer is built in two steps. Its builder looks at the shapes and returns a function of tensors,
which runs on PyTorch's meta device first: so shapes are checked, and nothing is computed. The
same function then runs on tensors with data.

Tensors are held in the order in which their axes are in memory. Images are N, C, H, W as in
PyTorch, sequences of vectors N, T, D. A Value says which axes of the net format these are:
whatever its `order`, `tensor.permute(inverse(order))` is the tensor of the format.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import field
from typing import Any, TypeAlias

from paleo.core.frozen import NamedTuple, dataclass
from paleo.measure.executors.shapes import aligned
from paleo.net.layers import Layer
from paleo.net.layers.base import is_one

torch: Any = importlib.import_module("torch")
F: Any = torch.nn.functional

Order: TypeAlias = tuple[int, ...]
#: A layer, ready to run: of its inputs, what it holds, and whether it is trained.
Run: TypeAlias = Callable[[list[Any], list[Any], bool], Any]
#: What a layer runs, and the order in which the axes of its output are.
Built: TypeAlias = tuple[Run, Order]


class CannotBuildError(Exception):
    """A layer that PyTorch has no operator for; the message is one line, without the layer."""


@dataclass(frozen=True)
class Value:
    """What a layer gives: a tensor without data, its axes in memory's order.

    Axis i of it is dimension `order[i]` of the net format. `limit` is above all elements of a
    tensor of whole numbers, where that is known.
    """

    tensor: Any
    order: Order
    limit: int | None = None


@dataclass(frozen=True)
class Held:
    """A tensor that a layer holds: a parameter, or a constant or statistic if not `learns`.

    It begins as `fill`, or as random numbers that keep the size of a sum over `fan_in` of them.
    """

    shape: tuple[int, ...]
    fan_in: int = 1
    fill: float | None = None
    learns: bool = True
    #: Whole numbers or truth values to begin as.
    numbers: Any = None
    #: Whether it is a source of random numbers; None where those are PyTorch's own.
    is_generator: bool = False
    #: The parameter of another layer that it is, in a net: the node, its stage, the place there.
    shared: tuple[int, int, int] | None = None


@dataclass
class BuildContext:
    """What a builder is given of a layer: what it reads, what it is to give."""

    layer: Any
    values: list[Value]
    inputs: tuple[tuple[int, ...], ...]
    output: tuple[int, ...]
    dtype: Any
    #: The order in which it wants its inputs' axes by itself.
    wanted: Order | None = None
    held: list[Held] = field(default_factory=list)
    #: What is done with the tensors that it holds when they have been made.
    finish: Callable[[list[Any]], None] | None = None
    #: Whether all its gradients are made at once.
    joins: bool = False
    #: Whether running it without data would take long; its output is as the net format says.
    is_opaque: bool = False

    def hold(self, *shape: int, **how: Any) -> None:
        """Note a tensor that the layer holds."""
        self.held.append(Held(shape, **how))

    def reader(
        self, k: int, order: Order | None = None, *, dense: bool = False, floats: bool = True
    ) -> Callable[[list[Any]], Any]:
        """Return a function that takes input k out of the inputs, in an order of its axes.

        None is the order in which it is. With `dense`, it is in memory in that order, copied if
        need be; with `floats`, truth values and whole numbers become those that are computed in.
        """
        value, number = self.values[k], self.dtype
        convert = floats and not value.tensor.is_floating_point()
        moves = None
        if order is not None and order != value.order:
            moves = tuple(value.order.index(dimension) for dimension in order)
        made = value.tensor if moves is None else value.tensor.permute(moves)
        copies = dense and not made.is_contiguous()
        if moves is None and not copies:
            if convert:
                return lambda tensors: tensors[k].to(number)
            return lambda tensors: tensors[k]

        def read(tensors: list[Any]) -> Any:
            tensor = tensors[k] if moves is None else tensors[k].permute(moves)
            if convert:
                tensor = tensor.to(number)
            return tensor.contiguous() if copies else tensor

        return read

    def aligned(self, k: int, order: Order, *, floats: bool = False) -> Callable[[list[Any]], Any]:
        """Return a function that takes input k with all axes of an order.

        If it has fewer, the missing ones stand behind the batch.
        """
        shape = self.inputs[k]
        if len(shape) == len(order):
            return self.reader(k, order, floats=floats)
        read, wide = self.reader(k, plain(len(shape)), floats=floats), aligned(shape, len(order))
        return lambda tensors: read(tensors).reshape(wide).permute(order)

    def repeated(self, k: int, order: Order) -> Callable[[list[Any]], Any]:
        """Return a function that takes input k in an order, as often as there are samples."""
        read, batch = self.reader(k, order), self.output[0]
        if not is_one(self.inputs[k][0]) or is_one(batch):
            return read
        wide = (batch, *(-1,) * (len(order) - 1))
        return lambda tensors: read(tensors).expand(wide)

    def indices(self, k: int, limit: int, order: Order | None = None) -> Callable[[list[Any]], Any]:
        """Return a function that takes input k as whole numbers below `limit`.

        Without an `order` its axes are in that of the net format.
        """
        value = self.values[k]
        read = self.reader(k, order or plain(len(self.inputs[k])), floats=False)
        if value.tensor.is_floating_point():
            return lambda tensors: read(tensors).detach().abs().long().clamp_(max=limit - 1)
        if value.tensor.dtype is torch.bool or value.limit is None or value.limit > limit:
            return lambda tensors: read(tensors).long() % limit
        return read

    def of_first(
        self,
        function: Callable[[Any], Any],
        order: Order | None = None,
        *,
        made: Order | None = None,
        floats: bool = True,
    ) -> Built:
        """Return a function of the first input alone, which it takes in this order.

        None is the order in which it is. The output's is `made`, or that of the input.
        """
        read = self.reader(0, order, floats=floats)
        made = made or order or self.values[0].order
        return lambda tensors, held, training: function(read(tensors)), made

    def over_images(
        self, run: Callable[[Any, list[Any]], Any], order: Order | None = None
    ) -> Built:
        """Return what runs on N x C x ...: dimensions before the channels are a batch.

        It takes the first input in this order, or as the layer wants it.
        """
        order = order or self.wanted
        assert order is not None
        read = self.reader(0, order, dense=True)
        lead = order.index(len(order) - 1)
        if lead == 1:
            return lambda tensors, held, training: run(read(tensors), held), order
        front = (-1, *self.output[1:lead])

        def over_frames(tensors: list[Any], held: list[Any], training: bool) -> Any:
            made = run(read(tensors).flatten(0, lead - 1), held)
            return made.reshape(*front, *made.shape[1:])

        return over_frames, order


Builder: TypeAlias = Callable[[BuildContext], Built]
#: The order in which a layer wants the axes of an input of this rank, if those who read its output
#: want that in an order, or in any (None); None if any will do.
Wanted: TypeAlias = Callable[[Any, int, "Order | None"], "Order | None"]


class Entry(NamedTuple):
    """What builds a layer type, and in which order it wants its inputs."""

    build: Builder
    wanted: Wanted


BUILDERS: dict[type[Layer], Entry] = {}


def builds(*types: type[Layer], wanted: Wanted | None = None) -> Callable[[Builder], Builder]:
    """Register a builder for layer types, which want their inputs as the net format has them."""

    def register(builder: Builder) -> Builder:
        BUILDERS.update(dict.fromkeys(types, Entry(builder, wanted or _net_format)))
        return builder

    return register


# ---- Orders of axes ----------------------------------------------------------------------------


def _net_format(layer: Any, rank: int, after: Order | None) -> Order:
    return plain(rank)


def any_order(layer: Any, rank: int, after: Order | None) -> None:
    """Want no order."""


def following(layer: Any, rank: int, after: Order | None) -> Order | None:
    """Want the order that those want who read the output, if that has as many axes."""
    return after if after and len(after) == rank else None


def images(spatial: Callable[[Any, int], int]) -> Wanted:
    """Want the channels before so many spatial dimensions, of a layer and a rank."""
    return lambda layer, rank, after: image_order(rank, spatial(layer, rank))


#: Want the channels before all dimensions but the batch.
whole_images = images(lambda layer, rank: rank - 2)

#: The order of sequences with the steps first, T x N x D.
SEQUENCE: Order = (1, 0, 2)


def plain(rank: int) -> Order:
    """Return the order of the net format."""
    return tuple(range(rank))


def image_order(rank: int, spatial: int) -> Order:
    """Return the order with the channels before the `spatial` dimensions."""
    first = rank - spatial - 1
    return (*range(first), rank - 1, *range(first, rank - 1))


def batch_first(order: Order) -> Order:
    """Return an order if the batch comes first in it, else that of the net format."""
    return order if order[0] == 0 else plain(len(order))


def inverse(order: Order) -> Order:
    """Return the permutation that leads back to the net format."""
    return tuple(order.index(dimension) for dimension in range(len(order)))


def dense_order(tensor: Any) -> Order:
    """Return the order in which a tensor's axes are in memory, its own if that is one."""
    if tensor.is_contiguous():
        return plain(tensor.dim())
    strides = tensor.stride()
    return tuple(sorted(range(tensor.dim()), key=lambda axis: -strides[axis]))
