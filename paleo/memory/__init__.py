"""What a net takes of a device's memory, in inference and in training."""

from __future__ import annotations

from paleo.memory.footprint import Footprint, LayerMemory, footprint, largest_batch
from paleo.memory.optimizers import OPTIMIZERS, Optimizer

__all__ = ["OPTIMIZERS", "Footprint", "LayerMemory", "Optimizer", "footprint", "largest_batch"]
