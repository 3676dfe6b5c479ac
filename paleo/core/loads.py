"""How rows are spread over groups, as tokens over experts: some classes of groups of equal load.

Loads are pairs (groups, rows of each of them), numbers or arrays. Rows are means: below 1 where
only some of the groups of a class have one.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from paleo.core.quantity import Quantity, ceil_div, maximum, minimum, total

Loads: TypeAlias = "tuple[tuple[Quantity, Quantity], ...]"


def active(loads: Loads) -> Quantity:
    """Return the groups that have rows."""
    return total(groups * minimum(rows, 1) for groups, rows in loads)


def row_tiles(loads: Loads, height: Any) -> Quantity:
    """Return the tiles of so many rows each of all groups: no tile has rows of two groups."""
    return total(
        groups * minimum(rows, 1) * ceil_div(maximum(rows, 1.0), height) for groups, rows in loads
    )
