"""The layer types of a net-spec: one class each, in the files of this folder.

Importing this registers all of them.
"""

from __future__ import annotations

from paleo.net.layers.base import LAYERS, Layer, ShapeError

__all__ = ["LAYERS", "Layer", "ShapeError"]

LAYERS.discover(__name__)
