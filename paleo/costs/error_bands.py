"""Error bands: how far the truth may be from a prediction, by what was held out of fits.

A band is of a kind of operation on a kind of device. A sum of operations is between the sums of
their ends, since the errors of one kind go together; of whole nets there are bands of their own,
which are taken where the cost model has them.
"""

from __future__ import annotations

import math
from typing import Any

from paleo.core.attributes import Ends, at_ends
from paleo.core.frozen import dataclass
from paleo.core.operations import (
    Attention,
    BatchMatMul,
    Convolution,
    Fused,
    GroupedMatMul,
    MatMul,
    Operation,
)
from paleo.core.quantity import Quantity

#: The digits of a number of which no error band is known, and the fewest of one that has a band.
MOST_DIGITS, LEAST_DIGITS = 4, 2
#: The kind of a whole net's pass or step.
NET = "net"


@dataclass(frozen=True)
class Band:
    """The truth is between `low` and `high` times a prediction, by `count` errors, in `coverage`.

    `low` is 0 or `high` infinite where there were too few errors for such a coverage. `source`
    says of what predictions the errors were.
    """

    low: float
    high: float
    count: int
    coverage: float
    source: str = ""

    def __str__(self) -> str:
        """Return the band as it stands behind a time: "+9 % -7 %"."""
        return f"{100 * (self.high - 1):+.0f} % {100 * (self.low - 1):+.0f} %"

    @property
    def said(self) -> str:
        """The band and where it is from, in a line."""
        return (
            f"{self}: {100 * self.coverage:.0f} % of {self.count:,} measured times "
            f"({self.source}) were within it"
        )

    @property
    def ends(self) -> Ends[float]:
        """The factors at both ends; None for an end that is not known."""
        return self.low or None, self.high if self.high < float("inf") else None

    @property
    def digits(self) -> int:
        """How many significant digits it supports: the first that it moves, and the next."""
        low, high = self.ends
        width = ((high or math.inf) - (low or 0.0)) / 2
        if not 0 < width < 1:
            return LEAST_DIGITS
        return max(LEAST_DIGITS, min(MOST_DIGITS, 1 + math.ceil(-math.log10(width))))

    def around(self, seconds: Quantity) -> Ends[Quantity]:
        """Return the least and the most that so many seconds are in truth."""
        return at_ends(self.ends, lambda factor: factor * seconds)

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output; None for an open end."""
        return {
            "low": self.low,
            "high": self.high if self.high < float("inf") else None,
            "count": self.count,
            "coverage": self.coverage,
            **({"source": self.source} if self.source else {}),
        }


def kind_of(operation: Operation) -> str:
    """Return the kind of operation that an error band is of."""
    if isinstance(operation, Fused):
        return kind_of(operation.head)
    if isinstance(operation, MatMul):
        return "gemm"
    if isinstance(operation, GroupedMatMul):
        return kind_of(operation.products)
    if isinstance(operation, BatchMatMul):
        return "recurrent" if operation.dependent else "bmm"
    if isinstance(operation, Convolution):
        return "convolution"
    return "attention" if isinstance(operation, Attention) else "stream"
