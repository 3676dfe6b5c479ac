"""Activations that are computed again in the backward pass, so that they need not be kept.

`full` keeps what comes into a block, and computes all of its forward pass again before its backward
pass (T. Chen et al., "Training deep nets with sublinear memory cost", arXiv:1604.06174, as
torch.utils.checkpoint around each block). `selective` does so with the core of attention alone:
scores, softmax and the sum of values (V. Korthikanti et al., "Reducing activation recomputation in
large transformer models", arXiv:2205.05198, section 4). A fused kernel of attention keeps no scores
and computes them again by itself, so that nothing is left for `selective` to do there.

A block is one of several that differ in a number: `h/0`, `h/1`, ... of which two at least have the
same layers; of blocks within each other, the outermost. So the stages of a ResNet, which all
differ, are no blocks, and what they consist of is.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence
from typing import Any

from paleo.core.checks import listed, shown
from paleo.core.errors import SettingError, near, results_of
from paleo.core.frozen import dataclass
from paleo.core.operations import Kind, Pass
from paleo.core.quantity import product
from paleo.net.graph import Graph, Node
from paleo.net.layers import Layer

#: What divides the names of blocks: "/" in net files, "." in modules of frameworks.
_PATH = re.compile(r"[/.]")
_NUMBER = re.compile(r"\d+")
#: So many blocks are named where one is not known.
_SOME = 3
#: What is said of each mode.
MODES = {
    "none": "all that the backward pass needs is kept",
    "selective": "the core of attention is computed again",
    "full": "the forward pass of each block is computed again",
}
#: What there is to know where attention is one kernel.
FUSED_NOTE = (
    "attention is one kernel, which keeps a number for each row and no scores: selective "
    "recomputation has nothing to compute again"
)

#: The pass in which that is done, in timelines and where memory is at its peak.
RECOMPUTATION = "recomputation"
#: Nodes that are computed again together, by their indices.
Region = tuple[int, ...]


@dataclass(frozen=True)
class Recompute:
    """What is computed again: a mode of MODES, in the `blocks` of these names alone if any are.

    They are computed again as a `whole`, or if blocks that repeat are within one, each of those.
    """

    mode: str = "none"
    blocks: tuple[str, ...] = ()
    whole: bool = False

    def __str__(self) -> str:
        return f"{self.mode}:{','.join(self.blocks)}" if self.blocks else self.mode

    def regions(self, graph: Graph) -> tuple[Region, ...]:
        """Return what of a graph is computed again; raises SettingError for an unknown block."""
        return graph.once(found_regions, self) if self.mode != "none" else ()

    def within(self, graph: Graph, nodes: Container[int]) -> Recompute:
        """Return what is computed again of these nodes of a graph, which are a net of their own.

        Blocks are named: of a stage that has one of them nothing repeats.
        """
        if self.mode == "none" or (self.mode == "selective" and not self.blocks):
            return self
        blocks = graph.once(_blocks)
        names = self.blocks if self.mode == "selective" else graph.once(_whole, self)
        own = tuple(name for name in names if any(i in nodes for i in blocks[name]))
        return Recompute(self.mode, own, whole=True) if own else NOTHING

    def notes(self, graph: Graph) -> tuple[str, ...]:
        """Return what a reader should know of what is computed again."""
        if self.mode == "none" or self.regions(graph):
            return ()
        if self.mode == "full":
            return (f"{graph.name} has no blocks that repeat: nothing is computed again",)
        if any(node.layer.is_attention for node in graph.nodes):
            return (FUSED_NOTE,)
        return (f"{graph.name} has no attention: nothing is computed again",)


#: Everything is kept.
NOTHING = Recompute()


def find_recompute(given: Any) -> Recompute:
    """Return what a text means: a mode of MODES, or such as "full:h/0,h/1"; raises SettingError."""
    if isinstance(given, Recompute):
        return given
    mode, colon, names = given.partition(":") if isinstance(given, str) else ("", "", "")
    blocks = tuple(name.strip().rstrip("/") for name in names.split(",") if name.strip())
    if mode not in MODES or (colon and (mode == "none" or not blocks)):
        raise SettingError(
            f"recompute: expected none, selective or full, or such as full:BLOCK, got "
            f"{shown(given)}"
        )
    return Recompute(mode, blocks)


def find_recomputes(given: Any) -> tuple[Recompute, ...]:
    """Return what is meant by one text or several: blocks may follow those of the text before.

    Raises SettingError with every mistake.
    """
    texts: list[Any] = []
    for each in listed("recompute", given, str | Recompute):
        if isinstance(each, str) and texts and ":" in str(texts[-1]) and not _is_mode(each):
            texts[-1] = f"{texts[-1]},{each}"
        else:
            texts.append(each)
    return tuple(results_of(find_recompute, texts))


def _is_mode(text: str) -> bool:
    return text.partition(":")[0] in MODES


def found_regions(graph: Graph, recompute: Recompute) -> tuple[Region, ...]:
    """Return what of a graph is computed again; raises SettingError for an unknown block."""
    blocks = graph.once(_blocks)
    for name in recompute.blocks:
        if name not in blocks:
            some = f"; there are {', '.join([*blocks][:_SOME])}, ..." if blocks else " at all"
            raise SettingError(
                f"recompute: {graph.name} has no block {shown(name)}{near(name, blocks) or some}"
            )
    if recompute.mode == "selective":
        within = {i for name in recompute.blocks for i in blocks[name]}
        cores = _cores(graph)
        return tuple(core for core in cores if not recompute.blocks or within.issuperset(core))
    return tuple(tuple(blocks[name]) for name in graph.once(_whole, recompute))


def _whole(graph: Graph, recompute: Recompute) -> tuple[str, ...]:
    """Return the names of the blocks that are computed again whole."""
    if recompute.whole:
        return recompute.blocks
    repeated = _repeated(graph, graph.once(_blocks))
    names: Iterable[str] = repeated
    if recompute.blocks:
        names = [
            block
            for name in recompute.blocks
            for block in [each for each in repeated if _PATH.match(each.removeprefix(name))]
            or [name]
        ]
    return tuple(dict.fromkeys(names))


def repeated_blocks(graph: Graph) -> tuple[Region, ...]:
    """Return the nodes of each block that repeats."""
    return Recompute("full").regions(graph)


def repeated_names(graph: Graph) -> tuple[str, ...]:
    """Return the names of the blocks that repeat."""
    return graph.once(_whole, Recompute("full"))


def _blocks(graph: Graph) -> dict[str, list[int]]:
    """Return the nodes of all blocks, those within others too, by name."""
    blocks: dict[str, list[int]] = {}
    within: dict[str, list[list[int]]] = {}  # the blocks that a folder is in
    for node in graph.nodes:
        folder = node.name[: max(node.name.rfind("/"), node.name.rfind(".")) + 1]
        if folder not in within:
            ends = [match.start() for match in _PATH.finditer(node.name)]
            within[folder] = [blocks.setdefault(node.name[:end], []) for end in ends]
        for block in within[folder]:
            block.append(node.index)
    return blocks


def _repeated(graph: Graph, blocks: dict[str, list[int]]) -> list[str]:
    """Return the names of the blocks that repeat, of those within each other the outermost."""
    families: dict[str, list[str]] = {}
    for name in blocks:
        start = max(name.rfind("/"), name.rfind(".")) + 1
        if _NUMBER.search(name, start):
            families.setdefault(name[:start] + _NUMBER.sub("#", name[start:]), []).append(name)
    # Most layers are the same object.
    numbers: dict[Layer, int] = {}
    known = {id(node.layer): node.layer for node in graph.nodes}
    kinds = {which: numbers.setdefault(layer, len(numbers)) for which, layer in known.items()}

    def layers(name: str) -> frozenset[Any]:
        # In any order: where layers do not read each other, an export may turn them round.
        nodes = (graph.nodes[i] for i in blocks[name])
        return frozenset((node.name[len(name) :], kinds[id(node.layer)]) for node in nodes)

    chosen: dict[str, None] = {}
    for names in families.values():
        if len({layers(name) for name in names}) < len(names):
            chosen |= dict.fromkeys(names)

    def is_within(name: str) -> bool:
        return any(name[: match.start()] in chosen for match in _PATH.finditer(name))

    return [name for name in chosen if not is_within(name)]


def _cores(graph: Graph) -> list[Region]:
    """Return the cores of attention: from the product that makes scores to that of the values.

    Between them and the softmax there are nodes of as many elements, such as masks and dropout. In
    a layer that does all of it by several kernels the core is the node alone.
    """
    kinds = [[each.kind for each in graph.operations(node, Pass.FORWARD)] for node in graph.nodes]
    children: list[list[int]] = [[] for _ in graph.nodes]
    for node in graph.nodes:
        for parent in node.parents:
            children[parent].append(node.index)
    parents = [node.parents for node in graph.nodes]

    def is_product(i: int) -> bool:
        return not graph.nodes[i].is_trained and kinds[i].count(Kind.MATMUL) == 1

    cores: list[Region] = []
    for node in graph.nodes:
        has = kinds[node.index]
        if Kind.SOFTMAX not in has:
            continue
        if has.count(Kind.MATMUL) == 2 and not node.is_trained:
            cores.append((node.index,))
            continue
        before = _to_product(graph, node, parents, is_product)
        after = _to_product(graph, node, children, is_product)
        if before and after:
            cores.append(tuple(sorted({*before, node.index, *after})))
    return cores


def _to_product(
    graph: Graph, softmax: Node, neighbours: Sequence[Sequence[int]], is_product: Any
) -> list[int]:
    """Return the nodes from a softmax to the nearest product, both ways none if there is none.

    Those before the product have as many elements a sample as the softmax.
    """
    size = product(softmax.output[1:])

    def follow(i: int) -> list[int]:
        for j in neighbours[i]:
            if is_product(j):
                return [j]
            found = follow(j) if product(graph.nodes[j].output[1:]) == size else []
            if found:
                return [j, *found]
        return []

    return follow(softmax.index)
