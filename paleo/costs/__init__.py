"""Cost models. Importing this registers all of them."""

from __future__ import annotations

from paleo.costs import paleo2017, roofline, tiled
from paleo.costs.base import COST_MODELS, Conventions, CostModel, Explanation, Target
from paleo.costs.convolutions import ConvolutionChoice, convolution_choice
from paleo.costs.times import Time, Times

__all__ = [
    "COST_MODELS",
    "Conventions",
    "ConvolutionChoice",
    "CostModel",
    "Explanation",
    "Target",
    "Time",
    "Times",
    "convolution_choice",
    "find_cost_model",
]
del paleo2017, roofline, tiled

DEFAULT_COST_MODEL = "tiled"


def find_cost_model(cost_model: str | CostModel) -> CostModel:
    """Return a cost model by name, or as it is; raises UnknownNameError."""
    return cost_model if isinstance(cost_model, CostModel) else COST_MODELS[cost_model]
