"""One spatial dimension of a window that slides over an input: a convolution's or a pool's.

The letters are those of a height: input H, window R, stride s, dilation d, output P. A
dilated window spans E = (R - 1) d + 1 elements. Padding is "VALID" (none), "SAME" (as much
as makes P = ceil(H / s)) or the numbers of elements before and after. This is
TensorFlow's arithmetic for the names, and that of Caffe, PyTorch and ONNX for numbers.
"""

from __future__ import annotations

import functools
from typing import Any, Literal, TypeAlias

from paleo.core.frozen import dataclass
from paleo.core.quantity import ceil_div

AxisPadding: TypeAlias = Literal["VALID", "SAME"] | tuple[int, int]


@dataclass(frozen=True, slots=True)
class Axis:
    """A window of `window` elements over `size` elements in steps of `stride`.

    With `ceil`, a last position that hangs over the padded input's end counts too, unless
    it would begin behind the input.
    """

    size: int
    window: int
    stride: int
    padding: AxisPadding
    dilation: int = 1
    ceil: bool = False

    @property
    def span(self) -> int:
        """E, the elements from the window's first to its last."""
        return (self.window - 1) * self.dilation + 1

    @property
    def output(self) -> int:
        """P, the number of positions of the window; 0 or less where it does not fit."""
        if self.padding == "SAME":
            return ceil_div(self.size, self.stride)
        before, after = self._sides
        room = self.size + before + after - self.span
        if self.ceil:
            positions = ceil_div(room, self.stride) + 1
            return positions - ((positions - 1) * self.stride >= self.size + before)
        return room // self.stride + 1

    @property
    def total_padding(self) -> int:
        """Elements added on both sides together.

        It is negative for "SAME" where the window is so much smaller than the stride
        that the last elements are never looked at.
        """
        return sum(self._sides)

    @property
    def padding_before(self) -> int:
        """Elements added before the first; for "SAME" the smaller half."""
        return self._sides[0]

    @property
    def _sides(self) -> tuple[int, int]:
        if isinstance(self.padding, tuple):
            return self.padding
        if self.padding == "VALID":
            return 0, 0
        both = (self.output - 1) * self.stride + self.span - self.size
        return both // 2, both - both // 2


@functools.lru_cache(maxsize=1024)
def axes(
    sizes: tuple[Any, ...],
    windows: tuple[int, ...],
    strides: tuple[int, ...],
    padding: str | tuple[tuple[int, int], ...],
    dilations: tuple[int, ...] | None = None,
    ceil: bool = False,
) -> tuple[Axis, ...]:
    """Return one Axis for each spatial dimension."""
    count = len(sizes)
    paddings: Any = (padding,) * count if isinstance(padding, str) else padding
    return tuple(
        map(Axis, sizes, windows, strides, paddings, dilations or (1,) * count, (ceil,) * count)
    )
