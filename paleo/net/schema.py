"""The JSON Schema of net files, made from what the layer types declare.

`paleo/net.schema.json` is this, written out for editors; a test holds them together.
"""

from __future__ import annotations

from typing import Any

from paleo.layers import LAYERS, Layer
from paleo.layers.keys import Whole
from paleo.netspec import BLOCKS, LAYER_KEYS, MAX_SPLITS, ROOT_KEYS

__all__ = ["net_schema"]

_PARENTS = {
    "description": "the layers that feed this one; empty for an Input, and in a block for the "
    "block's own parents",
    "type": "array",
    "items": {"type": "string"},
}
_LAYERS = {"$ref": "#/$defs/layers"}


def _first_line(thing: Any) -> str:
    return str(thing.__doc__ or "").splitlines()[0]


def _layer_schema(name: str, layer: type[Layer]) -> dict[str, Any]:
    source = layer.is_source()
    properties: dict[str, Any] = {
        "type": {"const": name},
        "parents": _PARENTS,
        "shares": {"description": LAYER_KEYS["shares"], "type": ["string", "null"]},
    }
    required = ["type"] if source else ["type", "parents"]
    for key, declared in layer.keys.items():
        schema = {"description": declared.doc, **declared.kind.schema}
        if declared.required:
            required.append(key)
        else:
            schema["default"] = declared.written_default
        properties[key] = schema
    if source:
        properties["parents"] = {**_PARENTS, "maxItems": 0}
    return {
        "description": _first_line(layer),
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _block_schema(name: str) -> dict[str, Any]:
    known: dict[str, Any] = {
        "type": {"const": name},
        "parents": _PARENTS,
        "layers": _LAYERS,
        "endpoint": {
            "description": "the inner layer meant where the block is named as a parent",
            "type": "string",
        },
        "splits": {
            "description": "how many devices the inner layers are split over",
            **Whole().schema,
            "maximum": MAX_SPLITS,
        },
    }
    keys = BLOCKS[name]
    return {
        "description": "layers in a namespace of their own"
        if name == "Block"
        else "layers in a namespace of their own, each split over devices",
        "type": "object",
        "properties": {key: known[key] for key in keys},
        "required": [key for key in keys if key != "endpoint"],
        "additionalProperties": False,
    }


def net_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a net file.

    It checks keys and values layer by layer; parents, shapes and sizes are Paleo's to check.
    """
    kinds: dict[str, Any] = {name: _layer_schema(name, layer) for name, layer in LAYERS.items()}
    kinds |= {name: _block_schema(name) for name in BLOCKS}
    # if/then, unlike oneOf, lets an editor tell what is wrong with a layer of known type.
    choices = [
        {
            "if": {"properties": {"type": {"const": name}}, "required": ["type"]},
            "then": {"$ref": f"#/$defs/{name}"},
        }
        for name in kinds
    ]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Paleo net-spec",
        "description": "A deep neural network as layers and who feeds whom.",
        "type": "object",
        "properties": {
            "$schema": {"description": ROOT_KEYS["$schema"], "type": "string"},
            "name": {"description": ROOT_KEYS["name"], "type": "string", "minLength": 1},
            "source": {"description": ROOT_KEYS["source"], "type": "string"},
            "layers": {"description": ROOT_KEYS["layers"], **_LAYERS},
        },
        "required": ["name", "layers"],
        "additionalProperties": False,
        "$defs": {
            "layers": {
                "type": "object",
                "minProperties": 1,
                "additionalProperties": {"$ref": "#/$defs/layer"},
            },
            "layer": {
                "type": "object",
                "properties": {"type": {"enum": list(kinds)}},
                "required": ["type"],
                "allOf": choices,
            },
            **kinds,
        },
    }
