"""The layer types of a net-spec. Importing this registers all of them."""

from __future__ import annotations

from paleo.layers import convolution, dense, pointwise, pooling, shaping
from paleo.layers.base import LAYERS, Layer, ShapeError

__all__ = ["LAYERS", "Layer", "ShapeError"]
del convolution, dense, pointwise, pooling, shaping
