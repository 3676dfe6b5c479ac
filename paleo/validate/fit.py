"""Fitting constants of a cost model to cases, and what they are worth on cases left out.

The constants stay within their bounds. What is made small is a robust sum of log(predicted /
measured), the "soft L1" of `scipy.optimize.least_squares` (trust region reflective: Branch,
Coleman, Li, SIAM J. Sci. Comput. 21, 1999), from two starts: the constants as they are, and the
middle of their bounds.

The cases are divided into folds by device, by net or by shape, so that none of one fold has its
device, net or shape in another. Each fold is predicted with constants fitted on the others: errors
of that are "held out", those of constants fitted on all cases "in-sample".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paleo.costs import CostModel, find_cost_model
from paleo.costs.tiled.constants import CONSTANTS, constants_of
from paleo.errors import Mistakes, SettingError, near
from paleo.quantity import Array
from paleo.validate.cases import Cases, predict
from paleo.validate.extras import extra
from paleo.validate.statistics import Statistics, statistics
from paleo.values import check_choice

__all__ = ["PER", "SPLITS", "Fit", "FitOf", "Fold", "fit", "fits", "fitted", "fold_numbers"]

#: What the cases can be divided by.
SPLITS = ("shape", "net", "device")
#: What can have constants of its own.
PER = ("architecture", "device", "all")

#: The error, as a logarithm, from which on errors count by their size instead of its square.
_SOFT = 0.1
#: Changes of a constant or of the sum, as a share, that are not worth another step.
_TOLERANCE = 1e-4
#: The step of a gradient, as a share of the range of a constant.
_STEP = 1e-4
#: A constant this near to a bound, as a share of its range, is on it.
_ON_BOUND = 2e-3


@dataclass(frozen=True)
class Fold:
    """One part of a cross-validation: fitted on the others, `statistics` are on itself."""

    members: tuple[str, ...]
    constants: Mapping[str, float]
    statistics: Statistics


@dataclass(frozen=True, eq=False)
class Fit:
    """Constants fitted to cases. Errors on the cases themselves are `in_sample`.

    `held_out` are those of the folds together, None where there is only one fold; `on_bound` names
    constants that a bound stopped. `held_out_predicted` are the predictions behind, in seconds.
    """

    cost_model: str
    split: str
    constants: Mapping[str, float]
    on_bound: tuple[str, ...]
    in_sample: Statistics
    held_out: Statistics | None
    folds: tuple[Fold, ...]
    held_out_predicted: Array | None

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output; constants are in SI units."""
        return {
            "cost_model": self.cost_model,
            "split": self.split,
            "folds": len(self.folds),
            "constants": dict(self.constants),
            "on_bound": list(self.on_bound),
            "in_sample": self.in_sample.to_dict(),
            "held_out": self.held_out.to_dict() if self.held_out else None,
        }


def fit(
    cases: Cases,
    constants: Sequence[str],
    *,
    split: str = "shape",
    folds: int = 5,
    cost_model: str | CostModel = "tiled",
    most: int = 4000,
    seed: int = 0,
) -> Fit:
    """Fit constants to cases, and say what they are worth on cases left out.

    `constants` are names of those of `tiled`. With `split` "device" or "net" there are as many
    folds as devices or nets if those are fewer than `folds`. Of more than `most` cases a fit takes
    that many at random. The result is the same for the same `seed`. Raises SettingError for wrong
    settings, without cases, or where SciPy is missing.
    """
    import numpy as np

    _check(constants, split, folds)
    model = find_cost_model(cost_model)
    known = np.isfinite(predict(cases, model))
    cases = cases if known.all() else cases.select(known)
    if not len(cases):
        raise SettingError("fit: there are no cases to fit to")

    def run(places: Array, number: int) -> dict[str, float]:
        return fitted(
            cases.select(places), constants, cost_model=model, most=most, seed=seed + number
        )

    values = run(np.arange(len(cases)), 0)
    in_sample = statistics(predict(cases, model, values), cases.measured)
    numbers, members = fold_numbers(cases, split, folds, seed)
    if len(members) < 2:
        return Fit(model.name, split, values, _on_bound(values), in_sample, None, (), None)
    held_out = np.empty(len(cases))
    found = []
    for number, names in enumerate(members):
        inside = numbers == number
        own = run((~inside).nonzero()[0], number + 1)
        held_out[inside] = predict(cases.select(inside), model, own)
        found.append(Fold(names, own, statistics(held_out[inside], cases.measured[inside])))
    return Fit(
        model.name, split, values, _on_bound(values), in_sample,
        statistics(held_out, cases.measured), tuple(found), held_out,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class FitOf:
    """A fit, and what it is for: a device, an architecture, or "all"."""

    name: str
    fit: Fit

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        return {"of": self.name} | self.fit.to_dict()


def fits(
    cases: Cases,
    constants: Sequence[str],
    *,
    per: str = "architecture",
    split: str = "shape",
    folds: int = 5,
    most: int = 4000,
    seed: int = 0,
) -> tuple[FitOf, ...]:
    """Fit constants for every architecture or device of the cases, or once for all; as `fit`."""
    check_choice("fit_per", per, PER)
    groups: dict[str, list[str]] = {}
    for name, device in sorted(cases.devices.items()):
        known = device.architecture or name
        groups.setdefault({"device": name, "architecture": known}.get(per, per), []).append(name)
    if not groups:
        raise SettingError("fit: there are no cases to fit to")
    return tuple(
        FitOf(
            name,
            fit(
                cases.where(device=devices), constants, split=split, folds=folds, most=most,
                seed=seed,
            ),
        )
        for name, devices in groups.items()
    )  # fmt: skip


def _check(constants: Sequence[str], split: str, folds: int) -> None:
    mistakes = Mistakes()
    for name in constants:
        if name not in CONSTANTS:
            known = near(name, CONSTANTS) or f"; there are: {', '.join(CONSTANTS)}"
            mistakes.add(f"fit: unknown constant {name!r}{known}")
    if not constants:
        mistakes.add("fit: expected the name of a constant or several")
    mistakes.check(check_choice, "split", split, SPLITS)
    if not 2 <= folds <= 1000:
        mistakes.add(f"folds: expected 2 to 1000, got {folds}")
    mistakes.raise_as(SettingError)


def fold_numbers(
    cases: Cases, split: str, folds: int = 5, seed: int = 0
) -> tuple[Array, list[tuple[str, ...]]]:
    """Return the number of the fold of each case, and the devices, nets or shapes of each fold.

    Shapes are told apart by operator and letters, whatever the device, so that a shape measured
    twice is in one fold.
    """
    import numpy as np

    if split == "shape":
        keys = np.array(
            [
                f"{network} {shape}"
                for network, shape in zip(
                    cases.labels["network"].tolist(), cases.shapes(), strict=True
                )
            ],
            object,
        )
    else:
        keys = cases.labels["network" if split == "net" else "device"]
    names, numbers = np.unique(keys.astype(str), return_inverse=True)
    count = min(folds, len(names))
    order = np.random.default_rng(seed).permutation(len(names))
    fold = np.empty(len(names), np.int64)
    fold[order] = np.arange(len(names)) % count
    members = [tuple(names[fold == number].tolist()) for number in range(count)]
    return fold[numbers], members


def fitted(
    cases: Cases,
    constants: Sequence[str],
    *,
    cost_model: str | CostModel = "tiled",
    most: int = 4000,
    seed: int = 0,
) -> dict[str, float]:
    """Return the values of constants that fit these cases best, as `fit` describes."""
    import numpy as np

    least_squares = extra("scipy.optimize", "fitting", "SciPy").least_squares
    generator = np.random.default_rng(seed)
    if len(cases) > most:
        cases = cases.select(np.sort(generator.choice(len(cases), most, replace=False)))
    model = find_cost_model(cost_model)
    ranges = [_Range(name) for name in constants]
    logs = np.log(cases.measured)

    def residuals(trials: Array) -> Array:
        """Return log(predicted / measured) of trials, P x constants, as P x cases."""
        values = {each.name: each.value(trials[:, i]) for i, each in enumerate(ranges)}
        logarithms: Array = np.log(predict(cases, model, values)) - logs
        return logarithms

    def jacobian(place: Array) -> Array:
        steps = np.where(place > 0.5, -_STEP, _STEP)
        trials = np.vstack([place, place + np.diag(steps)])
        found = residuals(trials)
        slopes: Array = ((found[1:] - found[0]) / steps[:, None]).T
        return slopes

    starts = [
        np.array([each.place(_now(cases, each.name)) for each in ranges]),
        np.full(len(ranges), 0.5),
    ]
    best = min(
        (
            least_squares(
                lambda place: residuals(place[None])[0],
                np.clip(start, 0.01, 0.99),
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


def _now(cases: Cases, name: str) -> float:
    """Return the mean of the values that the constant has for the devices of the cases."""
    values = [float(constants_of(each)[name].value) for each in cases.devices.values()]
    return sum(values) / len(values)


def _on_bound(values: Mapping[str, float]) -> tuple[str, ...]:
    places = {name: _Range(name).place(value) for name, value in values.items()}
    return tuple(name for name, place in places.items() if not _ON_BOUND < place < 1 - _ON_BOUND)
