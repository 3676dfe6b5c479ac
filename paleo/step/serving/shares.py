"""How unequally experts are chosen, and how far the last of many devices is behind the others."""

from __future__ import annotations

import functools
import math

from paleo.core.loads import Loads
from paleo.core.quantity import Quantity, maximum, minimum, root
from paleo.step.serving.program import Experts

#: How unequal experts are chosen: the shape of a gamma distribution of their shares.
_SHAPE = 1.0


@functools.cache
def above(devices: int) -> float:
    """Return how many deviations the largest of so many normal numbers is above their mean.

    (Blom, Statistical estimates and transformed beta-variables, 1958.)
    """
    if devices < 2:
        return 0.0
    from statistics import NormalDist  # loads decimals and fractions: where devices share

    return NormalDist().inv_cdf((devices - 0.375) / (devices + 0.25))


def loads_of(of: Experts, tokens: Quantity, held: int) -> Loads:
    """Return how many of the held experts have rows, and of how many each, on the busiest device.

    Some experts are chosen more often than others. If their shares are spread as a gamma
    distribution of shape `_SHAPE`, the rows of an expert have a negative binomial distribution of
    mean m: a share 1 - (1 + m / s)^-s of the experts has any, and their variance is m + m^2 / s.
    All devices wait for the one that has most of them.
    """
    share_of_all = -math.log1p(-of.chosen / of.experts) if of.chosen < of.experts else 1e9
    share = 1.0 - (1.0 + share_of_all * tokens / _SHAPE) ** -_SHAPE
    mean = tokens * of.chosen / of.experts
    beyond = above(of.experts // held)
    busy = held * share + beyond * root(held * share * (1.0 - share))
    # A token's choices are no two of one expert.
    few = minimum(1.0 * tokens, 1.0) * of.chosen * held / of.experts
    busy = maximum(minimum(busy, 1.0 * held), few)
    rows = held * mean + beyond * root(held * (mean + mean * mean / _SHAPE))
    rows = maximum(minimum(rows, 1.0 * tokens * minimum(of.chosen, held)), busy)
    return ((busy, rows / busy), (held - busy, 0.0 * rows))
