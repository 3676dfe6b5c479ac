"""Nets of other frameworks: which importer reads what.

Each importer is a folder in this one, and needs a library of its own. It is imported when a
net of its kind is read.
"""

from __future__ import annotations

import importlib
from pathlib import PurePath

from paleo.errors import NetSpecError
from paleo.importers.base import PHASES, PYTHON, UNKNOWN, ImportOptions
from paleo.netspec import NetSpec

__all__ = [
    "IMPORTERS",
    "PHASES",
    "PYTHON",
    "UNKNOWN",
    "ImportOptions",
    "hint",
    "importer_of",
    "read",
    "read_bytes",
]

#: What each importer reads: the ends of file names, or how a target begins.
IMPORTERS = {
    "caffe": (".prototxt", ".pbtxt", ".prototext"),
    "onnx": (".onnx",),
    "pytorch": (PYTHON,),
}


def importer_of(target: str) -> str | None:
    """Return the importer that a file or target is for, None if it is no net of another kind."""
    if target.startswith(PYTHON):
        return "pytorch"
    suffix = PurePath(target).suffix.lower()
    return next((name for name, ends in IMPORTERS.items() if suffix in ends), None)


#: What people have beside a net, by the end of its name, and what to give instead.
_NO_NETS = {
    ".py": "a Python file: name what is in it, as in python:models:Net",
    ".caffemodel": "weights: give the .prototxt that describes the net",
    **dict.fromkeys(
        (".pt", ".pth", ".ckpt", ".safetensors", ".bin"),
        "weights: name the PyTorch module that they are for, as in python:models:Net",
    ),
    **dict.fromkeys(
        (".h5", ".keras", ".pb", ".tflite", ".mlmodel"), "not understood: export the net as ONNX"
    ),
}


def hint(target: str) -> str | None:
    """Return what to do about a file that cannot be a net, by the end of its name."""
    return _NO_NETS.get(PurePath(target).suffix.lower())


def read(importer: str, target: str, options: ImportOptions) -> NetSpec:
    """Return the net that a file or target of another framework describes.

    Raises NetSpecError with every mistake, and if the importer's library is missing.
    """
    module = importlib.import_module(f"paleo.importers.{importer}")
    net: NetSpec = module.read(target, options)
    return net


def read_bytes(importer: str, data: bytes, target: str, options: ImportOptions) -> NetSpec:
    """Return the net that the bytes of a file describe; `target` only names it in messages.

    No file is opened. Raises NetSpecError as `read`, and if what the importer reads is no file.
    """
    module = importlib.import_module(f"paleo.importers.{importer}")
    if not hasattr(module, "read_bytes"):
        raise NetSpecError(f"{target}: names code, not a file")
    net: NetSpec = module.read_bytes(data, target, options)
    return net
