"""The stages of a net in a pipeline: which nodes each has, and what passes from one to the next.

Blocks that repeat are dealt out whole; what stands before them belongs to the first of them, what
stands behind to the last. Where nothing repeats, a net is cut wherever one tensor alone goes on.
With several chunks, stage s of p has the chunks s, s + p, s + 2 p, ...
"""

from __future__ import annotations

import bisect
import functools
import itertools
from collections.abc import Sequence

from paleo.core.errors import SettingError
from paleo.core.frozen import dataclass
from paleo.core.quantity import Quantity
from paleo.net.graph import Graph
from paleo.step.recompute import repeated_blocks, repeated_names


@dataclass(frozen=True)
class Cut:
    """A net dealt out to chunks: the first node of each and one behind the last; their blocks.

    `homes` are the places of the nodes in that.
    """

    bounds: tuple[int, ...]
    stages: int
    counts: tuple[int, ...]
    homes: Sequence[int]

    @property
    def units(self) -> list[int]:
        """How many blocks each stage has."""
        return [sum(self.counts[stage :: self.stages]) for stage in range(self.stages)]

    @property
    def chunks(self) -> int:
        """How many chunks each stage has."""
        return (len(self.bounds) - 1) // self.stages

    def sums(self, values: Sequence[Quantity]) -> list[Quantity]:
        """Return the sum of the values of each stage's nodes."""
        moved = [*values]
        before: dict[int, Quantity] = {}
        for i, home in self._away:
            moved[i] = 0
            before[home] = before.get(home, 0) + values[i]
        for home, value in before.items():
            moved[home] = value + moved[home]
        until = [0.0, *itertools.accumulate(moved)]
        found: list[Quantity] = [0.0] * self.stages
        for chunk, (start, end) in enumerate(itertools.pairwise(self.bounds)):
            found[chunk % self.stages] = found[chunk % self.stages] + (until[end] - until[start])
        return found

    @functools.cached_property
    def _away(self) -> list[tuple[int, int]]:
        """The nodes whose home is behind them, and where it is."""
        return [(i, home) for i, home in enumerate(self.homes) if i != home]

    def nodes(self, stage: int) -> list[int]:
        """Return the nodes of a stage."""
        return self._nodes[stage]

    @functools.cached_property
    def _nodes(self) -> list[list[int]]:
        """The nodes of each stage."""
        found: list[list[int]] = [[] for _ in range(self.stages)]
        for node, home in enumerate(self.homes):
            found[(bisect.bisect_right(self.bounds, home) - 1) % self.stages].append(node)
        return found

    def passed(self, graph: Graph) -> list[list[int]]:
        """Return by chunk the nodes whose outputs pass the boundary before it: each is sent once.

        None pass the first.
        """
        return graph.once(_passed, self.bounds)


def cut(
    graph: Graph,
    stages: int,
    chunks: int,
    dealt: str | tuple[int, ...],
    seconds: Sequence[float],
) -> Cut:
    """Return a net dealt out to so many stages of so many chunks.

    `dealt` says how: "even", as many units for each; "balanced", as many seconds; or the units of
    each chunk. `seconds` are those of each node. Raises SettingError if there are too few units.
    """
    starts = _units(graph)
    counts = dealt_out(graph.name, len(starts), stages, chunks, dealt)
    if dealt == "balanced":
        until = [0.0, *itertools.accumulate(seconds)]
        ends = [*starts[1:], len(graph.nodes)]
        first = [0, *starts[1:]]
        own = [until[end] - until[start] for start, end in zip(first, ends, strict=True)]
        counts = _balanced(own, stages * chunks)
    firsts = [0, *itertools.accumulate(counts)]
    bounds = [0, *(starts[i] for i in firsts[1:-1]), len(graph.nodes)]
    return Cut(tuple(bounds), stages, tuple(counts), homes(graph))


def dealt_out(
    name: str, count: int, stages: int, chunks: int, dealt: str | tuple[int, ...]
) -> Sequence[int]:
    """Return how many of so many units each chunk has: evenly, if it does not say them.

    See `cut`. Raises SettingError if there are too few.
    """
    wanted = stages * chunks
    if isinstance(dealt, tuple):
        if len(dealt) != wanted or sum(dealt) != count:
            raise SettingError(
                f"stages: {name} has {count} blocks for {wanted} stages, got "
                f"{','.join(map(str, dealt))}"
            )
        return dealt
    if wanted > count:
        each = f" of {chunks} chunks" if chunks > 1 else ""
        raise SettingError(f"pp: {name} has {count} blocks, too few for {stages} stages{each}")
    return _evenly(count, wanted)


def _passed(graph: Graph, bounds: tuple[int, ...]) -> list[list[int]]:
    """Return for each boundary the nodes whose outputs pass it."""
    found: list[list[int]] = [[] for _ in bounds[1:]]
    stands = _is_standing(graph)
    for node, last in enumerate(_last_uses(graph)):
        # Those that pass one are read behind it, which few are.
        behind, end = bisect.bisect_right(bounds, node), bisect.bisect_right(bounds, last)
        if behind < end and not stands[node] and not graph.nodes[node].layer.is_source():
            for chunk in range(behind, end):
                found[chunk].append(node)
    return found


@functools.lru_cache
def _evenly(count: int, parts: int) -> tuple[int, ...]:
    """Return as many for each part; the first ones have one less where they do not divide.

    The last one, too, if more than one has: what stands before and behind blocks is theirs.
    """
    least, more = divmod(count, parts)
    counts = [least] * parts
    middle = sorted(range(parts), key=lambda i: (i in (0, parts - 1), i))
    for i in middle[:more]:
        counts[i] += 1
    return tuple(counts)


def _balanced(seconds: Sequence[float], parts: int) -> list[int]:
    """Return how many units each part has so that the longest part is shortest."""
    until = [0.0, *itertools.accumulate(seconds)]
    count = len(seconds)
    # best[j]: the least longest part of the first j units, in so many parts as were looked at.
    best = [float("inf")] * (count + 1)
    best[0] = 0.0
    chosen: list[list[int]] = []
    for part in range(1, parts + 1):
        now, how = [float("inf")] * (count + 1), [0] * (count + 1)
        for end in range(part, count - (parts - part) + 1):
            for start in range(part - 1, end):
                longest = max(best[start], until[end] - until[start])
                if longest < now[end]:
                    now[end], how[end] = longest, start
        best = now
        chosen.append(how)
    counts, end = [], count
    for how in reversed(chosen):
        counts.append(end - how[end])
        end = how[end]
    return counts[::-1]


def units(graph: Graph) -> list[tuple[int, ...]]:
    """Return the nodes of each unit that is dealt out whole."""
    starts = starts_of(graph)
    found: list[list[int]] = [[] for _ in starts]
    for node, home in enumerate(homes(graph)):
        found[bisect.bisect_right(starts, home) - 1].append(node)
    return [tuple(each) for each in found]


def starts_of(graph: Graph) -> list[int]:
    """Return where each unit begins: the first with what stands before it."""
    return [0, *_units(graph)[1:]]


def _units(graph: Graph) -> list[int]:
    return graph.once(found_starts)


def block_names(graph: Graph) -> tuple[str, ...]:
    """Return the names of the blocks that are units, in order; none if nothing repeats."""
    return tuple(name for _, name in sorted(_blocks(graph)))


def _blocks(graph: Graph) -> list[tuple[int, str]]:
    """Return the first node and the name of each block that repeats."""
    standing = _is_standing(graph)
    named = zip(repeated_blocks(graph), repeated_names(graph), strict=True)
    return [(min(i for i in block if not standing[i]), name) for block, name in named]


def found_starts(graph: Graph) -> list[int]:
    """Return the first node of each unit that is dealt out whole."""
    blocks = _blocks(graph)
    standing = _is_standing(graph)
    if blocks:
        return sorted(start for start, _ in blocks)
    last = _last_uses(graph)
    starts, alive = [], 0
    ends = [0] * (len(graph.nodes) + 1)
    for node in graph.nodes:
        if standing[node.index]:
            continue
        # `alive` are those made before that are read here or later.
        if node.index and alive <= 1:
            starts.append(node.index)
        alive -= ends[node.index]
        if last[node.index] > node.index:
            alive += 1
            ends[last[node.index]] += 1
    return starts or [0]


def _is_standing(graph: Graph) -> list[bool]:
    return graph.once(found_standing)


def found_standing(graph: Graph) -> list[bool]:
    """Tell of each node whether nothing that comes in is in it: it is of parameters alone."""
    found: list[bool] = []
    for node in graph.nodes:
        found.append(not node.layer.is_input and all(found[parent] for parent in node.parents))
    return found


def homes(graph: Graph) -> Sequence[int]:
    """Return where each node is: what is of parameters alone, where it is first read."""
    return graph.once(found_homes)


def found_homes(graph: Graph) -> Sequence[int]:
    """Return the same, anew."""
    found = list(range(len(graph.nodes)))
    standing = _is_standing(graph)
    if not any(standing):
        return found
    first = [len(found)] * len(found)
    for node in reversed(graph.nodes):
        if standing[node.index] and first[node.index] < len(found):
            found[node.index] = first[node.index]
        for parent in node.parents:
            first[parent] = min(first[parent], found[node.index])
    return found


def _last_uses(graph: Graph) -> list[int]:
    return graph.once(found_last_uses)


def found_last_uses(graph: Graph) -> list[int]:
    """Return for each node the last that reads it, itself if none does."""
    last = list(range(len(graph.nodes)))
    for node in graph.nodes:
        for parent in node.parents:
            last[parent] = node.index
    return last


def found_likes(graph: Graph) -> list[int]:
    """Return for each node the first that does the same."""
    return [node.like for node in graph.nodes]
