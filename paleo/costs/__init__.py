"""Cost models: how long an operation takes on a device.

In come operations (kind, pass, operands, geometry) and a target; out go times of computation,
memory traffic and overhead, and error bands where errors were measured. Importing this registers
all cost models.
"""

from __future__ import annotations

from paleo.costs.convolutions import ConvolutionChoice, convolution_choice
from paleo.costs.model import COST_MODELS, Conventions, CostModel, Explanation, Target
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

COST_MODELS.discover(
    __name__,
    {name: name for name in ("paleo2017", "roofline", "tiled")},
    others="attention batching choosing collective_bands convolutions counts2017 error_bands host "
    "model times",
)

DEFAULT_COST_MODEL = "tiled"


def find_cost_model(cost_model: str | CostModel) -> CostModel:
    """Return a cost model by name, or as it is; raises UnknownNameError."""
    return cost_model if isinstance(cost_model, CostModel) else COST_MODELS[cost_model]
