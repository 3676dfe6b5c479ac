"""The best nets of a design space by time, energy, cost or size: exactly where sums allow it.

In come a net, a space of paleo.net.spaces, a goal and constraints; out goes a `Search`.
"""

from __future__ import annotations

from paleo.studies.search.results import FoundNet, Search
from paleo.studies.search.search import search

__all__ = ["FoundNet", "Search", "search"]
