"""Collectives. Importing this registers all of them."""

from __future__ import annotations

# In the order in which output shows them.
# isort: off
from paleo.collectives import one_to_all, tree, butterfly

# isort: on
from paleo.collectives.base import COLLECTIVES, Carried, Collective, Round

__all__ = ["COLLECTIVES", "Carried", "Collective", "Round"]
del butterfly, one_to_all, tree
