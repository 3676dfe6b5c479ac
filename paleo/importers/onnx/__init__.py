"""Nets from ONNX files, by the onnx library."""

from __future__ import annotations

from paleo.importers.onnx.reader import read

__all__ = ["read"]
