"""A stack of equal convolutions in the place of a net's own: `[convolutions]` of a space's file.

    [convolutions]
    count = 16
    window = 3
    filters = [64, 128, 256, 512, "none"]
    fixed = 3

The last `fixed` layers with parameters stay, and what is behind the first of them. Before, what
changes the size of images stays (poolings, strided convolutions), and all else goes: in its place
come `count` convolutions of `window` x `window`, with a stride of 1 and padded, each with one of
these numbers of filters, or left out. They stand where the net's convolutions stood, as many in
each stretch between changes of size as goes by those that the net had there: the largest remainders
get what is left, of equal ones the last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from paleo.core.checks import MAX_SIZE, is_whole, shown
from paleo.core.errors import Mistakes, NetSpecError, near
from paleo.core.frozen import dataclass
from paleo.net.graph import Node, infer_nodes
from paleo.net.layer_settings import edited
from paleo.net.layers import LAYERS, ShapeError
from paleo.net.spaces.space import Choice, Option
from paleo.net.spec import LayerSpec, NetSpec

_MOST_LAYERS = 1000


@dataclass(frozen=True)
class Stack:
    """So many convolutions of a window, their numbers of filters, None for none; what stays."""

    count: int
    window: int
    filters: tuple[int | None, ...]
    fixed: int


def stack_of(values: Any, mistakes: Mistakes) -> Stack | None:
    """Return what `[convolutions]` says; None, with every mistake noted, if it is wrong."""
    first = len(mistakes.found)
    keys = ("count", "window", "filters", "fixed")
    if not isinstance(values, Mapping):
        mistakes.add(f"expected {', '.join(keys)}, got {shown(values)}", key="convolutions")
        return None
    for key in values:
        if key not in keys:
            hint = near(str(key), keys) or f" (there are: {', '.join(keys)})"
            mistakes.add(f"unknown key{hint}", key=f"convolutions.{key}")
    limits = {"count": (1, _MOST_LAYERS), "window": (1, MAX_SIZE), "fixed": (1, _MOST_LAYERS)}
    for key, (least, most) in limits.items():
        value = values.get(key)
        if not is_whole(value) or not least <= value <= most:
            said = f"expected a whole number from {least} to {most}, got {shown(value)}"
            mistakes.add(said, key=f"convolutions.{key}")
    filters: Any = values.get("filters")
    known = isinstance(filters, list) and all(
        each == "none" or (is_whole(each) and 1 <= each <= MAX_SIZE) for each in filters
    )
    if not known or len(set(map(str, filters))) < len(filters) or set(filters) <= {"none"}:
        said = 'expected different numbers of filters, and "none" for a layer left out'
        mistakes.add(f"{said}, got {shown(filters)}", key="convolutions.filters")
    if len(mistakes.found) > first:
        return None
    counts = tuple(None if each == "none" else each for each in filters)
    return Stack(values["count"], values["window"], counts, values["fixed"])


def with_stack(net: NetSpec, stack: Stack) -> tuple[NetSpec, tuple[Choice, ...]]:
    """Return a net with a stack in the place of its convolutions, and the choices of it.

    Raises NetSpecError for a net that is no chain of layers, or has nothing to replace.
    """
    mistakes = Mistakes(net.file or net.name)
    nodes = infer_nodes(net, mistakes)
    mistakes.raise_as(NetSpecError)
    chain = all(node.parents == ((node.index - 1,) if node.index else ()) for node in nodes)
    if not chain or any(spec.shares or spec.shard is not None for spec in net.layers):
        raise NetSpecError(
            f"{net.name}: convolutions are put into chains of layers, and it is none"
        )
    trained = [node.index for node in nodes if node.num_params]
    if len(trained) <= stack.fixed:
        raise NetSpecError(
            f"{net.name}: it has {len(trained)} layers with parameters; {stack.fixed} of them are "
            "to stay and others to be replaced"
        )
    begin = trained[-stack.fixed]
    kept, weights = _stretches(nodes, begin)
    if not sum(weights):
        raise NetSpecError(f"{net.name}: none of its convolutions keeps the size of images")
    numbers = _shared_out(stack.count, weights)
    names = _names(stack.count, {node.name for node in nodes})
    specs = {spec.name: spec for spec in net.layers}
    layers: list[LayerSpec] = []
    shape = nodes[0].output
    first = next(each for each in stack.filters if each)
    waiting = iter(names)
    for node, number in zip(kept, numbers, strict=True):
        shape = _add(layers, specs[node.name], node, shape, net)
        for _ in range(number):
            name = next(waiting)
            convolution = LAYERS["Convolution"](
                filter=(stack.window, stack.window, shape[-1], first),
                strides=(1, 1),
                padding="SAME",
                activation_fn="relu",
            )
            layers.append(LayerSpec(name, convolution, (layers[-1].name,)))
            shape = (*shape[:-1], first)
    for node in nodes[begin:]:
        shape = _add(layers, specs[node.name], node, shape, net)
    made = replace(net, layers=tuple(layers), repeats={})
    return made, tuple(_choice(name, stack.filters) for name in names)


def _stretches(nodes: Sequence[Node], begin: int) -> tuple[list[Node], list[int]]:
    """Return what stays of the nodes before `begin`, and behind each how many convolutions go."""
    kept, weights = [nodes[0]], [0]
    for node in nodes[1:begin]:
        if node.output[1:-1] != node.inputs[0][1:-1]:
            kept.append(node)
            weights.append(0)
        elif node.layer.is_convolution:
            weights[-1] += 1
    return kept, weights


def _shared_out(count: int, weights: Sequence[int]) -> list[int]:
    """Return how many of `count` go by each weight, by largest remainders, of equal ones the last.

    >>> _shared_out(16, [2, 3, 3])
    [4, 6, 6]
    """
    whole = sum(weights)
    found = [count * weight // whole for weight in weights]
    order = sorted(range(len(weights)), key=lambda i: (count * weights[i] % whole, i))
    for i in order[len(order) - (count - sum(found)) :]:
        found[i] += 1
    return found


def _names(count: int, taken: set[str]) -> list[str]:
    stem = "layer"
    while any(f"{stem}{i + 1}" in taken for i in range(count)):
        stem += "_"
    return [f"{stem}{i + 1}" for i in range(count)]


def _add(
    layers: list[LayerSpec], spec: LayerSpec, node: Node, shape: tuple[Any, ...], net: NetSpec
) -> tuple[Any, ...]:
    """Add a layer that stays, as it follows from what it reads now; return its output."""
    inputs = (shape,) if layers else ()
    try:
        layer = edited(node, inputs, ())
        output = layer.infer_shape(inputs)
    except ShapeError as error:
        raise NetSpecError(f'{net.name}: layer "{node.name}": no longer fits: {error}') from None
    layers.append(replace(spec, layer=layer, parents=(layers[-1].name,) if layers else ()))
    return output


def _choice(name: str, filters: Sequence[int | None]) -> Choice:
    return Choice(
        name,
        tuple(
            Option(str(each), (f"{name}.filter[3]={each}",))
            if each
            else Option("none", remove=(name,))
            for each in filters
        ),
    )
