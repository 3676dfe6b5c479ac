"""PyTorch modules of tests, and their import."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

from torch import nn

import paleo
from paleo.net.importers import ImportOptions
from paleo.net.importers.pytorch import read


class Net(nn.Module):  # type: ignore[misc]
    """A function of modules, which have names, and inputs."""

    def __init__(self, function: Callable[..., Any], **modules: Any) -> None:
        super().__init__()
        self.function = function
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, x: Any, *others: Any) -> Any:
        return self.function(self, x, *others)


def imported(net: Any, *shapes: tuple[int, ...], **options: Any) -> paleo.NetSpec:
    """Import a module, or what makes one, with inputs of some shapes."""
    models: Any = types.ModuleType("models_of_a_test")
    models.net = net
    sys.modules[models.__name__] = models
    try:
        given = tuple((None, shape) for shape in shapes)
        return read(f"python:{models.__name__}:net", ImportOptions(input=given, **options))
    finally:
        del sys.modules[models.__name__]
