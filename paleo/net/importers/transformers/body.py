"""Writing the body of a net file: blocks of layers that name each other.

A layer or block is referred to by its path, a tuple of names from the net's root; a name may have
"/" in it, and is then short for blocks around. In the file
stands what the reader looks up from where it is named: a name of the same block, "../" before what
is around it, ".." for what a block reads, "/" before a path from the root.
"""

from __future__ import annotations

from typing import Any, TypeAlias

#: Where a layer is: the names of its blocks and its own.
Path: TypeAlias = tuple[str, ...]

#: What a block reads, as the last name of a path.
_ENTRY = ".."


class Block:
    """A block that is being written, or the root of a net: `layers` are as in its file."""

    def __init__(self, path: Path = (), repeat: int = 0) -> None:
        self.path = path
        self.repeat = repeat
        self.layers: dict[str, Any] = {}

    @property
    def entry(self) -> Path:
        """What the block reads."""
        return (*self.path, _ENTRY)

    def add(
        self, name: str, kind: str, *parents: Path, shares: Path | None = None, **keys: Any
    ) -> Path:
        """Write a layer of a type with keys of it; return where it is.

        It uses the parameters of the one that is named by `shares`.
        """
        assert name not in self.layers, (self.path, name)
        own = {} if shares is None else {"shares": _relative(shares, self.path)}
        self.layers[name] = {"type": kind, "parents": self._references(parents), **own, **keys}
        return (*self.path, name)

    def block(self, name: str, *parents: Path, repeat: int = 0) -> Block:
        """Write a block, of which there are `repeat` instances if that is given; return it."""
        inner = Block((*self.path, name), repeat)
        body: dict[str, Any] = {"type": "Block", "parents": self._references(parents)}
        if repeat:
            body["repeat"] = repeat
        self.layers[name] = {**body, "layers": inner.layers}
        return inner

    def end(self, name: str, path: Path) -> Path:
        """Say at which layer the block of a name in this one ends; return where that block is."""
        inner = (*self.path, name)
        body = self.layers[name]
        body["endpoint"] = _relative(path, inner)
        self.layers[name] = {key: body[key] for key in sorted(body, key=_ORDER.index)}
        return inner

    def _references(self, parents: tuple[Path, ...]) -> list[str]:
        return [] if parents == (self.entry,) else [_relative(one, self.path) for one in parents]


_ORDER = ("type", "parents", "repeat", "endpoint", "layers")


def _relative(path: Path, block: Path) -> str:
    """Return how a layer is named in a block."""
    common = 0
    while common < min(len(path), len(block)) and path[common] == block[common]:
        common += 1
    behind = "/".join(path[common:])
    ups = len(block) - common
    if not ups:
        return behind
    return f"/{behind}" if not common and path[-1] != _ENTRY else "../" * ups + behind
