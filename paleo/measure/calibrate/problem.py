"""Fitting a device's constants to what was measured, and what they are worth.

A constant is fitted only where the measurements can tell it: at least three of them move by 2 %
or more when it goes from a quarter of its range to three quarters. Of those that can be told, as
many are fitted as there are three measurements for each, the most important first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from paleo.costs.tiled.constants import constants_of
from paleo.errors import PaleoError
from paleo.hardware import Device
from paleo.hardware.calibration import KindErrors
from paleo.profile.setting import Progress
from paleo.quantity import Array
from paleo.validate.fitting import Prediction, at_places, bound_of, divided, left_out, solve

__all__ = ["ORDER", "Fitted", "Problem", "Solution", "solved"]

#: The constants that are fitted, the most important first. `library` is a generation, no measure,
#: and what is not here moves single operations of few nets.
ORDER = (
    "vector_share", "matrix_share", "memory_share", "launch", "convolution_share",
    "scalar", "load_share", "cache_ratio", "operand_share", "host", "latency", "attention_share",
    "attention_fill", "step", "energy",
)  # fmt: skip
#: A CPU computes while nobody else hands over.
_OF_GPUS = ("host",)
#: A measurement is moved by a constant if it moves by this share; so many have to be.
_MOVED, _LEAST = 0.02, 3
#: A constant is left as it was if no prediction then moves by more than this share.
_SEEN = 0.01
#: So many measurements for each constant.
_FOR_EACH = 3
_FOLDS = 5


@dataclass(frozen=True)
class Problem:
    """Measurements to fit to: seconds, kinds, and what no two folds may share, one each.

    `learn` returns what is known from some of them (by their places): the device with its
    figures, and, of any of them, the predictions for that device.
    """

    measured: Array
    kinds: Sequence[str]
    keys: Sequence[str]
    learn: Callable[[Array], tuple[Device, Callable[[Array], Prediction]]]


@dataclass(frozen=True)
class Fitted:
    """A constant: its value, that before, and the least and the most of the folds.

    `bound` is "lower" or "upper" if it is on that one, else "". Without folds there is no least.
    """

    name: str
    value: float
    before: float
    bound: str = ""
    least: float | None = None
    most: float | None = None


@dataclass(frozen=True, eq=False)
class Solution:
    """The device as learnt from all measurements, the constants that fit, and predictions.

    Predictions are in seconds, one a measurement; those left out are NaN where none could be.
    """

    device: Device
    constants: tuple[Fitted, ...]
    before: Array
    predicted: Array
    held_out: Array
    errors: tuple[KindErrors, ...]
    notes: tuple[str, ...]


def solved(problem: Problem, progress: Progress, own_rates: Sequence[str] = ()) -> Solution:
    """Fit constants, and predict every measurement by constants fitted to others.

    `own_rates` are shares of rates that were measured here: such a share may be 1, which is then
    no bound. Raises PaleoError where the measurements are too few, or tell no constant.
    """
    import numpy as np

    count = len(problem.measured)
    everything = np.arange(count)
    device, predictions = problem.learn(everything)
    predict = predictions(everything)
    start = {
        name: float(constants_of(device)[name].value)
        for name in ORDER
        if device.kind != "cpu" or name not in _OF_GPUS
    }
    names = _told(predict, start, count // _FOR_EACH)
    if not names:
        raise PaleoError(
            f"no constant can be fitted to {count} measurement{'s' * (count != 1)}: it takes "
            f"{_LEAST} that a constant moves"
        )
    numbers, members = divided(problem.keys, _FOLDS, kinds=problem.kinds)
    folds = len(members) if len(members) > 1 else 0
    before = predict({})[0]
    held_out = np.full(count, math.nan)
    found: list[dict[str, float]] = []
    with progress("fitting", 1 + folds) as advance:
        advance("to all")
        now = {name: start[name] for name in names}
        values = solve(
            predict, problem.measured, [now, {name: at_places(name, 0.5) for name in names}]
        )
        names = _kept(predict, values, start) or names
        values = {name: values[name] for name in names}
        if folds:

            def fit(places: Array, number: int) -> tuple[dict[str, float], Array]:
                advance(f"without part {number + 1}")
                _, own = problem.learn(places)
                return solve(own(places), problem.measured[places], [values]), places

            def use(places: Array, fit_of: tuple[dict[str, float], Array]) -> Array:
                own_values, others = fit_of
                _, own = problem.learn(others)
                found.append(own_values)
                return _one(own(places), own_values)

            held_out, _ = left_out(numbers, folds, fit, use)
    predicted = _one(predict, values)
    notes = []
    for kind in dict.fromkeys(problem.kinds):
        own = np.array([each == kind for each in problem.kinds])
        if len({problem.keys[place] for place in own.nonzero()[0].tolist()}) < 2:
            held_out[own] = math.nan
            notes.append(f"{kind}: only one shape, so that none can be left out")
    errors = _errors(problem, before, predicted, held_out)
    if errors[-1].held_out is not None and errors[-1].held_out >= errors[-1].before:
        notes.append(
            f"constants fitted to the other shapes err {100 * errors[-1].held_out:.1f} % on those "
            f"left out, no less than those before the fit ({100 * errors[-1].before:.1f} %)"
        )
    return Solution(
        device,
        tuple(_fitted(name, values, start, found, own_rates) for name in names),
        before,
        predicted,
        held_out,
        errors,
        tuple(notes),
    )


def _one(predict: Prediction, values: Mapping[str, float]) -> Array:
    """Return predictions for one value of each constant."""
    import numpy as np

    return predict({name: np.array([value]) for name, value in values.items()})[0]  # type: ignore[no-any-return]


def _told(predict: Prediction, start: Mapping[str, float], most: int) -> tuple[str, ...]:
    """Return the constants that the measurements can tell, at most so many."""
    import numpy as np

    found: list[str] = []
    for name in start:
        if len(found) >= most:
            break
        low, high = predict({name: at_places(name, np.array([0.25, 0.75]))})
        moved = np.abs(np.log(high / low)) >= math.log1p(_MOVED)
        if moved.sum() >= _LEAST:
            found.append(name)
    return tuple(found)


def _kept(
    predict: Prediction, values: Mapping[str, float], start: Mapping[str, float]
) -> tuple[str, ...]:
    """Return the constants without which the predictions were others.

    A floor that is below all measurements may be anywhere below them: it stays as it was.
    """
    import numpy as np

    names = list(values)
    trials = np.tile([values[name] for name in names], (len(names) + 1, 1))
    trials[np.arange(len(names)), np.arange(len(names))] = [start[name] for name in names]
    found = predict({name: trials[:, i] for i, name in enumerate(names)})
    moved = np.abs(np.log(found[:-1] / found[-1])).max(axis=1) > _SEEN
    return tuple(name for name, seen in zip(names, moved.tolist(), strict=True) if seen)


def _fitted(
    name: str,
    values: Mapping[str, float],
    start: Mapping[str, float],
    found: Sequence[Mapping[str, float]],
    own_rates: Sequence[str],
) -> Fitted:
    value = values[name]
    bound = bound_of(name, value)
    if bound == "upper" and name in own_rates:
        bound = ""
    others = [each[name] for each in found]
    return Fitted(
        name, value, start[name], bound, min(others, default=None), max(others, default=None)
    )


def _errors(
    problem: Problem, before: Array, predicted: Array, held_out: Array
) -> tuple[KindErrors, ...]:
    """Return the errors by kind, and of all kinds together."""
    import numpy as np

    def error(of: Array, own: Array) -> float | None:
        known = own & np.isfinite(of)
        if not known.any():
            return None
        return float(np.median(np.abs(of[known] / problem.measured[known] - 1)))

    kinds = list(dict.fromkeys(problem.kinds))
    masks = {kind: np.array([each == kind for each in problem.kinds]) for kind in kinds}
    if len(kinds) > 1:
        masks["all"] = np.ones(len(problem.kinds), bool)
    return tuple(
        KindErrors(
            kind,
            int(own.sum()),
            error(before, own) or 0.0,
            error(predicted, own) or 0.0,
            error(held_out, own),
        )
        for kind, own in masks.items()
    )
