"""Nets from ONNX files, by the onnx library."""

from __future__ import annotations

from paleo.net.importers.onnx.reader import read, read_bytes

__all__ = ["read", "read_bytes"]
