"""Strides: how far apart in memory neighbours along each dimension are, in elements.

A tensor is a view of another's memory where strides can say so. The rules are PyTorch's
(aten/src/ATen/TensorUtils.cpp, computeStride; aten/src/ATen/TensorIterator.cpp). The batch is the
outermost dimension everywhere, so that strides do not depend on it, and no size but it may be an
array.
"""

from __future__ import annotations

import itertools

from paleo.core.tensor import Shape

Strides = tuple[int, ...]


def contiguous(shape: Shape) -> Strides:
    """Return the strides of a tensor whose elements lie in the order of its dimensions."""
    found, step = [], 1
    for size in reversed(shape[1:]):
        found.append(step)
        step *= int(size)
    return tuple(reversed([*found, step]))


def is_contiguous(shape: Shape, strides: Strides) -> bool:
    """Tell whether elements lie in order without gaps, whatever dimensions of 1 say."""
    wanted = contiguous(shape)
    pairs = zip(shape[1:], strides[1:], wanted[1:], strict=True)
    return strides[0] == wanted[0] and all(size == 1 or a == b for size, a, b in pairs)


def dense(shape: Shape, strides: Strides) -> Strides:
    """Return the strides of a new tensor in the order of another, without its gaps."""
    inward = sorted(range(1, len(shape)), key=lambda i: (strides[i], -i))
    found, step = [0] * len(shape), 1
    for i in inward:
        found[i] = step
        step *= int(shape[i])
    return (step, *found[1:])


def reshaped(shape: Shape, strides: Strides, output: Shape) -> Strides | None:
    """Return the strides of a view in another shape, None where none can be: then it is copied.

    The batch stays the first dimension.
    """
    found = [1] * len(output)
    at = len(output) - 1
    base, held, given = strides[-1], 1, 1
    for i in range(len(shape) - 1, 0, -1):
        size = int(shape[i])
        held *= size
        before = i - 1
        if before and (shape[before] == 1 or strides[before] == held * base):
            continue
        while at >= 1 and (given < held or output[at] == 1):
            found[at] = given * base
            given *= int(output[at])
            at -= 1
        if given != held:
            return None
        base, held, given = strides[before], 1, 1
    return (strides[0], *found[1:]) if at == 0 else None


def are_rows(shape: Shape, strides: Strides, inner: int) -> bool:
    """Tell whether all dimensions but the last `inner` are one, as a product's rows or batch."""
    outer = [i for i in range(len(shape) - inner) if i == 0 or shape[i] != 1]
    return all(strides[a] == int(shape[b]) * strides[b] for a, b in itertools.pairwise(outer))
