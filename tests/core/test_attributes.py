"""Attributes of values as JSON has them."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from paleo.core.attributes import attributes
from paleo.core.frozen import dataclass


@dataclass(frozen=True)
class Inner:
    """What says itself what it is in JSON."""

    name: str

    def to_dict(self) -> dict[str, Any]:
        return {"called": self.name}


@dataclass(frozen=True)
class Outer:
    """What has values of all kinds, and one that is computed."""

    time: float
    parts: tuple[Inner, ...]
    versions: Any

    @property
    def twice(self) -> float:
        return 2 * self.time


VALUE = Outer(1.5, (Inner("a"), Inner("b")), MappingProxyType({"torch": "2"}))


def test_attributes_stand_under_their_names_in_the_order_in_which_they_are_asked_for() -> None:
    found = attributes(VALUE, "versions", "parts", "time")
    assert list(found.items()) == [
        ("versions", {"torch": "2"}),
        ("parts", [{"called": "a"}, {"called": "b"}]),
        ("time", 1.5),
    ]
    assert type(found["versions"]) is dict


def test_a_unit_stands_behind_the_name() -> None:
    assert attributes(VALUE, "time", "twice", unit="s") == {"time_s": 1.5, "twice_s": 3.0}


def test_of_nothing_all_is_none() -> None:
    assert attributes(None, "time", "twice", unit="s") == {"time_s": None, "twice_s": None}
