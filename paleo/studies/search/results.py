"""What a search finds."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

from paleo.core.attributes import Ends
from paleo.core.frozen import dataclass
from paleo.core.results import Result
from paleo.core.tensor import Shape
from paleo.costs.error_bands import Band
from paleo.net.spaces import Space
from paleo.net.spec import NetSpec
from paleo.net.writer import dumps
from paleo.step.plan import Plan
from paleo.step.scenario import Scenario
from paleo.studies.search.prices import Measured
from paleo.studies.search.quantities import Asked, Constraint, Goal, values_to_dict

#: How a result was found: along states, by each net, or by some of them.
ADDITIVE, EACH, SAMPLED = "additive", "each", "sampled"


@dataclass(frozen=True)
class FoundNet:
    """A net of a space: the places of its options, and its quantities by name."""

    space: Space
    places: tuple[int, ...]
    values: Mapping[str, float]

    @property
    def choices(self) -> dict[str, str]:
        """What is chosen, by the names of the choices."""
        return self.space.labels(self.places)

    @functools.cached_property
    def net(self) -> NetSpec:
        """The net itself."""
        return self.space.net_of(self.places)


@dataclass(frozen=True)
class ChosenLayer:
    """What is chosen at a place, and what the layers there take.

    `seconds` are of both passes, or of that of inference.
    """

    name: str
    label: str
    output: Shape | None = None
    num_params: int | None = None
    forward_flops: int | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Search(Result):
    """The best net of a space, and the front, best first, if one was asked for.

    `original` are the quantities of the net that the space is of, None where it cannot be priced.
    `how` is ADDITIVE, EACH or SAMPLED; `valid` nets of all fit, None where that was not counted;
    `evaluated` were looked at one by one. `devices` are where times are of, None for the first.
    """

    space: Space
    scenario: Scenario
    net: NetSpec
    goal: Goal
    constraints: tuple[Constraint, ...]
    front_goals: tuple[Goal, ...]
    best: FoundNet
    original: Mapping[str, float] | None
    front: tuple[FoundNet, ...]
    layers: tuple[ChosenLayer, ...]
    how: str
    valid: int | None
    evaluated: int
    devices: Mapping[str | None, Measured]
    notes: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """How many nets were considered."""
        return self.space.count

    @property
    def is_exact(self) -> bool:
        """Whether the best is that of all."""
        return self.how != SAMPLED

    @property
    def is_inference(self) -> bool:
        """Whether it is about inference: times of layers are those of forward passes."""
        return self.goal.asked.quantity.source == "pass"

    @property
    def objective(self) -> float:
        """The value of the objective of the best."""
        return self.best.values[str(self.goal.asked)]

    def plan_of(self, asked: Asked) -> Plan:
        """Return how a quantity is priced: on its device."""
        return self.devices[asked.device].plan

    def currency(self, asked: Asked) -> str:
        """Return the currency of a quantity, "" if it is no money."""
        price = self.devices[asked.device].rates.price
        return price.currency if price and asked.quantity.unit == "money" else ""

    def band(self, asked: Asked) -> Band | None:
        """Return the error band of a quantity, None where none is known."""
        plan = self.plan_of(asked)
        source = asked.quantity.source
        if not source:
            return None
        return plan.band if source == "step" else plan.inference_band or plan.band

    def ends(self, asked: Asked, value: float) -> Ends[float]:
        """Return both ends of the error band of a quantity."""
        band = self.band(asked)
        low, high = band.ends if band else (None, None)
        return (low and low * value, high and high * value)

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        low, high = self.ends(self.goal.asked, self.objective)
        body = json.loads(dumps(self.best.net))
        return {
            "space": self.space.name,
            "net": self.net.name,
            **self.scenario.plan.to_dict("device", "cost_model", "dtype", "optimizer"),
            "batch_size": self.scenario.batch_size,
            "objective": str(self.goal),
            "currency": self.currency(Asked("cost")) or None,
            "constraints": [each.text for each in self.constraints],
            "count": self.count,
            "valid": self.valid,
            "evaluated": self.evaluated,
            "exact": self.is_exact,
            "best": {
                "net": body,
                "choices": self.best.choices,
                "objective": self.objective,
                "objective_low": low,
                "objective_high": high,
                **values_to_dict(self.best.values),
            },
            "original": None if self.original is None else values_to_dict(self.original),
            "front": [
                {"choices": each.choices, **values_to_dict(each.values)} for each in self.front
            ],
            "notes": list(self.notes),
        }
