"""The model `tiled`: every operation priced from its own shape, on today's hardware.

A product is cut into tiles, the tiles run in waves over the multiprocessors, and the library
is taken to choose the tile and the split that are quickest. Memory traffic runs at a share of
the bandwidth, every kernel has a fixed time. The few constants are in `constants.py`.

`prices.py`, and with it what prices each kind of operation, is imported when it is first asked: a
command that uses another model starts without it.
"""

from __future__ import annotations

from collections.abc import Sequence

from paleo.costs.bands import Band
from paleo.costs.base import COST_MODELS, CostModel, Explanation, Target, Time
from paleo.costs.stacks import can_be_stacked
from paleo.costs.times import Times
from paleo.hardware import Device
from paleo.quantity import Quantity
from paleo.work import Convolution, Operation

__all__ = ["Tiled"]


class Tiled(CostModel):
    """See the module."""

    name = "tiled"
    summary = "tiles and waves over multiprocessors, constants by architecture, every operation"
    counts_all = True
    #: A batch that fills tiles, or is aligned as matrix units like it, may beat a smaller one.
    grows = False
    convolution_algorithm = "quickest"

    def counts(self, operation: Operation) -> bool:
        return True

    def price(self, operation: Operation, target: Target) -> Time:
        from paleo.costs.tiled import prices

        return prices.price(self, operation, target)

    def price_all(self, operations: Sequence[Operation], target: Target) -> Times:
        from paleo.costs.tiled import prices

        if not can_be_stacked(target):
            return super().price_all(operations, target)
        return prices.price_all(self, operations, target)

    def price_by(self, algorithm: str, operation: Convolution, target: Target) -> Time | None:
        from paleo.costs.tiled import prices

        return prices.price_by(algorithm, operation, target)

    def explain(self, operation: Operation, target: Target) -> Explanation:
        from paleo.costs.tiled import prices

        return prices.explain(self, operation, target)

    def band(self, kind: str, device: Device) -> Band | None:
        # Nobody has published times of CPUs that the model could be held to.
        if device.kind == "cpu":
            return None
        from paleo.costs.tiled.errors import find_band

        return find_band(kind, device.architecture)

    def rates(self, device: Device, dtype: str = "fp32") -> tuple[tuple[str, Quantity, str], ...]:
        return (
            ("peak", device.peak(dtype), "FLOP/s"),
            ("memory bandwidth", device.memory_bandwidth, "bytes/s"),
        )


COST_MODELS.add(Tiled.name, Tiled())
