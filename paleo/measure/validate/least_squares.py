"""Fitting constants of a cost model within their bounds, to whatever can be predicted.

What is made small is a robust sum of log(predicted / measured), the "soft L1" of
`scipy.optimize.least_squares` (trust region reflective: Branch, Coleman, Li, SIAM J. Sci. Comput.
21, 1999). What a fit is worth is said by predictions of cases that it has not seen: the cases are
divided into folds, and each fold is predicted with constants fitted on the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from paleo.core.optional import extra
from paleo.core.quantity import Array, np
from paleo.costs.tiled.constants import CONSTANTS

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


class Bounded(Protocol):
    """A constant that has a least and a most value."""

    @property
    def low(self) -> float: ...

    @property
    def high(self) -> float: ...


#: Constants by name.
Known: TypeAlias = Mapping[str, Bounded]


def at_places(name: str, places: Any, known: Known = CONSTANTS) -> Any:
    """Return the values of a constant at places from 0, its lower bound, to 1, its upper.

    Between them it is as of a logarithm, where the constant is above 0.
    """
    low, high = known[name].low, known[name].high
    return low * (high / low) ** places if low > 0 else low + (high - low) * places


def _place(name: str, value: float, known: Known = CONSTANTS) -> float:
    """Return the place of a value of a constant, as `at_places` has them."""
    low, high = known[name].low, known[name].high
    if low > 0:
        return math.log(value / low) / math.log(high / low)
    return (value - low) / (high - low)


def bound_of(name: str, value: float, known: Known = CONSTANTS) -> str:
    """Return the bound that a constant is on: "lower", "upper", or "" for none."""
    place = _place(name, value, known)
    return "lower" if place <= _ON_BOUND else "upper" if place >= 1 - _ON_BOUND else ""


def solve(
    predict: Prediction,
    measured: Array,
    starts: Sequence[Mapping[str, float]],
    known: Known = CONSTANTS,
    most: int | None = None,
    spread: float | None = None,
) -> dict[str, float]:
    """Return the values of constants whose predictions fit the measured seconds best.

    Each start has a value for every constant, which lies within the bounds in `known`; the best end
    is taken, after `most` steps from each where that is given. With `spread`, a constant that is
    off from its first start by such a share counts as much as a case that is off by a tenth: what
    few cases do not tell stays as it was known. Raises PaleoError where SciPy is missing.
    """
    least_squares = extra("scipy.optimize", "fitting", "SciPy").least_squares
    names = list(starts[0])
    logs = np.log(measured)

    first = starts[0]
    held = [name for name in names if first[name] > 0 and spread]

    def residuals(trials: Array) -> Array:
        """Return log(predicted / measured) of trials, P x constants, as P x cases.

        Behind these stand those of the constants themselves.
        """
        values = {name: at_places(name, trials[:, i], known) for i, name in enumerate(names)}
        logarithms: Array = np.log(predict(values)) - logs
        if not held or not spread:
            return logarithms
        least = 1e-3  # of what was known: a constant may be 0
        moved = [np.log(np.maximum(values[name] / first[name], least)) for name in held]
        return np.concatenate([logarithms, _SOFT / spread * np.stack(moved, axis=-1)], axis=-1)

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
                np.clip([_place(name, start[name], known) for name in names], 0.01, 0.99),
                jac=jacobian,
                bounds=(0.0, 1.0),
                loss="soft_l1",
                f_scale=_SOFT,
                xtol=_TOLERANCE,
                ftol=_TOLERANCE,
                max_nfev=most,
            )
            for start in starts
        ),
        key=lambda result: float(result.cost),
    )
    return {
        name: float(at_places(name, place, known))
        for name, place in zip(names, best.x, strict=True)
    }


def divided(
    keys: Iterable[str], folds: int, seed: int = 0, kinds: Sequence[str] | None = None
) -> tuple[Array, list[tuple[str, ...]]]:
    """Return the number of the fold of each case, and the keys of each fold.

    Cases of one key are in one fold. Keys are dealt out at random, the same for the same `seed`;
    with `kinds`, one a case, those of a kind are spread over as many folds as they can be.
    """
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
    held_out = np.empty(len(numbers))
    found = []
    for number in range(folds):
        inside = numbers == number
        found.append(fit((~inside).nonzero()[0], number))
        held_out[inside] = predict(inside.nonzero()[0], found[-1])
    return held_out, found
