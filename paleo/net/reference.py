"""What there is to know of a layer type, made from what its class declares."""

from __future__ import annotations

import inspect
import json

from paleo.net.layers import LAYERS


def layer_section(name: str) -> str:
    """Return a section on a layer type, in Markdown: what it is, its keys, and the rest it says.

    Raises UnknownNameError for a type that is not known.
    """
    layer = LAYERS[name]
    summary, _, rest = (inspect.getdoc(layer) or "").partition("\n\n")
    table = ["| key | meaning | required or default |", "|---|---|---|"]
    for key, declared in layer.keys.items():
        default = "required" if declared.required else f"`{json.dumps(declared.written_default)}`"
        table.append(f"| `{key}` | {declared.doc} | {default} |")
    keys = "\n".join(table) if layer.keys else "It has no keys of its own."
    return "\n\n".join(part for part in (f"### {name}", summary, keys, rest) if part) + "\n"
