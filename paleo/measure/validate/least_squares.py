"""Fitting constants of a cost model within their bounds, to whatever can be predicted.

What is made small is a robust sum of log(predicted / measured), the "soft L1" of
`scipy.optimize.least_squares` (trust region reflective: Branch, Coleman, Li, SIAM J. Sci. Comput.
21, 1999). What a fit is worth is said by predictions of cases that it has not seen: the cases are
divided into folds, and each fold is predicted with constants fitted on the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from paleo.costs.tiled.constants import CONSTANTS
from paleo.extras import extra
from paleo.quantity import Array

__all__ = ["Prediction", "at_places", "bound_of", "divided", "left_out", "solve"]

#: Returns the seconds of n cases, P x n, for P values of each constant.
Prediction: TypeAlias = Callable[[Mapping[str, Array]], Array]

_T = TypeVar("_T")

#: The error, as a logarithm, from which on errors count by their size instead of its square.
_SOFT = 0.1
#: Changes of a constant or of the sum, as a share, that are not worth another step.
_TOLERANCE = 1e-4
#: The step of a gradient, as a share of the range of a constant.
_STEP = 1e-4
#: A constant this near to a bound, as a share of its range, is on it.
_ON_BOUND = 2e-3


class _Range:
    """Where a constant may be: places from 0 to 1 between its bounds, as a logarithm if it can."""

    def __init__(self, name: str) -> None:
        constant = CONSTANTS[name]
        self.name = name
        self.low, self.high = constant.low, constant.high
        self.is_log = self.low > 0

    def value(self, place: Any) -> Any:
        if self.is_log:
            return self.low * (self.high / self.low) ** place
        return self.low + (self.high - self.low) * place

    def place(self, value: float) -> float:
        if self.is_log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def at_places(name: str, places: Any) -> Any:
    """Return the values of a constant at places from 0, its lower bound, to 1, its upper."""
    return _Range(name).value(places)


def bound_of(name: str, value: float) -> str:
    """Return the bound that a constant is on: "lower", "upper", or "" for none."""
    place = _Range(name).place(value)
    return "lower" if place <= _ON_BOUND else "upper" if place >= 1 - _ON_BOUND else ""


def solve(
    predict: Prediction, measured: Array, starts: Sequence[Mapping[str, float]]
) -> dict[str, float]:
    """Return the values of constants whose predictions fit the measured seconds best.

    Each start has a value for every constant; the best end is taken. Raises PaleoError where
    SciPy is missing.
    """
    import numpy as np

    least_squares = extra("scipy.optimize", "fitting", "SciPy").least_squares
    ranges = [_Range(name) for name in starts[0]]
    logs = np.log(measured)

    def residuals(trials: Array) -> Array:
        """Return log(predicted / measured) of trials, P x constants, as P x cases."""
        values = {each.name: each.value(trials[:, i]) for i, each in enumerate(ranges)}
        logarithms: Array = np.log(predict(values)) - logs
        return logarithms

    def jacobian(place: Array) -> Array:
        steps = np.where(place > 0.5, -_STEP, _STEP)
        trials = np.vstack([place, place + np.diag(steps)])
        found = residuals(trials)
        slopes: Array = ((found[1:] - found[0]) / steps[:, None]).T
        return slopes

    best = min(
        (
            least_squares(
                lambda place: residuals(place[None])[0],
                np.clip([each.place(start[each.name]) for each in ranges], 0.01, 0.99),
                jac=jacobian,
                bounds=(0.0, 1.0),
                loss="soft_l1",
                f_scale=_SOFT,
                xtol=_TOLERANCE,
                ftol=_TOLERANCE,
            )
            for start in starts
        ),
        key=lambda result: float(result.cost),
    )
    return {each.name: float(each.value(place)) for each, place in zip(ranges, best.x, strict=True)}


def divided(
    keys: Iterable[str], folds: int, seed: int = 0, kinds: Sequence[str] | None = None
) -> tuple[Array, list[tuple[str, ...]]]:
    """Return the number of the fold of each case, and the keys of each fold.

    Cases of one key are in one fold. Keys are dealt out at random, the same for the same `seed`;
    with `kinds`, one a case, those of a kind are spread over as many folds as they can be.
    """
    import numpy as np

    names, first, numbers = np.unique(
        np.array(list(keys)).astype(str), return_index=True, return_inverse=True
    )
    count = min(folds, len(names))
    order = np.random.default_rng(seed).permutation(len(names))
    if kinds is not None:
        order = order[np.argsort(np.array(kinds).astype(str)[first][order], kind="stable")]
    fold = np.empty(len(names), np.int64)
    fold[order] = np.arange(len(names)) % count
    members = [tuple(names[fold == number].tolist()) for number in range(count)]
    return fold[numbers], members


def left_out(
    numbers: Array,
    folds: int,
    fit: Callable[[Array, int], _T],
    predict: Callable[[Array, _T], Array],
) -> tuple[Array, list[_T]]:
    """Return the predictions of every case by what was fitted to the other folds, and the fits.

    `numbers` has the fold of each case. `fit` gets the places of the cases of all folds but
    one, and that one's number; `predict` the places of the cases of that one, and the fit.
    """
    import numpy as np

    held_out = np.empty(len(numbers))
    found = []
    for number in range(folds):
        inside = numbers == number
        found.append(fit((~inside).nonzero()[0], number))
        held_out[inside] = predict(inside.nonzero()[0], found[-1])
    return held_out, found
