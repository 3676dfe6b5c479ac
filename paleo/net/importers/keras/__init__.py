"""Nets from the files that Keras 3 saves models in, by their configuration alone."""

from __future__ import annotations

from paleo.net.importers.keras.reader import read, read_bytes

__all__ = ["read", "read_bytes"]
