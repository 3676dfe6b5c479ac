"""Cases that are priced together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Self

from paleo.cluster import Device
from paleo.core.frozen import dataclass
from paleo.core.quantity import Array, Quantity
from paleo.costs.tiled.constants import constants_of
from paleo.measure.validate.link_constants import LINK_CONSTANTS
from paleo.measure.validate.nets import Remembering


@dataclass(frozen=True, eq=False)
class CaseGroup(ABC):
    """Some of the cases, priced together: `index` are their places among all."""

    index: Array
    device: Device
    dtype: str
    #: Constants of `tiled` that the rows say: the generation of the library.
    stated: tuple[tuple[str, float], ...]

    @abstractmethod
    def seconds(self, pricing: Remembering, constants: Mapping[str, Quantity]) -> Quantity:
        """Return the seconds of each; raises UnmappedError or a PaleoError where it cannot.

        `constants` are those of the cost model, with those stated.
        """

    def at(self, keep: Array, index: Array) -> Self:
        """Return those of the cases that `keep` marks, at other places."""
        return replace(self, index=index)

    def keeping(self) -> Self:
        """Return the same, which keeps what does not depend on constants for other ones."""
        return self

    def known(self, name: str) -> float | None:
        """Return the value that a constant has, None where it means nothing for these cases."""
        if name in LINK_CONSTANTS:
            return None
        return float(constants_of(self.device)[name].value)

    @abstractmethod
    def describe(self, place: int) -> str:
        """Return the shape of one of them."""
