"""Convolutions as the sums that they are: no matrix, no transform."""

from __future__ import annotations

from typing import Any

from paleo.core.operations import Convolution
from paleo.costs.convolutions.base import ALGORITHMS, Algorithm


class Direct(Algorithm):
    """2 N P Q K R S C / g FLOPs on the general-purpose lanes, and each tensor moved once.

    In FLOPs and bytes that is what an implicit product takes; what tells the two apart is how well
    units are fed, which a cost model knows or does not.
    """

    name = "direct"
    summary = "the sums themselves, without a matrix product"
    source = "oneDNN, convolution_direct (Georganas et al., arXiv:1808.05567)"


def is_depthwise(operation: Convolution) -> Any:
    """Return whether each of several channels is convolved by itself."""
    return (operation.groups > 1) & (operation.in_channels == operation.groups)


ALGORITHMS.add(Direct.name, Direct())
