"""A net of many equal blocks, shortened to a few of them: all others are as one in the middle.

What devices compute and send for a net is found from block to block; of a row of equal blocks those
in the middle are the same in everything. So a net of 105 blocks is divided, priced and followed as
one of eight. Where one plan is asked for, what was found of the few is put in place of all again.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, TypeAlias, TypeVar, overload

from paleo.core.frozen import NamedTuple, dataclass
from paleo.core.quantity import Quantity, is_array
from paleo.net.graph import Graph, Node, build, cached_for_net
from paleo.net.spec import LayerSpec, LongLayers, NetSpec
from paleo.step.memory.stage import stage_net
from paleo.step.recompute import found_regions
from paleo.step.stages import (
    block_names,
    found_homes,
    found_last_uses,
    found_likes,
    found_standing,
    found_starts,
    units,
)

#: So many blocks stay of a row before the one that stands for others, and behind it.
_BEFORE, _BEHIND = 3, 4

#: The nodes of a block, or of what else is dealt out whole.
Unit: TypeAlias = tuple[int, ...]
_Of = TypeVar("_Of")


class Shortened(NamedTuple):
    """A net, and which of its units each unit of the whole net is like; None if it is whole.

    `blocks` are the names of the whole net's units, none if they have none.
    """

    net: NetSpec
    like: tuple[int, ...] | None = None
    blocks: tuple[str, ...] = ()

    def counts(self, graph: Graph) -> list[int] | None:
        """Return how often each node of a graph is in that of the whole net; None as `Row.of`."""
        row = Row.of(graph, self)
        if row is None:
            return None
        return [1 + row.more * (row.start <= i < row.end) for i in range(len(graph.nodes))]


class Row(NamedTuple):
    """Nodes of a short graph, from `start` to before `end`, that stand for `more` like them.

    These come behind. `names` are by place of the unit, from that before the one in the middle, the
    names of the whole net's blocks.
    """

    start: int
    end: int
    more: int
    names: tuple[str, ...]

    @classmethod
    def of(cls, graph: Graph, short: Shortened) -> Row | None:
        """Return those of a graph of a short net; None if they cannot stand for others."""
        like, each = short.like, units(graph)
        if not like or not short.blocks or max(like) + 1 != len(each):
            return None
        more = len(like) - len(each)
        middle = next(i for i, unit in enumerate(like) if like[i + more] == unit)
        own = each[middle]
        found = cls(own[0], own[-1] + 1, more, short.blocks[middle - 1 : middle + more + 1])
        nodes = graph.nodes[found.start : found.end]
        near = range(found.start - found.size, found.end)
        is_row = (
            [*itertools.chain(*each[middle - 1 : middle + 1])] == [*near]
            and all(i in near for node in nodes for i in node.parents)
            and all(node.like < found.start and node.owner in (None, *near) for node in nodes)
            and len(set(kinds_of(graph, each)[middle - 1 : middle + 2])) == 1
            and all(found.split(node.name) for node in nodes)
        )
        return found if is_row else None

    @property
    def size(self) -> int:
        """How many nodes one has."""
        return self.end - self.start

    @property
    def added(self) -> int:
        """How many nodes those have that come behind."""
        return self.more * self.size

    @property
    def moves(self) -> range:
        """By how many places each of all is behind the one that stands for them."""
        return range(0, self.added + 1, self.size)

    def split(self, name: str) -> tuple[int, str] | None:
        """Return whether a name is of the block before the middle or of it, and what is behind."""
        for place, block in enumerate(self.names[:2]):
            if name.startswith(block) and name[len(block)] in "/.":
                return place, name[len(block) :]
        return None

    def is_even(self, values: Sequence[Quantity]) -> bool:
        """Tell whether numbers by node are the same in the middle and on both sides of it."""
        if any(map(is_array, values)):
            return False
        start, end, size = self.start, self.end, self.size
        own = values[start:end]
        return own == values[start - size : start] == values[end : end + size]

    def behind(self, i: int) -> int:
        """Return where a node is behind the row, or what is read of the row there."""
        return i + self.added if i >= self.start else i

    def all(self, values: Sequence[_Of]) -> list[_Of]:
        """Return values by node of the whole net."""
        own = values[self.start : self.end]
        return [*values[: self.end], *[*own] * self.more, *values[self.end :]]

    def likes(self, values: Sequence[int]) -> list[int]:
        """Return by node of the whole net the first that is like it."""
        return self.all([*values[: self.end], *map(self.behind, values[self.end :])])

    def later(self, values: Sequence[int]) -> list[int]:
        """Return by node of the whole net one that is not before it."""
        own = values[self.start : self.end]
        return [
            *[i if i < self.end else i + self.added for i in values[: self.start]],
            *[i + by for by in self.moves for i in own],
            *[i + self.added for i in values[self.end :]],
        ]

    def regions(self, regions: Sequence[Unit]) -> tuple[Unit, ...]:
        """Return the nodes of regions of the whole net; each begins in a unit."""
        found: list[Unit] = []
        for region in regions:
            moves = self.moves if region[0] >= self.start else self.moves[:1]
            moves = moves if region[0] < self.end else moves[-1:]
            found += [tuple([i + by for i in region]) for by in moves]
        return tuple(found)

    def starts(self, starts: Sequence[int]) -> list[int]:
        """Return the first node of each unit of the whole net."""
        return [start for (start,) in self.regions([(start,) for start in starts])]


#: How what is known of a short graph becomes what is known of the whole.
_LONGER: Mapping[Any, Callable[[Row, Any], Any]] = {
    found_standing: Row.all,
    found_likes: Row.likes,
    found_homes: Row.later,
    found_last_uses: Row.later,
    found_starts: Row.starts,
    found_regions: Row.regions,
}


@dataclass(frozen=True)
class LongGraph(Graph):
    """The graph of a whole net, of which that of a short one is known.

    Nodes are made when they are asked for.
    """

    short: Graph = field(kw_only=True)
    row: Row = field(kw_only=True)

    @classmethod
    def of(cls, short: Graph, row: Row) -> LongGraph:
        """Return the graph in which a row of a short one has all its units."""
        return cls(short.name, _Nodes(short.nodes, row), short.dtype, short=short, row=row)

    def once(self, what: Callable[..., _Of], *arguments: Hashable) -> _Of:
        longer = _LONGER.get(what)
        if longer is None:
            return super().once(what, *arguments)
        found: _Of = self._remembered(
            (what, *arguments), lambda _: longer(self.row, self.short.once(what, *arguments))
        )
        return found

    def by_node(self, what: Callable[[Node], _Of]) -> list[_Of]:
        return self.row.all(self.short.by_node(what))

    def net_of(self, net: NetSpec, nodes: Sequence[int]) -> NetSpec:
        specs = {spec.name: spec for spec in net.layers}
        first: _Nodes = self.nodes  # type: ignore[assignment]
        layers = []
        for i in nodes:
            node, spec = self.nodes[i], specs[first.original(i).name]
            names = tuple([self.nodes[parent].name for parent in node.parents])
            shares = spec.shares if node.owner is None else self.nodes[node.owner].name
            layers.append(LayerSpec(node.name, spec.layer, names, spec.shard, shares, spec.dtype))
        return NetSpec(net.name, tuple(layers), net.file)


class _Nodes(Sequence[Node]):
    """The nodes of a whole graph, each of which is made of one of a short graph."""

    def __init__(self, nodes: Sequence[Node], row: Row) -> None:
        self._short, self._row = nodes, row
        self._made: dict[int, Node] = {}

    def __len__(self) -> int:
        return len(self._short) + self._row.added

    def _place(self, i: int) -> tuple[int, int]:
        """Return of which node one is made, and which copy of it it is."""
        row = self._row
        if not row.start <= i < row.end + row.added:
            return (i, 0) if i < row.start else (i - row.added, row.more)
        copy, place = divmod(i - row.start, row.size)
        return row.start + place, copy

    def original(self, i: int) -> Node:
        """Return the node that one is made of."""
        return self._short[self._place(i)[0]]

    @overload
    def __getitem__(self, i: int) -> Node: ...
    @overload
    def __getitem__(self, i: slice) -> Sequence[Node]: ...
    def __getitem__(self, i: int | slice) -> Node | Sequence[Node]:
        if isinstance(i, slice):
            return [self[place] for place in range(*i.indices(len(self)))]
        if i not in self._made:
            self._made[i] = self._found(range(len(self))[i])
        return self._made[i]

    def _found(self, i: int) -> Node:
        place, copy = self._place(i)
        node, row = self._short[place], self._row
        if not copy:
            return node
        name, like, moved = node.name, node.like, row.behind
        if place < row.end:
            split = row.split(name)
            assert split
            before, behind = split
            name = row.names[before + copy] + behind
            moved = functools.partial(operator.add, copy * row.size)
        else:
            like = moved(like)
        owner = None if node.owner is None else moved(node.owner)
        parents = tuple(map(moved, node.parents))
        return Node(
            i, name, node.layer, node.shard, parents, node.inputs, node.output, like,
            node.shared_params, owner, node.dtype, node.elements, node.handling, node.copied,
            node.is_apart, node.is_last, node.scaled,
        )  # fmt: skip


def kinds_of(graph: Graph, units: Sequence[Unit], again: Container[int] = ()) -> list[int]:
    """Return for each unit a number that equal ones have in common.

    They read alike, and do the same, and that `again`.
    """
    # Of each node its unit, and how far from the end of it.
    places = {
        node: (number, len(unit) - offset)
        for number, unit in enumerate(units)
        for offset, node in enumerate(unit)
    }

    def read(number: int, parent: int) -> tuple[bool, int, int]:
        """Return what is read by its place if it is near, or as it is."""
        before = number - places[parent][0]
        is_near = 0 <= before <= 1
        return (True, before, places[parent][1]) if is_near else (False, parent, 0)

    numbers: dict[object, int] = {}
    found = []
    for number, unit in enumerate(units):
        made = tuple(
            (node.like, i in again, *(read(number, parent) for parent in node.parents))
            for i in unit
            for node in graph.nodes[i : i + 1]
        )
        found.append(numbers.setdefault(made, len(numbers)))
    return found


def longest_row(kinds: Sequence[int]) -> tuple[int, int]:
    """Return where the longest row of equal units begins, and how many it has."""
    best = (0, 0)
    start = 0
    for _, same in itertools.groupby(kinds):
        length = len(list(same))
        best = max(best, (start, length), key=lambda row: row[1])
        start += length
    return best


def far_reads(graph: Graph, units: Sequence[Unit]) -> list[frozenset[int]]:
    """Return the nodes that each unit reads, or has parameters of, of others than the one before.

    Of the one before only in a unit that is not the first.
    """
    found = []
    for number, unit in enumerate(units):
        near = {*unit, *(units[number - 1] if number else ())}
        read = {parent for i in unit for parent in graph.nodes[i].parents} - near
        owners = {owner for i in unit if (owner := graph.nodes[i].owner) is not None}
        found.append(frozenset(read | (owners - set(unit))))
    return found


def shortened(net: NetSpec) -> Shortened:
    """Return a net without most of its equal blocks, or as it is if there are few.

    Blocks that read more than what comes from the one before, such as a table, are not left out.
    """
    return cached_for_net(_shortened, net) or Shortened(net)


def _shortened(net: NetSpec) -> Shortened | None:
    few = net.few
    graph = build(few)
    each = units(graph)
    kinds = kinds_of(graph, each)
    start, length = longest_row(kinds)
    names = block_names(graph)
    if isinstance(net.layers, LongLayers):  # few are there
        first, *gone = [f"{net.layers.prefix}{i}" for i in (net.layers.like, *net.layers.gone)]
        middle = names.index(first) if first in names else -1
        if not start + _BEFORE <= middle < start + length - _BEHIND:
            return _shortened(replace(net, layers=tuple(net.layers)))
        names = (*names[: middle + 1], *gone, *names[middle + 1 :])
        more, left_out = len(gone), each[:0]
    else:
        more, middle = length - (_BEFORE + 1 + _BEHIND), start + _BEFORE
        if more <= 0:
            return None
        left_out = each[middle + 1 : middle + 1 + more]
    far = far_reads(graph, each)
    nodes = {*range(len(graph.nodes))}.difference(*left_out)
    read_behind = frozenset().union(*far[start + length :])
    if any(far[start : start + length]) or not read_behind <= nodes.difference(each[middle]):
        return None
    if left_out:
        moved = dict(zip(left_out[-1], each[middle], strict=True))
        few = replace(
            net, layers=stage_net(net, graph, sorted(nodes), moved).layers, described=None
        )
    behind = range(middle + 1, len(each) - len(left_out))
    index = [*range(middle + 1), *[middle] * more, *behind]
    return Shortened(few, tuple(index), names)
