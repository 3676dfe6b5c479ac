"""Packages of extras, imported on use."""

from __future__ import annotations

import importlib
from types import ModuleType

from paleo.errors import PaleoError

__all__ = ["extra"]


def extra(module: str, what: str, package: str, of: str = "validate") -> ModuleType:
    """Return a module; raises PaleoError, saying `what` needs the package, where it is missing.

    `of` is the extra of Paleo that installs it.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        raise PaleoError(
            f'{what} needs {package}; install it with: pip install "paleo[{of}]"'
        ) from None
