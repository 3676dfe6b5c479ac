"""How a net differs from another: which layers, which dimensions, and how far that reaches."""

from __future__ import annotations

import itertools
from collections.abc import Container, Mapping
from dataclasses import replace
from typing import Any

from paleo.core.attributes import attributes
from paleo.core.frozen import dataclass
from paleo.net.graph import Graph, Node, build
from paleo.net.layers import ShapeError
from paleo.net.spec import NetSpec


@dataclass(frozen=True)
class Change:
    """How a net differs from the reference, whatever the settings.

    `edited` names layers of both whose keys or parents differ; a layer that only follows from
    its inputs, such as a filter over more channels, is not edited. `changed` names those whose
    output has other dimensions, `follows` those that are not edited, and yet read or write
    other dimensions or have another number of parameters.
    `reach` is "none" where the nets are the same, "local" or "global" as `change_of` says, and
    None where they are other nets rather than a change of one: less than half of the layers of
    one of them are in both. `common` counts those of both that have parameters.
    """

    reach: str | None
    common: int
    edited: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    follows: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        return attributes(self, *vars(self))


def change_of(reference: NetSpec, other: NetSpec, batch_size: int | None = None) -> Change:
    """Return how a net differs from the reference, both at this batch or the reference's own.

    A change is global, as in chapter 4 of F. Iandola, Exploring the Design Space of Deep
    Convolutional Neural Networks at Large Scale (UC Berkeley, 2016), if all that follows gets
    other heights and widths, and local if the dimensions of the edited layers alone change, and
    of a few behind them. Here, the layers asked are those of both nets that have parameters,
    read something with a height and width (of whatever rank: in sequences, a length) and keep
    them apart, as an InnerProduct over all of an image does not. The change is global if one of
    them, the last on its way through the net, reads another height and width than it did.

    So a filter of another size is local where a pooling rounds its difference away, and so are
    more filters or channels, however many layers follow; to remove a pooling or to enlarge
    images is global even where the net ends with an average over them.

    Raises NetSpecError if the layers of one of the nets do not fit.
    """
    before = build(reference, batch_size)
    after = build(other, before.batch_size)
    old, new = ({node.name: node for node in graph.nodes} for graph in (before, after))
    common = {name: (old[name], node) for name, node in new.items() if name in old}
    reads, read = _parents(after, common), _parents(before, common)
    edited = {
        name: None
        for name, (was, now) in common.items()
        if reads[name] != read[name] or not _follows(was, now)
    }
    change = Change(
        "none",
        sum(was.is_trained and now.is_trained for was, now in common.values()),
        edited=tuple(edited),
        added=tuple(name for name in new if name not in old),
        removed=tuple(name for name in old if name not in new),
        changed=tuple(
            name for name, (was, now) in common.items() if was.output[1:] != now.output[1:]
        ),
        follows=tuple(
            name
            for name, (was, now) in common.items()
            if name not in edited and _dimensions(was) != _dimensions(now)
        ),
    )
    if 2 * len(common) < max(len(old), len(new)):
        return replace(change, reach=None)
    if not (change.edited or change.added or change.removed or change.follows):
        return change
    return replace(change, reach="global" if _is_global(after, common) else "local")


def _dimensions(node: Node) -> tuple[Any, ...]:
    """Return what a layer reads and writes, without the batch, and its parameters."""
    return tuple(shape[1:] for shape in (*node.inputs, node.output)), node.num_params


def _parents(graph: Graph, common: Container[str]) -> dict[str, tuple[str, ...]]:
    """Return what each layer reads, seen through layers that are not common to both nets."""
    found: dict[str, tuple[str, ...]] = {}
    for node in graph.nodes:
        parents = (graph.nodes[parent].name for parent in node.parents)
        seen = ((name,) if name in common else found[name] for name in parents)
        found[node.name] = tuple(dict.fromkeys(itertools.chain.from_iterable(seen)))
    return found


def _follows(was: Node, now: Node) -> bool:
    """Tell whether a layer is as it was, or as it had to become for what it reads."""
    if was.layer.is_input and now.layer.is_input:
        return was.output[1:] == now.output[1:]
    if bool(was.shared_params) != bool(now.shared_params):
        return False
    if was.layer == now.layer:
        return True
    if type(was.layer) is not type(now.layer):
        return False
    if [*map(len, was.inputs)] != [*map(len, now.inputs)]:
        return False
    try:
        return was.layer.following(was.inputs, now.inputs) == now.layer
    except ShapeError:
        return False


def _is_global(graph: Graph, common: Mapping[str, tuple[Node, Node]]) -> bool:
    """Tell whether a last layer that `change_of` asks reads another height and width."""
    followed: set[int] = set()
    for node in reversed(graph.nodes):
        counts = False
        both = common.get(node.name, ())
        if any(each.is_trained for each in both) and all(len(each.output) > 2 for each in both):
            was, now = ([shape[1:-1] for shape in each.inputs] for each in both)
            counts = any(extent > 1 for shape in (*was, *now) for extent in shape)
            if counts and node.index not in followed and was != now:
                return True
        if counts or node.index in followed:
            followed.update(node.parents)
    return False
