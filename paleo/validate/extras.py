"""Packages of the extra `validate`, imported on use."""

from __future__ import annotations

import importlib
from types import ModuleType

from paleo.errors import PaleoError

__all__ = ["extra"]


def extra(module: str, what: str, package: str) -> ModuleType:
    """Return a module; raises PaleoError, saying `what` needs the package, where it is missing."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise PaleoError(
            f'{what} needs {package}; install it with: pip install "paleo[validate]"'
        ) from None
