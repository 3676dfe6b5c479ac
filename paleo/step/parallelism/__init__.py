"""Parallelism: the work of a step divided among devices, and what they exchange for it.

Kinds of parallelism are in the files of this folder. Importing this registers all of them.
"""

from __future__ import annotations

from paleo.step.distributed_settings import SCALINGS
from paleo.step.parallelism.base import PARALLELISMS, Asked, Parallelism, Prediction
from paleo.step.parallelism.computations import Computations, divided
from paleo.step.parallelism.data import DataParallel, Worker, data_parallel
from paleo.step.parallelism.hybrid import hybrid_parallel
from paleo.step.parallelism.model import model_parallel
from paleo.step.parallelism.single_process import single_process
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
    "hybrid_parallel",
    "model_parallel",
    "single_process",
]

# Output shows first what scales, then what predicts passes alone.
PARALLELISMS.discover(__name__, order=lambda kind: (not kind.scales, kind.trains))
