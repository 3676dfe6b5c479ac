"""Parallelism: the work of a step divided among devices, and what they exchange for it.

Kinds of parallelism are in the files of this folder, each imported when it is asked for.
"""

from __future__ import annotations

from paleo.step.distributed_settings import SCALINGS
from paleo.step.parallelism.base import PARALLELISMS, Asked, Parallelism, Prediction
from paleo.step.parallelism.computations import Computations, divided
from paleo.step.parallelism.data import DataParallel, Worker, data_parallel
from paleo.step.plan import Plan

__all__ = [
    "PARALLELISMS",
    "SCALINGS",
    "Asked",
    "Computations",
    "DataParallel",
    "Parallelism",
    "Plan",
    "Prediction",
    "Worker",
    "data_parallel",
    "divided",
]

# Output shows first what scales, then what predicts passes alone.
PARALLELISMS.discover(
    __name__,
    {name: name for name in ("data", "mesh", "model", "hybrid", "single_process", "heterogeneous")},
    others="base computations fetch jitter overlap slowdown",
)
