"""The layer types of a net-spec. Importing this registers all of them."""

from __future__ import annotations

from paleo.layers import (
    attention,
    convolution,
    dense,
    normalization,
    objectives,
    pointwise,
    pooling,
    recurrent,
    shaping,
)
from paleo.layers.base import LAYERS, Layer, ShapeError

__all__ = ["LAYERS", "Layer", "ShapeError"]
del attention, convolution, dense, normalization, objectives, pointwise, pooling, recurrent, shaping
