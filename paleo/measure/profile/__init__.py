"""Predicted beside measured: layer by layer, and whole passes in one piece.

Needs an executor's framework only where something is measured.
"""

from __future__ import annotations

from paleo.profile.extract import convolutions
from paleo.profile.layers import (
    DIRECTIONS,
    GRADIENTS,
    JOINED,
    UPDATE,
    LayerPass,
    LayerSum,
    Measured,
    Profile,
    Profiles,
    Sums,
    profile,
)
from paleo.profile.setting import Case, Processor, Setting
from paleo.profile.whole import FullPass, FullPasses, Part, fullpass

__all__ = [
    "DIRECTIONS",
    "GRADIENTS",
    "JOINED",
    "UPDATE",
    "Case",
    "FullPass",
    "FullPasses",
    "LayerPass",
    "LayerSum",
    "Measured",
    "Part",
    "Processor",
    "Profile",
    "Profiles",
    "Setting",
    "Sums",
    "convolutions",
    "fullpass",
    "profile",
]
