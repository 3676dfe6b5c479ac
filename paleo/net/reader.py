"""The reader of net files: text to a NetSpec, a flat list of layers with full names.

It goes in three steps: decode the JSON, declare every layer and block, resolve parents. Each step
notes mistakes and goes on, so that a file's mistakes are reported together. What is in a repeated
block is declared and resolved once, as `block/*/layer`, and then made for each index.
nets/README.md is the format's reference.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from paleo.core.checks import shown, whole_number
from paleo.core.errors import Mistake, Mistakes, NetSpecError
from paleo.core.frozen import NamedTuple, dataclass
from paleo.core.tensor import DTYPES
from paleo.net.dims import Dims, FaultyDim
from paleo.net.layers import LAYERS, Layer, ShapeError
from paleo.net.repeats import repeated
from paleo.net.spec import (
    BLOCKS,
    LAYER_KEYS,
    MAX_LAYERS,
    MAX_NESTING,
    MAX_SPLITS,
    ROOT_KEYS,
    LayerSpec,
    NetSpec,
)

_MAX_DIGITS = 30


class Body(dict[str, Any]):
    """A JSON object that remembers which of its keys came twice."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.repeated: list[str] = []
        if len(self) < len(pairs):
            counts = Counter(name for name, _ in pairs)
            self.repeated = [name for name, count in counts.items() if count > 1]

    def like(self, values: Mapping[str, Any]) -> Body:
        """Return an object of other values."""
        return Body(list(values.items()))

    def with_values(self, **values: Any) -> Body:
        """Return this object with other values for some of its names."""
        return Body(list({**self, **values}.items()))


@dataclass
class _Scope:
    """A block, or the root: a namespace of layers. Every layer in it starts with `prefix`.

    That of a repeated block ends in "*/", where its instances have their indices.
    """

    prefix: str = ""
    outer: _Scope | None = None
    parents: list[str] | None = field(default_factory=list)
    endpoint: str | None = None
    splits: int | None = None
    kind: str = "net"
    #: How many instances it has; 0 if it is not repeated.
    repeat: int = 0
    #: Whether that is not known, as its file is wrong.
    is_faulty: bool = False
    #: The instances of the innermost repeated block around, itself included.
    instances: int = 0
    entries: list[_Leaf | _Scope] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.prefix.removesuffix("*/" if self.repeat else "/").rstrip("/")


@dataclass
class _Form:
    """What differs by index of a layer in a repeated block; `layer` is None if it is faulty."""

    layer: Layer | None
    shares: str | None
    dtype: str


@dataclass
class _Leaf:
    """A layer as declared: `forms` is empty and `parents` None if they are faulty."""

    name: str
    scope: _Scope
    forms: list[_Form] = field(default_factory=list)
    #: Whether its type takes no parents.
    is_source: bool = False
    parents: list[str] | None = None

    @property
    def shares(self) -> bool:
        return any(form.shares is not None for form in self.forms)


class _Found(NamedTuple):
    """What a name means. `token` is the full name of a layer, or where a block's endpoint is."""

    token: str
    target: _Leaf | _Scope


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


def _whole_number(digits: str) -> int:
    """Return a number of a file; one of very many digits as another that is too large."""
    return int(digits) if len(digits) <= _MAX_DIGITS else 10**_MAX_DIGITS


def decode(text: str | bytes, file: str | None) -> Body:
    """Return the JSON object that a text is; raises NetSpecError if it is none."""
    try:
        value = json.loads(
            (text if isinstance(text, str) else text.decode("utf-8")).lstrip("\ufeff"),
            object_pairs_hook=Body,
            parse_int=_whole_number,
        )
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise NetSpecError(Mistake(f"not JSON: {error.msg} at {place}", file)) from None
    except UnicodeDecodeError:
        raise NetSpecError(Mistake("not JSON: not text in UTF-8", file)) from None
    except RecursionError:
        raise NetSpecError(Mistake("not a net: nested too deeply", file)) from None
    if not isinstance(value, Body):
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
        self.dims = Dims({}, {}, mistakes)
        #: The prefixes of repeated blocks, outer ones first, and how many instances each has.
        self.repeats: dict[str, int] = {}

    def read(self, root: Body, file: str | None, chosen: Mapping[str, int] | None) -> NetSpec:
        self._only(root, tuple(ROOT_KEYS), None)
        name = self._text(root, "name", "the net's name")
        if name == "":
            self._expected("the net's name", root, "name")
        source = self._text(root, "source", "a text") if "source" in root else ""
        notes = self._notes(root)
        self.dims = Dims(self._dims(root), chosen or {}, self.mistakes)
        scope = _Scope()
        self._declare_all(root, scope, None, 0)
        self._check_names()
        layers = tuple(self._specs(scope))
        if not self.mistakes and not any(spec.layer.is_input for spec in layers):
            self.mistakes.add("there is no Input", key="layers")
        if not self.mistakes and chosen is None:
            for unused in self.dims.unused():
                self.mistakes.add("no layer uses it", key=f"dims.{unused}")
        sizes = {name: size for name, size in self.dims.sizes.items() if size is not None}
        return NetSpec(
            name or "", layers, file, source or "", notes, sizes, self.repeats
        )

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

    def _declare_all(self, body: Body, scope: _Scope, block: str | None, depth: int) -> None:
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

    def _forms(self, cls: type[Layer], body: Body, leaf: _Leaf) -> list[_Form]:
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
        forms = list[_Form]()
        for index in range(min(math.lcm(*map(len, lists)), leaf.scope.instances)):
            one = Body([])
            one.repeated = body.repeated
            for key, value in body.items():
                choices = _choices(value)
                one[key] = choices[index % len(choices)] if choices else value
            known = set(self.mistakes.found)
            before = len(known)
            forms.append(self._form(cls, one, leaf.name))
            new = [each for each in self.mistakes.found[before:] if each not in known]
            self.mistakes.found[before:] = new
        return forms

    def _by_index(self, value: Any, key: str, leaf: _Leaf) -> list[Any] | None:
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

    def _form(self, cls: type[Layer], body: Body, full: str) -> _Form:
        shares = None
        if body.get("shares") is not None:
            shares = self._text(body, "shares", "the name of a layer", full)
        return _Form(self._layer(cls, body, full), shares, self._dtype(body, full))

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
            except FaultyDim:
                is_faulty = True
            except ValueError as error:
                self.mistakes.add(str(error), full, name)
        if is_faulty or len(self.mistakes.found) > before:
            return None
        return self.layers.setdefault(key, cls(**values))

    def _declare_block(
        self, full: str, kind: str, body: Body, outer: _Scope, depth: int
    ) -> None:
        self._only(body, BLOCKS[kind], full)
        scope = _Scope(full + "/", outer, self._parents(body, full), None, outer.splits, kind)
        scope.instances = outer.instances
        self.entries[full] = outer.entries[-1] = scope
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
        inside = _split(scope.endpoint or "")[0]
        if scope.endpoint is not None and self._lookup(scope.prefix + inside) is None:
            hint = self.mistakes.near(scope.endpoint, self._names_in(scope))
            self.mistakes.add(
                f"there is no layer {shown(scope.endpoint)} in this block{hint}", full, "endpoint"
            )

    def _declare_repeat(self, full: str, body: Body, scope: _Scope) -> None:
        """Make a block a repeated one, unless it cannot be."""
        scope.repeat, scope.is_faulty, scope.prefix = 1, True, f"{full}/*/"
        try:
            count = whole_number(self._evaluated(body["repeat"]))
            if count > MAX_LAYERS:
                raise ValueError(f"{count} instances are too many (at most {MAX_LAYERS} layers)")
            scope.repeat, scope.is_faulty = count, False
        except FaultyDim:
            pass
        except ValueError as error:
            self.mistakes.add(str(error), full, "repeat")
        scope.instances = scope.repeat
        self.repeats[scope.prefix] = scope.repeat
        if scope.splits is not None:
            self.mistakes.add("a ModelParallel cannot hold a repeated block", full, "repeat")
        if "endpoint" not in body:
            self.mistakes.add(
                "missing: it is what the next instance of a repeated block reads", full, "endpoint"
            )

    def _evaluated(self, value: Any) -> Any:
        return self.dims.evaluate(value) if isinstance(value, str) else value

    def _names_in(self, scope: _Scope) -> list[str]:
        cut = len(scope.prefix)
        return [full[cut:] for full in self.entries if full.startswith(scope.prefix)]

    def _check_names(self) -> None:
        """Note layers beside a repeated block that have the name of a layer in it."""
        if self.repeats:
            for full in self.entries:
                found = self._lookup(full, exact=False)
                entry = self.entries[full]
                if found and "*" not in full and found.target is not entry:
                    self.mistakes.add("two layers have this name", full)
                    if isinstance(entry, _Leaf):
                        entry.forms = []

    # Resolving

    def _specs(self, scope: _Scope) -> Iterator[LayerSpec]:
        """Yield the layers in a block, or in the net; those of a repeated block for each index."""
        varied: dict[str, list[LayerSpec]] = {}
        template = self._once(scope, varied)
        if not scope.repeat:
            yield from template
            return
        made = list(template)
        if len(made) * scope.repeat > MAX_LAYERS:
            many = f"{scope.repeat} x {len(made)} layers are too many (at most {MAX_LAYERS})"
            self.mistakes.add(many, scope.name, "repeat")
            return
        assert scope.outer
        read = self._read(scope.parents, scope.outer, None, scope.name)
        inside = scope.prefix + _split(scope.endpoint or "")[0]
        if read is None or scope.endpoint is None or self._lookup(inside) is None:
            return
        if len(read) != 1:
            fault = f"a repeated block reads one layer, got {len(read)}"
            self.mistakes.add(fault, scope.name, "parents")
            return
        endpoint = self._resolve(scope.endpoint, scope, None, scope.name, "endpoint")
        if endpoint is None:
            return
        if len(endpoint) != 1 or not endpoint[0].startswith(scope.prefix):
            fault = "the endpoint of a repeated block is one layer of it"
            self.mistakes.add(fault, scope.name, "endpoint")
            return
        yield from repeated(made, scope.prefix, scope.repeat, read, endpoint[0], varied)

    def _once(self, scope: _Scope, varied: dict[str, list[LayerSpec]]) -> Iterator[LayerSpec]:
        """Yield the layers in a block, their forms by index in `varied` where there are several."""
        for entry in scope.entries:
            if isinstance(entry, _Leaf):
                forms = [self._of_leaf(entry, form) for form in entry.forms]
                if len(forms) > 1:
                    for found in zip(*forms, strict=False):
                        varied[found[0].name] = list(found)
                yield from forms[0] if forms else ()
            elif entry.repeat:
                yield from self._specs(entry)
            else:
                yield from self._once(entry, varied)

    def _of_leaf(self, leaf: _Leaf, form: _Form) -> list[LayerSpec]:
        """Return the layer, or the slices of it, that are declared; none if it is faulty."""
        splits = leaf.scope.splits
        layer = form.layer
        if splits is not None and form.shares is not None:
            self._add_once("a split layer cannot share parameters", leaf.name, "shares")
        if splits is not None and layer:
            try:
                layer = layer.shard(splits)
            except ShapeError as error:
                self._add_once(str(error), leaf.name, error.key)
                layer = None
        specs = []
        for shard in [None] if splits is None else range(splits):
            parents = self._resolved_parents(leaf, form, shard)
            shares = self._resolved_shares(leaf, form) if shard is None else None
            if parents is None:
                break
            if layer:
                name = leaf.name if shard is None else f"{leaf.name}@{shard}"
                specs.append(LayerSpec(name, layer, parents, shard, shares, form.dtype))
        return specs

    def _add_once(self, message: str, layer: str, key: str | None) -> None:
        """Note a mistake, unless another form of the layer has it too."""
        before = self.mistakes.found[:]
        self.mistakes.add(message, layer, key)
        if self.mistakes.found[-1] in before:
            self.mistakes.found.pop()

    def _resolved_shares(self, leaf: _Leaf, form: _Form) -> str | None:
        """Return the full name of the layer whose parameters a layer uses too."""
        if form.shares is None:
            return None
        token, target = self._find(form.shares, leaf.scope) or (None, None)
        if token is None or target is None:
            fault = self._missing(form.shares, leaf.scope)
        elif isinstance(target, _Scope):
            fault = f"{shown(form.shares)} is a {target.kind}: name one of its layers"
        elif token == leaf.name or (target is not leaf and target.shares):
            fault = "name the layer that the parameters belong to, which shares nobody's"
        elif target.scope.splits is not None:
            fault = f"{shown(form.shares)} is split: its parameters cannot be shared"
        else:
            return token
        self._add_once(fault, leaf.name, "shares")
        return None

    def _find(self, reference: str, scope: _Scope) -> _Found | None:
        """Return what a name means in a block: one of the block's, or, after "/", of the net's.

        After "../" it is one of what is around the block.
        """
        if self.repeats and "/*/" in f"/{reference}/":
            return None
        found = self._lookup(scope.prefix + reference)
        if found is None and reference.startswith("/"):
            found = self._lookup(reference[1:])
        if found is None and reference.startswith("../") and scope.outer:
            found = self._find(reference[3:], scope.outer)
        return found

    def _lookup(self, full: str, exact: bool = True) -> _Found | None:
        """Return what has a full name, in which there may be indices of repeated blocks.

        If not `exact`, such a name is preferred to one that is written in the file.
        """
        target = self.entries.get(full)
        if target is not None and (exact or not self.repeats):
            return _Found(_token(full, target), target)
        if not self.repeats:
            return None
        key, token, block = "", "", None
        for part in full.split("/"):
            own = part
            if isinstance(block, _Scope) and block.repeat and part != "*":
                if not part.isascii() or not part.isdecimal():
                    return None
                if int(part) >= block.repeat and not block.is_faulty:
                    return None
                own = "*"
            key, token = f"{key}/{own}".lstrip("/"), f"{token}/{part}".lstrip("/")
            instance = block if own == "*" else None
            block = self.entries.get(key)
        if instance is not None and block is None:  # one of the instances itself
            return _Found(f"{token}/", instance)
        return _Found(_token(token, block), block) if block is not None else None

    def _missing(self, reference: str, scope: _Scope) -> str:
        """Return what is said of a name in a block that no layer has."""
        fault = f"there is no layer {shown(reference)}"
        for prefix in self.repeats:
            block = self.entries[prefix[:-3]]
            _, is_inside, behind = f"/{scope.prefix}{reference}".partition(f"/{prefix[:-2]}")
            index = behind.partition("/")[0]
            if is_inside and (index.isdecimal() or index == "*" in reference):
                assert isinstance(block, _Scope)
                return f"{fault}: {shown(prefix[:-3])} has 0 to {block.repeat - 1}"
        if reference.startswith("/"):
            return fault + self.mistakes.near(reference, [f"/{full}" for full in self.entries])
        if scope.outer:
            fault += f" in {scope.kind} {shown(scope.name)}"
            if reference in self.entries:
                return f'{fault}; "/{reference}" is one of the whole net'
        return fault + self.mistakes.near(reference, self._names_in(scope))

    def _resolved_parents(
        self, leaf: _Leaf, form: _Form, shard: int | None
    ) -> tuple[str, ...] | None:
        """Return the full names of a layer's parents; None if they are faulty."""
        if leaf.is_source and leaf.parents == []:
            resolved: list[str] | None = []
        else:
            resolved = self._read(leaf.parents, leaf.scope, shard, leaf.name)
        if resolved is None or form.layer is None:
            return None
        least, most = form.layer.num_parents
        if not resolved and least:
            self._add_once("it has no parents", leaf.name, "parents")
            return None
        if len(resolved) < least or (most is not None and len(resolved) > most):
            takes = _takes(least, most)
            fault = f"{form.layer.type_name} takes {takes}, got {len(resolved)}"
            self._add_once(fault, leaf.name, "parents")
            return None
        return tuple(resolved)

    def _read(
        self, references: list[str] | None, scope: _Scope, shard: int | None, name: str
    ) -> list[str] | None:
        """Return what parents mean in a block, that of the block if there are none; None if faulty.

        `name` is that of the layer that has them. What each instance of a repeated block reads is
        its prefix.
        """
        while not references and references is not None and scope.outer is not None:
            if scope.repeat:
                return [scope.prefix]
            references, scope = scope.parents, scope.outer
        if references is None:
            return None
        named = [self._resolve(reference, scope, shard, name) for reference in references]
        return None if None in named else [token for tokens in named for token in tokens or ()]

    def _resolve(
        self, reference: str, scope: _Scope, shard: int | None, name: str, key: str = "parents"
    ) -> list[str] | None:
        """Return the layers, or slices, that a reference names; None, which is noted, if none."""

        def wrong(message: str) -> list[str] | None:
            self._add_once(message, name, key)
            return None

        base, marker = _split(reference)
        found = self._find(base, scope)
        if found is None:
            while base.startswith("../") and scope.outer:
                base, scope = base[3:], scope.outer
            if base == ".." and scope.outer:
                return self._read([], scope, shard, name)
            return wrong(self._missing(base, scope))
        token, target = found
        if isinstance(target, _Scope):
            if target.endpoint is None:
                if target.repeat:
                    return None  # as is noted already
                suffix = "@all" if target.kind == "ModelParallel" else ""
                return wrong(
                    f"{shown(base)} is a {target.kind} without an endpoint: "
                    f'name one of its layers, as in "{base}/...{suffix}"'
                )
            if self._lookup(target.prefix + _split(target.endpoint)[0]) is None:
                return None  # as is noted already
            if marker and _split(target.endpoint)[1]:
                return wrong(
                    f'"@{marker}" of {shown(base)}, whose endpoint is {shown(target.endpoint)} '
                    f"already: write {shown(base)}"
                )
            suffix = f"@{marker}" if marker else ""
            inner = self._resolve(target.endpoint + suffix, target, shard, name, key)
            cut = len(target.prefix)
            return inner and [
                token + one[cut:] if one.startswith(target.prefix) else one for one in inner
            ]
        splits = target.scope.splits
        if splits is None:
            if marker is None:
                return [token]
            return wrong(f'"@{marker}" of {shown(base)}, a layer that is not split')
        if marker is None:
            ways = f'"{base}@all" or "{base}@{"0" if shard is None else "self"}"'
            return wrong(f"{shown(base)} is split: write {ways}")
        if marker == "all":
            return [f"{token}@{i}" for i in range(splits)]
        if marker == "self" and shard is None:
            return wrong(f'"{base}@self" in a layer that is not split: write "{base}@all"')
        index = shard if marker == "self" else int(marker)
        if index is None or index >= splits:
            return wrong(f"there is no slice {index} of {shown(base)}: it has {splits}")
        return [f"{token}@{index}"]


def _choices(value: Any) -> list[Any] | None:
    """Return the values of {"by_index": [...]}, None for anything else."""
    if isinstance(value, dict) and list(value) == ["by_index"]:
        choices = value["by_index"]
        return choices if isinstance(choices, list) and choices else None
    return None


def _token(full: str, target: _Leaf | _Scope) -> str:
    """Return the name of a layer, or where the endpoint of a block is: in its last instance."""
    if isinstance(target, _Leaf):
        return full
    return f"{full}/{target.repeat - 1}/" if target.repeat else f"{full}/"


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
