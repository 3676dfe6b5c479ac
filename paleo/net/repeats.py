"""Repeated blocks: the layers of one instance, made for each index."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from paleo.net.spec import LayerSpec

#: Texts behind the name of an instance, or whole names where it says they are outside.
_Names: TypeAlias = list[tuple[bool, str]]


def repeated(
    template: Sequence[LayerSpec],
    prefix: str,
    count: int,
    read: Sequence[str],
    endpoint: str,
    varied: Mapping[str, Sequence[LayerSpec]],
) -> Iterator[LayerSpec]:
    """Yield the layers of `count` instances of a block, one instance after the other.

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
    for index in range(count):
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
