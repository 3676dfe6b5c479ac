"""The JSON Schema of net files, made from what the layer types declare.

It is made when it is asked for, since plug-ins add layer types.
"""

from __future__ import annotations

from typing import Any

from paleo.core.tensor import DTYPES
from paleo.net.dims import NAME
from paleo.net.layers import LAYERS, Layer
from paleo.net.layers.fields import Whole
from paleo.net.spec import BLOCKS, LAYER_KEYS, MAX_LAYERS, MAX_SPLITS, ROOT_KEYS

_PARENTS = {
    "description": "the layers that feed this one; empty for an Input, and in a block for the "
    "block's own parents",
    "type": "array",
    "items": {"type": "string"},
}
_LAYERS = {"$ref": "#/$defs/layers"}


def _object(description: str, properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    """Return the schema of an object that has these keys and no others."""
    return {
        "description": description,
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _varied(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of what may differ by index."""
    items = {"type": "array", "items": schema, "minItems": 1}
    by_index = {
        "type": "object",
        "properties": {"by_index": items},
        "required": ["by_index"],
        "additionalProperties": False,
    }
    return {
        "description": description,
        "if": {"type": "object"},
        "then": by_index,
        "else": schema,
    }


def _layer_schema(name: str, layer: type[Layer]) -> dict[str, Any]:
    source = layer.is_source()
    properties: dict[str, Any] = {
        "type": {"const": name},
        "parents": _PARENTS,
        "shares": _varied(LAYER_KEYS["shares"], {"type": ["string", "null"]}),
        "dtype": _varied(LAYER_KEYS["dtype"], {"enum": [*DTYPES, "", None]}),
    }
    required = ["type"] if source else ["type", "parents"]
    for key, declared in layer.keys.items():
        schema = _varied(declared.doc, declared.kind.schema)
        if declared.required:
            required.append(key)
        else:
            schema["default"] = declared.written_default
        properties[key] = schema
    if source:
        properties["parents"] = {**_PARENTS, "maxItems": 0}
    return _object(str(layer.__doc__ or "").splitlines()[0], properties, required)


def _block_schema(name: str) -> dict[str, Any]:
    known: dict[str, Any] = {
        "type": {"const": name},
        "parents": _PARENTS,
        "layers": _LAYERS,
        "endpoint": {
            "description": "the inner layer meant where the block is named as a parent",
            "type": "string",
        },
        "repeat": {
            "description": "how many instances of the block follow each other, named by their "
            "index: the first reads the block's parents, each other one the endpoint of the one "
            "before",
            **Whole().schema,
            "maximum": MAX_LAYERS,
        },
        "splits": {
            "description": "how many devices the inner layers are split over",
            **Whole().schema,
            "maximum": MAX_SPLITS,
        },
    }
    keys = BLOCKS[name]
    description = "layers in a namespace of their own"
    if "splits" in keys:
        description += ", each split over devices"
    required = [key for key in keys if key not in ("endpoint", "repeat")]
    schema = _object(description, {key: known[key] for key in keys}, required)
    if "repeat" in keys:
        schema["dependentRequired"] = {"repeat": ["endpoint"]}
    return schema


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
    properties: dict[str, Any] = {
        **{key: {"description": doc, "type": "string"} for key, doc in ROOT_KEYS.items()},
        "name": {"description": ROOT_KEYS["name"], "type": "string", "minLength": 1},
        "notes": {
            "description": ROOT_KEYS["notes"],
            "type": "array",
            "items": {"type": "string"},
        },
        "dims": {
            "description": ROOT_KEYS["dims"],
            "type": "object",
            "propertyNames": {"pattern": f"^{NAME}$"},
            "additionalProperties": Whole().schema,
        },
        "layers": {"description": ROOT_KEYS["layers"], **_LAYERS},
    }
    summary = "A deep neural network as layers and who feeds whom."
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Paleo net-spec",
        **_object(summary, properties, ["name", "layers"]),
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
