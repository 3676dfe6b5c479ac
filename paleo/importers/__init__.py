"""Nets of other frameworks: which importer reads what.

Each importer is a module of this folder that needs a library of its own. It is imported
when a net of its kind is read.
"""

from __future__ import annotations

import importlib
from pathlib import PurePath

from paleo.importers.base import PHASES, UNKNOWN, ImportOptions
from paleo.netspec import NetSpec

__all__ = ["IMPORTERS", "PHASES", "PYTHON", "UNKNOWN", "ImportOptions", "importer_of", "read"]

#: How a target begins that names a PyTorch module instead of a file.
PYTHON = "python:"
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


def read(importer: str, target: str, options: ImportOptions) -> NetSpec:
    """Return the net that a file or target of another framework describes.

    Raises NetSpecError with every mistake, and if the importer's library is missing.
    """
    module = importlib.import_module(f"paleo.importers.{importer}")
    net: NetSpec = module.read(target, options)
    return net
