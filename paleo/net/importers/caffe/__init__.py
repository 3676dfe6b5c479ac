"""Nets from Caffe prototxts, by protobuf's text format."""

from __future__ import annotations

from paleo.net.importers.caffe.reader import read, read_bytes

__all__ = ["read", "read_bytes"]
