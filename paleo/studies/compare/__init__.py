"""What differs between nets, or between settings, layer by layer: figures and their factors.

The first net, under the first settings, is the reference; every other one is compared with
it. Layers are those of one name.
"""

from __future__ import annotations

from paleo.studies.compare.change import Change
from paleo.studies.compare.comparison import (
    Comparison,
    Conditions,
    Difference,
    LayerFigures,
    Variant,
    compare,
)

__all__ = ["Change", "Comparison", "Conditions", "Difference", "LayerFigures", "Variant", "compare"]
