"""What is set in a layer: "LAYER.KEY[INDEX]=VALUE", and the layer with it.

What followed from a layer's old inputs then follows from its new ones (`Layer.following`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from paleo.core.checks import number, shown
from paleo.core.errors import Mistakes, near
from paleo.core.frozen import dataclass
from paleo.core.tensor import Shape, Shapes
from paleo.net.graph import Node
from paleo.net.layers import Layer, ShapeError

_PLACE = r"\[\s*(-?\d{1,9})?\s*(:)?\s*(-?\d{1,9})?\s*\]"
_TARGET = rf"(?s:(?P<layer>.+)\.(?P<key>\w+)(?P<places>({_PLACE})*))"


@dataclass(frozen=True)
class LayerSetting:
    """One "LAYER.KEY[INDEX]=VALUE": `places` are an index, or the ends of a slice, each."""

    text: str
    layer: str
    key: str
    places: tuple[int | slice, ...]
    value: Any

    @property
    def metaparameters(self) -> Mapping[str, Any] | None:
        """What the generator takes that is named in the place of a layer; None if none is."""
        import inspect  # with the generators, imported on use: few edits need them

        from paleo.net.generators import GENERATORS

        if self.layer not in GENERATORS:
            return None
        found = inspect.signature(GENERATORS[self.layer]).parameters
        return {name: each for name, each in found.items() if name not in ("batch_size", "name")}


class EditError(ValueError):
    """A setting that a layer does not take; `key` names the key."""

    def __init__(self, message: str, key: str) -> None:
        super().__init__(message)
        self.key = key


def parsed_setting(text: str, mistakes: Mistakes) -> LayerSetting | None:
    """Return what an entry of `Edits.set` says; None, the mistake noted, if it is none."""
    target, equals, value = text.partition("=")
    match = re.fullmatch(_TARGET, target.strip())
    if not match or not equals:
        mistakes.add(
            f'an edit: expected "LAYER.KEY=VALUE" or "LAYER.KEY[INDEX]=VALUE", got {shown(text)}'
        )
        return None
    found: list[int | slice] = []
    for place in re.finditer(_PLACE, match["places"]):
        begin, end = (int(digits) if digits else None for digits in (place[1], place[3]))
        if place[2]:
            found.append(slice(begin, end))
        elif begin is not None and end is None:
            found.append(begin)
        else:
            mistakes.add(f"an edit: expected an index or FROM:TO in brackets, got {shown(text)}")
            return None
    return LayerSetting(text, match["layer"], match["key"], tuple(found), _value(value.strip()))


def _value(text: str) -> Any:
    """Return a value as a net file would have it; a bare word is a name."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        # ".5" is a number on a command line, and none in JSON.
        return number(text) if re.fullmatch(r"-?\.\d+", text) else text


def edited(
    node: Node, inputs: Shapes, settings: Sequence[LayerSetting], scale: float | None = None
) -> Layer:
    """Return a node's layer as it follows from new inputs, then with these settings.

    `scale` is a factor of an input's height and width. Raises ShapeError where the layer no longer
    fits, EditError for a setting that is wrong.
    """
    layer = node.layer
    chosen = {setting.key for setting in settings}
    if inputs != node.inputs:
        try:
            layer = layer.following(node.inputs, inputs)
        except ShapeError as error:
            if error.key not in chosen:
                raise
    if layer.is_input and scale is not None:
        layer = layer.of_shape(_scaled(layer.infer_shape(()), scale))
    for setting in settings:
        try:
            layer = _with(layer, setting)
        except ValueError as error:
            raise EditError(str(error), setting.key) from None
    if layer.is_input and layer.infer_shape(())[0] != node.output[0]:
        raise EditError("the batch is no edit: batch_size sets it", "tensor")
    if not settings:
        return layer
    try:
        followed = layer.following(inputs, inputs)
    except ShapeError:  # which is said when the shape is inferred
        return layer
    # What follows from a key that was set does; what was set itself stays.
    for setting in settings:
        followed = _with(followed, setting)
    return followed


def _scaled(shape: Shape, scale: float) -> Shape:
    """Return a shape whose dimensions between batch and channels are so many times as large."""
    batch, *sizes, channels = shape
    return (batch, *(max(1, int(size * scale + 0.5)) for size in sizes), channels)


def _with(layer: Layer, setting: LayerSetting) -> Layer:
    """Return a layer with one key set; raises ValueError saying what is expected."""
    key = layer.keys.get(setting.key)
    if key is None:
        known = ", ".join(layer.keys) or "none"
        guess = near(setting.key, layer.keys)
        raise ValueError(f"{layer.type_name} has no such key{guess}; it has: {known}")
    value = setting.value
    if setting.places:
        value = _placed(key.kind.written(getattr(layer, setting.key)), setting.places, value)
    return layer.replace(**{setting.key: key.kind.parse(value)})


def _placed(whole: Any, places: tuple[int | slice, ...], value: Any) -> Any:
    """Return a list with another value at a place; raises ValueError if there is no such place."""
    if not isinstance(whole, list):
        raise ValueError(f"{shown(whole)} is no list with entries")
    place, *inner = places
    if isinstance(place, int):
        positions = [place % len(whole)] if -len(whole) <= place < len(whole) else []
    else:
        positions = list(range(len(whole))[place])
    found = list(whole)
    values = value if isinstance(value, list) and isinstance(place, slice) else None
    if not positions or (values is not None and len(values) != len(positions)):
        where = place if isinstance(place, int) else f"{_end(place.start)}:{_end(place.stop)}"
        wanted = f"{len(values)} values" if values is not None else "an entry"
        raise ValueError(f"expected [{where}] to be {wanted} of {shown(whole)}")
    for i, position in enumerate(positions):
        new = value if values is None else values[i]
        found[position] = _placed(whole[position], tuple(inner), new) if inner else new
    return found


def _end(position: int | None) -> str:
    return "" if position is None else str(position)
