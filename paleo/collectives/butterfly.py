"""Butterfly exchanges: pairs of workers swap, at doubling distances."""

from __future__ import annotations

from paleo.collectives.base import COLLECTIVES, Collective
from paleo.quantity import Quantity, ceil_log2

__all__ = ["ButterflyAllReduce", "ButterflyMixing"]


class ButterflyAllReduce(Collective):
    """ceil(log2 K) exchanges, both ways at once (Qi et al. 2017)."""

    name = "ButterflyAllReduce"
    summary = "pairwise exchanges at doubling distances until all have the sum"

    def transfers(self, workers: Quantity) -> Quantity:
        return ceil_log2(workers)


class ButterflyMixing(Collective):
    """One exchange a step: the sum spreads over log2 K steps (Zhao, Canny, SDM 2013)."""

    name = "ButterflyMixing"
    summary = "one of the butterfly's exchanges in each step: workers agree only over time"
    exact = False

    def transfers(self, workers: Quantity) -> Quantity:
        return workers * 0 + 1


COLLECTIVES.add(ButterflyAllReduce.name, ButterflyAllReduce())
COLLECTIVES.add(ButterflyMixing.name, ButterflyMixing())
