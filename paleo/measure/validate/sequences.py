"""Nets over sequences of another length than their file's.

A net that names it as a dimension, "seq", is read again with another. The net file of a model that
was traced has the length in it in many places: of the input, of views, of the positions'
parameters, of a mask. An edit follows shapes, not such constants.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from paleo.core.errors import PaleoError
from paleo.measure.validate.spellings import UnmappedError
from paleo.net.load import loads
from paleo.net.spec import NetSpec
from paleo.net.writer import dumps

#: Keys that hold shapes, by the type of layer.
_SHAPES = {"Reshape": "output_shape", "Gather": "output_shape", "Parameter": "shape"}


def length_of(net: NetSpec) -> int:
    """Return the length of a net's sequences; raises UnmappedError if it has none."""
    if "seq" in net.dims:
        return net.dims["seq"]
    return _length(net, json.loads(dumps(net)))


def _length(net: NetSpec, text: dict[str, Any]) -> int:
    lengths = {each["tensor"][1] for each in _inputs(text)}
    if len(lengths) != 1:
        raise UnmappedError(f"net {net.name!r} has no length of sequences")
    return int(lengths.pop())


def _inputs(text: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the layers of a net file by which sequences come in, batch x length."""
    inputs = (each for each in _layers(text["layers"]) if each["type"] == "Input")
    return [each for each in inputs if len(each["tensor"]) == 2]


@functools.cache
def with_length(net: NetSpec, length: int) -> NetSpec:
    """Return a net whose inputs, batch x length, have this length; raises UnmappedError if none.

    In shapes of views and of parameters the first dimension of the old length changes, in those
    of constants (masks) every one. So a net that has as many positions as words keeps to that;
    another one has as many as it takes.
    """
    if "seq" in net.dims:
        return _with_dimension(net, length)
    text = json.loads(dumps(net))
    old = _length(net, text)
    if old == length:
        return net
    for each in _inputs(text):
        each["tensor"][1] = length
    for each in _layers(text["layers"]):
        key = _SHAPES.get(each["type"])
        if key and old in each[key]:
            shape = each[key]
            if each.get("trainable", True):
                shape[shape.index(old)] = length
            else:
                each[key] = [length if size == old else size for size in shape]
    try:
        return loads(json.dumps(text))
    except PaleoError as error:
        raise UnmappedError(
            f"net {net.name!r} with sequences of {length}: {error.mistakes[0]}"
        ) from None


def _with_dimension(net: NetSpec, length: int) -> NetSpec:
    before = net.dims["seq"]
    dims = {"seq": length}
    if "positions" in net.dims:
        has = net.dims["positions"]
        dims["positions"] = length if has == before else max(has, length)
    try:
        return net if before == length else replace(net.with_dims(**dims), name=net.name)
    except PaleoError as error:
        raise UnmappedError(
            f"net {net.name!r} with sequences of {length}: {error.mistakes[0]}"
        ) from None


def _layers(layers: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the layers of a net file, those in blocks too."""
    for each in layers.values():
        if "layers" in each:
            yield from _layers(each["layers"])
        else:
            yield each
