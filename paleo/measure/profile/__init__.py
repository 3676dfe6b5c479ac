"""Predicted beside measured: layer by layer, and whole passes in one piece.

Needs an executor's framework only where something is measured.
"""

from __future__ import annotations

from paleo.measure.profile.extract import convolutions
from paleo.measure.profile.layers import (
    DIRECTIONS,
    GRADIENTS,
    JOINED,
    LayerPass,
    Profile,
    Profiles,
    profile,
)
from paleo.measure.profile.setup import NetGraphs, Setting
from paleo.measure.profile.steps import FullPass, FullPasses, StepPart, fullpass

__all__ = [
    "DIRECTIONS",
    "GRADIENTS",
    "JOINED",
    "FullPass",
    "FullPasses",
    "LayerPass",
    "NetGraphs",
    "Profile",
    "Profiles",
    "Setting",
    "StepPart",
    "convolutions",
    "fullpass",
    "profile",
]
