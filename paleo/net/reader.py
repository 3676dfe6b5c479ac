"""The reader of net files: text to a NetSpec, a flat list of layers with full names.

It goes in three steps: decode the JSON, declare every layer and block, resolve names. Each step
notes mistakes and goes on, so that a file's mistakes are reported together. What is in a repeated
block is declared and resolved once. nets/README.md is the format's reference.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from paleo.core.checks import shown, whole_number
from paleo.core.errors import Mistake, Mistakes, NetSpecError
from paleo.core.quantity import is_array
from paleo.core.tensor import DTYPES
from paleo.net.decode import Body
from paleo.net.dims import Dims, FaultyDimError
from paleo.net.layers import LAYERS, Layer
from paleo.net.resolve import Form, Leaf, Names, Scope, split_marker
from paleo.net.spec import (
    BLOCKS,
    LAYER_KEYS,
    MAX_LAYERS,
    MAX_NESTING,
    MAX_SPLITS,
    ROOT_KEYS,
    LayerSpec,
    LongLayers,
    NetSpec,
)


def parse(
    body: Body, file: str | None, mistakes: Mistakes, chosen: Mapping[str, int] | None = None
) -> NetSpec:
    """Return what can be read of a decoded net-spec, noting every mistake.

    Layers with a mistake are left out of the result, as are parents that do not exist. `chosen`
    are sizes of dimensions in the place of the file's; None for a file as it is.
    """
    try:
        return _Reader(mistakes).read(body, file, chosen)
    except RecursionError:
        raise NetSpecError(Mistake("not a net: nested too deeply", file)) from None


class _Reader:
    """Reads one decoded file. Everything it finds wrong goes to `mistakes`."""

    def __init__(self, mistakes: Mistakes) -> None:
        self.mistakes = mistakes
        self.names = Names(mistakes)
        #: Layers without a mistake by their type and keys: most nets repeat a few.
        self.layers: dict[tuple[type[Layer], str], Layer] = {}
        self.dims = Dims({}, {}, mistakes)

    def read(self, root: Body, file: str | None, chosen: Mapping[str, int] | None) -> NetSpec:
        self._only(root, tuple(ROOT_KEYS), None)
        name = self._text(root, "name", "the net's name")
        if name == "":
            self._expected("the net's name", root, "name")
        source = self._text(root, "source", "a text") if "source" in root else ""
        notes = self._notes(root)
        self.dims = Dims(self._dims(root), chosen or {}, self.mistakes)
        scope = Scope()
        self._declare_all(root, scope, None, 0)
        self.names.check()
        few = tuple(self.names.specs(scope))
        if not self.mistakes and not any(spec.layer.is_input for spec in few):
            self.mistakes.add("there is no Input", key="layers")
        if not self.mistakes and chosen is None:
            for unused in self.dims.unused():
                self.mistakes.add("no layer uses it", key=f"dims.{unused}")
        sizes = {name: size for name, size in self.dims.sizes.items() if size is not None}
        layers: Sequence[LayerSpec] = LongLayers(few, *self.names.gone) if self.names.gone else few
        return NetSpec(name or "", layers, file, source or "", notes, sizes, self.names.repeats)

    def _dims(self, root: Body) -> Mapping[str, Any]:
        dims = root.get("dims", {})
        if not isinstance(dims, Body):
            if dims != {}:
                self._expected("an object: names to sizes", root, "dims")
            return {}
        for name in dims.repeated:
            self.mistakes.add("given twice", key=f"dims.{name}")
        return dims

    def _expected(self, what: str, body: Body, key: str, layer: str | None = None) -> None:
        """Note that what a key holds is not what is expected, or that it is missing."""
        found = f"got {shown(body[key])}" if key in body else "it is missing"
        self.mistakes.add(f"expected {what}, {found}", layer, key)

    def _text(self, body: Body, key: str, what: str, layer: str | None = None) -> str | None:
        """Return the text that a key holds; None, which is noted, if it holds none."""
        if isinstance(text := body.get(key), str):
            return text
        self._expected(what, body, key, layer)
        return None

    def _notes(self, root: Body) -> tuple[str, ...]:
        notes = root.get("notes", [])
        if not isinstance(notes, list) or not all(isinstance(note, str) for note in notes):
            self._expected("a list of texts", root, "notes")
            return ()
        return tuple(notes)

    def _only(self, body: Body, known: tuple[str, ...], layer: str | None) -> None:
        for name in body.repeated:
            self.mistakes.add("given twice", layer, name)
        for name in body:
            if name not in known:
                self.mistakes.add(f"unknown key{self._guess(name, known)}", layer, name)

    def _guess(self, name: str, known: Sequence[str]) -> str:
        return self.mistakes.near(name, known) or f"; there are: {', '.join(known)}"

    # Declaring

    def _declare_all(self, body: Body, scope: Scope, block: str | None, depth: int) -> None:
        """Declare the `layers` of the root or of a block."""
        layers = body.get("layers")
        if not isinstance(layers, Body) or not layers:
            found = "is empty" if layers == {} else "must be an object: layer names to layers"
            if "layers" not in body:
                found = "is missing"
            self.mistakes.add(f"it {found}", block, "layers")
            return
        for name in layers.repeated:
            self.mistakes.add("two layers have this name", scope.prefix + name)
        for name, layer in layers.items():
            self._declare(name, layer, scope, depth)

    def _declare(self, name: str, body: Any, scope: Scope, depth: int) -> None:
        full = scope.prefix + name
        marker = split_marker(name)[1]
        if not name or marker is not None:
            reason = f'"@{marker}" at its end means a slice' if marker else "it is empty"
            self.mistakes.add(f"not a layer name: {reason}", full)
        if full in self.names.entries:
            self.mistakes.add("two layers have this name", full)
            return
        leaf = Leaf(full, scope)
        self.names.entries[full] = leaf
        scope.entries.append(leaf)
        if not isinstance(body, Body):
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
            leaf.forms = self._forms(cls, body, leaf)

    def _forms(self, cls: type[Layer], body: Body, leaf: Leaf) -> list[Form]:
        """Return what a layer is: once or, if values in it differ by index, for each of them."""
        before = len(self.mistakes.found)
        lists = [
            choices
            for key, value in body.items()
            if key not in ("type", "parents") and (choices := self._by_index(value, key, leaf))
        ]
        if len(self.mistakes.found) > before:
            return []
        if not lists:
            return [self._form(cls, body, leaf.name)]
        forms = list[Form]()
        for index in range(min(math.lcm(*map(len, lists)), leaf.scope.instances)):
            one = Body([])
            one.repeated = body.repeated
            for key, value in body.items():
                choices = _choices(value)
                one[key] = choices[index % len(choices)] if choices else value
            forms.append(self._form(cls, one, leaf.name))
        self.mistakes.say_once(before)
        return forms

    def _by_index(self, value: Any, key: str, leaf: Leaf) -> list[Any] | None:
        """Return the values of a key that differ by index; None if they do not."""
        if not isinstance(value, dict) or "by_index" not in value:
            return None
        choices = _choices(value)
        if not choices:
            fault = f'expected {{"by_index": [...]}} with one value or more, got {shown(value)}'
        elif not leaf.scope.instances:
            fault = "by_index is for the layers of a repeated block"
        else:
            return choices
        self.mistakes.add(fault, leaf.name, key)
        return None

    def _form(self, cls: type[Layer], body: Body, full: str) -> Form:
        shares = None
        if body.get("shares") is not None:
            shares = self._text(body, "shares", "the name of a layer", full)
        return Form(self._layer(cls, body, full), shares, self._dtype(body, full))

    def _dtype(self, body: Body, full: str) -> str:
        dtype = body.get("dtype") or ""
        if dtype == "" or (isinstance(dtype, str) and dtype in DTYPES):
            return dtype
        hint = self._guess(dtype, list(DTYPES)) if isinstance(dtype, str) else ""
        self.mistakes.add(f"expected an element type, got {shown(dtype)}{hint}", full, "dtype")
        return ""

    def _parents(self, body: Body, full: str, required: bool = True) -> list[str] | None:
        if "parents" not in body and not required:
            return []
        parents = body.get("parents")
        if not isinstance(parents, list) or not all(isinstance(p, str) for p in parents):
            self._expected("a list of layer names", body, "parents", full)
            return None
        return parents

    def _layer(self, cls: type[Layer], body: Body, full: str) -> Layer | None:
        """Return the layer that a body describes; None, its mistakes noted, if it is faulty."""
        own = {name: value for name, value in body.items() if name not in LAYER_KEYS}
        key = cls, repr(own)
        if key in self.layers and not body.repeated:
            return self.layers[key]
        before = len(self.mistakes.found)
        self._only(body, (*LAYER_KEYS, *cls.keys), full)
        values, is_faulty = {}, False
        for name, declared in cls.keys.items():
            if name not in body:
                if declared.required:
                    self.mistakes.add(f"missing; it is {declared.doc}", full, name)
                continue
            try:
                value = declared.kind.evaluated(body[name], self.dims.evaluate)
                values[name] = declared.kind.parse(value)
            except FaultyDimError:
                is_faulty = True
            except ValueError as error:
                self.mistakes.add(str(error), full, name)
        if is_faulty or len(self.mistakes.found) > before:
            return None
        return self.layers.setdefault(key, cls(**values))

    def _declare_block(self, full: str, kind: str, body: Body, outer: Scope, depth: int) -> None:
        self._only(body, BLOCKS[kind], full)
        scope = Scope(full + "/", outer, self._parents(body, full), None, outer.splits, kind)
        scope.instances = outer.instances
        self.names.entries[full] = outer.entries[-1] = scope
        if kind == "ModelParallel":
            if outer.splits is not None:
                self.mistakes.add("a ModelParallel cannot stand inside another", full, "type")
            try:
                scope.splits = _checked_splits(self._evaluated(body.get("splits")))
            except ValueError as error:
                missing = "" if "splits" in body else "missing: "
                self.mistakes.add(f"{missing}{error}", full, "splits")
                scope.splits = 1
        elif "endpoint" in body:
            scope.endpoint = self._text(body, "endpoint", "the name of a layer", full)
        if "repeat" in body and kind == "Block":
            self._declare_repeat(full, body, scope)
        if depth >= MAX_NESTING:
            self.mistakes.add(f"blocks are nested more than {MAX_NESTING} deep", full)
            return
        self._declare_all(body, scope, full, depth + 1)
        inside = split_marker(scope.endpoint or "")[0]
        if scope.endpoint is not None and self.names.lookup(scope.prefix + inside) is None:
            hint = self.mistakes.near(scope.endpoint, self.names.names_in(scope))
            self.mistakes.add(
                f"there is no layer {shown(scope.endpoint)} in this block{hint}", full, "endpoint"
            )

    def _declare_repeat(self, full: str, body: Body, scope: Scope) -> None:
        """Make a block a repeated one, unless it cannot be."""
        scope.repeat, scope.is_faulty, scope.prefix = 1, True, f"{full}/*/"
        try:
            count = _one_number(self._evaluated(body["repeat"]))
            if count > MAX_LAYERS:
                raise ValueError(f"{count} instances are too many (at most {MAX_LAYERS} layers)")
            scope.repeat, scope.is_faulty = count, False
        except FaultyDimError:
            pass
        except ValueError as error:
            self.mistakes.add(str(error), full, "repeat")
        scope.instances = scope.repeat
        self.names.repeats[scope.prefix] = scope.repeat
        if scope.splits is not None:
            self.mistakes.add("a ModelParallel cannot hold a repeated block", full, "repeat")
        if "endpoint" not in body:
            self.mistakes.add(
                "missing: it is what the next instance of a repeated block reads", full, "endpoint"
            )

    def _evaluated(self, value: Any) -> Any:
        return self.dims.evaluate(value) if isinstance(value, str) else value


def _choices(value: Any) -> list[Any] | None:
    """Return the values of {"by_index": [...]}, None for anything else."""
    if isinstance(value, dict) and list(value) == ["by_index"]:
        choices = value["by_index"]
        return choices if isinstance(choices, list) and choices else None
    return None


def _one_number(value: Any) -> int:
    if is_array(value):
        raise ValueError("it is one number, not an array of them")
    return whole_number(value)


def _checked_splits(value: Any) -> int:
    splits = _one_number(value)
    if splits > MAX_SPLITS:
        raise ValueError(f"{splits} slices are too many to mean anything (at most {MAX_SPLITS})")
    return splits
