"""The settings of a search."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from paleo.cluster import Price
from paleo.core.checks import is_whole, listed, python_int, shown
from paleo.core.errors import SettingError, results_of
from paleo.net.importers import ImportOptions
from paleo.net.spaces import SPACES, Choice, Design, find_design
from paleo.net.spaces.design import varied
from paleo.step.declarations import Setting, declared
from paleo.step.settings import (
    NET_BATCH_SIZE,
    GradientSettings,
    OptimizerSettings,
    PricingSettings,
    RecomputeSettings,
)
from paleo.studies.search.quantities import (
    QUANTITIES,
    Constraint,
    Goal,
    find_constraint,
    find_goal,
)
from paleo.studies.training import PowerSettings, TrainingSettings

#: So many nets are evaluated one by one where none is found otherwise.
SAMPLES = 1000
_MOST_SAMPLES = 1_000_000


def _checked_space(value: Any) -> Design | None:
    return None if value is None else find_design(value)


def _texts(name: str, value: Any) -> list[Any]:
    return [] if value is None else listed(name, value, str) if value else []


def _checked_vary(value: Any) -> tuple[Choice, ...]:
    return varied(_texts("vary", value))


def _checked_constraints(value: Any) -> tuple[Constraint, ...]:
    return tuple(results_of(find_constraint, _texts("constraint", value)))


def _checked_front(value: Any) -> tuple[Goal, ...]:
    entries = value.split(",") if isinstance(value, str) else _texts("front", value)
    return tuple(results_of(lambda text: find_goal("front", text, as_front=True), entries))


def _checked_samples(value: Any) -> int:
    number = python_int(value)
    if is_whole(number) and 1 <= number <= _MOST_SAMPLES:
        return int(number)
    raise SettingError(
        f"samples: expected a whole number from 1 to {_MOST_SAMPLES}, got {shown(value)}"
    )


def _checked_seed(value: Any) -> int:
    if is_whole(value) and 0 <= value < 2**63:
        return int(value)
    raise SettingError(f"seed: expected a whole number of 0 or more, got {shown(value)}")


_KNOWN = ", ".join(QUANTITIES)


class SearchSettings(
    PricingSettings,
    OptimizerSettings,
    GradientSettings,
    RecomputeSettings,
    PowerSettings,
    total=False,
):
    """Of the best nets of a space on a device."""

    space: Annotated[
        str | os.PathLike[str] | Mapping[str, Any] | Design | None,
        Setting(
            default=None,
            check=_checked_space,
            help="The design space: a predefined one, or your own file (.toml or .json).",
            choices=lambda: SPACES,
            may_be_file=True,
            metavar="NAME",
        ),
    ]
    vary: Annotated[
        str | Sequence[str],
        Setting(
            default=(),
            check=_checked_vary,
            help="A choice of the space: LAYER.KEY[INDEX] is one of these values; none leaves the "
            "layer out. May be repeated.",
            metavar="LAYER.KEY[INDEX]=VALUE,...",
        ),
    ]
    objective: Annotated[
        str,
        Setting(
            default="time",
            check=lambda value: find_goal("objective", value),
            help=f"What the best net has the least of: {_KNOWN}. 'most params' wants the most; "
            "latency@T4 is that on another device.",
            metavar="QUANTITY",
        ),
    ]
    constraint: Annotated[
        str | Sequence[str],
        Setting(
            default=(),
            check=_checked_constraints,
            help="What a net has to keep to, such as 'params<4e6', 'layers>=12', 'latency@T4<20 "
            "ms'. May be repeated.",
            metavar="TEXT",
        ),
    ]
    front: Annotated[
        str | Sequence[str] | None,
        Setting(
            default=None,
            check=_checked_front,
            help="Show all nets of which none is better in the objective and in these, too: the "
            "most of params, flops or layers, the least of others ('least params' says so).",
            metavar="QUANTITY,...",
        ),
    ]
    exact: Annotated[
        bool,
        Setting(
            default=False,
            check=bool,
            help="Stop with an error where the best of all nets cannot be proven, instead of "
            "taking samples.",
        ),
    ]
    samples: Annotated[
        int,
        Setting(
            default=SAMPLES,
            check=_checked_samples,
            help="Nets that are evaluated one by one where a space is not additive: all of it if "
            "it has no more, else as many at random.",
        ),
    ]
    seed: Annotated[
        int,
        Setting(default=0, check=_checked_seed, help="What samples at random are drawn by."),
    ]
    batch_size: Annotated[int | None, NET_BATCH_SIZE]
    price: Annotated[float | str | Price | None, declared(TrainingSettings)["price"]]
    prices: Annotated[str | os.PathLike[str] | None, declared(TrainingSettings)["prices"]]
    importing: ImportOptions | None
