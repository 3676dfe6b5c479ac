"""Cost models. Importing this registers all of them."""

from __future__ import annotations

from paleo.costs import paleo2017, roofline
from paleo.costs.base import COST_MODELS, Conventions, CostModel, Target, Time

__all__ = ["COST_MODELS", "Conventions", "CostModel", "Target", "Time", "find_cost_model"]
del paleo2017, roofline

DEFAULT_COST_MODEL = "paleo2017"


def find_cost_model(cost_model: str | CostModel) -> CostModel:
    """Return a cost model by name, or as it is; raises UnknownNameError."""
    return cost_model if isinstance(cost_model, CostModel) else COST_MODELS[cost_model]
