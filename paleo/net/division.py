"""The part of a net that one of several devices has, which share each layer.

Every tensor is whole on each device, divided in one dimension, or a sum of which each has a term.
A layer says what it does of its inputs (`Layer.divided`), and whether it has parameters to divide
(`Layer.split`); between layers stand exchanges (paleo.net.layers.exchanges). So the products of a
transformer are divided by columns, then by rows, and attention by heads (Shoeybi et al.,
Megatron-LM, arXiv:1909.08053, section 3). With `sequence` what would be whole is divided by
positions instead (Korthikanti et al., arXiv:2205.05198, section 4.2.2).
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from paleo.core.errors import SettingError
from paleo.core.frozen import NamedTuple
from paleo.core.quantity import ceil_div, product
from paleo.core.tensor import Shape
from paleo.net.graph import Node, build
from paleo.net.layers import Layer
from paleo.net.layers.base import TERMS, Divided
from paleo.net.layers.exchanges import (
    AllGather,
    AllReduce,
    AllToAll,
    ReduceScatter,
    Ring,
    Swap,
)
from paleo.net.layers.reshape import Slice
from paleo.net.spec import LayerSpec, NetSpec

#: Words are added until each device has a multiple of so many (Megatron-LM,
#: --make-vocab-size-divisible-by).
WORDS = 128
#: Rows are rounded up by less than one part in 2 to the power of one less than this.
_PART = 7
#: The dimension of positions in the tensors between blocks, N x S x H.
_POSITIONS = 1


_BEFORE_CAPITALS = re.compile("(?<=[a-z])(?=[A-Z])")


class _Tensor(NamedTuple):
    """A tensor as one device has it: who makes it, its whole shape, and how it is divided.

    `since` are the layers, by their names in the file, whose parameters were divided for that.
    """

    name: str
    shape: Shape
    axis: int | None = None
    since: frozenset[str] = frozenset()


class _StaysWholeError(Exception):
    """Layers whose outputs somebody cannot take divided."""

    def __init__(self, names: frozenset[str]) -> None:
        super().__init__()
        self.names = names


def divided(
    net: NetSpec,
    ways: int,
    *,
    sequence: bool = False,
    group: str = "tensor",
    again: bool = True,
    norms: bool = False,
) -> NetSpec:
    """Return the part of a net that one of so many devices has, with its exchanges.

    What is gathered for products is gathered `again` in the backward pass, or kept. With `norms`
    those of queries and keys of all heads are divided, too, and sum their squares alone.

    Raises NetSpecError for a net that does not fit, SettingError if heads do not divide so, or
    nothing does.
    """
    if ways == 1:
        return net
    nodes = build(net).nodes
    whole: frozenset[str] = frozenset()
    while True:
        division = _Division(net, nodes, ways, sequence, group, whole, again, norms)
        try:
            layers = division.layers()
        except _StaysWholeError as error:
            whole |= error.names
            continue
        return replace(net, layers=layers, described=None)


def divided_by_positions(net: NetSpec, ways: int, how: str) -> NetSpec:
    """Return the part of a net that one of so many devices has, which share its positions.

    In attention keys and values pass all of them in a "ring", or heads are divided instead by an
    "all_to_all". A causal net's positions are dealt out so that all devices have as much to do.
    Raises NetSpecError for a net that does not fit, SettingError if it has no attention, or
    positions or heads do not divide.
    """
    if ways == 1:
        return net
    nodes = build(net).nodes
    if not any(node.layer.is_attention for node in nodes):
        raise SettingError(f"cp: {net.name} has no layer of type Attention")
    division = _ByPositions(net, nodes, ways, False, "context", frozenset(), how)
    return replace(net, layers=division.layers(), described=None)


def divided_by_experts(net: NetSpec, ways: int) -> NetSpec:
    """Return the part of a net that one of so many devices has, which share its experts.

    Rows go to the devices of their experts, and back. Raises NetSpecError for a net that does not
    fit, SettingError if it has no experts, or they do not divide.
    """
    if ways == 1:
        return net
    nodes = build(net).nodes
    specs = {spec.name: spec for spec in net.layers}
    names = {node.index: node.name for node in nodes}
    # Rows that are where their experts are, and whether these are of the device with most rows.
    away: dict[int, bool] = {}
    layers: list[LayerSpec] = []
    for node in nodes:
        layer, spec = node.layer, specs[node.name]
        count = layer.num_experts_held
        if count and count % ways:
            raise SettingError(
                f"ep: {count} experts of {net.in_file(node.name)} do not divide {ways} ways"
            )
        is_there = bool(node.parents) and away.keys() >= set(node.parents)
        is_away = bool(count) or (layer.is_pointwise and is_there)
        one, share = layer.busiest(ways)
        if is_there:
            is_uneven = any(away[parent] for parent in node.parents)
        else:
            is_uneven = share != 1 and not any(nodes[i].layer.pads for i in node.parents)
        parents = []
        for parent in node.parents:
            name, before = names[parent], nodes[parent]
            if is_away != (parent in away):
                rows: tuple[int, ...] | None = None
                if away.get(parent, is_uneven):
                    whole = tuple(map(int, before.output[1:-1]))
                    rows = (_in_even_parts(share * product(whole)),) if is_away else whole
                name = f"{before.name}/all_to_all"
                if name not in {each.name for each in layers[-len(node.parents) :]}:
                    sent = AllToAll(group="expert", rows=rows)
                    layers.append(LayerSpec(name, sent, (names[parent],)))
            parents.append(name)
        held = one if is_uneven else layer.held_by(ways)
        layers.append(replace(spec, layer=held, parents=tuple(parents)))
        if is_away:
            away[node.index] = is_uneven
    if not away:
        raise SettingError(f"ep: {net.name} has no layer of type Experts")
    return replace(net, layers=tuple(layers), described=None)


def _in_even_parts(rows: float) -> int:
    """Return no fewer rows than these, a number that divides by powers of two: by 64 of many."""
    whole = math.ceil(rows)
    part = 2 ** min(max(whole.bit_length() - _PART, 0), 6)
    return int(part * ceil_div(whole, part))


class _Division:
    """One try to divide a net, of which the layers of some names in the file stay whole."""

    def __init__(
        self,
        net: NetSpec,
        nodes: Sequence[Node],
        ways: int,
        sequence: bool,
        group: str,
        whole: frozenset[str],
        again: bool = True,
        norms: bool = False,
    ) -> None:
        self.net = net
        self.again = again
        self.norms = norms
        self.nodes = nodes
        self.ways = ways
        self.sequence = sequence
        self.group = group
        self.whole = whole
        self.specs = {spec.name: spec for spec in net.layers}
        self.children: list[list[int]] = [[] for _ in nodes]
        for node in nodes:
            for parent in node.parents:
                self.children[parent].append(node.index)
        lookups = [node for node in nodes if _looks_up(node)]
        #: The parameters of the largest table: the words' of a language model.
        self.words = max((node.num_params for node in lookups), default=0)
        #: The nodes whose outputs have gradients.
        self.learning = _learning(nodes)
        self.made: list[LayerSpec] = []
        self.tensors: list[_Tensor] = []
        self.exchanged: dict[tuple[str, type[Layer]], _Tensor] = {}
        # What is found of a layer holds for equal ones of the same inputs, which most of a net are.
        self._splits: dict[tuple[int, bool], Divided | None] = {}
        self._divisions: dict[tuple[int, tuple[int | None, ...]], Divided | None] = {}

    def layers(self) -> tuple[LayerSpec, ...]:
        """Return the layers of one device; raises _StaysWholeError for more that stay whole."""
        for node in self.nodes:
            self.tensors.append(self._added(node))
        self._check()
        return tuple(self.made)

    def _check(self) -> None:
        """Raise SettingError if nothing is divided, or attention is not."""
        if not any(tensor.since for tensor in self.tensors):
            raise SettingError(f"tp: nothing of {self.net.name} divides {self.ways} ways")
        for node, tensor in zip(self.nodes, self.tensors, strict=True):
            if node.layer.is_attention and not tensor.since:
                heads = " and ".join(dict.fromkeys(str(each[-3]) for each in node.inputs[:2]))
                raise SettingError(
                    f"tp: {heads} heads of {self.net.in_file(node.name)} do not divide "
                    f"{self.ways} ways"
                )

    def _added(self, node: Node) -> _Tensor:
        """Add what a device does of a node, and before it what is exchanged for it."""
        # A sum that somebody has asked for already is at hand.
        inputs = [self._known_sum(self.tensors[parent]) for parent in node.parents]
        split = self._split(node)
        if split and all(tensor.axis is None or _is_common(tensor) for tensor in inputs):
            inputs = [
                self._for_all(tensor, parent in self.learning)
                for tensor, parent in zip(inputs, node.parents, strict=True)
            ]
            found, since = split, frozenset([self.net.in_file(node.name)])
        else:
            found, inputs = self._taken(node, inputs)
            since = frozenset().union(*(tensor.since for tensor in inputs))
        self._add(node.name, found.layer, inputs, self.specs[node.name])
        if found.axis is None or not (since or found.axis == TERMS):
            since = frozenset()
        tensor = _Tensor(node.name, node.output, found.axis, since)
        return self._reduced(tensor) if node.layer.is_loss else tensor

    def _split(self, node: Node) -> Divided | None:
        """Return what a device does with its part of a node's parameters, None if it has all."""
        if self.whole and self.net.in_file(node.name) in self.whole:
            return None
        judged = all(self.nodes[i].layer.is_judge for i in self.children[node.index])
        key = node.like, judged
        if key not in self._splits:
            self._splits[key] = self._found_split(node, judged)
        return self._splits[key]

    def _found_split(self, node: Node, judged: bool) -> Divided | None:
        """Return what a device does with its part of the parameters of what may be divided."""
        layer, inputs = node.layer, node.inputs
        if not node.is_trained:
            return None
        if _looks_up(node) and layer.num_params(inputs) < self.words:
            return None  # such as that of positions, which is small
        found = layer.split(self.ways, inputs)
        if found is None and (_looks_up(node) or judged):
            found = layer.padded(WORDS * self.ways).split(self.ways, inputs)
        return found

    def _taken(self, node: Node, inputs: list[_Tensor]) -> tuple[Divided, list[_Tensor]]:
        """Return what a device does of a node with its inputs as they are, or once they fit."""
        for change in (None, self._reduced, self._alike, self._whole):
            if change == self._whole and self._is_divided_norm(node, inputs):
                axis = inputs[0].axis
                sums = AllReduce(group=self.group, squares=_normalized(node))
                return Divided(node.layer, axis), [self._exchange(inputs[0], sums, axis)]
            if change:
                inputs = [change(tensor, inputs) for tensor in inputs]
            axes = tuple([tensor.axis for tensor in inputs])
            key = node.like, axes
            if key not in self._divisions:
                self._divisions[key] = node.layer.divided(self.ways, node.inputs, axes)
            found = self._divisions[key]
            if found is not None:
                return found, inputs
        raise AssertionError(f"{node.name} takes no whole inputs")

    def _is_divided_norm(self, node: Node, inputs: Sequence[_Tensor]) -> bool:
        """Tell whether a node normalizes what devices divide and all read as heads."""
        axis = inputs[0].axis
        if not self.norms or node.layer.serves_as != "norm" or axis is None:
            return False
        readers = [self.nodes[i] for i in self.children[node.index]]
        are_heads = all(
            each.layer.is_view
            and len(each.output) > len(node.output)
            and each.output[-2] % self.ways == 0
            for each in readers
        )
        return are_heads and axis >= len(node.output) - _normalized(node)

    def _reduced(self, tensor: _Tensor, _: Sequence[_Tensor] = ()) -> _Tensor:
        """Return a tensor of which devices have terms as their sum, or their part of that."""
        if tensor.axis != TERMS:
            return tensor
        if self.sequence and self._has_positions(tensor.shape):
            layer = ReduceScatter(group=self.group, dim=_POSITIONS, ways=self.ways)
            return self._exchange(tensor, layer, _POSITIONS)
        return self._exchange(tensor, AllReduce(group=self.group), None)

    def _alike(self, tensor: _Tensor, others: Sequence[_Tensor]) -> _Tensor:
        """Return a whole tensor divided as others are, each device taking its part of it."""
        axes = {other.axis - len(other.shape) for other in others if other.axis is not None}
        if len(axes) != 1 or tensor.axis is not None:
            return tensor
        place = axes.pop() + len(tensor.shape)
        if place < 1 or tensor.shape[place] % self.ways:
            return tensor
        part = Slice(dim=place, size=int(tensor.shape[place]) // self.ways)
        return self._exchange(tensor, part, place)

    def _whole(self, tensor: _Tensor, _: Sequence[_Tensor]) -> _Tensor:
        """Return a tensor that each device has whole."""
        if tensor.axis is None:
            return tensor
        if tensor.since and not _is_common(tensor):
            raise _StaysWholeError(tensor.since)
        layer = AllGather(group=self.group, dim=tensor.axis, ways=self.ways, again=False)
        return self._exchange(tensor, layer, None)

    def _known_sum(self, tensor: _Tensor) -> _Tensor:
        """Return the sum of a tensor of which devices have terms, if it is known, or the tensor."""
        known = (self.exchanged.get((tensor.name, kind)) for kind in (AllReduce, ReduceScatter))
        return next(filter(None, known), tensor) if tensor.axis == TERMS else tensor

    def _for_all(self, tensor: _Tensor, learns: bool) -> _Tensor:
        """Return a whole tensor whose gradient, if any, is the sum of those of all devices."""
        if tensor.axis is None and not learns:
            return tensor
        if tensor.axis is None:
            return self._exchange(tensor, AllReduce(group=self.group, backward=True), None)
        layer = AllGather(group=self.group, dim=tensor.axis, ways=self.ways, again=self.again)
        return self._exchange(tensor, layer, None)

    def _has_positions(self, shape: Shape) -> bool:
        return len(shape) >= 3 and not shape[_POSITIONS] % self.ways

    def _exchange(self, tensor: _Tensor, layer: Layer, axis: int | None) -> _Tensor:
        """Return what comes of a tensor by a layer between, the same for all who ask for it."""
        key = (tensor.name, type(layer))
        if key not in self.exchanged:
            kind = _spelt(layer.type_name)
            name = f"{tensor.name}/{kind}"
            if name in self.specs:  # a net that is divided twice
                name = f"{tensor.name}/{self.group}_{kind}"
            self._add(name, layer, [tensor])
            self.exchanged[key] = _Tensor(name, tensor.shape, axis)
        return self.exchanged[key]

    def _add(
        self, name: str, layer: Layer, inputs: Sequence[_Tensor], like: LayerSpec | None = None
    ) -> None:
        parents = tuple(tensor.name for tensor in inputs)
        if like is None:
            self.made.append(LayerSpec(name, layer, parents))
        else:
            self.made.append(LayerSpec(name, layer, parents, like.shard, like.shares, like.dtype))


class _ByPositions(_Division):
    """A net of which devices have positions; parameters are whole on each."""

    def __init__(self, *arguments: Any) -> None:
        *usual, self.how = arguments
        super().__init__(*usual)

    def _added(self, node: Node) -> _Tensor:
        if node.layer.is_input and len(node.output) == 2 and node.output[1] > 1:
            if node.output[1] % self.ways:
                raise SettingError(
                    f"cp: {node.output[1]} positions of {node.name} do not divide {self.ways} ways"
                )
            part = (node.output[0], node.output[1] // self.ways)
            self._add(node.name, node.layer.of_shape(part), [], self.specs[node.name])
            return _Tensor(node.name, node.output, _POSITIONS, self.divides)
        if node.layer.is_attention:
            return self._attending(node)
        return super()._added(node)

    #: What tells that all is divided that depends on what comes in.
    divides = frozenset([""])

    def _split(self, node: Node) -> Divided | None:
        return None

    def _whole(self, tensor: _Tensor, _: Sequence[_Tensor]) -> _Tensor:
        if tensor.axis is None:
            return tensor
        layer = AllGather(group=self.group, dim=tensor.axis, ways=self.ways, again=False)
        return self._exchange(tensor, layer, None)

    def _attending(self, node: Node) -> _Tensor:
        """Add attention whose queries, keys and values are divided by positions."""
        inputs = [self.tensors[parent] for parent in node.parents]
        layer, axis = node.layer, len(node.output) - 2
        spec = self.specs[node.name]
        if self.how == "all_to_all":
            heads = min(int(shape[axis - 1]) for shape in node.inputs[:3])
            if heads % self.ways:
                raise SettingError(
                    f"cp: {heads} heads of {self.net.in_file(node.name)} do not divide "
                    f"{self.ways} ways"
                )
            there = Swap(group=self.group, joined=axis, parted=axis - 1, ways=self.ways)
            swapped = [self._exchange(tensor, there, axis - 1) for tensor in inputs]
            self._add(node.name, layer, swapped, spec)
            back = Swap(group=self.group, joined=axis - 1, parted=axis, ways=self.ways)
            made = _Tensor(node.name, node.output, axis - 1)
            return self._exchange(made, back, axis)._replace(since=self.divides)
        keys = int(node.inputs[1][axis])
        seen, own = layer.by_positions(keys, self.ways)
        ring = Ring(group=self.group, dim=axis, ways=self.ways, seen=seen)
        passed = [self._exchange(tensor, ring, axis) for tensor in inputs[1:3]]
        self._add(node.name, own, [inputs[0], *passed, *inputs[3:]], spec)
        return _Tensor(node.name, node.output, axis, self.divides)


def _learning(nodes: Sequence[Node]) -> frozenset[int]:
    """Return the nodes whose outputs depend on parameters."""
    found: set[int] = set()
    for node in nodes:
        if nodes[node.like].is_trained or not found.isdisjoint(node.parents):
            found.add(node.index)
    return frozenset(found)


def _normalized(node: Node) -> int:
    """Return over how many of the last dimensions a norm is."""
    return int(getattr(node.layer, "num_dims", 1))


@functools.cache
def _spelt(type_name: str) -> str:
    """Return a layer's type as names have it: all_gather."""
    return _BEFORE_CAPITALS.sub("_", type_name).lower()


def _looks_up(node: Node) -> bool:
    """Tell whether a node takes rows of its parameters by their numbers."""
    return node.layer.looks_up


def _is_common(tensor: _Tensor) -> bool:
    """Tell whether a tensor is divided by positions, as all between blocks are."""
    return tensor.axis is not None and not tensor.since
