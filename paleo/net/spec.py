"""The net-spec: the JSON format of nets, read and checked, blocks expanded.

`parse` turns text into a NetSpec, a flat list of layers with full names, in three steps:
decode the JSON, declare every layer and block, resolve parents. Each step notes mistakes
and goes on, so that a file's mistakes are reported together. nets/README.md is the
format's reference.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import field, replace
from typing import Any

from paleo.core.checks import shown, whole_number
from paleo.core.errors import Mistake, Mistakes, NetSpecError
from paleo.core.frozen import dataclass
from paleo.core.tensor import DTYPES
from paleo.net.layers import LAYERS, Layer, ShapeError

#: The keys of a net file, and what each is.
ROOT_KEYS = {
    "$schema": "where an editor finds the JSON Schema; Paleo does not look at it",
    "name": "the net's name",
    "source": "where the net is published",
    "notes": "what a reader of its figures must know, a text each",
    "layers": "layer names to layers",
}
#: The keys that layers of all types take, besides those of their own.
LAYER_KEYS = {
    "type": "the layer's type",
    "parents": "the layers that feed this one",
    "shares": "a layer whose parameters this one uses too; they are counted there",
    "dtype": "the element type that the forward pass of this layer is computed in, whatever that "
    "of the net is, where the device can",
}
#: The container types, and their keys.
BLOCKS = {
    "Block": ("type", "parents", "layers", "endpoint"),
    "ModelParallel": ("type", "parents", "layers", "splits"),
}
MAX_NESTING = 50
MAX_SPLITS = 1024
_MAX_DIGITS = 30


@dataclass(frozen=True)
class LayerSpec:
    """One layer of a net, or one slice of a layer split over devices.

    `name` is full, such as "block/conv1" or "block/conv1@0"; `parents` are such names in
    the order of the file; `shard` is the slice's index, or None for an unsplit layer. The
    layer uses the parameters of the one named by `shares` too, as far as both have them. Its
    forward pass is computed in `dtype`, "" for that of the net.
    """

    name: str
    layer: Layer
    parents: tuple[str, ...]
    shard: int | None = None
    shares: str | None = None
    dtype: str = ""

    @property
    def origin(self) -> str:
        """The name in the file, which all slices share."""
        return self.name if self.shard is None else self.name.rpartition("@")[0]


@dataclass(frozen=True)
class NetSpec:
    """A net as its file describes it: layers in the file's order, blocks expanded.

    It knows no batch size but the file's own; `paleo.build` gives it one.
    """

    name: str
    layers: tuple[LayerSpec, ...]
    #: The file it was read from, for messages.
    file: str | None = None
    #: Where the net is published.
    source: str = ""
    #: What a reader of its figures must know, such as what an importer took for granted.
    notes: tuple[str, ...] = ()

    def __hash__(self) -> int:
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:
        """Found once: what is known of a net is looked up by it, whose layers are many."""
        return hash((self.name, self.layers, self.file))

    @property
    def splits(self) -> tuple[int, ...]:
        """The different numbers of slices that its layers are split into, none if unsplit."""
        slices = Counter(spec.origin for spec in self.layers if spec.shard is not None)
        return tuple(sorted(set(slices.values())))

    @functools.cached_property
    def dtypes(self) -> frozenset[str]:
        """The element types that layers of it are computed in, whatever that of the net is."""
        return frozenset(spec.dtype for spec in self.layers if spec.dtype)

    def without_dtypes(self, dtypes: Collection[str]) -> NetSpec:
        """Return this net with layers of these element types computed in the net's own."""
        layers = tuple(
            replace(spec, dtype="") if spec.dtype in dtypes else spec for spec in self.layers
        )
        return replace(self, layers=layers)

    def with_batch(self, batch_size: int) -> NetSpec:
        """Return this net with another batch size of its own."""
        layers = tuple(
            replace(spec, layer=spec.layer.of_shape((batch_size, *spec.layer.infer_shape(())[1:])))
            if spec.layer.is_input
            else spec
            for spec in self.layers
        )
        return replace(self, layers=layers)


class _Object(dict[str, Any]):
    """A JSON object that remembers which of its keys came twice."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.repeated: list[str] = []
        if len(self) < len(pairs):
            counts = Counter(name for name, _ in pairs)
            self.repeated = [name for name, count in counts.items() if count > 1]


@dataclass
class _Scope:
    """A block, or the root: a namespace of layers. Every layer in it starts with `prefix`."""

    prefix: str = ""
    outer: _Scope | None = None
    parents: list[str] | None = field(default_factory=list)
    endpoint: str | None = None
    splits: int | None = None
    kind: str = "net"

    @property
    def name(self) -> str:
        return self.prefix.rstrip("/")


@dataclass
class _Leaf:
    """A layer as declared: `layer` and `parents` are None if they are faulty."""

    name: str
    scope: _Scope
    layer: Layer | None = None
    #: Whether its type takes no parents.
    is_source: bool = False
    parents: list[str] | None = None
    shares: str | None = None
    dtype: str = ""


def parse(text: str | bytes, file: str | None, mistakes: Mistakes) -> NetSpec:
    """Return what can be read of a net-spec, noting every mistake.

    Layers with a mistake are left out of the result, as are parents that do not exist.
    Raises NetSpecError if it is not a JSON object at all.
    """
    try:
        return _Reader(mistakes).read(_decode(text, file), file)
    except RecursionError:
        raise NetSpecError(Mistake("not a net: nested too deeply", file)) from None


def _whole_number(digits: str) -> int:
    """Return a number of a file; one of very many digits as another that is too large."""
    return int(digits) if len(digits) <= _MAX_DIGITS else 10**_MAX_DIGITS


def _decode(text: str | bytes, file: str | None) -> _Object:
    try:
        value = json.loads(
            (text if isinstance(text, str) else text.decode("utf-8")).lstrip("\ufeff"),
            object_pairs_hook=_Object,
            parse_int=_whole_number,
        )
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise NetSpecError(Mistake(f"not JSON: {error.msg} at {place}", file)) from None
    except UnicodeDecodeError:
        raise NetSpecError(Mistake("not JSON: not text in UTF-8", file)) from None
    if not isinstance(value, _Object):
        message = "not a net: expected a JSON object with name and layers"
        raise NetSpecError(Mistake(message, file))
    return value


class _Reader:
    """Reads one decoded file. Everything it finds wrong goes to `mistakes`."""

    def __init__(self, mistakes: Mistakes) -> None:
        self.mistakes = mistakes
        self.entries: dict[str, _Leaf | _Scope] = {}
        #: Layers without a mistake by their type and keys: most nets repeat a few.
        self.layers: dict[tuple[type[Layer], str], Layer] = {}

    def read(self, root: _Object, file: str | None) -> NetSpec:
        self._only(root, tuple(ROOT_KEYS), None)
        name = self._text(root, "name", "the net's name")
        if name == "":
            self._expected("the net's name", root, "name")
        source = self._text(root, "source", "a text") if "source" in root else ""
        notes = self._notes(root)
        self._declare_all(root, _Scope(), None, 0)
        layers = tuple(self._specs())
        if not self.mistakes and not any(spec.layer.is_input for spec in layers):
            self.mistakes.add("there is no Input", key="layers")
        return NetSpec(name or "", layers, file, source or "", notes)

    def _expected(self, what: str, body: _Object, key: str, layer: str | None = None) -> None:
        """Note that what a key holds is not what is expected, or that it is missing."""
        found = f"got {shown(body[key])}" if key in body else "it is missing"
        self.mistakes.add(f"expected {what}, {found}", layer, key)

    def _text(self, body: _Object, key: str, what: str, layer: str | None = None) -> str | None:
        """Return the text that a key holds; None, which is noted, if it holds none."""
        if isinstance(text := body.get(key), str):
            return text
        self._expected(what, body, key, layer)
        return None

    def _notes(self, root: _Object) -> tuple[str, ...]:
        notes = root.get("notes", [])
        if not isinstance(notes, list) or not all(isinstance(note, str) for note in notes):
            self._expected("a list of texts", root, "notes")
            return ()
        return tuple(notes)

    def _only(self, body: _Object, known: tuple[str, ...], layer: str | None) -> None:
        for name in body.repeated:
            self.mistakes.add("given twice", layer, name)
        for name in body:
            if name not in known:
                self.mistakes.add(f"unknown key{self._guess(name, known)}", layer, name)

    def _guess(self, name: str, known: Sequence[str]) -> str:
        return self.mistakes.near(name, known) or f"; there are: {', '.join(known)}"

    # Declaring

    def _declare_all(self, body: _Object, scope: _Scope, block: str | None, depth: int) -> None:
        """Declare the `layers` of the root or of a block."""
        layers = body.get("layers")
        if not isinstance(layers, _Object) or not layers:
            found = "is empty" if layers == {} else "must be an object: layer names to layers"
            if "layers" not in body:
                found = "is missing"
            self.mistakes.add(f"it {found}", block, "layers")
            return
        for name in layers.repeated:
            self.mistakes.add("two layers have this name", scope.prefix + name)
        for name, layer in layers.items():
            self._declare(name, layer, scope, depth)

    def _declare(self, name: str, body: Any, scope: _Scope, depth: int) -> None:
        full = scope.prefix + name
        marker = _split(name)[1]
        if not name or marker is not None:
            reason = f'"@{marker}" at its end means a slice' if marker else "it is empty"
            self.mistakes.add(f"not a layer name: {reason}", full)
        if full in self.entries:
            self.mistakes.add("two layers have this name", full)
            return
        leaf = _Leaf(full, scope)
        self.entries[full] = leaf
        if not isinstance(body, _Object):
            self.mistakes.add(f"expected an object, got {shown(body)}", full)
            return
        kind = self._text(body, "type", "a layer type", full)
        if kind is None:
            return
        if kind in BLOCKS:
            self._declare_block(full, kind, body, scope, depth)
        elif kind not in LAYERS:
            hint = self._guess(kind, [*LAYERS, *BLOCKS])
            self.mistakes.add(f"unknown layer type {shown(kind)}{hint}", full, "type")
            leaf.parents = self._parents(body, full)
        else:
            cls = LAYERS[kind]
            leaf.is_source = cls.is_source()
            leaf.parents = self._parents(body, full, required=not leaf.is_source)
            leaf.layer = self._layer(cls, body, full)
            if body.get("shares") is not None:
                leaf.shares = self._text(body, "shares", "the name of a layer", full)
            leaf.dtype = self._dtype(body, full)

    def _dtype(self, body: _Object, full: str) -> str:
        dtype = body.get("dtype") or ""
        if dtype == "" or (isinstance(dtype, str) and dtype in DTYPES):
            return dtype
        hint = self._guess(dtype, list(DTYPES)) if isinstance(dtype, str) else ""
        self.mistakes.add(f"expected an element type, got {shown(dtype)}{hint}", full, "dtype")
        return ""

    def _parents(self, body: _Object, full: str, required: bool = True) -> list[str] | None:
        if "parents" not in body and not required:
            return []
        parents = body.get("parents")
        if not isinstance(parents, list) or not all(isinstance(p, str) for p in parents):
            self._expected("a list of layer names", body, "parents", full)
            return None
        return parents

    def _layer(self, cls: type[Layer], body: _Object, full: str) -> Layer | None:
        """Return the layer that a body describes; None, its mistakes noted, if it is faulty."""
        own = {name: value for name, value in body.items() if name not in LAYER_KEYS}
        key = cls, repr(own)
        if key in self.layers and not body.repeated:
            return self.layers[key]
        before = len(self.mistakes.found)
        self._only(body, (*LAYER_KEYS, *cls.keys), full)
        values = {}
        for name, declared in cls.keys.items():
            if name not in body:
                if declared.required:
                    self.mistakes.add(f"missing; it is {declared.doc}", full, name)
                continue
            try:
                values[name] = declared.kind.parse(body[name])
            except ValueError as error:
                self.mistakes.add(str(error), full, name)
        if len(self.mistakes.found) > before:
            return None
        return self.layers.setdefault(key, cls(**values))

    def _declare_block(
        self, full: str, kind: str, body: _Object, outer: _Scope, depth: int
    ) -> None:
        self._only(body, BLOCKS[kind], full)
        scope = _Scope(full + "/", outer, self._parents(body, full), None, outer.splits, kind)
        self.entries[full] = scope
        if kind == "ModelParallel":
            if outer.splits is not None:
                self.mistakes.add("a ModelParallel cannot stand inside another", full, "type")
            try:
                scope.splits = _checked_splits(body.get("splits"))
            except ValueError as error:
                missing = "" if "splits" in body else "missing: "
                self.mistakes.add(f"{missing}{error}", full, "splits")
                scope.splits = 1
        elif "endpoint" in body:
            scope.endpoint = self._text(body, "endpoint", "the name of a layer", full)
        if depth >= MAX_NESTING:
            self.mistakes.add(f"blocks are nested more than {MAX_NESTING} deep", full)
            return
        self._declare_all(body, scope, full, depth + 1)
        inside = scope.prefix + _split(scope.endpoint or "")[0]
        if scope.endpoint is not None and inside not in self.entries:
            hint = self.mistakes.near(scope.endpoint, self._names_in(scope))
            self.mistakes.add(
                f"there is no layer {shown(scope.endpoint)} in this block{hint}", full, "endpoint"
            )

    def _names_in(self, scope: _Scope) -> list[str]:
        cut = len(scope.prefix)
        return [full[cut:] for full in self.entries if full.startswith(scope.prefix)]

    # Resolving

    def _specs(self) -> Iterator[LayerSpec]:
        for leaf in list(self.entries.values()):
            if not isinstance(leaf, _Leaf):
                continue
            splits = leaf.scope.splits
            layer = leaf.layer
            if splits is not None and leaf.shares is not None:
                self.mistakes.add("a split layer cannot share parameters", leaf.name, "shares")
            if splits is not None and layer:
                try:
                    layer = layer.shard(splits)
                except ShapeError as error:
                    self.mistakes.add(str(error), leaf.name, error.key)
                    layer = None
            for shard in [None] if splits is None else range(splits):
                parents = self._resolved_parents(leaf, shard)
                shares = self._resolved_shares(leaf) if shard is None else None
                if parents is None:
                    break
                if layer:
                    name = leaf.name if shard is None else f"{leaf.name}@{shard}"
                    yield LayerSpec(name, layer, parents, shard, shares, leaf.dtype)

    def _resolved_shares(self, leaf: _Leaf) -> str | None:
        """Return the full name of the layer whose parameters a layer uses too."""
        if leaf.shares is None:
            return None
        target = self._find(leaf.shares, leaf.scope)
        if target is None:
            fault = self._missing(leaf.shares, leaf.scope)
        elif isinstance(target, _Scope):
            fault = f"{shown(leaf.shares)} is a {target.kind}: name one of its layers"
        elif target is leaf or target.shares is not None:
            fault = "name the layer that the parameters belong to, which shares nobody's"
        elif target.scope.splits is not None:
            fault = f"{shown(leaf.shares)} is split: its parameters cannot be shared"
        else:
            return target.name
        self.mistakes.add(fault, leaf.name, "shares")
        return None

    def _find(self, reference: str, scope: _Scope) -> _Leaf | _Scope | None:
        """Return what a name means in a block: one of the block's, or, after "/", of the net's."""
        target = self.entries.get(scope.prefix + reference)
        if target is None and reference.startswith("/"):
            target = self.entries.get(reference[1:])
        return target

    def _missing(self, reference: str, scope: _Scope) -> str:
        """Return what is said of a name in a block that no layer has."""
        fault = f"there is no layer {shown(reference)}"
        if reference.startswith("/"):
            return fault + self.mistakes.near(reference, [f"/{full}" for full in self.entries])
        if scope.outer:
            fault += f" in {scope.kind} {shown(scope.name)}"
            if reference in self.entries:
                return f'{fault}; "/{reference}" is one of the whole net'
        return fault + self.mistakes.near(reference, self._names_in(scope))

    def _resolved_parents(self, leaf: _Leaf, shard: int | None) -> tuple[str, ...] | None:
        """Return the full names of a layer's parents; None if they are faulty."""
        references, scope = leaf.parents, leaf.scope
        if not leaf.is_source:
            while references == [] and scope.outer is not None:
                references, scope = scope.parents, scope.outer
        if references is None:
            return None
        named = [self._resolve(reference, scope, shard, leaf) for reference in references]
        if None in named or leaf.layer is None:
            return None
        resolved = [name for names in named for name in names or ()]
        least, most = leaf.layer.num_parents
        if not resolved and least:
            self.mistakes.add("it has no parents", leaf.name, "parents")
            return None
        if len(resolved) < least or (most is not None and len(resolved) > most):
            takes = _takes(least, most)
            self.mistakes.add(
                f"{leaf.layer.type_name} takes {takes}, got {len(resolved)}", leaf.name, "parents"
            )
            return None
        return tuple(resolved)

    def _resolve(
        self, reference: str, scope: _Scope, shard: int | None, leaf: _Leaf
    ) -> list[str] | None:
        """Return the layers, or slices, that a reference names; None, which is noted, if none."""

        def wrong(message: str) -> list[str] | None:
            self.mistakes.add(message, leaf.name, "parents")
            return None

        base, marker = _split(reference)
        target = self._find(base, scope)
        if target is None:
            return wrong(self._missing(base, scope))
        if isinstance(target, _Scope):
            if target.endpoint is None:
                suffix = "@all" if target.kind == "ModelParallel" else ""
                return wrong(
                    f"{shown(base)} is a {target.kind} without an endpoint: "
                    f'name one of its layers, as in "{base}/...{suffix}"'
                )
            if target.prefix + _split(target.endpoint)[0] not in self.entries:
                return None  # as is noted already
            if marker and _split(target.endpoint)[1]:
                return wrong(
                    f'"@{marker}" of {shown(base)}, whose endpoint is {shown(target.endpoint)} '
                    f"already: write {shown(base)}"
                )
            suffix = f"@{marker}" if marker else ""
            return self._resolve(target.endpoint + suffix, target, shard, leaf)
        splits = target.scope.splits
        if splits is None:
            if marker is None:
                return [target.name]
            return wrong(f'"@{marker}" of {shown(base)}, a layer that is not split')
        if marker is None:
            ways = f'"{base}@all" or "{base}@{"0" if shard is None else "self"}"'
            return wrong(f"{shown(base)} is split: write {ways}")
        if marker == "all":
            return [f"{target.name}@{i}" for i in range(splits)]
        if marker == "self" and shard is None:
            return wrong(f'"{base}@self" in a layer that is not split: write "{base}@all"')
        index = shard if marker == "self" else int(marker)
        if index is None or index >= splits:
            return wrong(f"there is no slice {index} of {shown(base)}: it has {splits}")
        return [f"{target.name}@{index}"]


def _checked_splits(value: Any) -> int:
    splits = whole_number(value)
    if splits > MAX_SPLITS:
        raise ValueError(f"{splits} slices are too many to mean anything (at most {MAX_SPLITS})")
    return splits


def _takes(least: int, most: int | None) -> str:
    """Return how many parents a type takes, for a message."""
    if most == 0:
        return "no parents"
    if most == 1:
        return "one parent"
    if most is None:
        return f"{least} parents or more"
    return f"{most} parents" if least == most else f"{least} to {most} parents"


def _split(reference: str) -> tuple[str, str | None]:
    """Split "x@self", "x@all" or "x@3" at the marker; other names have none."""
    if "@" not in reference:
        return reference, None
    base, _, marker = reference.rpartition("@")
    if marker in ("self", "all") or (marker.isascii() and marker.isdecimal()):
        return base, marker
    return reference, None
