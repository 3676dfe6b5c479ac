"""Writing a net as a net-spec: the JSON text that `paleo.loads` reads.

Layers whose names share what stands before a "/" become a Block. In a block, a layer that
reads just what the block reads has no parents of its own; other layers outside are named
from the net's root, with a "/" before the name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from paleo.core.errors import NetSpecError
from paleo.core.texts import json_text
from paleo.net.spec import MAX_NESTING, LayerSpec, NetSpec

_INDENT = "  "


class _Block:
    """A block, or the root: what stands in it, by the last part of the name."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.entries: dict[str, LayerSpec | _Block] = {}

    def specs(self) -> Iterator[LayerSpec]:
        """Yield the layers in it, those of inner blocks too."""
        for entry in self.entries.values():
            if isinstance(entry, _Block):
                yield from entry.specs()
            else:
                yield entry

    def reads(self) -> tuple[str, ...]:
        """Return the parents outside that most of its layers have; empty if none has any."""
        outside = Counter(
            spec.parents
            for spec in self.specs()
            if spec.parents and not any(parent.startswith(self.prefix) for parent in spec.parents)
        )
        return outside.most_common(1)[0][0] if outside else ()


def dumps(net: NetSpec) -> str:
    """Return the net as the text of a net file, a line for each layer.

    Raises NetSpecError for layers split over devices: only their file says how.
    """
    if net.splits:
        raise NetSpecError(f"{net.name}: a net with ModelParallel is written by hand only")
    lines = ["{", f'{_INDENT}"name": {json_text(net.name)},']
    if net.source:
        lines.append(f'{_INDENT}"source": {json_text(net.source)},')
    if net.notes:
        lines.append(f'{_INDENT}"notes": {json_text(list(net.notes))},')
    lines.append(f'{_INDENT}"layers": {{')
    lines += _lines(_nested(net), (), 2)
    return "\n".join([*lines, f"{_INDENT}}}", "}", ""])


def _nested(net: NetSpec) -> _Block:
    """Return the layers as a tree of blocks; all in the root if their names do not allow it."""
    names = {spec.name for spec in net.layers}
    root = _Block("")
    if not all(all(name.split("/")) for name in names):
        root.entries.update((spec.name, spec) for spec in net.layers)
        return root
    for spec in net.layers:
        block = root
        *front, last = spec.name.split("/")
        for depth, part in enumerate(front):
            taken = block.prefix + part in names
            if taken or "@" in part or depth == MAX_NESTING - 1:
                # A layer has the name that the block would need, or it would mean a slice.
                last = spec.name[len(block.prefix) :]
                break
            inner = block.entries.setdefault(part, _Block(f"{block.prefix}{part}/"))
            assert isinstance(inner, _Block)
            block = inner
        block.entries[last] = spec
    return root


def _lines(block: _Block, reads: tuple[str, ...], depth: int) -> Iterator[str]:
    """Yield the lines of a block's layers; `reads` are the parents of the block itself."""
    start = _INDENT * depth
    last = len(block.entries) - 1
    for i, (name, entry) in enumerate(block.entries.items()):
        comma = "," if i < last else ""
        if isinstance(entry, LayerSpec):
            yield f"{start}{json_text(name)}: {json_text(_layer(entry, block, reads))}{comma}"
            continue
        inner = entry.reads()
        parents = json_text(_references(inner, block, reads))
        yield f'{start}{json_text(name)}: {{"type": "Block", "parents": {parents}, "layers": {{'
        yield from _lines(entry, inner, depth + 1)
        yield f"{start}}}}}{comma}"


def _layer(spec: LayerSpec, block: _Block, reads: tuple[str, ...]) -> dict[str, Any]:
    layer = spec.layer
    body: dict[str, Any] = {
        "type": layer.type_name,
        "parents": _references(spec.parents, block, reads),
    }
    if spec.shares is not None:
        body["shares"] = _reference(spec.shares, block)
    if spec.dtype:
        body["dtype"] = spec.dtype
    for name, key in layer.keys.items():
        value = getattr(layer, name)
        if key.required or value != key.default:
            body[name] = key.kind.written(value)
    return body


def _references(parents: tuple[str, ...], block: _Block, reads: tuple[str, ...]) -> list[str]:
    """Return parents as they are written in a block that has the parents `reads`."""
    if block.prefix and parents == reads:
        return []
    return [_reference(parent, block) for parent in parents]


def _reference(name: str, block: _Block) -> str:
    if name.startswith(block.prefix):
        return name[len(block.prefix) :]
    return f"/{name}"
