"""Arithmetic that is the same for one number and, element by element, for an array.

Scalars stay exact Python integers, so counts of FLOPs and bytes never round; arrays are
NumPy's. Everything else in the package is plain `+ - * / //` over these. NumPy is
imported when the first array is met: a command that needs none starts in half the time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias, cast

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "Array",
    "Quantity",
    "ceil_div",
    "ceil_log2",
    "is_array",
    "largest",
    "maximum",
    "minimum",
    "product",
    "root",
    "smallest",
    "total",
    "where_positive",
    "whole_array",
]

Array: TypeAlias = "NDArray[Any]"
#: One number, or an array of them that broadcasts against the others.
Quantity: TypeAlias = "int | float | NDArray[Any]"


def is_array(value: object) -> bool:
    """Tell whether `value` is a NumPy array or integer instead of a Python number."""
    return not isinstance(value, int | float) and hasattr(value, "__array__")


def maximum(a: Quantity, b: Quantity) -> Quantity:
    """Return the larger of `a` and `b`, element by element."""
    if is_array(a) or is_array(b):
        import numpy as np

        return cast(Quantity, np.maximum(a, b))
    return max(a, b)


def minimum(a: Quantity, b: Quantity) -> Quantity:
    """Return the smaller of `a` and `b`, element by element."""
    if is_array(a) or is_array(b):
        import numpy as np

        return cast(Quantity, np.minimum(a, b))
    return min(a, b)


def ceil_div(a: Any, b: Any) -> Any:
    """Return ceil(a / b), exactly for integers."""
    return -(-a // b)


def ceil_log2(k: Quantity) -> Quantity:
    """Return ceil(log2(k)) for integers k >= 1, exactly (no logarithm is taken).

    It is the number of bits of k - 1: 0 for 1, 1 for 2, 2 for 3 and 4, ...
    """
    if is_array(k):
        import numpy as np

        return cast(Quantity, np.frexp(np.asarray(k) - 1)[1])
    return (int(cast(int, k)) - 1).bit_length()


def where_positive(condition: Quantity, value: Quantity) -> Quantity:
    """Return `value` where `condition` > 0, else 0."""
    if is_array(condition):
        import numpy as np

        return np.where(np.asarray(condition) > 0, value, 0)
    return value if condition > 0 else 0


def product(factors: Iterable[Any]) -> Any:
    """Return the product of `factors`; 1 if there are none."""
    result: Any = 1
    for factor in factors:
        result = result * factor
    return result


def root(x: Quantity) -> Quantity:
    """Return the square root, rounded the same for numbers and arrays."""
    if is_array(x):
        import numpy as np

        return cast(Quantity, np.sqrt(x))
    return math.sqrt(x)


def total(terms: Iterable[Quantity]) -> Quantity:
    """Return the sum of `terms` in their order; 0 if there are none.

    `sum` rounds floats otherwise than arrays from Python 3.12 on: it compensates.
    """
    result: Quantity = 0
    for term in terms:
        result = result + term
    return result


def largest(value: Quantity) -> Quantity:
    """Return the largest element, as a Python number."""
    return cast(Any, value).max().item() if is_array(value) else value


def smallest(value: Quantity) -> Quantity:
    """Return the smallest element, as a Python number."""
    return cast(Any, value).min().item() if is_array(value) else value


def whole_array(value: Any, most: int) -> Array | None:
    """Return an array of whole numbers from 1 to `most` as int64; None if it is no such."""
    import numpy as np

    array = np.asarray(value)
    if array.size and array.dtype.kind in "iu" and array.min() >= 1 and array.max() <= most:
        return array.astype(np.int64)
    return None
