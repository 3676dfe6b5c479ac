"""What differs between nets, or between settings, layer by layer: figures and their factors.

The first net, under the first settings, is the reference; every other one is compared with
it. Layers are those of one name.
"""

from __future__ import annotations

from paleo.compare.change import Change, change_of
from paleo.compare.comparison import (
    MAX_VARIANTS,
    ComparedLayer,
    Comparison,
    Difference,
    Figures,
    LayerFigures,
    Settings,
    Variant,
    compare,
)

__all__ = [
    "MAX_VARIANTS",
    "Change",
    "ComparedLayer",
    "Comparison",
    "Difference",
    "Figures",
    "LayerFigures",
    "Settings",
    "Variant",
    "change_of",
    "compare",
]
