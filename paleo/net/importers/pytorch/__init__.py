"""Nets from PyTorch modules, by torch.export on fake tensors."""

from __future__ import annotations

from paleo.net.importers.pytorch.reader import read

__all__ = ["read"]
