"""The model `tiled`: every operation priced from its own shape, on today's hardware.

A product is cut into tiles, the tiles run in waves over the multiprocessors, and the library
is taken to choose the tile and the split that are quickest. Memory traffic runs at a share of
the bandwidth, every kernel has a fixed time. The few constants are in `constants.py`.

`dispatch.py`, and with it what prices each kind of operation, is imported when it is first asked: a
command that uses another model starts without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from paleo.cluster import Device
from paleo.core.operations import Convolution, Operation
from paleo.core.quantity import Quantity
from paleo.costs.error_bands import Band, Like
from paleo.costs.model import COST_MODELS, CostModel, Explanation, Target
from paleo.costs.times import Time, Times

__all__ = ["Tiled"]


class Tiled(CostModel):
    """See the module."""

    name = "tiled"
    summary = "kernels tile by tile, with constants fitted to measurements of each architecture"
    counts_all = True
    #: A batch that fills tiles, or is aligned as matrix units like it, may beat a smaller one.
    grows = False
    convolution_algorithm = "quickest"
    knows_attention_kernels = True

    def price(self, operation: Operation, target: Target) -> Time:
        from paleo.costs.tiled import dispatch

        return dispatch.price(self, operation, target)

    def price_all(self, operations: Sequence[Operation], target: Target) -> Times:
        from paleo.costs.tiled import dispatch

        return dispatch.price_all(self, operations, target)

    def price_by(self, algorithm: str, operation: Convolution, target: Target) -> Time | None:
        from paleo.costs.tiled import dispatch

        return dispatch.price_by(algorithm, operation, target)

    def explain(self, operation: Operation, target: Target) -> Explanation:
        from paleo.costs.tiled import dispatch

        return dispatch.explain(self, operation, target)

    def host(self, target: Target) -> Quantity:
        if target.device.kind == "cpu":  # it computes itself
            return 0.0
        from paleo.costs.tiled.constants import constants_of

        stated = target.constants.get("host")
        return constants_of(target.device)["host"].value if stated is None else stated

    def band(self, asked: Like, device: Device) -> Band | None:
        from paleo.costs.tiled.error_bands import find_band

        # What was measured on a GPU says nothing of a CPU, nor one CPU of another.
        pooled = device.kind != "cpu"
        return find_band(replace(asked, architecture=device.architecture), pooled=pooled)


COST_MODELS.add(Tiled.name, Tiled())
