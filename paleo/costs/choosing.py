"""Cost models of one formula for every operation, convolutions by the quickest algorithm."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from paleo.core.operations import Convolution, Fused, Operation
from paleo.costs.batching import Decides, can_be_stacked, price_stacked
from paleo.costs.convolutions import Counts
from paleo.costs.convolutions.libraries import GEMM
from paleo.costs.convolutions.selection import Chooser, counts_of
from paleo.costs.model import CostModel, Explanation, Target
from paleo.costs.times import Time, Times


class ChoosingModel(CostModel):
    """A cost model whose formulas hold for arrays; by itself it takes a matrix product.

    A subclass prices an algorithm for a convolution, and every operation that is neither one nor
    Fused.
    """

    #: Whether the same formulas hold whatever windows, channels and groups are.
    ignores_windows: ClassVar[bool] = False

    @abstractmethod
    def price_alone(self, operation: Operation, target: Target) -> Time:
        """Return the seconds of an operation that is no convolution, and not Fused."""

    @abstractmethod
    def price_algorithm(self, target: Target, name: str, operation: Convolution) -> Time:
        """Return the seconds of a convolution by the algorithm of this name."""

    def counted(self, name: str, operation: Convolution) -> Counts:
        """Return what the algorithm of this name takes for a convolution."""
        return counts_of(name, operation)

    def price(self, operation: Operation, target: Target) -> Time:
        if isinstance(operation, Fused):
            return self.price_fused(operation, partial(self.price, target=target))
        if isinstance(operation, Convolution):
            return self._chooser(operation, target).time()
        return self.price_alone(operation, target)

    def price_all(self, operations: Sequence[Operation], target: Target) -> Times:
        if not can_be_stacked(target):
            return super().price_all(operations, target)
        decides: Decides | None = (lambda _: ()) if self.ignores_windows else None
        return price_stacked(operations, partial(self.price, target=target), decides)

    def price_by(self, algorithm: str, operation: Convolution, target: Target) -> Time | None:
        return self._chooser(operation, target).price_by(algorithm)

    def explain(self, operation: Operation, target: Target) -> Explanation:
        if isinstance(operation, Convolution):
            return self._chooser(operation, target).explanation()
        return super().explain(operation, target)

    def _chooser(self, operation: Convolution, target: Target) -> Chooser:
        price = partial(self.price_algorithm, target)
        choice, by_default = target.convolutions, {GEMM: True}
        return Chooser(operation, choice, target.dtype, by_default, price, self.counted)
