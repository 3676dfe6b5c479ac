"""Fitting constants of a cost model to cases, and what they are worth on cases left out.

The fit is that of `fitting`, from two starts: the constants as they are, and the middle of their
bounds.

The cases are divided into folds by device, by net or by shape, so that none of one fold has its
device, net or shape in another. Each fold is predicted with constants fitted on the others: errors
of that are "held out", those of constants fitted on all cases "in-sample".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paleo.costs import CostModel, find_cost_model
from paleo.costs.tiled.constants import CONSTANTS, constants_of
from paleo.errors import Mistakes, SettingError, near
from paleo.quantity import Array
from paleo.validate.cases import Cases, predict
from paleo.validate.fitting import at_places, bound_of, divided, left_out, solve
from paleo.validate.statistics import Statistics, statistics
from paleo.values import check_choice

__all__ = ["PER", "SPLITS", "Fit", "FitOf", "Fold", "fit", "fits", "fitted", "fold_numbers"]

#: What the cases can be divided by.
SPLITS = ("shape", "net", "device")
#: What can have constants of its own.
PER = ("architecture", "device", "all")


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
    held_out, fits_of_others = left_out(
        numbers,
        len(members),
        lambda others, number: run(others, number + 1),
        lambda places, own: predict(cases.select(places), model, own),
    )
    found = [
        Fold(names, own, statistics(held_out[numbers == i], cases.measured[numbers == i]))
        for i, (names, own) in enumerate(zip(members, fits_of_others, strict=True))
    ]
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
    return divided(keys, folds, seed)


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

    generator = np.random.default_rng(seed)
    if len(cases) > most:
        cases = cases.select(np.sort(generator.choice(len(cases), most, replace=False)))
    model = find_cost_model(cost_model)
    starts: list[dict[str, float]] = [
        {name: _now(cases, name) for name in constants},
        {name: at_places(name, 0.5) for name in constants},
    ]
    return solve(lambda values: predict(cases, model, values), cases.measured, starts)


def _now(cases: Cases, name: str) -> float:
    """Return the mean of the values that the constant has for the devices of the cases."""
    values = [float(constants_of(each)[name].value) for each in cases.devices.values()]
    return sum(values) / len(values)


def _on_bound(values: Mapping[str, float]) -> tuple[str, ...]:
    return tuple(name for name, value in values.items() if bound_of(name, value))
