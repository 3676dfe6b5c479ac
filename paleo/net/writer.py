"""Writing a net as a net-spec: the JSON text that `paleo.loads` reads.

A net that was read from a file with dimensions or repeated blocks, and is as it was read, is
written as that file has it. Of any other, layers whose names share what stands before a "/" become
a Block. In a block, a layer that reads just what the block reads has no parents of its own; other
layers outside are named from the net's root, with a "/" before the name. Blocks "0", "1", ... that
are equal, each of which reads the one before, become one that is repeated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from paleo.core.errors import NetSpecError
from paleo.core.texts import json_text
from paleo.net.spec import MAX_NESTING, LayerSpec, NetSpec

_INDENT = "  "


class _Block:
    """A block, or the root: what stands in it, by the last part of the name."""

    def __init__(self, prefix: str, outer: _Block | None = None) -> None:
        self.prefix = prefix
        self.outer = outer
        self.entries: dict[str, LayerSpec | _Block] = {}
        #: Of a repeated block: how many instances, what the first reads, the last layer of each.
        self.repeat = 0
        self.read = ""
        self.endpoint = ""

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
    if net.of_numbers().splits:
        raise NetSpecError(f"{net.name}: a net with ModelParallel is written by hand only")
    lines = ["{", f'{_INDENT}"name": {json_text(net.name)},']
    if net.source:
        lines.append(f'{_INDENT}"source": {json_text(net.source)},')
    if net.notes:
        lines.append(f'{_INDENT}"notes": {json_text(list(net.notes))},')
    if net.description is None:
        inside = _lines(_folded(_nested(net)), (), 2)
    else:
        body = net.description.body
        if body.get("dims"):
            lines.append(f'{_INDENT}"dims": {json_text(body["dims"])},')
        inside = _as_read(body["layers"], 2)
    lines.append(f'{_INDENT}"layers": {{')
    return "\n".join([*lines, *inside, f"{_INDENT}}}", "}", ""])


def _as_read(layers: Mapping[str, Any], depth: int) -> Iterator[str]:
    """Yield the lines of layers as a file has them."""
    start = _INDENT * depth
    last = len(layers) - 1
    for i, (name, body) in enumerate(layers.items()):
        comma = "," if i < last else ""
        if "layers" not in body:
            yield f"{start}{json_text(name)}: {json_text(body)}{comma}"
            continue
        head = json_text({key: value for key, value in body.items() if key != "layers"})
        yield f'{start}{json_text(name)}: {head[:-1]}, "layers": {{'
        yield from _as_read(body["layers"], depth + 1)
        yield f"{start}}}}}{comma}"


def _nested(net: NetSpec) -> _Block:
    """Return the layers as a tree of blocks; all in the root if their names do not allow it."""
    names = {spec.name for spec in net.layers}
    root = _Block("")
    if not all(all(name.split("/")) for name in names):
        root.entries.update((spec.name, spec) for spec in net.layers)
        return root
    _fill(root, net.layers)
    return root


def _fill(root: _Block, specs: Iterable[LayerSpec]) -> None:
    """Put layers into a block, and into the blocks in it that their names say."""
    specs = tuple(specs)
    names = {spec.name for spec in specs}
    outside = root.prefix.count("/")
    for spec in specs:
        block = root
        *front, last = spec.name[len(root.prefix) :].split("/")
        for depth, part in enumerate(front):
            taken = block.prefix + part in names
            if taken or "@" in part or outside + depth >= MAX_NESTING - 1:
                # A layer has the name that the block would need, or it would mean a slice.
                last = spec.name[len(block.prefix) :]
                break
            inner = block.entries.setdefault(part, _Block(f"{block.prefix}{part}/", block))
            assert isinstance(inner, _Block)
            block = inner
        block.entries[last] = spec


def _folded(root: _Block) -> _Block:
    """Return the same blocks, those that are repeated as one; `root` is changed."""
    parts = {part for spec in root.specs() for part in spec.name.split("/")}
    if parts & {"*", ".."}:  # which mean something in what would be written
        return root
    waiting = [root]
    while waiting:
        block = waiting.pop()
        for name, entry in block.entries.items():
            if isinstance(entry, _Block):
                block.entries[name] = inner = _repeated(entry) or entry
                waiting.append(inner)
    return root


def _repeated(block: _Block) -> _Block | None:
    """Return the repeated block that stands for blocks "0", "1", ...; None if none does."""
    instances = list(block.entries.values())
    if len(instances) < 2 or list(block.entries) != [str(i) for i in range(len(instances))]:
        return None
    if not all(isinstance(each, _Block) for each in instances):
        return None
    first, second = ([*each.specs()] for each in instances[:2] if isinstance(each, _Block))
    start = f"{block.prefix}0/"
    chained = {name for spec in second for name in spec.parents if name.startswith(start)}
    if len(chained) != 1 or len(first) != len(second):
        return None
    template = f"{block.prefix}*/"
    endpoint = chained.pop()[len(start) :]
    wanted = _template(second, f"{block.prefix}1/", start + endpoint, template)
    if any(template in spec.parents and spec.layer.is_input for spec in wanted):
        return None
    read = {
        parent
        for spec, same in zip(first, wanted, strict=True)
        for parent, known in zip(spec.parents, same.parents, strict=False)
        if known == template
    }
    if len(read) != 1:
        return None
    found = _Block(template, block.outer)
    (found.read,) = read
    found.repeat, found.endpoint = len(instances), endpoint
    before = found.read
    for index, instance in enumerate(instances):
        assert isinstance(instance, _Block)
        specs = _template([*instance.specs()], f"{block.prefix}{index}/", before, template)
        before = f"{block.prefix}{index}/{endpoint}"
        if index == 0:
            specs = [_like(spec, same, found) for spec, same in zip(specs, wanted, strict=False)]
        if specs != wanted:
            return None
    # Other instances than the one before are not to be read.
    names = {name for spec in wanted for name in spec.parents if name.startswith(block.prefix)}
    if any(not name.startswith(template) for name in names):
        return None
    _fill(found, wanted)
    return found


def _template(specs: list[LayerSpec], prefix: str, read: str, template: str) -> list[LayerSpec]:
    """Return the layers of an instance as they are called in all of them."""

    def renamed(name: str) -> str:
        return template + name[len(prefix) :] if name.startswith(prefix) else name

    return [
        replace(
            spec,
            name=renamed(spec.name),
            parents=tuple(template if name == read else renamed(name) for name in spec.parents),
            shares=spec.shares and renamed(spec.shares),
        )
        for spec in specs
    ]


def _like(spec: LayerSpec, same: LayerSpec, block: _Block) -> LayerSpec:
    """Return a layer of the first instance as it is in the others.

    They may share its parameters, or name what the first reads by its own name.
    """
    first = f"{block.prefix[:-2]}0/"
    shares = spec.shares
    if shares is None and same.shares == first + same.name[len(block.prefix) :]:
        shares = same.shares
    pairs = zip(spec.parents, same.parents, strict=False)
    parents = tuple(known if known == block.read else name for name, known in pairs)
    return replace(spec, shares=shares, parents=parents)


def _lines(block: _Block, reads: tuple[str, ...], depth: int) -> Iterator[str]:
    """Yield the lines of a block's layers; `reads` are the parents of the block itself."""
    start = _INDENT * depth
    last = len(block.entries) - 1
    for i, (name, entry) in enumerate(block.entries.items()):
        comma = "," if i < last else ""
        if isinstance(entry, LayerSpec):
            yield f"{start}{json_text(name)}: {json_text(_layer(entry, block, reads))}{comma}"
            continue
        keys: dict[str, Any] = {"type": "Block"}
        if entry.repeat:
            keys["repeat"] = entry.repeat
            keys["parents"] = _references((entry.read,), block, reads)
            keys["endpoint"] = entry.endpoint
            inner: tuple[str, ...] = (entry.prefix,)
        else:
            inner = entry.reads()
            keys["parents"] = _references(inner, block, reads)
        yield f'{start}{json_text(name)}: {json_text(keys)[:-1]}, "layers": {{'
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
    """Return a name as it is written in a block: "../" for what is in the same instance around."""
    around: _Block | None = block
    up = ""
    while around is not None and (around is block or "*/" in around.prefix):
        if around.repeat and name == around.prefix:
            return f"{up}.."
        if name.startswith(around.prefix):
            return up + name[len(around.prefix) :]
        around, up = around.outer, f"{up}../"
    return f"/{name}"
