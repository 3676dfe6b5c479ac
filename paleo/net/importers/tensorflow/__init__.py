"""Nets from TensorFlow: SavedModels, which tf2onnx turns into ONNX."""

from __future__ import annotations

from paleo.net.importers.tensorflow.reader import read

__all__ = ["read"]
