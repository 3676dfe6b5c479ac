"""Layers by name, and repeated blocks: the layers of one instance, made for each index."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias, overload

from paleo.core.frozen import dataclass
from paleo.net.layers import Layer

#: Texts behind the name of an instance, or whole names where it says they are outside.
_Names: TypeAlias = list[tuple[bool, str]]


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


def repeated(
    template: Sequence[LayerSpec],
    prefix: str,
    indices: Iterable[int],
    read: Sequence[str],
    endpoint: str,
    varied: Mapping[str, Sequence[LayerSpec]],
) -> Iterator[LayerSpec]:
    """Yield the layers of the instances of a block of these indices, one after the other.

    Names in the `template` that begin with `prefix`, such as "block/*/", are of its own instance;
    the prefix itself as a parent is what an instance reads: the first `read`, each other one the
    `endpoint` of the one before. Layers that are `varied` cycle through their forms.
    """

    def split(names: Sequence[str]) -> _Names:
        return [(True, n[len(prefix) :]) if n.startswith(prefix) else (False, n) for n in names]

    rows = []
    for spec in template:
        forms = [
            (form.layer, form.shard, form.dtype, split((form.shares,)) if form.shares else None)
            for form in varied.get(spec.name, (spec,))
        ]
        rows.append((spec.name[len(prefix) :], forms, split(spec.parents)))
    behind = endpoint[len(prefix) :]
    start = prefix[:-2]
    entering = tuple(read)
    for index in indices:
        own = f"{start}{index}/"
        for name, forms, parents in rows:
            layer, shard, dtype, sharing = forms[index % len(forms)] if forms[1:] else forms[0]
            if len(parents) == 1:
                ((inside, text),) = parents
                names = ((own + text,) if text else entering) if inside else (text,)
            else:
                names = ()
                for inside, text in parents:
                    names += ((own + text,) if text else entering) if inside else (text,)
            shares = None
            if sharing:
                shares = own + sharing[0][1] if sharing[0][0] else sharing[0][1]
                if shares == own + name:  # it is its parameters that the others share
                    shares = None
            yield LayerSpec(own + name, layer, names, shard, shares, dtype)
        entering = (own + behind,)


class LongLayers(Sequence[LayerSpec]):
    """The layers of a net with a row of many equal blocks, most of which are made when asked for.

    `few` are the layers without those of some blocks: blocks are named by a number behind `prefix`,
    and those whose numbers are in `gone` are as the one before them. Each reads of the one before
    it the `endpoint`, so called in it.
    """

    def __init__(self, few: tuple[LayerSpec, ...], prefix: str, gone: range, endpoint: str) -> None:
        self.few, self.prefix, self.gone, self.endpoint = few, prefix, gone, endpoint

    def with_few(self, few: Iterable[LayerSpec]) -> LongLayers:
        """Return the same of other few layers."""
        return LongLayers(tuple(few), self.prefix, self.gone, self.endpoint)

    @property
    def like(self) -> int:
        """The number of the block that those which are gone are like."""
        return self.gone.start - 1

    def block(self, number: int) -> list[LayerSpec]:
        """Return the layers of one of the few blocks."""
        start = f"{self.prefix}{number}/"
        return [spec for spec in self.few if spec.name.startswith(start)]

    @functools.cached_property
    def _all(self) -> tuple[LayerSpec, ...]:
        block = self.block(self.like)
        until = self.few.index(block[-1]) + 1
        before, own, every = (f"{self.prefix}{i}/" for i in (self.like - 1, self.like, "*"))

        def in_each(name: str) -> str:
            """Return a name in each instance: what it reads of the one before is its prefix."""
            if name.startswith(before):
                return every
            return every + name[len(own) :] if name.startswith(own) else name

        template = [
            replace(
                spec,
                name=in_each(spec.name),
                parents=tuple(map(in_each, spec.parents)),
                shares=spec.shares and in_each(spec.shares),
            )
            for spec in block
        ]
        read = own + self.endpoint
        made = repeated(template, every, self.gone, [read], every + self.endpoint, {})
        last = f"{self.prefix}{self.gone.stop - 1}/{self.endpoint}"
        following = [
            replace(spec, parents=tuple(last if name == read else name for name in spec.parents))
            for spec in self.block(self.gone.stop)
        ]
        return (*self.few[:until], *made, *following, *self.few[until + len(following) :])

    def __len__(self) -> int:
        return len(self.few) + len(self.gone) * len(self.block(self.like))

    @overload
    def __getitem__(self, place: int) -> LayerSpec: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[LayerSpec, ...]: ...
    def __getitem__(self, place: int | slice) -> LayerSpec | tuple[LayerSpec, ...]:
        return self._all[place]

    def __iter__(self) -> Iterator[LayerSpec]:
        return iter(self._all)

    def __eq__(self, other: object) -> bool:
        return self._all == (other._all if isinstance(other, LongLayers) else other)

    def __hash__(self) -> int:
        return hash(self._all)

    def __repr__(self) -> str:
        return repr(self._all)
