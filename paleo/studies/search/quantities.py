"""What a search may ask for: quantities of nets, what is wanted of them, and constraints."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from paleo.core.checks import number, shown
from paleo.core.errors import Mistakes, SettingError, near_or_known
from paleo.core.frozen import NamedTuple, dataclass
from paleo.core.units import parse
from paleo.studies.search.dynamic import Bound


@dataclass(frozen=True)
class Quantity:
    """A quantity of a net: its name, what it is, and its unit in SI.

    `is_more` tells whether more of it is what a front asks for: of sizes that may buy accuracy.
    `source` is the time that it is a multiple of, if it is one: "step" or "pass".
    """

    name: str
    title: str
    unit: str = ""
    is_more: bool = False
    is_whole: bool = False
    source: str = ""
    is_additive: bool = True

    @property
    def key(self) -> str:
        """Its key in JSON."""
        suffix = {"s": "_s", "bytes": "_bytes", "J": "_j"}.get(self.unit, "")
        return self.name + suffix


QUANTITIES = {
    each.name: each
    for each in (
        Quantity("time", "time of a training step", "s", source="step"),
        Quantity("latency", "time of a pass of inference", "s", source="pass"),
        Quantity("energy", "energy of a sample in training", "J", source="step"),
        Quantity("cost", "cost of a million samples in training", "money", source="step"),
        Quantity("inference_energy", "energy of a sample in inference", "J", source="pass"),
        Quantity(
            "inference_cost", "cost of a million samples in inference", "money", source="pass"
        ),
        Quantity("params", "parameters", is_more=True, is_whole=True),
        Quantity("flops", "FLOPs of a forward pass", "FLOP", is_more=True, is_whole=True),
        Quantity("layers", "layers with parameters", is_more=True, is_whole=True),
        Quantity("weights", "bytes of parameters", "bytes", is_whole=True),
        Quantity("activations", "bytes of all layers' outputs", "bytes", is_whole=True),
        Quantity("memory", "peak memory of training", "bytes", is_whole=True, is_additive=False),
    )
}


class Asked(NamedTuple):
    """A quantity on a device, None for that of the search."""

    name: str
    device: str | None = None

    @property
    def quantity(self) -> Quantity:
        """What it is."""
        return QUANTITIES[self.name]

    def __str__(self) -> str:
        return self.name if self.device is None else f"{self.name}@{self.device}"


class Goal(NamedTuple):
    """The least of a quantity, or the most."""

    asked: Asked
    most: bool

    def __str__(self) -> str:
        return f"{'most' if self.most else 'least'} {self.asked}"


class Constraint(NamedTuple):
    """A quantity between two ends, one or both of them; `text` is as it was given."""

    text: str
    asked: Asked
    least: float | None
    most: float | None

    @property
    def bound(self) -> Bound:
        """It for the search."""
        return Bound(str(self.asked), self.least, self.most)

    def missed(self, value: float) -> float:
        """Return by which share of its end a value misses it; 0 if it does not."""
        for end, over in ((self.most, 1), (self.least, -1)):
            if end is not None and over * (value - end) > 0:
                return abs(value - end) / abs(end) if end else math.inf
        return 0.0


_NAME = r"(?P<name>[a-zA-Z_]\w*)(?:@(?P<device>[^<>=\s]+))?"
_GOAL = re.compile(rf"\s*(?:(?P<way>least|most)\s+)?{_NAME}\s*")
_CONSTRAINT = re.compile(rf"\s*{_NAME}\s*(?P<sign><=|>=|==|=|<|>)\s*(?P<value>.+?)\s*")


def find_goal(setting: str, text: Any, *, as_front: bool = False) -> Goal:
    """Return a goal of a text such as "time", "latency@T4" or "most params".

    Without a word it is the least; `as_front`, the most of what `Quantity.is_more` says. Raises
    SettingError.
    """
    match = _GOAL.fullmatch(text) if isinstance(text, str) else None
    if not match:
        said = 'expected a quantity, such as "time", "latency@T4" or "most params"'
        raise SettingError(f"{setting}: {said}, got {shown(text)}")
    asked = _asked(setting, match)
    most = asked.quantity.is_more if as_front and not match["way"] else match["way"] == "most"
    if most and asked.quantity.source:
        raise SettingError(f"{setting}: the most {asked.name} is nothing to look for")
    return Goal(asked, most)


def find_constraint(text: Any) -> Constraint:
    """Return a constraint of a text such as "params<4e6" or "latency@T4<=20 ms".

    Raises SettingError.
    """
    match = _CONSTRAINT.fullmatch(text) if isinstance(text, str) else None
    if not match:
        said = 'expected a text such as "params<4e6", "latency@T4<=20 ms" or "layers=12"'
        raise SettingError(f"constraint: {said}, got {shown(text)}")
    asked, sign = _asked("constraint", match), match["sign"]
    value = _value(asked.quantity, match["value"], text)
    if asked.quantity.source and sign not in ("<", "<="):
        raise SettingError(f"constraint: {asked.name} is bounded above, got {shown(text)}")
    whole = asked.quantity.is_whole
    least = most = None
    if sign in ("=", "=="):
        least = most = value
    elif sign == "<":
        most = math.ceil(value) - 1 if whole else math.nextafter(value, -math.inf)
    elif sign == "<=":
        most = math.floor(value) if whole else value
    elif sign == ">":
        least = math.floor(value) + 1
    else:
        least = math.ceil(value)
    return Constraint(text.strip(), asked, least, most)


def _asked(setting: str, match: re.Match[str]) -> Asked:
    name, device = match["name"], match["device"]
    if name not in QUANTITIES:
        hint = near_or_known(name, QUANTITIES)
        raise SettingError(f"{setting}: there is no quantity {name!r}{hint}")
    if device is not None and not QUANTITIES[name].source:
        raise SettingError(f"{setting}: {name} are the same on every device: leave out @{device}")
    return Asked(name, device)


def _value(quantity: Quantity, text: str, whole: str) -> float:
    value = number(text)
    if isinstance(value, int | float):
        if math.isfinite(value) and 0 <= value <= 1e30:
            return value
        raise SettingError(f"constraint: expected a number from 0 to 1e30 in {shown(whole)}")
    try:
        if quantity.unit not in ("s", "bytes"):
            raise ValueError(f"expected a number, got {text!r}")
        return parse(text, quantity.unit)
    except ValueError as error:
        raise SettingError(f"constraint: {quantity.name}: {error}") from None


def joined(constraints: Sequence[Constraint]) -> tuple[Bound, ...]:
    """Return constraints as bounds, one for each quantity; raises SettingError if none is left."""
    found: dict[str, Bound] = {}
    mistakes = Mistakes()
    for each in constraints:
        name = str(each.asked)
        before = found.get(name, Bound(name))
        least = max((v for v in (before.least, each.least) if v is not None), default=None)
        most = min((v for v in (before.most, each.most) if v is not None), default=None)
        if least is not None and most is not None and least > most:
            said = " and ".join(c.text for c in constraints if str(c.asked) == name)
            mistakes.add(f"constraint: {said} leave nothing between them")
        found[name] = Bound(name, least, most)
    mistakes.raise_as(SettingError)
    return tuple(found.values())


def values_to_dict(values: Mapping[str, float]) -> dict[str, Any]:
    """Return quantities under their keys in JSON."""
    found = {}
    for name, value in values.items():
        plain, _, device = name.partition("@")
        key = QUANTITIES[plain].key
        found[f"{key}@{device}" if device else key] = value
    return found
