"""Fitting constants of a cost model to cases, and what they are worth on cases left out.

The fit is that of `fitting`, from two starts: the constants as they are, and the middle of their
bounds.

The cases are divided into folds by device, by net or by shape, so that none of one fold has its
device, net or shape in another. Each fold is predicted with constants fitted on the others: errors
of that are "held out", those of constants fitted on all cases "in-sample".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict, Unpack

from paleo.core.attributes import attributes
from paleo.core.checks import check_choice
from paleo.core.errors import Mistakes, SettingError, near_or_known
from paleo.core.frozen import dataclass
from paleo.core.quantity import Array, np
from paleo.measure.validate.cases import Cases, predict
from paleo.measure.validate.least_squares import at_places, bound_of, divided, left_out, solve
from paleo.measure.validate.link_constants import FITTED
from paleo.measure.validate.statistics import Statistics, statistics

#: What the cases can be divided by.
SPLITS = ("shape", "net", "device")
#: The cost model whose constants are fitted.
_MODEL = "tiled"
#: What can have constants of its own.
PER = ("architecture", "device", "all")


@dataclass(frozen=True)
class Fold:
    """One part of a cross-validation: fitted on the others, `statistics` are on itself."""

    members: tuple[str, ...]
    constants: Mapping[str, float]
    statistics: Statistics


@dataclass(frozen=True, eq=False)
class CrossValidation:
    """Constants fitted to cases: those of a device, of an architecture, or "all" (`name`).

    Errors on the cases themselves are `in_sample`. `held_out` are those of the folds together,
    None where there is only one fold; `on_bound` names constants that a bound stopped.
    `held_out_predicted` are the predictions behind, in seconds.
    """

    split: str
    constants: Mapping[str, float]
    in_sample: Statistics
    held_out: Statistics | None = None
    folds: tuple[Fold, ...] = ()
    held_out_predicted: Array | None = None
    name: str = "all"

    @property
    def on_bound(self) -> tuple[str, ...]:
        """The constants that a bound stopped."""
        return tuple(
            name for name, value in self.constants.items() if bound_of(name, value, FITTED)
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output; constants are in SI units."""
        return {
            "of": self.name,
            "cost_model": _MODEL,
            "split": self.split,
            "folds": len(self.folds),
            **attributes(self, "constants", "on_bound", "in_sample", "held_out"),
        }


class FitSettings(TypedDict, total=False):
    """How cases are divided, and of how many a fit takes."""

    split: str
    folds: int
    most: int
    seed: int


def fit(
    cases: Cases,
    constants: Sequence[str],
    *,
    split: str = "shape",
    folds: int = 5,
    most: int = 4000,
    seed: int = 0,
) -> CrossValidation:
    """Fit constants to cases, and say what they are worth on cases left out.

    `constants` are names of those of `tiled`. With `split` "device" or "net" there are as many
    folds as devices or nets if those are fewer than `folds`. Of more than `most` cases a fit takes
    that many at random. The result is the same for the same `seed`. Raises SettingError for wrong
    settings, without cases, or where SciPy is missing.
    """
    _check(constants, split, folds)
    known = np.isfinite(predict(cases, _MODEL))
    cases = cases if known.all() else cases.select(known)
    if not len(cases):
        raise SettingError("fit: there are no cases to fit to")

    def run(places: Array, number: int) -> dict[str, float]:
        return fitted(cases.select(places), constants, most=most, seed=seed + number)

    values = run(np.arange(len(cases)), 0)
    in_sample = statistics(predict(cases, _MODEL, values), cases.measured)
    numbers, members = fold_numbers(cases, split, folds, seed)
    if len(members) < 2:
        return CrossValidation(split, values, in_sample)
    predicted, fits_of_others = left_out(
        numbers,
        len(members),
        lambda others, number: run(others, number + 1),
        lambda places, own: predict(cases.select(places), _MODEL, own),
    )
    parts = tuple(
        Fold(names, own, statistics(predicted[numbers == i], cases.measured[numbers == i]))
        for i, (names, own) in enumerate(zip(members, fits_of_others, strict=True))
    )
    held_out = statistics(predicted, cases.measured)
    return CrossValidation(split, values, in_sample, held_out, parts, predicted)


def fits(
    cases: Cases,
    constants: Sequence[str],
    *,
    per: str = "architecture",
    **settings: Unpack[FitSettings],
) -> tuple[CrossValidation, ...]:
    """Fit constants for every architecture or device of the cases, or once for all; as `fit`."""
    check_choice("fit_per", per, PER)
    groups: dict[str, list[str]] = {}
    for name, device in sorted(cases.devices.items()):
        known = device.architecture or name
        groups.setdefault({"device": name, "architecture": known}.get(per, per), []).append(name)
    if not groups:
        raise SettingError("fit: there are no cases to fit to")
    return tuple(
        replace(fit(cases.where(device=devices), constants, **settings), name=name)
        for name, devices in groups.items()
    )


def _check(constants: Sequence[str], split: str, folds: int) -> None:
    mistakes = Mistakes()
    for name in constants:
        if name not in FITTED:
            mistakes.add(f"fit: unknown constant {name!r}{near_or_known(name, FITTED)}")
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
    if split == "shape":
        return divided(cases.names(), folds, seed)
    return divided(cases.labels["network" if split == "net" else "device"], folds, seed)


def fitted(
    cases: Cases,
    constants: Sequence[str],
    *,
    most: int = 4000,
    seed: int = 0,
    steps: int | None = None,
    spread: float | None = None,
) -> dict[str, float]:
    """Return the values of constants that fit these cases best, as `fit` describes.

    With `steps` it makes so many, from the constants as they are alone; `spread` is that of
    `least_squares.solve`.
    """
    generator = np.random.default_rng(seed)
    if len(cases) > most:
        cases = cases.select(np.sort(generator.choice(len(cases), most, replace=False)))
    now = {name: cases.known(name) for name in constants}
    if missing := [name for name, value in now.items() if value is None]:
        raise SettingError(f"fit: no rows are of what {', '.join(missing)} are constants of")
    starts: list[dict[str, float]] = [
        {name: value for name, value in now.items() if value is not None},
        {name: at_places(name, 0.5, FITTED) for name in constants},
    ]
    cases = cases.keeping()
    return solve(
        lambda values: predict(cases, _MODEL, values),
        cases.measured,
        starts[:1] if steps else starts,
        FITTED,
        steps,
        spread,
    )
