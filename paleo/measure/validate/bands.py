"""Error bands: how far the truth may be from a prediction, from errors on held-out data.

A band is two factors. Of predictions like those it was made of, the share `coverage` has its truth
between `low` and `high` times the predicted time. Of rows of one source the factors are order
statistics of measured / predicted, taken outwards so that the coverage holds for new data of the
same kind whatever the distribution of errors (split conformal prediction: Vovk, Gammerman, Shafer,
Algorithmic Learning in a Random World, 2005; Lei et al., Distribution-Free Predictive Inference for
Regression, JASA 113, 2018, section 2.2, here for both sides).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from paleo.core.errors import SettingError
from paleo.core.quantity import Array, np
from paleo.costs.error_bands import Band

#: From so many rows on a group of them counts as much as a larger one, unless told otherwise.
FULL_GROUP = 30


def _outside(count: int, coverage: float) -> int:
    """Return how many of so many rows are outside of a band or on its end, on each side."""
    if not 0 < coverage < 1:
        raise SettingError(f"coverage: expected a number between 0 and 1, got {coverage}")
    return math.floor((count + 1) * (1 - coverage) / 2 + 1e-9)


def band(ratios: Array, coverage: float = 0.8) -> Band:
    """Return the band of these ratios, measured / predicted; NaN are left out.

    On each side there are k = floor((n + 1) (1 - coverage) / 2) of the n ratios outside or on its
    end. Raises SettingError for a coverage that is not between 0 and 1.
    """
    values = np.sort(np.asarray(ratios, float)[np.isfinite(ratios)])
    count = len(values)
    outside = _outside(count, coverage)
    if outside < 1:
        return Band(0.0, math.inf, count, coverage)
    return Band(float(values[outside - 1]), float(values[count - outside]), count, coverage)


def bands(
    predicted: Array, measured: Array, labels: Array, coverage: float = 0.8
) -> Mapping[str, Band]:
    """Return a band for every label, one a case, such as `cases.labels["kind"]`."""
    ratios = measured / predicted
    return {
        label: band(ratios[labels == label], coverage) for label in sorted(set(labels.tolist()))
    }


def covered(found: Band, predicted: Array, measured: Array) -> float | None:
    """Return the share of predictions with the truth inside the band; None without any."""
    known = np.isfinite(predicted)
    if not known.any():
        return None
    ratios = measured[known] / predicted[known]
    return float(((ratios >= found.low) & (ratios <= found.high)).mean())


def weights_of(groups: Array, full: int = FULL_GROUP) -> Array:
    """Return the weight of each row: that of groups of `full` rows or more is the same."""
    _, inverse, counts = np.unique(groups, return_inverse=True, return_counts=True)
    found: Array = (np.minimum(counts, full) / counts)[inverse]
    return found


def pooled(logs: Array, groups: Array, coverage: float = 0.8) -> tuple[float, float]:
    """Return both ends of the middle of groups' distributions, the mean of which is taken.

    Of one group they are those of `band`. An end is infinite where there are too few rows.
    """
    order = np.argsort(logs, kind="stable")
    weights = weights_of(groups)[order]
    weights = weights / weights.sum()
    # As many equal rows would say as much (Kish's effective size).
    rows = 1 / (weights**2).sum()
    most = (1 - coverage) / 2 * (1 + 1 / rows) + 1e-9
    values = logs[order]
    below = int(np.searchsorted(np.cumsum(weights), most, "right"))
    above = int(np.searchsorted(np.cumsum(weights[::-1]), most, "right"))
    low = float(values[below - 1]) if below else -math.inf
    return low, float(values[-above]) if above else math.inf
