"""One spatial dimension of a window that slides over an input: a convolution's or a pool's.

The letters are those of a height: input H, window R, stride s, output P. Padding is
"VALID" (none), "SAME" (as much as makes P = ceil(H / s)) or a number of elements on
each side. This is TensorFlow's arithmetic for the names and Caffe's (rounding down) for
the number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from paleo.quantity import ceil_div

__all__ = ["Axis", "AxisPadding"]

AxisPadding: TypeAlias = Literal["VALID", "SAME"] | int


@dataclass(frozen=True, slots=True)
class Axis:
    """A window of `window` elements over `size` elements in steps of `stride`."""

    size: int
    window: int
    stride: int
    padding: AxisPadding

    @property
    def output(self) -> int:
        """P, the number of positions of the window; 0 or less where it does not fit."""
        if self.padding == "VALID":
            result: int = ceil_div(self.size - self.window + 1, self.stride)
        elif self.padding == "SAME":
            result = ceil_div(self.size, self.stride)
        else:
            result = (self.size + 2 * self.padding - self.window) // self.stride + 1
        return result

    @property
    def total_padding(self) -> int:
        """Elements added on both sides together.

        It is negative for "SAME" where the window is so much smaller than the stride
        that the last elements are never looked at.
        """
        if self.padding == "VALID":
            return 0
        if self.padding == "SAME":
            return (self.output - 1) * self.stride + self.window - self.size
        return 2 * self.padding

    @property
    def padding_before(self) -> int:
        """Elements added before the first: the smaller half of `total_padding`."""
        return self.total_padding // 2


def axes(
    sizes: tuple[Any, ...],
    windows: tuple[int, ...],
    strides: tuple[int, ...],
    padding: str | tuple[int, ...],
) -> tuple[Axis, ...]:
    """Return one Axis for each spatial dimension."""
    paddings: tuple[Any, ...] = (padding,) * len(sizes) if isinstance(padding, str) else padding
    return tuple(map(Axis, sizes, windows, strides, paddings))
