"""Shapes and element types of tensors.

A shape is a tuple of dimensions, batch first: N, H, W, C for images, N, D for vectors.
The batch dimension may be a NumPy array; everything computed from it then is one too.
"""

from __future__ import annotations

from typing import TypeAlias

from paleo.errors import SettingError, near
from paleo.quantity import Quantity, product

__all__ = ["DTYPES", "Shape", "element_size", "format_shape", "format_shapes", "num_elements"]

Shape: TypeAlias = tuple[Quantity, ...]

#: Bytes of one element.
DTYPES = {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1}


def element_size(dtype: str) -> int:
    """Return the bytes of one element; raises SettingError for an unknown `dtype`."""
    try:
        return DTYPES[dtype]
    except KeyError:
        raise SettingError(
            f"unknown dtype {dtype!r}{near(dtype, DTYPES)}; there are: {', '.join(DTYPES)}"
        ) from None


def num_elements(shape: Shape) -> Quantity:
    """Return the number of elements of a tensor of this shape."""
    result: Quantity = product(shape)
    return result


def format_shapes(shapes: tuple[Shape, ...]) -> str:
    """Return shapes as text, the first few of them where there are many."""
    texts = [format_shape(shape) for shape in shapes[:8]]
    return ", ".join(texts) + (f" ... ({len(shapes)} in all)" if len(shapes) > 8 else "")


def format_shape(shape: Shape) -> str:
    """Return the shape as text, such as "128x54x54x64"."""
    return "x".join(str(dimension) for dimension in shape)
