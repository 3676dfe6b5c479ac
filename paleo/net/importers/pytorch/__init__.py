"""Nets from PyTorch: modules, by torch.export on fake tensors, and what torch.export has made."""

from __future__ import annotations

import importlib
from typing import Any

from paleo.core.errors import NetSpecError
from paleo.net.importers.base import CODE, ImportOptions
from paleo.net.importers.pytorch import reader
from paleo.net.spec import NetSpec

__all__ = ["read", "read_object"]


def read(target: str, options: ImportOptions) -> NetSpec:
    """Return the net that a target names, or that a `.pt2` file holds; raises NetSpecError."""
    if target.startswith(CODE):
        return reader.read(target, options)
    reader.require_torch(target)
    net: NetSpec = _program().read(target, options)
    return net


def read_object(net: Any, options: ImportOptions) -> NetSpec:
    """Return the net of a module or an exported program, which stays as it is.

    Raises NetSpecError.
    """
    name = type(net).__name__
    if hasattr(net, "graph_signature"):
        found: NetSpec = _program().read_program(name, name, net, options)
        return found
    if not options.input:
        raise NetSpecError(
            f"the module {name}: say what it takes, a shape for each argument: "
            "importing=paleo.ImportOptions(input=((None, (1, 3, 224, 224)),))"
        )
    return reader.read_module(f"the module {name}", name, net, options)


def _program() -> Any:
    """Return what reads exported programs, which needs PyTorch from the start."""
    return importlib.import_module("paleo.net.importers.pytorch.program")
