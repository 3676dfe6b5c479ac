"""Parallelism: the work of a step divided among devices, and what they exchange for it."""

from __future__ import annotations

from paleo.parallelism.data import (
    SCALINGS,
    Computations,
    DataParallel,
    DataParallelStep,
    data_parallel,
    divided,
)
from paleo.parallelism.hybrid import HybridPart, hybrid_parallel
from paleo.parallelism.model import ModelParallelPass, model_parallel
from paleo.parallelism.plan import Plan

__all__ = [
    "SCALINGS",
    "Computations",
    "DataParallel",
    "DataParallelStep",
    "HybridPart",
    "ModelParallelPass",
    "Plan",
    "data_parallel",
    "divided",
    "hybrid_parallel",
    "model_parallel",
]
