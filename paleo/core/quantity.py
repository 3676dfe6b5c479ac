"""Arithmetic that is the same for one number and, element by element, for an array.

Scalars stay exact Python integers, so counts of FLOPs and bytes never round; arrays are
NumPy's. Everything else in the package is plain `+ - * / //` over these. NumPy is
imported when the first array is met: a command that needs none starts in half the time.
"""

from __future__ import annotations

import functools
import math
import operator
import sys
from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    np = numpy
else:

    class _NumPy:
        """NumPy, imported when something of it is first used."""

        def __getattr__(self, name):
            import numpy

            vars(self).update(vars(numpy))
            numpy.empty(_KEPT, numpy.int8)
            return getattr(numpy, name)

    np = _NumPy()

#: Bytes of the largest array whose memory stays with the process when it is no longer used. The C
#: library of Linux keeps twice the largest block that it has given back (mallopt(3),
#: M_MMAP_THRESHOLD and M_TRIM_THRESHOLD); until then it returns the memory of most arrays, and has
#: to get it anew, page by page, for the next.
_KEPT = 16 << 20

Array: TypeAlias = "NDArray[Any]"
#: One number, or an array of them that broadcasts against the others. To type checkers a whole
#: number is a float, too: with both named, each is tried with each, and mypy takes twice as long.
Quantity: TypeAlias = "float | NDArray[Any]"
_Q = TypeVar("_Q")
#: The types of one number: unlike their union, made only once, and this is looked at often.
_NUMBERS = (int, float)


def is_array(value: object) -> bool:
    """Tell whether `value` is a NumPy array or integer instead of a Python number."""
    return not isinstance(value, _NUMBERS) and hasattr(value, "__array__")


def has_arrays() -> bool:
    """Tell whether NumPy has been imported, so that arrays cost no start."""
    return "numpy" in sys.modules


def identity(value: Any) -> Any:
    """Return what two values have in common if they are equal, arrays in them and all; hashable."""
    try:
        hash(value)
    except TypeError:
        if is_array(value):
            return value.shape, value.tobytes()
        if is_dataclass(value):
            parts = (getattr(value, each.name) for each in fields(value))
            return (type(value), *map(identity, parts))
        return tuple(map(identity, value))
    return value


def maximum(a: Quantity, b: Quantity) -> Quantity:
    """Return the larger of `a` and `b`, element by element."""
    if isinstance(a, _NUMBERS) and isinstance(b, _NUMBERS):  # most are
        return max(a, b)
    return cast(Quantity, np.maximum(a, b))


def minimum(a: Quantity, b: Quantity) -> Quantity:
    """Return the smaller of `a` and `b`, element by element."""
    if isinstance(a, _NUMBERS) and isinstance(b, _NUMBERS):  # most are
        return min(a, b)
    return cast(Quantity, np.minimum(a, b))


def ceil_div(a: _Q, b: Any) -> _Q:
    """Return ceil(a / b), exactly for integers."""
    return -(-a // b)  # type: ignore[operator, no-any-return]


def rounded_up(a: Quantity, step: int) -> Quantity:
    """Return the least multiple of a step that is no less than `a`."""
    return ceil_div(a, step) * step


def ceil_log2(k: Quantity) -> Quantity:
    """Return ceil(log2(k)) for integers k >= 1, exactly (no logarithm is taken).

    It is the number of bits of k - 1: 0 for 1, 1 for 2, 2 for 3 and 4, ...
    """
    if is_array(k):
        return cast(Quantity, np.frexp(np.asarray(k) - 1)[1])
    return (int(cast(int, k)) - 1).bit_length()


def power_of_two(k: Quantity) -> Any:
    """Return the least power of two that is no less than an integer k >= 1."""
    exponent: Any = ceil_log2(k)
    if is_array(k):
        return np.int64(1) << exponent
    return 1 << exponent


def all_of(conditions: Iterable[Any]) -> Any:
    """Return whether all conditions hold, element by element."""
    return functools.reduce(operator.and_, conditions, True)


def every(condition: Any) -> bool:
    """Tell whether a condition holds, of an array for all elements."""
    return bool(condition.all() if is_array(condition) else condition)


def some(condition: Any) -> bool:
    """Tell whether a condition holds, of an array for any element."""
    return bool(condition.any() if is_array(condition) else condition)


def where(condition: Any, yes: Any, no: Any) -> Any:
    """Return `yes` where a condition holds, else `no`; a text may stand for either."""
    if is_array(condition):
        return np.where(condition, yes, no)
    return yes if condition else no


def where_positive(condition: Quantity, value: Quantity) -> Quantity:
    """Return `value` where `condition` > 0, else 0."""
    if is_array(condition):
        return np.where(np.asarray(condition) > 0, value, 0)
    return value if condition > 0 else 0


def product(factors: Iterable[_Q]) -> _Q | int:
    """Return the product of `factors`; 1 if there are none."""
    return math.prod(factors)  # type: ignore[arg-type]


def root(x: Quantity) -> Quantity:
    """Return the square root, rounded the same for numbers and arrays."""
    return math.sqrt(x) if isinstance(x, _NUMBERS) else cast(Quantity, np.sqrt(x))


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
    return value if isinstance(value, _NUMBERS) else cast(Any, value).max().item()


def smallest(value: Quantity) -> Quantity:
    """Return the smallest element, as a Python number."""
    return value if isinstance(value, _NUMBERS) else cast(Any, value).min().item()


def whole_array(value: Any, most: int) -> Array | None:
    """Return an array of whole numbers from 1 to `most` as int64; None if it is no such."""
    array = np.asarray(value)
    if array.size and array.dtype.kind in "iu" and array.min() >= 1 and array.max() <= most:
        return array.astype(np.int64)
    return None


def spread(values: Quantity, shape: tuple[int, ...]) -> list[Any]:
    """Return an array that broadcasts to this shape, or a number, as a list of numbers."""
    filled: list[Any] = np.broadcast_to(values, shape).tolist()
    return filled


def joined(alike: Sequence[Any]) -> Any:
    """Return one thing with an array wherever the numbers of these differ; else they are alike.

    They are numbers, tuples of such, or anything that is the same of all.
    """
    first = alike[0]
    if isinstance(first, tuple):
        return _like(first, map(joined, zip(*alike, strict=True)))
    return first if all(one == first for one in alike) else np.array(alike)


def at(value: Any, places: Array) -> Any:
    """Return a thing with these elements of all arrays in it, be it a tuple of such, or one."""
    if isinstance(value, tuple):
        return _like(value, (at(part, places) for part in value))
    return value[places] if is_array(value) else value


def _like(value: tuple[Any, ...], parts: Iterable[Any]) -> Any:
    """Return a tuple of the same kind with other parts."""
    return value._make(parts) if hasattr(value, "_make") else tuple(parts)
