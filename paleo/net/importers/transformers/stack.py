"""Layers of a model, one behind the other, as blocks that repeat.

What is the same in all layers but for keys of their attention, such as its window, is one block
with these keys by index. Where layers differ in what they are, those at the start that are not
repeated are a block each, and what recurs is a block of several layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from paleo.core.frozen import dataclass
from paleo.net.importers.transformers.body import Block, Path
from paleo.net.importers.transformers.parts import Attention, Length, add, norm


class Part(Protocol):
    """What reads N x T x H and gives as much."""

    def write(self, block: Block, x: Path, length: Length) -> Path:
        """Write its layers in a block; return where its output is."""


@dataclass(frozen=True)
class Layer:
    """One layer: what mixes positions, and what computes on each; a sum around either.

    The others are names of normalizations, "" for none: before the mixer, of its result, of the
    sum, and the same of `feed`, and of `cross`, which stands between the two and reads an encoder.
    With `parallel` both read the layer's input, and there is one sum.
    """

    mixer: Part
    feed: Part | None
    norm: str
    before: str = ""
    after: str = ""
    summed: str = ""
    before_feed: str = ""
    after_feed: str = ""
    summed_feed: str = ""
    parallel: bool = False
    cross: Part | None = None
    before_cross: str = ""
    summed_cross: str = ""

    def write(self, block: Block, x: Path, length: Length) -> Path:
        """Write the layer in a block."""
        read = norm(block, self.before, x, self.norm)
        mixed = norm(block, self.after, self.mixer.write(block, read, length), self.norm)
        if self.parallel:
            assert self.feed
            read = norm(block, self.before_feed, x, self.norm) if self.before_feed else read
            return add(block, "add", x, mixed, self.feed.write(block, read, length))
        x = norm(block, self.summed, add(block, "add_1", x, mixed), self.norm)
        if self.cross is not None:
            read = norm(block, self.before_cross, x, self.norm)
            x = add(block, "add_cross", x, self.cross.write(block, read, length))
            x = norm(block, self.summed_cross, x, self.norm)
        if self.feed is None:
            return x
        read = norm(block, self.before_feed, x, self.norm)
        fed = norm(block, self.after_feed, self.feed.write(block, read, length), self.norm)
        return norm(block, self.summed_feed, add(block, "add_2", x, fed), self.norm)

    @property
    def keys(self) -> dict[str, Any]:
        """The keys of its attention."""
        return dict(self.mixer.keys) if isinstance(self.mixer, Attention) else {}

    def with_keys(self, keys: dict[str, Any]) -> Layer:
        """Return the layer with other keys of its attention."""
        if not isinstance(self.mixer, Attention):
            return self
        return replace(self, mixer=replace(self.mixer, keys=tuple(keys.items())))


def stack(block: Block, name: str, x: Path, layers: Sequence[Layer], length: Length) -> Path:
    """Write layers, one behind the other, under a name; return where the last one's output is."""
    if len({layer.with_keys({}) for layer in layers}) == 1:
        return _repeated(block, name, x, [_merged(layers)], len(layers), length)
    first, period = _recurring(layers)
    if first == len(layers):
        for index, layer in enumerate(layers):
            x = _one(block, f"{name}/{index}", x, layer, length)
        return x
    if first:
        x = stack(block, _named(name, 0, first), x, layers[:first], length)
        name = _named(name, first, len(layers))
    count = (len(layers) - first) // period
    return _repeated(block, name, x, layers[first : first + period], count, length)


def _named(name: str, begin: int, end: int) -> str:
    """Return the name of layers of a model, which says which they are."""
    return f"{name}_{begin}" if end - begin == 1 else f"{name}_{begin}_{end - 1}"


def _repeated(
    block: Block, name: str, x: Path, layers: Sequence[Layer], count: int, length: Length
) -> Path:
    """Write a block of some layers that is repeated."""
    inner = block.block(name, x, repeat=count)
    if len(layers) == 1:
        return block.end(name, layers[0].write(inner, inner.entry, length))
    x = inner.entry
    for index, layer in enumerate(layers):
        x = _one(inner, str(index), x, layer, length)
    return block.end(name, x)


def _one(block: Block, name: str, x: Path, layer: Layer, length: Length) -> Path:
    """Write a layer as a block."""
    inner = block.block(name, x)
    return block.end(name, layer.write(inner, inner.entry, length))


def _merged(layers: Sequence[Layer]) -> Layer:
    """Return layers that differ in keys of their attention as one, with these keys by index."""
    period = next(p for p in range(1, len(layers) + 1) if _recurs([x.keys for x in layers], p))
    found: dict[str, Any] = {}
    for key in dict.fromkeys(key for layer in layers[:period] for key in layer.keys):
        values = [layer.keys.get(key) for layer in layers[:period]]
        same = all(value == values[0] for value in values)
        found[key] = values[0] if same else {"by_index": values}
    return layers[0].with_keys(found)


def _recurring(layers: Sequence[Layer]) -> tuple[int, int]:
    """Return how many layers are before those that recur, and how many recur: the fewest."""
    count = len(layers)
    choices = [
        (first + period, first, period)
        for first in range(count)
        for period in range(1, (count - first) // 2 + 1)
        if not (count - first) % period and _recurs(layers[first:], period)
    ]
    _, first, period = min(choices, default=(count, count, 1))
    return first, period


def _recurs(values: Sequence[Any], period: int) -> bool:
    return all(value == values[index % period] for index, value in enumerate(values))
