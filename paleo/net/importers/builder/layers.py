"""Making layers from the operators of another framework, their inputs arranged as needed.

`Placer` holds the layers made so far. It names them, finds out the shapes of their outputs,
brings inputs into the order that a layer needs, counts parameters once, and in the end
makes the net.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from paleo.core.checks import MAX_SIZE
from paleo.core.tensor import Shape, format_shape
from paleo.net.importers.base import OperatorError, free_name
from paleo.net.importers.builder.layout import BATCH, Group, Tensor, Value
from paleo.net.layers import Layer, ShapeError
from paleo.net.layers.base import LAYERS
from paleo.net.layers.reshape import Reshape
from paleo.net.spec import LayerSpec, NetSpec

#: A dimension of a layer, or None for one of size 1 that is to be put there.
Wanted = int | None


@dataclass
class _Entry:
    """A layer made so far; `shape` is its output's at the traced batch."""

    layer: Layer
    parents: tuple[str, ...]
    shape: Shape
    batched: bool
    shares: str | None = None
    dtype: str = ""
    consumers: int = 0
    #: Where the dimensions are that values of version 0 know, once they were reordered.
    moved_to: tuple[int, ...] | None = None


def make(type_name: str, **values: object) -> Layer:
    """Return a layer of a type, by its name in net files; keys that are None are left out."""
    return LAYERS[type_name](**{name: v for name, v in values.items() if v is not None})


class Placer:
    """The layers of a net in the making; `batch` is what its inputs will have."""

    def __init__(self, name: str, file: str | None, batch: int) -> None:
        self.name = name
        self.file = file
        self.batch = batch
        #: The batch at which shapes are traced: that of the first input.
        self.traced = batch
        #: Whether all of every input is one sample.
        self.one_sample = False
        self._entries: dict[str, _Entry] = {}
        self._arranged: dict[tuple[str, tuple[Wanted, ...], bool], str] = {}
        self._owners: dict[tuple[object, ...], str] = {}
        self._tensors: dict[tuple[object, ...], Value] = {}
        self._keys = 0
        self._notes: dict[str, None] = {}
        #: The element type in which layers are computed that are made now, "" for the net's.
        self.dtype = ""

    # Layers

    def unique(self, name: str) -> str:
        """Return a legal layer name, as near to this one as no other layer has it."""
        parts = [part for part in name.replace("@", "_").split("/") if part]
        return free_name("/".join(parts) or "layer", self._entries)

    def add(
        self, name: str, layer: Layer, parents: Sequence[str], shares: str | None = None
    ) -> str:
        """Make a layer and return its name; raises OperatorError if its inputs do not fit."""
        inputs = tuple(self._entries[parent].shape for parent in parents)
        try:
            shape = layer.infer_shape(inputs)
        except ShapeError as error:
            raise OperatorError(str(error)) from None
        batched = layer.is_input or any(self._entries[parent].batched for parent in parents)
        for parent in parents:
            self._entries[parent].consumers += 1
        name = self.unique(name)
        dtype = "" if layer.is_input else self.dtype
        self._entries[name] = _Entry(layer, tuple(parents), shape, batched, shares, dtype)
        return name

    def mark(self) -> int:
        """Return how many layers have been made."""
        return len(self._entries)

    def made_since(self, mark: int) -> list[str]:
        """Return what the layers are that were made since, in whatever order.

        Equal ones cost the same, and use the same parameters. Views cost nothing.
        """
        made = []
        for name, entry in list(self._entries.items())[mark:]:
            inputs = tuple(self._entries[parent].shape for parent in entry.parents)
            owner = (entry.shares or name) if entry.layer.num_params(inputs) else None
            if not entry.layer.is_view:
                made.append(repr((entry.layer, inputs, owner, entry.dtype)))
        return sorted(made)

    def dims(self, layer: str) -> tuple[int, ...]:
        """Return the sizes of a layer's output without the batch."""
        return tuple(int(size) for size in self._entries[layer].shape[1:])

    def result(
        self,
        layer: str,
        shape: Sequence[int],
        axes: Sequence[Group],
        moved: str | None = None,
        summed: bool = False,
    ) -> Value:
        """Return the output of a layer as a value of the source."""
        entry = self._entries[layer]
        summed = summed or (entry.batched and not any(BATCH in group for group in axes))
        return Value(
            tuple(shape),
            tuple(axes),
            self.dims(layer),
            layer,
            moved=moved,
            summed=summed,
            version=0 if entry.moved_to is None else 1,
        )

    def view(self, name: str, layer: str, dims: Sequence[int]) -> str:
        """Make a layer that gives the dimensions of another other sizes."""
        return self.add(f"{name}_view", make("Reshape", output_shape=(-1, *dims)), [layer])

    def current(self, value: Value) -> Value:
        """Return a value whose axes hold for the layer as it is now."""
        if value.layer is None:
            return value
        entry = self._entries[value.layer]
        if entry.moved_to is None or value.version:
            return value
        to = entry.moved_to
        axes = tuple(tuple(to[dim] for dim in group) for group in value.axes)
        return replace(value, axes=axes, dims=self.dims(value.layer), version=1)

    def note(self, text: str) -> None:
        """Have the net say what its figures take for granted; the same is said once."""
        self._notes[text] = None

    # Tensors of the net's own

    def parameter(self, key: str, shape: Sequence[int], trainable: bool = True) -> Value:
        """Return a tensor that the net holds; no layer is made of it before one is needed."""
        sizes = checked(shape)
        return held(Tensor(key, sizes, trainable), sizes)

    def constant(self, shape: Sequence[int]) -> Value:
        """Return a tensor that is neither trained nor fed."""
        self._keys += 1
        return self.parameter(f"constants/{self._keys}", shape, trainable=False)

    def placed(self, value: Value) -> Value:
        """Return the value as the output of a layer, which is made if it is needed."""
        value = self.current(value)
        tensor = value.tensor
        if value.layer is not None or tensor is None:
            return value
        known = self._tensors.get(tensor.identity) or self._hold(tensor)
        self._tensors[tensor.identity] = known
        if known.dims == value.dims:
            return replace(value, layer=known.layer, tensor=None)
        reshaped = self.view(known.source, known.source, value.dims or (1,))
        return replace(value, layer=reshaped, tensor=None, dims=self.dims(reshaped))

    def _hold(self, tensor: Tensor) -> Value:
        """Return a tensor as a Parameter layer, cut if only a part is used."""
        whole = replace(tensor, cut=None)
        known = self._tensors.get(whole.identity)
        if known is None:
            dims = held(tensor, tensor.shape).dims
            layer = make("Parameter", shape=dims or (1,), trainable=tensor.trainable)
            made = self.add(tensor.key, layer, [], self._owners.get(whole.identity))
            self._owners.setdefault(whole.identity, made)
            known = self.result(made, tensor.shape, held(tensor, tensor.shape).axes)
            self._tensors[whole.identity] = known
        if tensor.cut is None:
            return known
        axis, begin, size, step = tensor.cut
        (dim,) = known.axes[axis]
        part = make("Slice", dim=dim, begin=begin, size=size, step=step)
        shape = (*tensor.shape[:axis], size, *tensor.shape[axis + 1 :])
        made = self.add(f"{known.source}_part", part, [known.source])
        return self.result(made, shape, known.axes)

    def owner(self, name: str, weights: Sequence[Value]) -> tuple[str | None, str]:
        """Return the layer that the first weight belongs to, if it has one, and a free name.

        A weight without an owner belongs to the layer of that name from now on, and so do
        the others.
        """
        name = self.unique(name)
        shares = self._owner_of(weights[0]) if weights else None
        if shares is None:
            for weight in weights:
                if weight.tensor is not None:
                    self._owners.setdefault(weight.tensor.identity, name)
        return shares, name

    def _owner_of(self, weight: Value) -> str | None:
        """Return the layer that a tensor is counted in, by itself or as part of the whole."""
        tensor = weight.tensor
        if tensor is not None:
            whole = replace(tensor, cut=None)
            return self._owners.get(tensor.identity) or self._owners.get(whole.identity)
        # It is computed from parameters: they are counted where they are held.
        waiting = [weight.layer] if weight.layer else []
        while waiting:
            entry = self._entries[waiting[0]]
            if not entry.parents and entry.layer.num_params(()):
                return entry.shares or waiting[0]
            waiting = [*waiting[1:], *entry.parents]
        return None

    def is_owned(self, weight: Value) -> bool:
        """Tell whether a tensor is counted in a layer already."""
        return self._owner_of(weight) is not None

    # Arranging

    def arranged(
        self, value: Value, wanted: Sequence[Wanted], sizes: Sequence[int] | None = None
    ) -> str:
        """Return a layer whose dimensions are those that are wanted, in that order.

        None stands for a dimension of 1. With `sizes`, dimensions of 1 are repeated to
        these. Dimensions that are not wanted must be of size 1.
        """
        order = tuple(wanted)
        layer = value.source
        entry = self._entries[layer]
        if order != tuple(range(1, len(value.dims) + 1)):
            key = (layer, order, value.moved is not None)
            known = self._arranged.get(key)
            layer = known or self._arrange(value, order, entry)
            if layer != value.layer:  # else the numbers of its dimensions may have changed
                self._arranged[key] = layer
        if sizes is not None and self.dims(layer) != tuple(sizes):
            layer = self.add(
                f"{layer}_expanded", make("Expand", output_shape=(-1, *sizes)), [layer]
            )
        return layer

    def _arrange(self, value: Value, order: tuple[Wanted, ...], entry: _Entry) -> str:
        target = tuple(1 if dim is None else value.dims[dim - 1] for dim in order)
        kept = [dim for dim in order if dim is not None]
        if prod(target) != prod(value.dims):
            raise OperatorError("its input has more dimensions than it can take")
        large = [dim for dim in kept if value.dims[dim - 1] > 1]
        layer, dims = value.source, value.dims
        if large != sorted(large) and value.moved is not None:
            rest = [dim for dim in range(1, len(dims) + 1) if dim not in kept]
            layer = self.add(value.moved, make("Transpose", perm=(0, *kept, *rest)), [layer])
            dims = self.dims(layer)
        elif len(kept) == len(order) == len(dims) and self._reorder(entry, kept):
            return layer
        if dims == target:
            return layer
        return self.view(value.source, layer, target or (1,))

    def _reorder(self, entry: _Entry, order: list[int]) -> bool:
        """Give a layer whose layout is ours to choose the order that its first reader needs."""
        if entry.consumers or entry.moved_to is not None:
            return False
        sizes = [int(entry.shape[dim]) for dim in order]
        if entry.layer.is_input:
            entry.layer = make("Input", tensor=(self.batch, *sizes))
        elif isinstance(entry.layer, Reshape):
            entry.layer = make("Reshape", output_shape=(-1, *sizes))
        else:
            return False
        entry.shape = (entry.shape[0], *sizes)
        to = [BATCH] * (len(order) + 1)
        for new, old in enumerate(order, start=1):
            to[old] = new
        entry.moved_to = tuple(to)
        return True

    # The end

    def finish(self, outputs: Sequence[Value] | None = None) -> NetSpec:
        """Return the net; layers that none of the `outputs` needs are left out."""
        names = list(self._entries)
        if outputs is not None:
            needed: set[str] = set()
            waiting = [value.layer for value in outputs if value.layer is not None]
            while waiting:
                name = waiting.pop()
                if name not in needed:
                    needed.add(name)
                    entry = self._entries[name]
                    waiting += [*entry.parents, *([entry.shares] if entry.shares else [])]
            names = [name for name in names if name in needed]
        layers = tuple(
            LayerSpec(name, entry.layer, entry.parents, None, entry.shares, entry.dtype)
            for name in names
            for entry in [self._entries[name]]
        )
        return NetSpec(self.name, layers, self.file, notes=tuple(self._notes))

    def num_params(self, net: NetSpec) -> int:
        """Return how many parameters a net has that was made here, shared ones counted once."""

        def own(name: str) -> int:
            entry = self._entries[name]
            return entry.layer.num_params(tuple(self._entries[p].shape for p in entry.parents))

        return sum(
            own(spec.name) - (min(own(spec.name), own(spec.shares)) if spec.shares else 0)
            for spec in net.layers
        )


def checked(shape: Sequence[int]) -> tuple[int, ...]:
    """Return a shape as Python integers; raises OperatorError unless all are sizes."""
    sizes = tuple(int(size) for size in shape)
    for size in sizes:
        if not 1 <= size <= MAX_SIZE:
            raise OperatorError(f"a dimension of {size} in {'x'.join(map(str, sizes))}")
    return sizes


def broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of both together, as NumPy has it; raises OperatorError."""
    try:
        return np.broadcast_shapes(a, b)
    except ValueError:
        raise OperatorError(f"{format_shape(a)} and {format_shape(b)} do not go together") from None


def held(tensor: Tensor, shape: tuple[int, ...]) -> Value:
    """Return a tensor, in this shape, that no layer holds so far.

    A one at the front needs no dimension: a parameter has one for the batch anyway.
    """
    ahead = 1 if len(shape) > 1 and shape[0] == 1 else 0
    dims = shape[ahead:]
    axes = (*[()] * ahead, *((i,) for i in range(1, len(dims) + 1)))
    return Value(shape, axes, dims, tensor=tensor)
