"""Reduction up a binary tree, then broadcast down it."""

from __future__ import annotations

from paleo.collectives.base import COLLECTIVES, Collective
from paleo.quantity import Quantity, ceil_log2

__all__ = ["TreeAllReduce"]


class TreeAllReduce(Collective):
    """2 ceil(log2 K) transfers (Qi et al. 2017; Iandola 2016, eq. 3.4)."""

    name = "TreeAllReduce"
    summary = "reduction up a binary tree, then broadcast down it"

    def transfers(self, workers: Quantity) -> Quantity:
        return 2 * ceil_log2(workers)


COLLECTIVES.add(TreeAllReduce.name, TreeAllReduce())
