"""Design spaces of nets: a net, and what may be chosen in it.

A space comes from a table in a TOML or JSON file, of which predefined ones are in this folder, or
from `--vary`. In come a net and a table; out go a `Space` of nets, and its layers by states
(`paleo.net.spaces.layered`), of which sums over layers are found for all nets at once.
"""

from __future__ import annotations

from paleo.net.spaces.design import SPACES, Design, find_design
from paleo.net.spaces.space import Choice, Option, Space

__all__ = ["SPACES", "Choice", "Design", "Option", "Space", "find_design"]
