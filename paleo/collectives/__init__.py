"""Collectives. Importing this registers all of them."""

from __future__ import annotations

# In the order in which output shows them.
# isort: off
from paleo.collectives import one_to_all, tree, butterfly

# isort: on
from paleo.collectives.base import COLLECTIVES, Collective

__all__ = ["COLLECTIVES", "Collective"]
del butterfly, one_to_all, tree
