"""Which products of a net are computed in fp8, and what is cast for them: see paleo.core.scaling.

Products of linear layers and of experts are; the last one of a net, which gives scores, routers of
experts, attention, and sides that are no multiples of 16 stay in 2 bytes, as in Megatron-LM and
torchtitan (its filter of layers). Casts are kernels of their own. The backward pass keeps a layer's
input in fp8, one copy for all layers that read it, in the place of the input itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from paleo.core.operations import GroupedMatMul, Kind, MatMul, Operation, Pass, Role, Stream
from paleo.core.quantity import Quantity, product
from paleo.core.scaling import COPIES, FP8, SIDE, Scaled, Scaling
from paleo.core.tensor import Shape, Shapes, num_elements
from paleo.net.layers import Layer
from paleo.net.layers.base import MemoryNeeds, Message


class _Node(Protocol):
    """What is asked of a node."""

    @property
    def index(self) -> int: ...
    @property
    def layer(self) -> Layer: ...
    @property
    def parents(self) -> tuple[int, ...]: ...
    @property
    def inputs(self) -> Shapes: ...
    @property
    def output(self) -> Shape: ...
    @property
    def is_trained(self) -> bool: ...
    @property
    def dtype(self) -> str: ...


def marked(nodes: Sequence[_Node], scaling: Scaling) -> list[Scaled | None]:
    """Return what of each node is cast to fp8; None for those of which nothing is."""
    aside = _aside(nodes)
    products = [node for node in nodes if node.index not in aside and _is_product(node)]
    chosen = {node.index for node in products}
    children: list[list[int]] = [[] for _ in nodes]
    learning: set[int] = set()
    for node in nodes:
        for parent in node.parents:
            children[parent].append(node.index)
        if node.is_trained or not learning.isdisjoint(node.parents):
            learning.add(node.index)
    found: list[Scaled | None] = [None] * len(nodes)
    cast: set[int] = set()
    for node in products:
        before = node.parents[0]
        is_ours = chosen.issuperset(children[before])  # nobody reads more digits
        gathered = nodes[before].layer.gathers if is_ours else 1
        if gathered > 1:
            found[before] = Scaled(scaling, sends=True)
        after = children[node.index]
        scattered = nodes[after[0]].layer.scatters if len(after) == 1 else 1
        if scattered > 1:
            found[after[0]] = Scaled(scaling, sends=True)
        source = _source(nodes, before)
        casts = source not in cast
        cast.add(source)
        learns = before in learning
        found[node.index] = Scaled(scaling, casts, learns, gathered, scattered)
    return found


def _is_product(node: _Node) -> bool:
    matrices = node.layer.multiplied_by(node.inputs)
    if matrices is None or node.dtype:
        return False
    _, rows, columns = matrices
    return rows % SIDE == columns % SIDE == 0


def _aside(nodes: Sequence[_Node]) -> set[int]:
    """Return products of which somebody reads scores: who called, a loss, or who picks experts."""
    read = {parent for node in nodes for parent in node.parents if not node.layer.is_judge}
    found: set[int] = set()
    for node in nodes:
        if node.layer.picks:
            found |= _behind(nodes, node.parents)
        elif node.index not in read:  # scores, which may be gathered; no sum at the end of a stage
            found.add(_source(nodes, node.index))
    return found


def _behind(nodes: Sequence[_Node], ends: Iterable[int]) -> set[int]:
    """Return the nearest nodes with parameters that these depend on."""
    found, waiting = set(), list(ends)
    seen: set[int] = set()
    while waiting:
        node = nodes[waiting.pop()]
        if node.index in seen:
            continue
        seen.add(node.index)
        if node.is_trained:
            found.add(node.index)
        else:
            waiting += node.parents
    return found


def _source(nodes: Sequence[_Node], index: int) -> int:
    """Return the node that made a tensor which may be read through views."""
    while nodes[index].parents and _is_view(nodes[index]):
        index = nodes[index].parents[0]
    return index


def _is_view(node: _Node) -> bool:
    layer = node.layer
    return layer.is_view or (layer.is_exchange and layer.keeps(node.inputs, 1, (True,)).view)


def operations(
    found: Iterable[Operation], scaled: Scaled, direction: Pass, size: int
) -> Iterator[Operation]:
    """Yield what a layer does in a pass, its products in fp8 and casts before them.

    What is cast has elements of `size` bytes, and so has what products give.
    """
    casts_gradient = direction is (Pass.INPUT_GRADIENT if scaled.learns else Pass.WEIGHT_GRADIENT)
    casts = scaled.casts if direction is Pass.FORWARD else casts_gradient
    ways = scaled.gathered if direction is Pass.FORWARD else scaled.scattered
    for each in found:
        if scaled.sends or not isinstance(each, MatMul | GroupedMatMul):
            yield each
            continue
        if casts:
            role = Role.INPUT if direction is Pass.FORWARD else Role.OUTPUT_GRADIENT
            yield from _cast(_cast_numbers(each) // ways, size, scaled.scaling, direction, role)
        yield _lowered(each, size)


def _cast_numbers(product: MatMul | GroupedMatMul) -> Quantity:
    """Return the numbers of the operand that comes of other layers: the input, or a gradient."""
    rows, side = product.k, product.n
    if isinstance(product, GroupedMatMul):
        rows = product.rows
    if product.direction is not Pass.WEIGHT_GRADIENT:
        side = product.k
        rows = product.rows if isinstance(product, GroupedMatMul) else product.m
    return rows * side


def _lowered(product: MatMul | GroupedMatMul, size: int) -> Operation:
    if isinstance(product, MatMul):
        return replace(product, element_size=1, output_size=size, dtype=FP8)
    if product.direction is Pass.WEIGHT_GRADIENT:  # what it gives are matrices
        return replace(product, element_size=1, weight_size=size, dtype=FP8)
    return replace(product, element_size=1, output_size=size, dtype=FP8)


def _cast(
    count: Quantity, size: int, scaling: Scaling, direction: Pass, role: Role
) -> tuple[Stream, ...]:
    """Return the kernels that cast so many numbers: one more where scales are found before."""
    read = (size * count,)
    cast = Stream(
        Kind.COPY, read, (COPIES * num_bytes(count, scaling),),
        direction=direction, roles=(role,), label=f"cast to {FP8}",
    )  # fmt: skip
    if not scaling.looks_first:
        return (cast,)
    looked = Stream(
        Kind.REDUCTION, read, (), direction=direction, roles=(role,), label="largest number"
    )
    return looked, replace(cast, roles=(Role.AGAIN,))


def num_bytes(count: Quantity, scaling: Scaling) -> Quantity:
    """Return the bytes of a copy of so many numbers, with its scales."""
    return count + scaling.scale_size * count // scaling.block if scaling.block else count


def weight_casts(layer: Layer, inputs: Shapes, scaled: Scaled, size: int) -> tuple[Stream, ...]:
    """Return what casts the matrix of a layer once a step, of `size` bytes a number.

    (Transformer Engine keeps it for the micro-batches that follow: `is_first_microbatch`.)
    """
    count = _weights(layer, inputs)
    return _cast(count, size, scaled.scaling, Pass.UPDATE, Role.WEIGHT) if count else ()


def weight_bytes(layer: Layer, inputs: Shapes, scaled: Scaled) -> int:
    """Return the bytes of the copies in fp8 of a layer's matrix."""
    return COPIES * int(num_bytes(_weights(layer, inputs), scaled.scaling))


def _weights(layer: Layer, inputs: Shapes) -> int:
    """Return the numbers of the matrices that a layer multiplies by."""
    return int(product(layer.multiplied_by(inputs) or (0,)))


def kept(needs: MemoryNeeds, scaled: Scaled, inputs: Shapes, output: Shape) -> MemoryNeeds:
    """Return what a layer needs in memory: its input, for its weights' gradient, in fp8.

    In the forward pass there is the copy by rows for a moment, in the backward pass both of the
    gradient. What is gathered in fp8 has half the bytes.
    """
    if scaled.sends:
        return needs._replace(forward=needs.forward // 2, backward=needs.backward // 2)
    cast: Quantity = 0
    if scaled.casts:
        cast = num_bytes(num_elements(inputs[0]) // scaled.gathered, scaled.scaling)
    gradient = COPIES * num_bytes(num_elements(output) // scaled.scattered, scaled.scaling)
    return needs._replace(
        inputs=(),
        saved=needs.saved + cast,
        forward=needs.forward + cast,
        backward=needs.backward + gradient,
    )


def messages(found: tuple[Message, ...], scaled: Scaled) -> tuple[Message, ...]:
    """Return what devices exchange where what they gather is in fp8: half the bytes, and scales."""
    if not scaled.sends:
        return found
    return tuple(
        each._replace(num_bytes=num_bytes(each.num_bytes // 2, scaled.scaling))
        if each.operation == "all_gather"
        else each
        for each in found
    )
