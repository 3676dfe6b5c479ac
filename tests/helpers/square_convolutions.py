"""Convolutions that tests price: square images and windows, padded so that sizes stay."""

from __future__ import annotations

from paleo.core.operations import Convolution, Pass
from paleo.core.window import Axis


def conv(
    direction: Pass = Pass.FORWARD,
    n: int = 16,
    c: int = 64,
    k: int = 64,
    size: int = 56,
    window: int = 3,
    stride: int = 1,
    pad: int | None = None,
    groups: int = 1,
    element_size: int = 4,
    dilation: int = 1,
    rank: int = 2,
) -> Convolution:
    """Return one of n images of c channels and k filters; `pad` is that of each end."""
    padding = (window // 2,) * 2 if pad is None else (pad, pad)
    axes = (Axis(size, window, stride, padding, dilation),) * rank
    return Convolution(direction, n, axes, c, k, element_size, groups=groups)
