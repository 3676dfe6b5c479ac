"""Packages of extras, imported on use."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

from paleo.core.errors import PaleoError


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


def package_folders(name: str) -> list[Path]:
    """Return the folders of an installed package, without importing it; none if there is none."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):  # a module without a spec, such as __main__
        return []
    return [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []
