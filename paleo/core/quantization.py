"""The operation that writes numbers in fewer bits, before a product multiplies them."""

from __future__ import annotations

from typing import ClassVar

from paleo.core.frozen import dataclass
from paleo.core.operations import Kind, Operation, Pass
from paleo.core.quantity import Quantity


@dataclass(frozen=True, slots=True)
class Quantize(Operation):
    """A[rows, columns] of `input_size` bytes an element written in `element_size`, with scales.

    `method` names how scales are found and which kernels do it, as in
    `paleo.costs.tiled.quantize`. The scales' own bytes are too few to count. One that is `alone`
    has the device to itself, without other work that hides its kernels' starts; one that then
    `leads` has a product behind it all the same, whose start shows.
    """

    rows: Quantity
    columns: Quantity
    element_size: float
    method: str
    input_size: int = 2
    alone: bool = False
    leads: bool = False
    direction: ClassVar[Pass] = Pass.FORWARD
    flops: ClassVar[Quantity] = 0
    kind: ClassVar[Kind] = Kind.COPY

    @property
    def reads(self) -> tuple[Quantity, ...]:
        return (self.input_size * self.rows * self.columns,)

    @property
    def writes(self) -> tuple[Quantity, ...]:
        return (self.element_size * self.rows * self.columns,)
