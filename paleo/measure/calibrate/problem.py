"""Fitting a device's constants to what was measured, and what they are worth.

A constant is fitted only where the measurements can tell it: at least three of them move by 2 %
or more when it goes from a quarter of its range to three quarters. Of those that can be told, as
many are fitted as there are three measurements for each, the most important first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, TypeAlias

from paleo.cluster import Device
from paleo.cluster.calibration_record import KindErrors
from paleo.core.errors import PaleoError
from paleo.core.frozen import dataclass
from paleo.core.quantity import Array, np
from paleo.costs.tiled.constants import constants_of
from paleo.measure.profile.setup import Progress
from paleo.measure.validate.least_squares import (
    Prediction,
    at_places,
    bound_of,
    divided,
    left_out,
    solve,
)
from paleo.measure.validate.link_constants import FITTED
from paleo.measure.validate.statistics import statistics

#: Constants by name.
_Values: TypeAlias = Mapping[str, float]

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
    figures, and, of any of them, the predictions for that device. `known` are values of constants
    that others say than the device: the software of the rows, their links. Of rows that take long
    to predict a fit makes `steps`, from the constants as they are, which hold within a `spread`
    (`least_squares.solve`).
    """

    measured: Array
    kinds: Sequence[str]
    keys: Sequence[str]
    learn: Callable[[Array], tuple[Device, Callable[[Array], Prediction]]]
    known: Mapping[str, float] = field(default_factory=dict)
    steps: int | None = None
    spread: float | None = None

    def masks(self) -> dict[str, Array]:
        """Return for each kind which measurements are of it."""
        kinds = np.array(self.kinds, object)
        return {kind: kinds == kind for kind in dict.fromkeys(self.kinds)}


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
    predicted: Array
    held_out: Array
    errors: tuple[KindErrors, ...]
    notes: tuple[str, ...]


def solved(problem: Problem, progress: Progress, own_rates: Sequence[str] = ()) -> Solution:
    """Fit constants, and predict every measurement by constants fitted to others.

    `own_rates` are shares of rates that were measured here: such a share may be 1, which is then
    no bound. Raises PaleoError where the measurements are too few, or tell no constant.
    """
    count = len(problem.measured)
    everything = np.arange(count)
    device, predictions = problem.learn(everything)
    predict = predictions(everything)
    start = dict(problem.known) | {
        name: float(constants_of(device)[name].value)
        for name in ORDER
        if name not in problem.known and (device.kind != "cpu" or name not in _OF_GPUS)
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
    of_folds: list[tuple[dict[str, float], Callable[[Array], Prediction]]] = []
    with progress("fitting", 1 + folds) as advance:
        advance("to all")
        now = {name: start[name] for name in names}
        middle = {name: at_places(name, 0.5, FITTED) for name in names}
        # What is 0 unless measured, such as the host's time, makes short kernels longer, as their
        # launch does: a fit that begins with some of it may end where it stands for the launch.
        without = {name: value if now[name] else 0.0 for name, value in middle.items()}
        starts = [now] if problem.steps else [now, middle, without]
        how = (FITTED, problem.steps, problem.spread)
        values = solve(predict, problem.measured, starts, *how)
        names = _kept(predict, values, start) or names
        values = {name: values[name] for name in names}
        if folds:

            def fit(places: Array, number: int) -> tuple[dict[str, float], Any]:
                advance(f"without part {number + 1}")
                _, learnt = problem.learn(places)
                chosen, rows = learnt(places), problem.measured[places]
                return solve(chosen, rows, [values], *how), learnt

            held_out, of_folds = left_out(
                numbers, folds, fit, lambda places, fitted: _one(fitted[1](places), fitted[0])
            )
    predicted = _one(predict, values)
    notes = []
    for kind, mask in problem.masks().items():
        if len({problem.keys[place] for place in mask.nonzero()[0].tolist()}) < 2:
            held_out[mask] = math.nan
            notes.append(f"{kind}: only one shape, so that none can be left out")
    errors = _errors(problem, before, predicted, held_out)
    if errors[-1].held_out is not None and errors[-1].held_out >= errors[-1].before:
        notes.append(
            f"constants fitted to the other shapes err {100 * errors[-1].held_out:.1f} % on those "
            f"left out, no less than those before the fit ({100 * errors[-1].before:.1f} %)"
        )
    return Solution(
        device,
        tuple(_fitted(values, start, [others for others, _ in of_folds], own_rates)),
        predicted,
        held_out,
        errors,
        tuple(notes),
    )


def _one(predict: Prediction, values: _Values) -> Array:
    """Return predictions for one value of each constant."""
    return predict({name: np.array([value]) for name, value in values.items()})[0]  # type: ignore[no-any-return]


def _told(predict: Prediction, start: _Values, most: int) -> tuple[str, ...]:
    """Return the constants that the measurements can tell, at most so many."""
    found: list[str] = []
    for name in start:
        if len(found) >= most:
            break
        low, high = predict({name: at_places(name, np.array([0.25, 0.75]), FITTED)})
        moved = np.abs(np.log(high / low)) >= math.log1p(_MOVED)
        if moved.sum() >= _LEAST:
            found.append(name)
    return tuple(found)


def _kept(predict: Prediction, values: _Values, start: _Values) -> tuple[str, ...]:
    """Return the constants without which the predictions were others.

    A floor that is below all measurements may be anywhere below them: it stays as it was.
    """
    names = list(values)
    trials = np.tile([values[name] for name in names], (len(names) + 1, 1))
    trials[np.arange(len(names)), np.arange(len(names))] = [start[name] for name in names]
    found = predict({name: trials[:, i] for i, name in enumerate(names)})
    moved = np.abs(np.log(found[:-1] / found[-1])).max(axis=1) > _SEEN
    return tuple(name for name, seen in zip(names, moved.tolist(), strict=True) if seen)


def _fitted(
    values: _Values, start: _Values, folds: Sequence[_Values], own_rates: Sequence[str]
) -> Iterator[Fitted]:
    """Yield the constants of a fit beside what they were before, and in the folds."""
    for name, value in values.items():
        bound = bound_of(name, value, FITTED)
        if bound == "upper" and name in own_rates:
            bound = ""
        others = [fold[name] for fold in folds]
        least, most = min(others, default=None), max(others, default=None)
        yield Fitted(name, value, start[name], bound, least, most)


def _errors(
    problem: Problem, before: Array, predicted: Array, held_out: Array
) -> tuple[KindErrors, ...]:
    """Return the errors by kind, and of all kinds together."""

    def error(seconds: Array, mask: Array) -> float | None:
        return statistics(seconds[mask], problem.measured[mask]).median

    masks = problem.masks()
    if len(masks) > 1:
        masks["all"] = np.ones(len(problem.kinds), bool)
    return tuple(
        KindErrors(
            kind,
            int(mask.sum()),
            error(before, mask) or 0.0,
            error(predicted, mask) or 0.0,
            error(held_out, mask),
        )
        for kind, mask in masks.items()
    )
