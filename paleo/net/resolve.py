"""What names mean in a net file: layers as declared to layers with full names.

What is in a repeated block has "*" in the place of the index, as in "block/*/layer", and is made
for each index at the end.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import field

from paleo.core.checks import shown
from paleo.core.errors import Mistakes
from paleo.core.frozen import NamedTuple, dataclass
from paleo.net.layers import Layer, ShapeError
from paleo.net.repeats import repeated
from paleo.net.spec import MAX_LAYERS, LayerSpec

#: So many blocks of a row of equal ones are made at each of its ends: with them, what is known of
#: few stages, of which the first and the last have what stands before and behind, holds for all.
_AT_END = 5


@dataclass
class Scope:
    """A block, or the root: a namespace of layers. Every layer in it starts with `prefix`.

    That of a repeated block ends in "*/", where its instances have their indices.
    """

    prefix: str = ""
    outer: Scope | None = None
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
    entries: list[Leaf | Scope] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.prefix.removesuffix("*/" if self.repeat else "/").rstrip("/")


@dataclass
class Form:
    """What differs by index of a layer in a repeated block; `layer` is None if it is faulty."""

    layer: Layer | None
    shares: str | None
    dtype: str


@dataclass
class Leaf:
    """A layer as declared: `forms` is empty and `parents` None if they are faulty."""

    name: str
    scope: Scope
    forms: list[Form] = field(default_factory=list)
    #: Whether its type takes no parents.
    is_source: bool = False
    parents: list[str] | None = None

    @property
    def shares(self) -> bool:
        return any(form.shares is not None for form in self.forms)


class Found(NamedTuple):
    """What a name means. `token` is the full name of a layer, or where a block's endpoint is."""

    token: str
    target: Leaf | Scope


class Names:
    """The layers and blocks of a file as declared, and what names mean among them."""

    def __init__(self, mistakes: Mistakes) -> None:
        self.mistakes = mistakes
        self.entries: dict[str, Leaf | Scope] = {}
        #: The prefixes of repeated blocks, outer ones first, and how many instances each has.
        self.repeats: dict[str, int] = {}
        #: What the names of blocks begin with of which not all were made, the indices of those that
        #: were not, and the endpoint of each.
        self.gone: tuple[str, range, str] | None = None

    def names_in(self, scope: Scope) -> list[str]:
        cut = len(scope.prefix)
        return [full[cut:] for full in self.entries if full.startswith(scope.prefix)]

    def check(self) -> None:
        """Note layers beside a repeated block that have the name of a layer in it."""
        if self.repeats:
            for full in self.entries:
                found = self.lookup(full, exact=False)
                entry = self.entries[full]
                if found and "*" not in full and found.target is not entry:
                    self.mistakes.add("two layers have this name", full)
                    if isinstance(entry, Leaf):
                        entry.forms = []

    def specs(self, scope: Scope) -> Iterator[LayerSpec]:
        """Yield the layers in a block, or in the net; those of a repeated block for each index.

        Of the longest row of blocks that are equal, only the first and last ones are made.
        """
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
        inside = scope.prefix + split_marker(scope.endpoint or "")[0]
        if read is None or scope.endpoint is None or self.lookup(inside) is None:
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
        indices = self._made(scope, made, endpoint[0], varied)
        yield from repeated(made, scope.prefix, indices, read, endpoint[0], varied)

    def _made(
        self, scope: Scope, template: Sequence[LayerSpec], endpoint: str, varied: Collection[str]
    ) -> Sequence[int]:
        """Return which instances of a repeated block are made, and note the others."""
        every, start = range(scope.repeat), scope.prefix[:-2]
        gone = every[_AT_END:-_AT_END]
        longest = max(self.repeats, key=self.repeats.__getitem__)
        if scope.prefix != longest or "*" in start or not (gone and template):
            return every
        shares = (spec.shares for spec in template if spec.shares)
        names = itertools.chain(*(spec.parents for spec in template), shares)
        others = (name for name in names if not name.startswith(scope.prefix))
        if any(name.startswith(start) for name in others) or any(
            spec.name in varied for spec in template
        ):
            return every
        self.gone = start, gone, endpoint.removeprefix(scope.prefix)
        return [*every[:_AT_END], *every[-_AT_END:]]

    def _once(self, scope: Scope, varied: dict[str, list[LayerSpec]]) -> Iterator[LayerSpec]:
        """Yield the layers in a block, their forms by index in `varied` where there are several."""
        for entry in scope.entries:
            if isinstance(entry, Leaf):
                # What a faulty layer reads is looked up too, for mistakes in it.
                declared = entry.forms or [Form(None, None, "")]
                known = len(self.mistakes.found)
                forms = [self._of_leaf(entry, form) for form in declared]
                self.mistakes.say_once(known)
                if len(forms) > 1:
                    for found in zip(*forms, strict=False):
                        varied[found[0].name] = list(found)
                yield from forms[0]
            elif entry.repeat:
                yield from self.specs(entry)
            else:
                yield from self._once(entry, varied)

    def _of_leaf(self, leaf: Leaf, form: Form) -> list[LayerSpec]:
        """Return the layer, or the slices of it, that are declared; none if it is faulty."""
        splits = leaf.scope.splits
        layer = form.layer
        if splits is not None and form.shares is not None:
            self.mistakes.add("a split layer cannot share parameters", leaf.name, "shares")
        if splits is not None and layer:
            try:
                layer = layer.shard(splits)
            except ShapeError as error:
                self.mistakes.add(str(error), leaf.name, error.key)
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

    def _resolved_shares(self, leaf: Leaf, form: Form) -> str | None:
        """Return the full name of the layer whose parameters a layer uses too."""
        if form.shares is None:
            return None
        token, target = self._find(form.shares, leaf.scope) or (None, None)
        if token is None or target is None:
            fault = self._missing(form.shares, leaf.scope)
        elif isinstance(target, Scope):
            fault = f"{shown(form.shares)} is a {target.kind}: name one of its layers"
        elif token == leaf.name or (target is not leaf and target.shares):
            fault = "name the layer that the parameters belong to, which shares nobody's"
        elif target.scope.splits is not None:
            fault = f"{shown(form.shares)} is split: its parameters cannot be shared"
        else:
            return token
        self.mistakes.add(fault, leaf.name, "shares")
        return None

    def _find(self, reference: str, scope: Scope) -> Found | None:
        """Return what a name means in a block: one of the block's, or, after "/", of the net's.

        After "../" it is one of what is around the block.
        """
        if self.repeats and "/*/" in f"/{reference}/":
            return None
        found = self.lookup(scope.prefix + reference)
        if found is None and reference.startswith("/"):
            found = self.lookup(reference[1:])
        if found is None and reference.startswith("../") and scope.outer:
            found = self._find(reference[3:], scope.outer)
        return found

    def lookup(self, full: str, exact: bool = True) -> Found | None:
        """Return what has a full name, in which there may be indices of repeated blocks.

        If not `exact`, such a name is preferred to one that is written in the file.
        """
        target = self.entries.get(full)
        if target is not None and (exact or not self.repeats):
            return Found(_token(full, target), target)
        if not self.repeats:
            return None
        key, token, block = "", "", None
        for part in full.split("/"):
            own = part
            if isinstance(block, Scope) and block.repeat and part != "*":
                if not part.isascii() or not part.isdecimal():
                    return None
                if int(part) >= block.repeat and not block.is_faulty:
                    return None
                own = "*"
            key, token = f"{key}/{own}".lstrip("/"), f"{token}/{part}".lstrip("/")
            instance = block if own == "*" else None
            block = self.entries.get(key)
        if instance is not None and block is None:  # one of the instances itself
            return Found(f"{token}/", instance)
        return Found(_token(token, block), block) if block is not None else None

    def _missing(self, reference: str, scope: Scope) -> str:
        """Return what is said of a name in a block that no layer has."""
        fault = f"there is no layer {shown(reference)}"
        for prefix in self.repeats:
            block = self.entries[prefix[:-3]]
            _, is_inside, behind = f"/{scope.prefix}{reference}".partition(f"/{prefix[:-2]}")
            index = behind.partition("/")[0]
            if is_inside and (index.isdecimal() or index == "*" in reference):
                assert isinstance(block, Scope)
                return f"{fault}: {shown(prefix[:-3])} has 0 to {block.repeat - 1}"
        if reference.startswith("/"):
            return fault + self.mistakes.near(reference, [f"/{full}" for full in self.entries])
        if scope.outer:
            fault += f" in {scope.kind} {shown(scope.name)}"
            if reference in self.entries:
                return f'{fault}; "/{reference}" is one of the whole net'
        return fault + self.mistakes.near(reference, self.names_in(scope))

    def _resolved_parents(
        self, leaf: Leaf, form: Form, shard: int | None
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
            self.mistakes.add("it has no parents", leaf.name, "parents")
            return None
        if len(resolved) < least or (most is not None and len(resolved) > most):
            takes = _takes(least, most)
            fault = f"{form.layer.type_name} takes {takes}, got {len(resolved)}"
            self.mistakes.add(fault, leaf.name, "parents")
            return None
        return tuple(resolved)

    def _read(
        self, references: list[str] | None, scope: Scope, shard: int | None, name: str
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
        self, reference: str, scope: Scope, shard: int | None, name: str, key: str = "parents"
    ) -> list[str] | None:
        """Return the layers, or slices, that a reference names; None, which is noted, if none."""

        def wrong(message: str) -> list[str] | None:
            self.mistakes.add(message, name, key)
            return None

        base, marker = split_marker(reference)
        found = self._find(base, scope)
        if found is None:
            while base.startswith("../") and scope.outer:
                base, scope = base[3:], scope.outer
            if base == ".." and scope.outer:
                return self._read([], scope, shard, name)
            return wrong(self._missing(base, scope))
        token, target = found
        if isinstance(target, Scope):
            if target.endpoint is None:
                if target.repeat:
                    return None  # as is noted already
                suffix = "@all" if target.kind == "ModelParallel" else ""
                return wrong(
                    f"{shown(base)} is a {target.kind} without an endpoint: "
                    f'name one of its layers, as in "{base}/...{suffix}"'
                )
            if self.lookup(target.prefix + split_marker(target.endpoint)[0]) is None:
                return None  # as is noted already
            if marker and split_marker(target.endpoint)[1]:
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


def _token(full: str, target: Leaf | Scope) -> str:
    """Return the name of a layer, or where the endpoint of a block is: in its last instance."""
    if isinstance(target, Leaf):
        return full
    return f"{full}/{target.repeat - 1}/" if target.repeat else f"{full}/"


def _takes(least: int, most: int | None) -> str:
    """Return how many parents a type takes, for a message."""
    if most == 0:
        return "no parents"
    if most == 1:
        return "one parent"
    if most is None:
        return f"{least} parents or more"
    return f"{most} parents" if least == most else f"{least} to {most} parents"


def split_marker(reference: str) -> tuple[str, str | None]:
    """Split "x@self", "x@all" or "x@3" at the marker; other names have none."""
    if "@" not in reference:
        return reference, None
    base, _, marker = reference.rpartition("@")
    if marker in ("self", "all") or (marker.isascii() and marker.isdecimal()):
        return base, marker
    return reference, None
