"""Benchmarks as modules: they lie in no package."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

_BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def benchmark_of(name: str) -> Any:
    """Return the module of a benchmark, by the name of its file."""
    spec = importlib.util.spec_from_file_location(f"{name}_benchmark", _BENCHMARKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look their module up
    spec.loader.exec_module(module)
    return module
