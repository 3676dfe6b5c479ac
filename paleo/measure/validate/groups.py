"""Cases that are priced together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Self

from paleo.cluster import Device
from paleo.core.frozen import dataclass
from paleo.core.quantity import Array, Quantity
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

    @abstractmethod
    def describe(self, place: int) -> str:
        """Return the shape of one of them."""
