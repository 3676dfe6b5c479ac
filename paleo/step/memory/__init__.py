"""What a net takes of a device's memory, in inference and in training."""

from __future__ import annotations

from paleo.step.memory.capacity import Fit, fit
from paleo.step.memory.footprint import Footprint, LayerMemory, footprint, footprints, largest_batch
from paleo.step.optimizers import OPTIMIZERS, Optimizer

__all__ = [
    "OPTIMIZERS",
    "Fit",
    "Footprint",
    "LayerMemory",
    "Optimizer",
    "fit",
    "footprint",
    "footprints",
    "largest_batch",
]
