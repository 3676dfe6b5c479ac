"""A net of many equal blocks, shortened to a few of them: all others are as one in the middle.

What devices compute and send for a net is found from block to block; of a row of equal blocks those
in the middle are the same in everything. So a net of 105 blocks is divided, priced and followed as
one of eight.
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Sequence
from dataclasses import replace
from typing import TypeAlias

from paleo.core.frozen import NamedTuple
from paleo.net.graph import Graph, build
from paleo.net.spec import NetSpec
from paleo.step.memory.stage import stage_net
from paleo.step.stages import units

#: So many blocks stay of a row before the one that stands for others, and behind it.
_BEFORE, _BEHIND = 3, 4

#: The nodes of a block, or of what else is dealt out whole.
Unit: TypeAlias = tuple[int, ...]


class Shortened(NamedTuple):
    """A net, and which of its units each unit of the whole net is like; None if it is whole."""

    net: NetSpec
    like: tuple[int, ...] | None = None


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
    graph = build(net)
    each = units(graph)
    kinds = kinds_of(graph, each)
    start, length = longest_row(kinds)
    gone = length - (_BEFORE + 1 + _BEHIND)
    row = slice(start, start + length)
    if gone <= 0 or any(far_reads(graph, each)[row]):
        return Shortened(net)
    middle = start + _BEFORE
    left_out = each[middle + 1 : middle + 1 + gone]
    nodes = {*range(len(graph.nodes))}.difference(*left_out)
    moved = dict(zip(left_out[-1], each[middle], strict=True))
    layers = stage_net(net, graph, sorted(nodes), moved).layers
    index = [*range(middle + 1), *[middle] * gone, *range(middle + 1, len(each) - gone)]
    return Shortened(replace(net, layers=layers, described=None), tuple(index))
