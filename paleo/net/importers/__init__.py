"""Nets of other frameworks: which importer reads what.

Each importer is a folder in this one, and needs a library of its own. It is imported when a
net of its kind is read. Other packages add importers by entry points of the group
`paleo.importers`: the name is the end of the names of the files that it reads, without the dot, and
the module has what those here have.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from paleo.core.errors import NetSpecError
from paleo.core.files import read_bytes as read_file
from paleo.core.plugins import broken, entry_points, load
from paleo.net.importers.base import CODE, PHASES, PROPOSALS, UNKNOWN, ImportOptions
from paleo.net.spec import NetSpec

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = [
    "CODE",
    "IMPORTERS",
    "PHASES",
    "PROPOSALS",
    "TEXTS",
    "UNKNOWN",
    "ImportOptions",
    "hint",
    "importer_by_name",
    "importer_of",
    "is_configuration",
    "net_text",
    "read",
    "read_bytes",
    "read_object",
    "read_text",
]

#: What each importer reads: the ends of file names, or how a target begins.
IMPORTERS = {
    "caffe": (".prototxt", ".pbtxt", ".prototext"),
    "keras": (".keras",),
    "onnx": (".onnx",),
    "pytorch": (*CODE, ".pt2"),
    "tensorflow": ("saved_model.pb",),
    "transformers": ("config.json",),
}
#: Importers whose `read` returns the text of a net file, the dimensions of which stay open.
TEXTS = ("transformers",)
#: What is in JSON files of configurations or hyper-parameters of models, and in no net file.
_CONFIGURED = (b'"model_type"', b'"architectures"', b'"attn_heads"', b'"head_num"', b'"max_length"')
#: The word for an importer of another package in messages.
_KIND = "importer of files that end in"


def importer_of(target: str) -> str | None:
    """Return the importer that a file or target is for, None if it is no net of another kind."""
    (graph,) = IMPORTERS["tensorflow"]
    if not target.startswith(CODE) and os.path.isfile(os.path.join(target, graph)):  # noqa: PTH113, PTH118  # False for what cannot be a path
        return "tensorflow"  # it is the folder of a SavedModel
    return importer_by_name(target) or ("transformers" if _is_configuration(target) else None)


def _is_configuration(target: str) -> bool:
    """Tell whether a JSON file, or the one in a folder, is the configuration of a model."""
    (name,) = IMPORTERS["transformers"]
    folder = os.path.join(target, name)  # noqa: PTH118  # False for what cannot be a path
    file = folder if os.path.isfile(folder) else target  # noqa: PTH113
    if not file.lower().endswith(".json"):
        return False
    try:
        return is_configuration(read_file(file), file)
    except OSError:
        return False


def is_configuration(data: bytes, name: str) -> bool:
    """Tell whether a JSON file of this name and content configures a model, and is no net."""
    if b'"layers"' in data or b'"class_name"' in data:
        return False
    is_named = (PurePath(name).name,) == IMPORTERS["transformers"]
    return is_named or any(word in data for word in _CONFIGURED)


def importer_by_name(target: str) -> str | None:
    """Return the importer that a target is for, without a look at any file or folder."""
    if target.startswith(CODE):
        return "pytorch"
    if target.lower().endswith(".keras.json"):  # what to_json() gives, under a name that says so
        return "keras"
    if PurePath(target).name in IMPORTERS["tensorflow"]:
        return "tensorflow"
    suffix = PurePath(target).suffix.lower()
    if suffix in ("", ".json"):
        return None
    built_in = next((name for name, ends in IMPORTERS.items() if suffix in ends), None)
    return built_in or (suffix[1:] if suffix[1:] in _plugins() else None)


@functools.cache
def _plugins() -> Mapping[str, EntryPoint]:
    """Return the importers of other packages, by the end of file names."""
    ends = [end.removeprefix(".") for ends in IMPORTERS.values() for end in ends]
    return entry_points(_KIND, "paleo.importers", ["json", *ends])


def _module(importer: str) -> Any:
    """Return an importer's module: ours, or that of another package; raises PluginError."""
    if importer in IMPORTERS:
        return importlib.import_module(f"paleo.net.importers.{importer}")
    entry = _plugins()[importer]
    module = load(entry, _KIND)
    if not callable(getattr(module, "read", None)):
        raise broken(entry, _KIND, "it has no function named read")
    return module


#: What people have beside a net, by the end of its name, and what to give instead.
_NO_NETS = {
    ".py": "a Python file: name what is in it, as in python:models:Net",
    ".caffemodel": "weights: give the .prototxt that describes the net",
    **dict.fromkeys(
        (".pt", ".pth", ".ckpt", ".safetensors", ".bin"),
        "weights: name the PyTorch module that they are for, as in python:models:Net",
    ),
    **dict.fromkeys(
        (".h5", ".pb", ".tflite", ".mlmodel"), "not understood: export the net as ONNX"
    ),
}


def hint(target: str) -> str | None:
    """Return what to do about a file that cannot be a net, by the end of its name."""
    return _NO_NETS.get(PurePath(target).suffix.lower())


def read(importer: str, target: str, options: ImportOptions) -> NetSpec:
    """Return the net that a file or target of another framework describes.

    Raises NetSpecError with every mistake, and if the importer's library is missing.
    """
    net: NetSpec = _module(importer).read(target, options)
    return net


def read_text(importer: str, target: str, options: ImportOptions) -> str:
    """Return the net file that an importer makes of a file, of those in TEXTS; raises as `read`."""
    text: str = _module(importer).read(target, options)
    return text


def net_text(data: bytes, target: str) -> bytes:
    """Return the net file of a configuration; what is none as it is. Raises as `read`."""
    if not target.lower().endswith(".json") or not is_configuration(data, target):
        return data
    text: str = _module("transformers").net_text(data, target, ImportOptions())
    return text.encode()


def read_object(net: object, options: ImportOptions) -> NetSpec | None:
    """Return the net of a PyTorch module or exported program; None for anything else.

    Raises NetSpecError.
    """
    torch: Any = sys.modules.get("torch")  # there is none of its objects where it is not imported
    if torch is None or not isinstance(net, torch.nn.Module | torch.export.ExportedProgram):
        return None
    found: NetSpec = _module("pytorch").read_object(net, options)
    return found


def read_bytes(importer: str, data: bytes, target: str, options: ImportOptions) -> NetSpec:
    """Return the net that the bytes of a file describe; `target` only names it in messages.

    No file is opened. Raises NetSpecError as `read`, and if what the importer reads is no file.
    """
    module = _module(importer)
    if not hasattr(module, "read_bytes"):
        said = "names code, not a file" if target.startswith(CODE) else "only commands read it"
        raise NetSpecError(f"{target}: {said}")
    net: NetSpec = module.read_bytes(data, target, options)
    return net
