"""A configuration to the text of a net file: which family it is of, and what is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paleo.core.checks import shown
from paleo.core.errors import Mistake, Mistakes, NetSpecError
from paleo.core.texts import json_text
from paleo.net.importers.base import ImportOptions, file_content
from paleo.net.importers.transformers.body import Block
from paleo.net.importers.transformers.config import MODEL_TYPE, Config
from paleo.net.importers.transformers.encoders import ENCODERS
from paleo.net.importers.transformers.families import DENSE
from paleo.net.importers.transformers.family import Family
from paleo.net.importers.transformers.hyperparameters import completed, format_of
from paleo.net.importers.transformers.multimodal import MULTIMODAL
from paleo.net.importers.transformers.opaque import OPAQUE
from paleo.net.importers.transformers.pairs import IMAGES
from paleo.net.importers.transformers.seq2seq import SEQ2SEQ
from paleo.net.importers.transformers.sparse import SPARSE
from paleo.net.lengths import SEQ, length_note

#: What a file of a configuration is called.
NAME = "config.json"
#: How each `model_type` is read.
FAMILIES: Mapping[str, Family] = {**DENSE, **SPARSE, **ENCODERS, **SEQ2SEQ, **IMAGES, **MULTIMODAL}
#: Sizes that a file must say, where its family has a default for them.
_NEEDED = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")


def read(target: str, options: ImportOptions) -> str:
    """Return the net file of a configuration, or of the one in a folder.

    Raises NetSpecError with every mistake.
    """
    path = Path(target)
    file = path / NAME if path.is_dir() else path
    return net_text(file_content(str(file)), str(file), options)


def net_text(data: bytes, target: str, options: ImportOptions, source: str = "") -> str:
    """Return the net file of a configuration; `target` names it. Raises as `read`.

    `source` is what the file says of where the net is published.
    """
    values = _decoded(data, target)
    mistakes = Mistakes(target)
    root = Block()
    family, c = _family(values, mistakes, options.unknown)
    notes: list[str] = list(getattr(family.form, "notes", ())) if family else []
    sizes: dict[str, Any] = {}
    if family:
        head = _head(family, c)
        _check_needed(family, c)
        sizes = family.form.write(c, root, head)
    mistakes.raise_as(NetSpecError)
    notes += _notes(c, sizes)
    return _written(_name(values, target), source, notes, sizes, root)


def _decoded(data: bytes, target: str) -> Mapping[str, Any]:
    try:
        values = json.loads(data)
    except RecursionError:
        raise NetSpecError(Mistake("not a configuration: nested too deeply", target)) from None
    except ValueError as error:
        raise NetSpecError(Mistake(f"not JSON: {error}", target)) from None
    if not isinstance(values, dict):
        raise NetSpecError(Mistake("not a configuration: expected a JSON object", target))
    return values


def _family(
    values: Mapping[str, Any], mistakes: Mistakes, unknown: str
) -> tuple[Family | None, Config]:
    """Return the family of a configuration, None, which is noted, if it is not known."""
    if found := format_of(values):
        c = Config(completed(values), mistakes, found.defaults, found.spellings, unknown=unknown)
        return found, c
    kind = values.get(MODEL_TYPE)
    family = FAMILIES.get(kind) if isinstance(kind, str) else None
    if family is None and kind is not None and unknown == "zero":
        family = OPAQUE
    if family is None:
        if kind is None:
            fault = "missing; it is the model's architecture, such as llama"
        else:
            hint = mistakes.near(str(kind), FAMILIES) or f"; there are: {', '.join(FAMILIES)}"
            fault = f"unknown architecture {shown(kind)}{hint}"
        mistakes.add(fault, key=MODEL_TYPE)
        return None, Config(values, mistakes)
    c = Config(values, mistakes, family.defaults, family.spellings, unknown=unknown)
    return family, c


def _check_needed(family: Family, c: Config) -> None:
    """Note sizes that every published file says, and this one does not."""
    for key in _NEEDED:
        if family in FAMILIES.values() and key in family.defaults and not c.has(key):
            c.wrong(key, f"missing; {shown(family.defaults[key])} is what transformers takes")


def _head(family: Family, c: Config) -> str:
    """Return the head of the architecture that a configuration names, else the usual one."""
    named = c.get("architectures")
    if not isinstance(named, list) or not named:
        return str(family.form.usual_head)
    heads: Mapping[str, str] = family.form.heads_of
    for end, head in heads.items():
        if isinstance(named[0], str) and named[0].endswith(end):
            return head
    if c.unknown == "zero":
        return ""
    ends = ", ".join(heads)
    c.wrong("architectures", f"the head of {shown(named[0])} is not known; those that are: {ends}")
    return ""


def _notes(c: Config, dims: Mapping[str, Any]) -> list[str]:
    """Return what is said of a length that the file leaves open."""
    if SEQ not in dims:
        return []
    return [length_note(dims[SEQ], c.optional("max_position_embeddings"))]


def _name(values: Mapping[str, Any], target: str) -> str:
    """Return the net's name: the model's, that of the file, of its folder, or the architecture."""
    named = values.get("_name_or_path")
    if isinstance(named, str) and (last := named.rstrip("/").rpartition("/")[2]):
        return last
    path = Path(target)
    if path.suffix == ".json" and path.name != NAME:
        return path.stem
    folder = path.parent.name if path.name == NAME else path.name
    return folder or str(values.get(MODEL_TYPE))


def _written(name: str, source: str, notes: list[str], dims: Mapping[str, Any], root: Block) -> str:
    """Return the text of a net file, a line for each layer."""
    said = {"name": name, "source": source, "notes": notes, "dims": dict(dims)}
    lines = ["{", *(f'  "{key}": {json_text(value)},' for key, value in said.items() if value)]
    lines.append('  "layers": {')
    lines += _lines(root.layers, 2)
    return "\n".join([*lines, "  }", "}", ""])


def _lines(layers: Mapping[str, Any], depth: int) -> list[str]:
    """Return the lines of layers and blocks."""
    start, found = "  " * depth, []
    for name, body in layers.items():
        if "layers" in body:
            head = {key: value for key, value in body.items() if key != "layers"}
            opening = json_text(head)[:-1]
            found.append(f'{start}{json_text(name)}: {opening}, "layers": {{')
            found += [*_lines(body["layers"], depth + 1), f"{start}}}}},"]
        else:
            found.append(f"{start}{json_text(name)}: {json_text(body)},")
    found[-1] = found[-1].removesuffix(",")
    return found
